"""What a method may answer, and what is refused before it is read."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch

from tl_dyck.judge import JudgeError, WithError, judge

#: What a method returns for n questions, and what it is told; None: it is fine.
ANSWERS: dict[str, tuple[Any, str | None]] = {
    "list": (lambda n: [1.0] * n, None),
    "array": (lambda n: np.ones(n), None),
    "tensor": (torch.ones, None),
    "column of a table": (lambda n: pd.Series([1.0] * n, index=range(n, 2 * n)), None),
    "integers, booleans": (lambda n: [1, *[True] * (n - 1)], None),
    "one by one": (lambda n: (1.0 for _ in range(n)), None),
    "infinity": (lambda n: [math.inf] * n, None),
    "scalars in boxes": (lambda n: [np.float32(1), *[torch.tensor(1.0)] * (n - 1)], None),
    "some None": (lambda n: [1.0, *[None] * (n - 1)], None),
    "None": (lambda n: None, "answers no question of these cases"),
    "only None": (lambda n: [None] * n, "answers no question of these cases"),
    "too few": (lambda n: [1.0], r"returned 1 scores for \d+ questions: \[1.0\] \(list\)"),
    "too many": (lambda n: [1.0] * (n + 1), r"returned more than \d+ scores for \d+ questions"),
    "two dimensions": (
        lambda n: np.ones((n, 1)),
        r"of shape \[1\] \(ndarray\) for question 0",
    ),
    "nested": (lambda n: [[1.0]] * n, r"\[1.0\] \(list\) for question 0; return a number"),
    "a word": (lambda n: "yes" * n, r"returned 'yes.* \(str\); return a list of"),
    "words": (lambda n: ["1.0"] * n, r"returned '1.0' \(str\) for question 0"),
    "NaN": (lambda n: [1.0] * (n - 1) + [math.nan], r"returned nan \(float\) for question"),
    "NA": (lambda n: [pd.NA] * n, r"returned <NA> \(NAType\) for question 0"),
    "complex": (lambda n: [1j] * n, r"returned 1j \(complex\) for question 0"),
    "dict": (lambda n: dict.fromkeys(range(n), 1.0), r"returned {.*\(dict\)"),
    "set": (lambda n: {1.0}, r"returned {1.0} \(set\)"),
    "a number": (lambda n: 1.0, r"returned 1.0 \(float\); return a list of \d+ numbers"),
    "without an end": (lambda n: itertools.repeat(1.0), r"more than \d+ scores .* in a repeat;"),
    "counting": (
        lambda n: itertools.count(),
        r"more than \d+ scores .*, in a count",
    ),
    "an own iterator": (lambda n: iter(int, 1), r"returned more than \d+ scores"),
    "a huge range": (lambda n: range(10**15), r"more than \d+ scores .* in a range;"),
    "a range that has no length": (lambda n: range(10**30), r"returned more than \d+ scores"),
    "endless scores": (lambda n: [itertools.count()] * n, r"count\(0\) \(count\) for question 0"),
    "a range for a score": (lambda n: [range(10**15)] * n, r"\(range\) for question 0"),
    "numbers that are no reals": (lambda n: [np.complex64(1)] * n, r"\(complex64\) for question 0"),
    "a number that is too large": (lambda n: [10**400] * n, r"\(int\) for question 0"),
    "one that raises at last": (lambda n: raising(n - 1), r"'method'.* raised KeyError: 'last'"),
    "errors": (lambda n: WithError([1.0] * n, [0.001] * n), None),
    "one error": (lambda n: WithError([1.0] * n, 0.01), None),
    "some that have not converged": (lambda n: WithError([1.0] * n, [0.0, *[0.1] * (n - 1)]), None),
    "none that has": (lambda n: WithError([1.0] * n, 0.0101), "further than 1% from converged"),
    "errors that nobody knows": (lambda n: WithError([1.0] * n, math.nan), "from converged"),
    "too many errors": (lambda n: WithError([1.0] * n, [0.1] * (n + 1)), r"more than \d+ errors"),
    "endless errors": (lambda n: WithError([1.0] * n, itertools.count()), r"more than \d+ errors"),
    "an error below 0": (lambda n: WithError([1.0] * n, -1.0), r"-1.0 \(float\) for an error"),
    "an error in words": (lambda n: WithError([1.0] * n, ["a"] * n), r"'a' \(str\) for an error"),
    "errors of endless scores": (lambda n: WithError(itertools.count(), 0.0), "more than"),
    "a number of another kind": (lambda n: torch.tensor(1.0), r"tensor\(1.\) \(Tensor\)"),
}


def raising(n: int) -> Iterator[float]:
    yield from [1.0] * n
    raise KeyError("last")


@pytest.mark.parametrize("name", ANSWERS)
def test_what_a_method_may_answer(name: str) -> None:
    answer, text = ANSWERS[name]

    def method(case: Any, questions: Any) -> Any:
        return answer(len(questions))

    suite = [("stack", 3)]
    if text is None:
        assert judge(method, suite)["n"].min() >= 1
        return
    with pytest.raises(JudgeError, match=text) as caught:
        judge(method, suite)
    assert "method 'method'" in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_method_that_raises_is_named_and_so_is_the_case() -> None:
    def fails(case: Any, questions: Any) -> Any:
        raise RuntimeError("no such\nthing")

    with pytest.raises(JudgeError, match=r"'fails', asked '\w+' about stack-3, .*: no such$"):
        judge(fails, [("stack", 3)])
