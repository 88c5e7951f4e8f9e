"""How probable an error is on an automaton's strings of a length, from a sample.

Knows: how its strings are drawn alike, of those that are asked something, and judged.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import torch

from tl_dyck.certify.deadline import Deadline
from tl_dyck.certify.exact.balls import IntArray
from tl_dyck.certify.language.asking import Asking
from tl_dyck.certify.language.automata import NOTHING, Answers
from tl_dyck.certify.language.automaton_certificate import read_automaton
from tl_dyck.certify.protocol import CertifyError
from tl_dyck.language.chain import Chain
from tl_dyck.tasks import AutomatonTask

Judge = Callable[[int, torch.Generator, Deadline], tuple[int, int]]
"""Draws so many strings in time; how many are wrong, and of how many rounding hides the answer."""


def judge_of(
    model: Any, task: AutomatonTask, threshold: float | None, longest: int
) -> Callable[[int], Judge]:
    """What draws strings of a length and judges them as `certify_language` does.

    Returns:
        A function of a length that returns a `Judge`.

    Raises:
        CertifyError, UnsupportedModelError: as of `certify_language`.
    """
    network, _ = read_automaton(model, task, longest, allowed=threshold is not None)
    asking = Asking.of(network, task, longest, threshold)

    def at(length: int) -> Judge:
        if not asking.numbers[length]:
            raise CertifyError(f"{task.name} asks for nothing after strings of {length} symbols")
        margins = asking.margins(length)
        answers, chain = margins.answers, _drawing(margins.answers, length)

        def judge(n: int, generator: torch.Generator, deadline: Deadline) -> tuple[int, int]:
            numbers = torch.rand(n, length, generator=generator, dtype=torch.float64)
            strings: IntArray = chain.draw(numbers.numpy(), length)
            states = np.zeros(n, dtype=np.int64)
            for symbols in strings.T:
                states = answers.after[states, symbols]
            wrong = doubtful = 0
            for answer in np.unique(answers.answer[states]):
                deadline.check()
                rows = strings[answers.answer[states] == answer]
                several = [tuple(each) for each in rows.tolist()]
                least = margins.network.least_of(several, margins.objectives(int(answer)))
                wrong += int((least.upper < 0).sum())
                # an enclosure that holds 0 says neither
                doubtful += int(((least.lower <= 0) & (least.upper >= 0)).sum())
            return wrong, doubtful

        return judge

    return at


def _drawing(answers: Answers, length: int) -> Chain:
    """Draws every string of a length alike, of those that are asked something."""
    after = np.where(answers.after == NOTHING, len(answers.after), answers.after)
    # each symbol has the weight 1
    weight = np.where(answers.after == NOTHING, -np.inf, 0.0)
    ends = np.where(answers.answer == NOTHING, -np.inf, 0.0)
    return Chain.of(after, weight, ends, length)
