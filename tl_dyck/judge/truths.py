"""What each head of a model of one's own does, exactly: every prefix is run, nothing is sampled.

Knows: what an answer about one head is made of, and from when on it "reads the top of the stack".
"""

from __future__ import annotations

import copy
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, final

import pandas as pd
import torch
from torch import Tensor

from tl_dyck.ablation.compare import Answer
from tl_dyck.certify.language.claims import read_threshold
from tl_dyck.judge.facts import TIE, Enumeration, head_facts
from tl_dyck.judge.protocol import JudgeError
from tl_dyck.kit.arguments import checked
from tl_dyck.kit.check import check_instance, check_length
from tl_dyck.kit.registry import unknown_name
from tl_dyck.plotting.plot_recipes import as_figure, dots
from tl_dyck.reading.inputs import check_predicts, measured
from tl_dyck.reading.interventions import hide_keys, key_of_each, run
from tl_dyck.tasks import DyckTask

if TYPE_CHECKING:
    import plotly.graph_objects as go

_MOST = 20_000  # prefixes that are listed
_CHANGED = ("needed", "carries", "pattern")
_HIDDEN = ("top", "twin")


@final
@dataclass(frozen=True, kw_only=True)
class HeadTruths:
    """What the heads of a model do, `print` shows it.

    Attributes:
        table: a row per head: layer, head, and five exact shares of closing brackets, weighted by
            their probability, that are right and no longer so if the head's output is zero
            ("needed"), is that of the string with all types exchanged ("carries"), if it attends
            to all positions alike ("pattern"), if no query of it sees the top of the stack ("top"),
            or sees a twin of it ("twin"), which is another opening bracket of its type and depth,
            closed since: a counter needs that as much. Of several twins one is hidden at a time,
            which gives a mean. The last two are shares of where there is a twin. NaN: it hangs on a
            tie up to rounding.
        accuracy: exact share of closing brackets that the model has right; or of sets.
        claim: "any_token"; or "allowed", and then all shares are of sets of what may follow.
        task: name of the task.
        length: every prefix of so many brackets, and so every shorter one, was run.
    """

    table: pd.DataFrame
    accuracy: float
    claim: str = "any_token"
    task: str
    length: int

    def __str__(self) -> str:
        heads = [f"L{row.layer}H{row.head}" for row in self.table.itertuples()]
        shown = self.table[[*_CHANGED, *_HIDDEN]].map("{:.2%}".format).set_axis(heads)
        return (
            f"{self.task}, every prefix of at most {self.length} brackets; {self.accuracy:.2%} are "
            f"{self._right}. Share that no longer is, if of a head:\n{shown.to_string()}\n"
            "needed: the output is zero; carries: it is that of the types exchanged; pattern: it "
            "attends to all alike;\ntop: the top of the stack is hidden; twin: another bracket of "
            "its type and depth is, where there is one."
        )

    @property
    def _right(self) -> str:
        return "closed right" if self.claim == "any_token" else "followed by the right set"

    @property
    def _what(self) -> str:
        return "closing brackets" if self.claim == "any_token" else "sets"

    def plot(self) -> go.Figure:
        """The table: a row per head, a dot for each share."""
        values = {name: name for name in (*_CHANGED, *_HIDDEN)}
        unit = f"share of {self._what} that break"
        return as_figure(
            [dots(self.table, values, rows="L{layer}H{head}", unit=unit)], str(self.task)
        )

    @checked
    def reads_top(self, layer: int, head: int) -> Answer:
        """Does this head read the top of the stack?

        The verdict is "yes" if hiding the top from it breaks predictions, and hiding a twin of the
        top none; "no" if hiding the top breaks none, or no more than hiding a twin; else "mixed".

        Args:
            layer: of the model.
            head: of the layer.

        Raises:
            JudgeError: there is no such head.
        """
        found = self.table[self.table["layer"].eq(layer) & self.table["head"].eq(head)]
        if found.empty:
            raise JudgeError(f"there is no head L{layer}H{head} in this model")
        top, twin = (float(found[name].item()) for name in _HIDDEN)
        # shares are sums of probabilities: equal but for rounding is equal
        verdict = "no" if top <= twin + 1e-12 else "mixed" if twin else "yes"
        return Answer(
            question=f"Does L{layer}H{head} read the top of the stack?",
            group=self.task,
            verdict=verdict,
            text=f"{verdict}: hide the top of the stack from it, and {top:.2%} of {self._what} "
            f"break; hide another bracket of that type and depth, and {twin:.2%} do.",
        )


@checked
def head_truths(
    model: Any,
    task: DyckTask,
    length: int,
    claim: str = "any_token",
    *,
    threshold: float | None = None,
) -> HeadTruths:
    """What every head of a model does on every prefix of at most `length` brackets, exactly.

    A copy of the model is run in float64, so that ties are told from rounding.

    Examples:
        >>> from tl_dyck import construct, load_task
        >>> task = load_task("dyck-2-4")
        >>> truths = head_truths(construct.stack(task.language), task, 7)
        >>> truths.reads_top(0, 0).verdict
        'yes'

    Args:
        model: any `DyckTransformer`, or what `tl_dyck.adopt` returned; of any layers.
        task: of brackets.
        length: N. All prefixes of that many brackets are listed: 20,000 at most.
        claim: "any_token": the right closing bracket has the largest logit; or "allowed": the
            logits of brackets that may follow are above the threshold, and no others.
        threshold: of "allowed"; 0 if not given.

    Raises:
        UnknownNameError: no such claim.
        VocabularyError: nobody has said which of the model's ids, or of its logits, are the
            brackets: see `tl_dyck.adopt`.
        WrongTypeError: the task is not one of brackets, or the length no integer.
        WrongValueError: the length is below 3, where no top has a twin, or more than it reads.
        JudgeError: there are too many prefixes, or the model closes none of them right, or looks
            ahead.
    """
    if claim not in ("any_token", "allowed"):
        raise unknown_name("claim", claim, ("any_token", "allowed"))
    above = read_threshold(claim, threshold)
    check_instance("task", task, DyckTask, "a task of brackets, such as load_task('dyck-2-4')")
    if "TransformerBridge" in {kind.__name__ for kind in type(model).__mro__}:
        raise JudgeError(
            "head_truths makes heads uniform, and a TransformerBridge does not show which "
            "positions they may attend to: give the HookedTransformer with its weights"
        )
    measured(model, "head_truths")
    check_predicts(model, task.language)
    if model.cfg.attention_dir != "causal":
        raise JudgeError("a model that looks ahead sees the bracket that it is asked for")
    length = check_length(length, least=3, most=model.cfg.n_ctx - 1)
    n = task.language.count(length, "prefix")
    if n > _MOST:
        raise JudgeError(
            f"{task.language} has {n:,} prefixes of {length} brackets, too many to run "
            f"all ({_MOST:,}): ask about shorter ones"
        )
    exact = copy.deepcopy(model).to("cpu", print_details=False)
    exact = exact.to(torch.float64, print_details=False)
    sets = above if claim == "allowed" else None
    world = Enumeration(exact, task.language, length, task.distribution, sets)
    if not world.accuracy:
        raise JudgeError("the model closes no prefix right, so that nothing can break")
    effects = {
        (fact.question.target, fact.question.kind): fact.effect for fact in head_facts(world)
    }
    rows, (among, keys) = [], _keys(world)
    for layer in range(exact.cfg.n_layers):
        for head in range(exact.cfg.n_heads):
            row = {kind: effects.get(((layer, head), kind), float("nan")) for kind in _CHANGED}
            row |= _cost(world, among, keys, layer, head)
            rows.append({"layer": layer, "head": head, **row})
    return HeadTruths(
        table=pd.DataFrame(rows),
        accuracy=world.accuracy,
        claim=claim,
        task=task.name,
        length=length,
    )


def _keys(world: Enumeration) -> tuple[Tensor, list[Tensor]]:
    """Where the top has a twin; keys to hide: the top, then one twin after the other, -1 for none.

    All are ``[n, pos]``.
    """
    language, tokens = world.language, world.tokens
    top, depth = language.top_of_stack(tokens), language.depth(tokens)
    twins = language.others_of_type(tokens)
    twins &= depth[:, None, :] == depth.gather(1, top.clamp(min=0))[..., None]
    number = twins.sum(-1)
    rank = twins.flip(-1).cumsum(-1).flip(-1)  # 1 is the nearest
    keys = [top]
    for turn in range(int(number.max())):
        chosen = twins & (rank == (turn % number.clamp(min=1) + 1)[..., None])
        keys.append(torch.where(number > 0, chosen.int().argmax(-1), -1))
    return number > 0, keys


def _cost(
    world: Enumeration, among: Tensor, keys: list[Tensor], layer: int, head: int
) -> dict[str, float]:
    """What it costs to hide keys from all queries of a head: the top, and the mean of twins."""
    lost = []
    for key in keys:
        logits = run(world.model, world.tokens, hide_keys(key_of_each(key), [layer], [head]))
        lost.append(world.share(world.intact & (world.margins(logits) <= TIE), among))
    top, *twins = lost
    return {"top": top, "twin": sum(twins) / len(twins)}
