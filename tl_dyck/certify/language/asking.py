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
from tl_dyck.certify.objectives import Objectives
from tl_dyck.certify.protocol import CertifyError
from tl_dyck.tasks import AutomatonTask
from tl_dyck.tasks.places import prefixes_at


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
    """

    task: AutomatonTask
    longest: int
    margins: Callable[[int], Margins]
    strings: Answers
    numbers: list[int]

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
            strings = Answers.of(task, longest)
            margins = of(strings, network)
            numbers = margins.answers.asking(longest, bare=bare)
            return cls(task, longest, lambda length: margins, margins.answers, numbers)
        numbers, each = [0] * (longest + 1), {}
        for place in (place for place in task.asked if place < longest):
            prefixes = prefixes_at(task, place)
            answers, order = Answers.of_prefixes(prefixes), prefixes.order
            each[place + 1] = of(answers, network.in_order(order.tolist()), order)
            numbers[place + 1] = each[place + 1].answers.asking(place + 1, bare=bare)[-1]
        strings = Answers.of(task, task.train_lengths[0])
        return cls(task, longest, each.__getitem__, strings, numbers)

    def alike(self, lengths: Sequence[int]) -> Iterator[Sequence[int]]:
        """Lengths that follow each other, in runs that one automaton serves."""
        if self.task.asked is None:
            yield lengths
            return
        yield from ([length] for length in lengths if self.numbers[length])

    def wanted(self, strings: IntArray) -> IntArray:
        """[n, length + 1] the answer to each beginning of strings, see `wanted`."""
        return wanted(self.task, lambda length: self.margins(length).answers, strings)


def wanted(
    task: AutomatonTask, answers_of: Callable[[int], Answers], strings: IntArray
) -> IntArray:
    """[n, length + 1] the answer to each beginning of strings, or `NOTHING`.

    Args:
        task: whose strings they are.
        answers_of: the automaton of a length; of tasks without places always the same.
        strings: [n, length] as they stand; -1 fills them up.
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
    for place in (place for place in task.asked if place < length):
        state = prefixes_at(task, place).states(strings[:, : place + 1])
        answer = answers_of(place + 1).answer[state]
        found[:, place + 1] = np.where(state < 0, NOTHING, answer)
    return found
