"""Methods that take steps, samples or a solver: how far from converged, and more until they are.

A judged method returns its numbers `WithError`, and what is further from converged than `CONVERGED`
is no answer. Three ways to know how far:

- of an integral, what is missing in the sum of its parts, which is known, and by how much a part
  differs from what half and a quarter of the steps said (`integrated`);
- of samples, how far the mean of some is from the mean of all (`averaged`);
- of a solver, what half and a quarter of its steps say (`doubled`). This shows nothing where
  nothing moves: a gradient that is zero at ten places may be so at twenty, and not between. So an
  integral of gradients is held against its sum as well.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from tl_dyck.judge.protocol import CONVERGED, WithError


def refined(run: Callable[[int], WithError], first: int, most: int) -> WithError:
    """Numbers of as many steps as it takes: twice as many each time, until all have converged.

    It is given up, with the error that there is, where even an error that falls with the square of
    the steps would be too large after the most of them.

    Examples:
        >>> def square(n):  # the mean of x² from 0 to 1, by n midpoints
        ...     found = sum(((i + 0.5) / n) ** 2 for i in range(n)) / n
        ...     return WithError(found, abs(found - 1 / 3) * 3)
        >>> bool(refined(square, 2, 64).error < 0.01)
        True

    Args:
        run: of a number of steps; says itself how far off it is.
        first: number of steps.
        most: number of steps, if that is more.
    """
    n = first
    while True:
        found = run(n)
        error = torch.as_tensor(found.error, dtype=torch.float64)
        # from n to `most` steps an error of second order falls by (most / n)²
        hopeless = bool((error > CONVERGED * (most / n) ** 2).all())
        # 2 n: the next number of steps
        if bool((error <= CONVERGED).all()) or hopeless or 2 * n > most:
            return found
        n *= 2


def integrated(
    run: Callable[[int], tuple[Any, Any]], scale: Any, first: int, most: int
) -> WithError:
    """Parts of an integral, until they add up and none of them moves; more steps as `refined`.

    The error is the largest of three: what is missing in the sum, as a share of `scale`; and how
    far the part that differs most is from what half and a quarter of the steps said, as a share of
    the largest part, or of `scale` where that is larger. The sum alone bounds no part: two may miss
    opposite amounts. Half of the steps alone may meet a steep place as often as all do. Not shown:
    parts that miss opposite amounts, and the same ones, at all three numbers of steps.

    Examples:
        >>> def opposite(n):  # off by opposite amounts: the sum is always right
        ...     return [2 + 1 / n, 1 - 1 / n], 0.0
        >>> found = integrated(opposite, 3.0, 5, 640)
        >>> bool(found.error < 0.01), found.values.tolist()
        (True, [2.00625, 0.99375])

    Args:
        run: of a number of steps; parts ``[..., part]``, and what is missing in their sum,
            ``[...]`` or of all together.
        scale: what errors are a share of, ``[...]``: the sum that is known, or a threshold.
        first: the least number of steps; four times as many at least are made.
        most: the largest number of steps.
    """
    size = torch.as_tensor(scale, dtype=torch.float64).abs()
    gaps = []

    def parts(n: int) -> Any:
        found, gap = run(n)
        gaps.append(gap)
        return found

    def error(*said: Tensor) -> Tensor:
        largest = torch.maximum(said[-1].abs().amax(-1), size)
        moves = ((said[-1] - before).abs().amax(-1) for before in said[:-1])
        found = relative(gaps[-1], size)
        for move in moves:
            found = torch.maximum(found, relative(move, largest))
        return found

    return _looking_back(parts, error, first, most)


def doubled(run: Callable[[int], Any], scale: Any, first: int, most: int) -> WithError:
    """Numbers of a solver, beside what a half and a quarter of its steps said; more as `refined`.

    The error is the last move, or all further ones if each is as much smaller than the one before
    as the last was: a slow solver moves little, but not less and less.

    Args:
        run: of a number of steps; begins anew each time, from the same start.
        scale: what a move is a share of, or the number itself where that is larger.
        first: the least number of steps; four times as many at least are made.
        most: the largest number of steps.
    """

    def error(quarter: Tensor, half: Tensor, now: Tensor) -> Tensor:
        size = torch.maximum(now.abs(), torch.as_tensor(scale, dtype=torch.float64))
        last, before = relative(now - half, size), relative(half - quarter, size)
        ahead = relative(last * last, (before - last).clamp(min=0))  # a geometric series
        return torch.maximum(last, ahead)

    return _looking_back(run, error, first, most)


def _looking_back(
    run: Callable[[int], Any], error: Callable[..., Tensor], first: int, most: int
) -> WithError:
    """More steps as `refined`; the error is of what a quarter, half, and all of the steps say."""
    said = [torch.as_tensor(run(n), dtype=torch.float64) for n in (first, 2 * first)]

    def step(n: int) -> WithError:
        said.append(torch.as_tensor(run(n), dtype=torch.float64))
        return WithError(said[-1], error(*said[-3:]))

    # `first` and twice as many were run: these are a quarter and half of what comes now
    return refined(step, 4 * first, most)


def averaged(
    draw: Callable[[], Tensor],
    scale: Any,
    least: int,
    most: int,
    gap: Callable[[Tensor], Tensor] | None = None,
) -> WithError:
    """The mean of draws, of as many as it takes until its standard error is small.

    It is given up, with the error that there is, where the most draws would not be enough either.

    Args:
        draw: numbers, independent of those before.
        scale: what a standard error is a share of.
        least: number of draws: fewer say little of how much they differ.
        most: number of draws.
        gap: from a mean to what is missing in it, where that is known: draws that all miss the same
            do not differ.
    """
    n, mean, spread = 0, torch.zeros(()), torch.zeros(())
    while True:
        value = draw().detach().double()
        n += 1
        before = mean
        mean = mean + (value - mean) / n
        spread = spread + (value - before) * (value - mean)  # Welford 1962
        if n < least:
            continue
        # the standard error of a mean: the variance (n - 1 degrees of freedom) over n
        error = relative((spread / (n - 1) / n).sqrt(), scale)
        if gap is not None:
            error = torch.maximum(error, relative(gap(mean), scale))
        hopeless = bool((error > 2 * CONVERGED * (most / n) ** 0.5).any())  # errors are rough
        if n >= most or hopeless or bool((error <= CONVERGED).all()):
            return WithError(mean, error)


def relative(gap: Any, scale: Any) -> Tensor:
    """The size of a gap as a share of what it is a gap of; 0 of nothing, infinite of 0."""
    gap, scale = (torch.as_tensor(each, dtype=torch.float64).abs() for each in (gap, scale))
    gap, scale = torch.broadcast_tensors(gap, scale)
    # what a scale of 0 gives is replaced below
    found = gap / scale.clamp(min=1e-300)
    return torch.where(gap == 0, 0.0, torch.where(scale == 0, torch.inf, found))
