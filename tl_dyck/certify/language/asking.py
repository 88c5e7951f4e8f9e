"""What is asked of an automaton's strings, length by length.

Knows: which automaton reads the strings of a length, and what they are asked for.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import final

import numpy as np

from tl_dyck.certify.exact.balls import IntArray
from tl_dyck.certify.exact.network import Network
from tl_dyck.certify.language.automata import NOTHING, Answers, Margins
from tl_dyck.certify.language.claims import Allowed, PrefixClaim
from tl_dyck.certify.language.profiles import Ending
from tl_dyck.certify.objectives import Objectives
from tl_dyck.certify.protocol import CertifyError
from tl_dyck.tasks import AutomatonTask
from tl_dyck.tasks.places import PlacePrefixes, prefixes_at


@final
@dataclass
class Asking:
    """What is asked of an automaton's strings: of all lengths by one automaton, or of each its own.

    Attributes:
        task: whose strings they are.
        longest: length that is asked about.
        margins: of a length.
        strings: how they are drawn: of a task with places whole ones, in the order in which they
            are read.
        numbers: how many of each length are asked for something.
        ahead: whether the model looks ahead.
    """

    task: AutomatonTask
    longest: int
    margins: Callable[[int], Margins]
    strings: Answers
    numbers: list[int]
    ahead: bool = False

    @classmethod
    def of(
        cls, network: Network, task: AutomatonTask, longest: int, threshold: float | None
    ) -> Asking:
        """What a task asks of strings up to a length.

        Raises:
            CertifyError: an answer is none of the model's logits.
        """

        def of(answers: Answers, network: Network, order: IntArray | None = None) -> Margins:
            if threshold is not None:
                return Margins.allowed(network, answers, threshold, order)
            most, outputs = int(answers.answer.max()), network.config.d_vocab_out
            if most >= outputs or outputs < 2:
                raise CertifyError(
                    f"{task.name} asks for answer {most}, but the model has {outputs} logits"
                )
            return Margins(network, answers, lambda each: Objectives.margins(each, outputs), order)

        bare = not network.prefix
        if task.asked is None:
            strings = Answers.of(task, longest, follows=threshold is not None)
            margins = of(strings, network)
            numbers = margins.answers.asking(longest, bare=bare)
            return cls(task, longest, lambda length: margins, margins.answers, numbers)
        numbers, each = [0] * (longest + 1), {}
        for length, prefixes in prefixes_of(task, longest, ahead=network.ahead).items():
            answers, order = Answers.of_prefixes(prefixes), prefixes.order
            each[length] = of(answers, network.in_order(order.tolist()), order)
            numbers[length] = each[length].answers.asking(length, bare=bare)[-1]
        strings = Answers.of(task, task.train_lengths[0])
        return cls(task, longest, each.__getitem__, strings, numbers, network.ahead)

    def alike(self, lengths: Sequence[int]) -> Iterator[Sequence[int]]:
        """Lengths that follow each other, in runs that one automaton serves."""
        if self.task.asked is None:
            yield lengths
            return
        yield from ([length] for length in lengths if self.numbers[length])

    def answers(self, length: int) -> Answers:
        """The automaton that reads the strings of a length."""
        return self.margins(length).answers

    def wanted(self, strings: IntArray) -> IntArray:
        """[n, length + 1] the answer to each beginning of strings, see `wanted`."""
        return wanted(self.task, self.answers, strings, ahead=self.ahead)


def prefixes_of(task: AutomatonTask, longest: int, *, ahead: bool) -> dict[int, PlacePrefixes]:
    """What a task with places asks about, by the length of what is read.

    Args:
        task: with places.
        longest: length that is asked about.
        ahead: of a model that looks ahead, which reads whole strings.

    Raises:
        CertifyError: of such a model, an answer at several places, or the symbol that it sees.
    """
    assert task.asked is not None
    if not ahead:
        return {place + 1: prefixes_at(task, place) for place in task.asked if place < longest}
    if task.answer is None:
        raise CertifyError(
            f"{task.name} asks for the next symbol, which a model that looks ahead sees; give the "
            "task an answer="
        )
    if len(task.asked) > 1:
        raise CertifyError(
            f"{task.name} is asked at places {', '.join(map(str, task.asked))}, and a model that "
            "looks ahead reads whole strings at each: give one place at a time, such as asked="
            f"[{task.asked[0]}]"
        )
    length = task.train_lengths[0]
    found = {length: prefixes_at(task, task.asked[0], whole=True)}
    return found if length <= longest else {}


def along(network: Network, claim: PrefixClaim, answers: Answers) -> Margins:
    """A claim about stacks, along paths: of the bracket that closes, or of those that may follow.

    Args:
        network: the model.
        claim: of either kind.
        answers: of brackets.
    """
    if isinstance(claim, Allowed):
        return Margins.allowed(network, answers, claim.threshold)

    def objectives(bracket: int) -> Objectives:
        found = claim.objectives(Ending((bracket // 2,), None), network.config.d_vocab_out)
        assert found is not None
        return found

    return Margins(network, answers, objectives)


def wanted(
    task: AutomatonTask,
    answers_of: Callable[[int], Answers],
    strings: IntArray,
    *,
    ahead: bool = False,
) -> IntArray:
    """[n, length + 1] the answer to each beginning of strings, or `NOTHING`.

    Args:
        task: whose strings they are.
        answers_of: the automaton of a length; of tasks without places always the same.
        strings: [n, length] as they stand; -1 fills them up.
        ahead: of a model that looks ahead.
    """
    length = strings.shape[1]
    found = np.full((len(strings), length + 1), NOTHING)
    if task.asked is None:
        answers, state = answers_of(length), np.zeros(len(strings), dtype=np.int64)
        for at in range(length + 1):
            found[:, at] = np.where(state < 0, NOTHING, answers.answer[state])
            if at < length:
                symbol = strings[:, at]
                moved = answers.after[state, symbol]
                state = np.where((state < 0) | (symbol < 0), NOTHING, moved)
        return found
    for end, prefixes in prefixes_of(task, length, ahead=ahead).items():
        state = prefixes.states(strings[:, :end])
        found[:, end] = np.where(state < 0, NOTHING, answers_of(end).answer[state])
    return found
