"""What a method may return: one number or None for each question, and how far each has converged.

Knows: that what comes from a method is counted before it is read, for it may never end.
"""

from __future__ import annotations

import contextlib
import itertools
import math
import numbers
from collections.abc import Iterable, Mapping, Set
from typing import Any

from tl_dyck.judge.protocol import CONVERGED, JudgeError, WithError
from tl_dyck.kit.check import shown


def checked_answers(who: str, scores: Any, n: int) -> list[tuple[float | None, float]]:
    """For each of n questions one number or None, and how far that is from converged, or NaN.

    What has not converged is no answer.

    Args:
        who: is asked, for messages.
        scores: what a method returned.
        n: how many questions it was asked.

    Raises:
        JudgeError: it is something else.
    """
    errors: Any = math.nan
    if isinstance(scores, WithError):
        scores, errors = scores.values, scores.error
        errors = [_error(who, each) for each in _of_each(who, "errors", errors, n)]
    else:
        errors = [math.nan] * n
    if scores is None:
        return [(None, error) for error in errors]
    found = [
        None if score is None else _score(who, score, place)
        for place, score in enumerate(_of_each(who, "scores", scores, n))
    ]
    return [
        (None if error > CONVERGED else score, error)
        for score, error in zip(found, errors, strict=True)
    ]


def _of_each(who: str, what: str, values: Any, n: int) -> list[Any]:
    """One value for each of n questions; of errors also one for all."""
    whole = getattr(values, "ndim", 1) == 0 or isinstance(values, (int, float))
    if what == "errors" and whole:
        return [values] * n
    odd = isinstance(values, (str, bytes, Mapping, Set)) or whole
    if odd or not isinstance(values, Iterable):
        raise JudgeError(f"{who} returned {shown(values)}; return a list of {n} numbers")
    # counted before they are read: they may never end
    with contextlib.suppress(TypeError, OverflowError):
        if len(values) > n:  # type: ignore[arg-type]
            raise _too_many(who, what, values, n)
    found = list(itertools.islice(values, n + 1))
    if len(found) > n:
        raise _too_many(who, what, values, n)
    if len(found) < n:
        raise JudgeError(
            f"{who} returned {len(found)} {what} for {n} questions: {shown(values)}; "
            "return one for each, in their order, or None"
        )
    return found


def _too_many(who: str, what: str, values: Any, n: int) -> JudgeError:
    kind = type(values).__name__
    return JudgeError(
        f"{who} returned more than {n} {what} for {n} questions, in a {kind}; "
        "return one for each, in their order, or None"
    )


def _error(who: str, error: Any) -> float:
    """How far an answer is from converged; infinitely if that is not known."""
    value = _number(error)
    if value is None or value < 0:
        raise JudgeError(f"{who} returned {shown(error)} for an error; return a number from 0 on")
    return math.inf if math.isnan(value) else value


def _score(who: str, score: Any, place: int) -> float:
    value = _number(score)
    if value is None or math.isnan(value):
        raise JudgeError(
            f"{who} returned {shown(score)} for question {place}; return a number, "
            "or None for what it cannot answer"
        )
    return value


def _number(value: Any) -> float | None:
    """A real number by itself, in whatever box; None for anything else."""
    unreal = isinstance(value, numbers.Complex) and not isinstance(value, numbers.Real)
    if isinstance(value, (str, bytes)) or getattr(value, "ndim", False) or unreal:
        return None
    try:
        return float(value)
    except (TypeError, ValueError, RuntimeError, OverflowError):
        return None
