"""Minimal circuits of heads: faithful on every string, and no head of them can be dropped.

A circuit is *faithful* here if the model, with every head outside of it replaced, gives the answers
of the whole model on every prefix. That is no mean over a sample, as in MIB, see `circuits`: one
prefix with another answer refutes it, and that prefix is told.

Knows: which answers are compared, and how circuits are searched.
"""

from __future__ import annotations

import itertools
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Any, SupportsIndex, final

import pandas as pd
import torch
from jaxtyping import Float
from torch import Tensor

from tl_dyck.ablation.replay import Replay
from tl_dyck.judge.circuits import Circuit, Head, Outside
from tl_dyck.judge.every_string import largest, shortest
from tl_dyck.judge.facts import UNCLEAR, World, lost, margins
from tl_dyck.judge.protocol import JudgeError
from tl_dyck.judge.truths import every_world
from tl_dyck.kit.arguments import checked
from tl_dyck.kit.registry import unknown_name
from tl_dyck.tasks import AutomatonTask, DyckTask

CLAIMS = {
    "agree": "it predicts what the whole model predicts",
    "any_token": "it is right wherever the whole model is",
}
"""What a faithful circuit keeps. Of brackets, a prediction is the closing bracket with the largest
logit of all closing ones, where one is asked for; else the largest logit of all."""

INSTEAD = ("mean", "zero", "exchanged")
"""What heads outside a circuit put out: the mean of what they do over all prefixes, as probable as
they are, and positions, of a task with places at each place by itself; nothing; or what they do on
the string with all types exchanged, of an automaton on another string, which asks for something
else."""

_FEW = 12  # heads, of which all 4096 circuits are gone through
_KEPT = 64  # strings that refuted circuits, on which others are tried first


@final
@dataclass(frozen=True, kw_only=True)
class MinimalCircuit:
    """A faithful circuit of which no head can be dropped, `print` shows it.

    Attributes:
        heads: (layer, head) of each of its heads.
        table: a row per head of it, for the circuit without that head: layer, head, a shortest
            "prefix" with another answer, the answer of the "whole" model there, that "without" the
            head (of a tie all, with "or" between), and the exact "share" of answers that change, of
            closing brackets by their probability.
        least: whether no smaller circuit is faithful, for all were tried; else it is only true that
            none of its heads can be dropped.
        others: all other faithful circuits of this size, if `least`; else not looked for.
        n_heads: of the model, in all layers.
        claim: a key of `CLAIMS`.
        instead: one of `INSTEAD`.
        task: name of the task.
        length: every prefix of at most so many symbols was run.
    """

    heads: tuple[Head, ...]
    table: pd.DataFrame
    least: bool
    others: tuple[tuple[Head, ...], ...]
    n_heads: int
    claim: str
    instead: str
    task: str
    length: int

    def __str__(self) -> str:
        how = "no smaller circuit is" if self.least else "none of its heads can be dropped"
        if self.others:
            how += f", {len(self.others)} of the same size"
        lines = [
            f"{self.task}, every prefix of at most {self.length} symbols: {_names(self.heads)}, of "
            f"{self.n_heads} heads, is faithful: {CLAIMS[self.claim]}.",
            f"Outside: {self.instead}; {how}.",
        ]
        if len(self.table):
            shown = self.table.assign(share=self.table["share"].map("{:.2%}".format))
            shown.index = [f"L{row.layer}H{row.head}" for row in self.table.itertuples()]
            lines += ["Without a head too:", shown.drop(columns=["layer", "head"]).to_string()]
        return "\n".join(lines)


def _names(heads: Sequence[Head]) -> str:
    return ", ".join("L{}H{}".format(*head) for head in heads) or "no head"


@final
class EveryAnswer:
    """The answers of a model's circuits on every string, each beside that of the whole model.

    Arguments and errors are those of `minimal_circuit`.

    Attributes:
        heads: all of the model, by layer.
        length: in symbols.
    """

    @checked
    def __init__(
        self,
        model: Any,
        task: DyckTask | AutomatonTask,
        length: SupportsIndex | None = None,
        *,
        instead: str = "mean",
        claim: str = "agree",
    ) -> None:
        if instead not in INSTEAD:
            raise unknown_name("value of heads outside", instead, INSTEAD)
        if claim not in CLAIMS:
            raise unknown_name("claim", claim, CLAIMS)
        self._world = every_world(model, task, length, call="minimal_circuit")
        self._language, self._claim = task.language, claim
        # logits of answers are of classes, which have no names
        classes = isinstance(task, AutomatonTask) and task.answer is not None
        self._names = () if classes else task.language.alphabet
        world, cfg = self._world, self._world.model.cfg
        # without BOS
        self.length = world.tokens.shape[1] - 1
        self.heads: list[Head] = [(i, j) for i in range(cfg.n_layers) for j in range(cfg.n_heads)]
        # of an automaton anything may be said; and the claim of what is right is about all logits
        self._columns = torch.arange(world.logits.shape[-1])
        if isinstance(task, DyckTask) and claim == "agree":
            # odd tokens close: a prediction is the largest of these
            self._columns = self._columns[task.language.closing]
        self._wanted = self._answers_of_the_whole()
        self._outside = Outside(world.model, world.tokens, _instead(world, instead))
        self._refuting: list[int] = []

    def _answers_of_the_whole(self) -> Tensor:
        """[n, pos] which column a circuit has to predict; -1 where that is all the same."""
        world, logits = self._world, self._world.logits[..., self._columns]
        if self._claim == "any_token":
            if not world.accuracy:
                raise JudgeError("the model has no prefix right, so that nothing can break")
            wanted = torch.where(world.intact & world.asked, world.right, -1)
        else:
            wanted = torch.where(world.asked, logits.argmax(-1), -1)
        # a tie of what must be right counts as wrong already
        unclear = margins(logits, wanted) < UNCLEAR
        if bool(unclear.any()):
            _, text = self._first(unclear)
            raise JudgeError(
                f"two answers of the model are equal up to rounding after {text!r}, so that it is "
                "not known which of them a circuit should keep"
            )
        return wanted

    def changed(self, circuit: Collection[Head]) -> Tensor:
        """``[n, pos]`` where a circuit has another answer than the whole model, or a tie."""
        return self._changed(frozenset(circuit), slice(None))

    def _changed(self, circuit: Circuit, rows: list[int] | slice) -> Tensor:
        logits = self._outside.logits(circuit, rows)[..., self._columns]
        wanted = self._wanted[rows]
        changed = lost(margins(logits, wanted), wanted >= 0)
        if changed is None:
            raise JudgeError(
                f"whether {_names(sorted(circuit))} is faithful hangs on two logits that are equal "
                "up to rounding"
            )
        return changed

    def share(self, circuit: Collection[Head]) -> float:
        """Exact share of answers that a circuit changes, see `MinimalCircuit.table`."""
        return self._world.share(self.changed(circuit))

    def is_faithful(self, circuit: Collection[Head]) -> bool:
        """Whether a circuit changes no answer; strings that refuted others are tried first."""
        key = frozenset(circuit)
        if self._refuting and bool(self._changed(key, self._refuting).any()):
            return False
        rows = self.changed(key).any(1).nonzero().flatten().tolist()
        # one string of each circuit that it refuted, the last one first
        self._refuting = [*rows[:1], *self._refuting][:_KEPT]
        return not rows

    def witness(self, circuit: Collection[Head]) -> tuple[str, str, str] | None:
        """A shortest prefix that a circuit answers otherwise; None if there is none.

        Returns:
            The prefix, the whole model's answer, and the circuit's; of a tie all, with "or".
        """
        changed = self.changed(circuit)
        if not bool(changed.any()):
            return None
        (row, end), text = self._first(changed)
        after = self._outside.logits(frozenset(circuit), [row])[0, end]
        return text, self._said(self._world.logits[row, end]), self._said(after)

    def _first(self, marked: Tensor) -> tuple[tuple[int, int], str]:
        """Row and position of the shortest prefix that is marked, and its text."""
        row, end = shortest(marked)
        text = self._language.to_string(self._world.tokens[row, : end + 1])
        return (row, end), text

    def _said(self, logits: Float[Tensor, " d_vocab"]) -> str:
        said = torch.full_like(logits, -torch.inf)
        said[self._columns] = logits[self._columns]
        return largest(said, self._names)


def _instead(world: World, instead: str) -> list[Tensor]:
    """Per layer what heads outside put out, ``[1 or n, 1 or pos, head, d_head]``."""
    whole = Replay(world.model, world.tokens if instead != "exchanged" else world.partners).z
    if instead == "exchanged":
        return whole
    means = [world.mean(z)[None] for z in whole]
    return means if instead == "mean" else [torch.zeros_like(mean) for mean in means]


@checked
def minimal_circuit(
    model: Any,
    task: DyckTask | AutomatonTask,
    length: SupportsIndex | None = None,
    *,
    instead: str = "mean",
    claim: str = "agree",
) -> MinimalCircuit:
    """The fewest heads that give the whole model's answers on every prefix, and why each is needed.

    Of at most 12 heads all circuits are gone through by size, so that no smaller one is faithful.
    Of more, heads are dropped one after the other, those that change least first, until none can
    be. A copy of the model is run in float64, on every prefix.

    Examples:
        >>> from tl_dyck import construct, load_task
        >>> task = load_task("dyck-2-4")
        >>> model = construct.decoy_head(construct.uniform_attention(task.language), "stack")
        >>> minimal_circuit(model, task, 6).heads
        ((0, 0),)

    Args:
        model: any `DyckTransformer`, or what `tl_dyck.adopt` returned; of any layers.
        task: of brackets, or of any automaton.
        length: N. All prefixes of at most that many symbols are run: 20,000 strings at most. None
            for a task with places, whose strings have one length.
        instead: what heads outside the circuit put out: "mean", "zero" or "exchanged", see
            `tl_dyck.judge.minimal.INSTEAD`.
        claim: what is kept: "agree" or "any_token", see `tl_dyck.judge.minimal.CLAIMS`.

    Raises:
        UnknownNameError: no such claim, or value of heads outside.
        VocabularyError: nobody has said which of the model's ids, or of its logits, are the
            brackets: see `tl_dyck.adopt`.
        WrongTypeError: the task is neither, or the length no integer.
        WrongValueError: the length is more than the model reads, or below 1.
        JudgeError: there are too many prefixes, or the model looks ahead, or has none of them right
            with "any_token", or an answer hangs on logits that are equal up to rounding.
    """
    answers = EveryAnswer(model, task, length, instead=instead, claim=claim)
    least = len(answers.heads) <= _FEW
    found, *others = _of_least_size(answers) if least else [_greedy(answers)]
    rows = []
    for layer, head in found:
        without = {*found} - {(layer, head)}
        witness = answers.witness(without)
        assert witness is not None  # as it was found
        prefix, whole, said = witness
        rows.append((layer, head, prefix, whole, said, answers.share(without)))
    columns = ["layer", "head", "prefix", "whole", "without", "share"]
    return MinimalCircuit(
        heads=found,
        table=pd.DataFrame(rows, columns=columns),
        least=least,
        others=tuple(others),
        n_heads=len(answers.heads),
        claim=claim,
        instead=instead,
        task=task.name,
        length=answers.length,
    )


def _of_least_size(answers: EveryAnswer) -> list[tuple[Head, ...]]:
    """All faithful circuits of the least size that has any; all heads are one."""
    for size in range(len(answers.heads)):
        sized = itertools.combinations(answers.heads, size)
        found = [circuit for circuit in sized if answers.is_faithful(circuit)]
        if found:
            return found
    return [tuple(answers.heads)]


def _greedy(answers: EveryAnswer) -> tuple[Head, ...]:
    """Heads are dropped as long as one can be; those first that change least when alone outside."""
    every = frozenset(answers.heads)
    left = sorted(every, key=lambda head: answers.share(every - {head}))
    dropped = True
    # what could not be dropped from a larger circuit may be dropped from a smaller one
    while dropped:
        dropped = False
        for head in list(left):
            if answers.is_faithful({*left} - {head}):
                left.remove(head)
                dropped = True
    return tuple(sorted(left))
