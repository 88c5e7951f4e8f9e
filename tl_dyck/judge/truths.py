"""What each head of a model of one's own does, exactly: every prefix is run, nothing is sampled.

Knows: what an answer about one head is made of, and from when on it "reads the top of the stack".
"""

from __future__ import annotations

import copy
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, SupportsIndex, final

import pandas as pd
import torch
from torch import Tensor

from tl_dyck.ablation.compare import Answer
from tl_dyck.certify.language.claims import read_threshold, said_to_follow
from tl_dyck.judge.asked import MOST
from tl_dyck.judge.every_string import EveryString, each_once, largest, shortest
from tl_dyck.judge.facts import TIE, Enumeration, World, changed_heads, lost
from tl_dyck.judge.protocol import JudgeError
from tl_dyck.kit.arguments import checked
from tl_dyck.kit.check import check_instance, check_length
from tl_dyck.kit.registry import unknown_name
from tl_dyck.plotting.plot_recipes import as_figure, dots
from tl_dyck.reading.inputs import check_predicts, check_reads, hides_bos, looks_ahead, measured
from tl_dyck.reading.interventions import hide_keys, key_of_each, run
from tl_dyck.tasks import AutomatonTask, DyckTask

if TYPE_CHECKING:
    import plotly.graph_objects as go

_CHANGED = ("needed", "mean", "carries", "pattern")
_HIDDEN = ("top", "twin")


@final
@dataclass(frozen=True, kw_only=True)
class HeadTruths:
    """What the heads of a model do, `print` shows it.

    Attributes:
        table: a row per head: layer, head, and exact shares. Of brackets five, of closing ones by
            their probability, that are right and no longer so if the head's output is zero
            ("needed"), is its mean over all prefixes ("mean"), is that of the string with all types
            exchanged ("carries"), if it attends to all positions alike ("pattern"), if no query of
            it sees the top of the stack ("top"),
            or sees a twin of it ("twin"), which is another opening bracket of its type and depth,
            closed since: a counter needs that as much. Of several twins one is hidden at a time,
            which gives a mean. The last two are shares of where there is a twin. Of other
            automata the first four, of strings alike; "carries" puts in the output of another
            string, which asks for something else, and with places means are of each place. NaN: it
            hangs on a tie up to rounding.
        broken: a row for each of the first four changes of a head that breaks something: layer,
            head, change, the number of distinct prefixes that are no longer right, a shortest
            "prefix", what is "right" there, and what is "said" after the change (of a tie all, with
            "or" between).
        accuracy: exact share of closing brackets, sets or answers that the model has right.
        claim: "any_token"; or "allowed", and then all shares are of sets of what may follow.
        task: name of the task.
        length: every prefix of so many symbols, and so every shorter one, was run.
    """

    table: pd.DataFrame
    broken: pd.DataFrame
    accuracy: float
    claim: str = "any_token"
    task: str
    length: int

    def __str__(self) -> str:
        heads = [f"L{row.layer}H{row.head}" for row in self.table.itertuples()]
        shown = self.table[[*self._columns]].map("{:.2%}".format).set_axis(heads)
        symbols, other, hidden = "symbols", "of a string with another answer", "."
        if self._has_stack:
            symbols, other = "brackets", "of the types exchanged"
            hidden = (
                ";\ntop: the top of the stack is hidden; twin: another bracket of its type and "
                "depth is, where there is one."
            )
        return (
            f"{self.task}, every prefix of at most {self.length} {symbols}; {self.accuracy:.2%} "
            f"are {self._right}. Share that no longer is, if of a head:\n{shown.to_string()}\n"
            f"needed: the output is zero; mean: it is its mean; carries: it is that {other}; "
            f"pattern: it attends to all alike{hidden}"
        )

    @property
    def _has_stack(self) -> bool:
        return _HIDDEN[0] in self.table

    @property
    def _columns(self) -> tuple[str, ...]:
        return (*_CHANGED, *_HIDDEN) if self._has_stack else _CHANGED

    @property
    def _right(self) -> str:
        if self.claim == "allowed":
            return "followed by the right set"
        return "closed right" if self._has_stack else "answered right"

    @property
    def _what(self) -> str:
        if self.claim == "allowed":
            return "sets"
        return "closing brackets" if self._has_stack else "answers"

    def plot(self) -> go.Figure:
        """The table: a row per head, a dot for each share."""
        values = {name: name for name in self._columns}
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
            JudgeError: there is no such head, or no stack.
        """
        if not self._has_stack:
            raise JudgeError(f"{self.task} is an automaton's, of which no stack is known")
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
    task: DyckTask | AutomatonTask,
    length: SupportsIndex | None = None,
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
        task: of brackets, or of any automaton.
        length: N. All prefixes of that many symbols are listed: 20,000 at most. None for a task
            with places, whose strings have one length.
        claim: "any_token": the right closing bracket, or answer, has the largest logit; or
            "allowed": the logits of symbols that may follow are above the threshold, and no others.
        threshold: of "allowed"; 0 if not given.

    Raises:
        UnknownNameError: no such claim.
        VocabularyError: nobody has said which of the model's ids, or of its logits, are the
            brackets: see `tl_dyck.adopt`.
        WrongTypeError: the task is neither, or the length no integer.
        WrongValueError: the length is more than the model reads; or of brackets below 3, where no
            top has a twin.
        JudgeError: there are too many prefixes, or the model has none of them right, or looks
            ahead.
    """
    if claim not in ("any_token", "allowed"):
        raise unknown_name("claim", claim, ("any_token", "allowed"))
    above = read_threshold(claim, threshold)
    if "TransformerBridge" in {kind.__name__ for kind in type(model).__mro__}:
        raise JudgeError(
            "head_truths makes heads uniform, and a TransformerBridge does not show which "
            "positions they may attend to: give the HookedTransformer with its weights"
        )
    world = every_world(
        model, task, length, above if claim == "allowed" else None, call="head_truths", least=3
    )
    if not world.accuracy:
        raise JudgeError("the model has no prefix right, so that nothing can break")
    shares: dict[Any, dict[str, float]] = {}
    broken, once = [], torch.from_numpy(each_once(world.tokens.numpy()))
    for question, logits in changed_heads(world, _CHANGED):
        lost_here = lost(world.margins(logits), world.intact & world.asked)
        share = float("nan") if lost_here is None else world.share(lost_here)
        shares.setdefault(question.target, {})[question.kind] = share
        if lost_here is not None and bool(lost_here.any()):
            number = round(float((lost_here * once).sum()))
            said = _witness(world, task, logits, lost_here)
            broken.append((*question.target, question.kind, number, *said))
    hidden = _keys(world) if isinstance(world, Enumeration) else None
    rows = []
    for (layer, head), row in shares.items():
        more = {} if hidden is None else _cost(world, *hidden, layer, head)
        rows.append({"layer": layer, "head": head, **row, **more})
    return HeadTruths(
        table=pd.DataFrame(rows),
        broken=pd.DataFrame(
            broken, columns=["layer", "head", "change", "number", "prefix", "right", "said"]
        ),
        accuracy=world.accuracy,
        claim=claim,
        task=task.name,
        length=world.tokens.shape[1] - 1,
    )


def every_world(
    model: Any,
    task: DyckTask | AutomatonTask,
    length: SupportsIndex | None,
    threshold: float | None = None,
    *,
    call: str,
    least: int = 1,
) -> Enumeration | EveryString:
    """A copy of a model, in float64, on every string of a task; or why not.

    Args:
        model: as of `head_truths`.
        task: likewise.
        length: likewise.
        threshold: of the claim "allowed"; None for what is right alone.
        call: what needs it, for messages.
        least: least length, of brackets.

    Raises:
        ValueError: as `head_truths`.
    """
    check_instance("task", task, (DyckTask, AutomatonTask), "a task, such as load_task('dyck-2-4')")
    measured(model, call)
    if isinstance(task, DyckTask) or task.answer is None or threshold is not None:
        check_predicts(model, task.language)
    else:
        check_reads(model, task.language)
    if looks_ahead(model):
        raise JudgeError("a model that looks ahead sees the bracket that it is asked for")
    if length is None and isinstance(task, AutomatonTask) and task.places is not None:
        length = len(task.places)
    most = model.cfg.n_ctx - (not hides_bos(model))
    length = check_length(length, least=least if isinstance(task, DyckTask) else 1, most=most)
    exact = copy.deepcopy(model).to("cpu", print_details=False)
    exact = exact.to(torch.float64, print_details=False)
    return _world(exact, task, length, threshold)


def _world(
    model: Any, task: DyckTask | AutomatonTask, length: int, threshold: float | None
) -> Enumeration | EveryString:
    if isinstance(task, AutomatonTask):
        return EveryString(model, task, length, threshold)
    n = task.language.count(length, "prefix")
    if n > MOST:
        raise JudgeError(
            f"{task.language} has {n:,} prefixes of {length} brackets, too many to run all "
            f"({MOST:,}): ask about shorter ones"
        )
    return Enumeration(model, task.language, length, task.distribution, threshold)


def _witness(
    world: Enumeration | EveryString,
    task: DyckTask | AutomatonTask,
    logits: Tensor,
    broken: Tensor,
) -> tuple[str, str, str]:
    """A shortest prefix of those that break, what is right there, and what is said."""
    row, end = shortest(broken)
    text = task.language.to_string(world.tokens[row, : end + 1])
    if world.threshold is not None:
        said = said_to_follow(task.language, logits[row, end].numpy(), world.threshold)
        right = said_to_follow(task.language, world.logits[row, end].numpy(), world.threshold)
        return text, right, said
    classes = isinstance(task, AutomatonTask) and task.answer is not None
    names = () if classes else task.language.alphabet
    # where something breaks, the model itself is right
    return text, largest(world.logits[row, end], names), largest(logits[row, end], names)


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
    world: World, among: Tensor, keys: list[Tensor], layer: int, head: int
) -> dict[str, float]:
    """What it costs to hide keys from all queries of a head: the top, and the mean of twins."""
    lost = []
    for key in keys:
        logits = run(world.model, world.tokens, hide_keys(key_of_each(key), [layer], [head]))
        lost.append(world.share(world.intact & (world.margins(logits) <= TIE), among))
    top, *twins = lost
    return {"top": top, "twin": sum(twins) / len(twins)}
