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
from tl_dyck.certify.language.automaton_certificate import read_automaton
from tl_dyck.certify.language.running import Strings, drawing, judge_run, says_of
from tl_dyck.certify.protocol import CertifyError
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
    says = says_of(model, task, longest, allowed=threshold is not None)
    if says is not None:
        ran = Strings(task, longest, threshold, says)
        return lambda length: judge_run(ran, asked_something(ran, length))
    network, _ = read_automaton(model, task, longest, allowed=threshold is not None)
    asking = Asking.of(network, task, longest, threshold)

    def at(length: int) -> Judge:
        margins = asking.margins(asked_something(asking, length))
        answers, chain = margins.answers, drawing(margins.answers, length)

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


def asked_something(asking: Asking | Strings, length: int) -> int:
    """A length at which something is asked.

    Raises:
        CertifyError: nothing is.
    """
    if not asking.numbers[length]:
        name = asking.task.name
        raise CertifyError(f"{name} asks for nothing after strings of {length} symbols")
    return length
