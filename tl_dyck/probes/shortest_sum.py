"""The denominator of the balance violation, exactly: the shortest sum by halves.

Eq. 16 and 17 of Wen et al. 2023 minimise ‖base + Σ_m x_m‖ over one vector x_m from each of d levels
(what an opening bracket at depth m contributes) with k choices a level (its type), d ≤ D − 1: k^d
sums. Greedy choices, depth by depth, do not find the minimum, since vectors cancel each other. So
all sums a of the first half of the levels are made, and all sums b of the rest, and of

    ‖a + b‖² = ‖a‖² + 2 a·b + ‖b‖²

the least over a is taken for every b by matrix products, a block at a time. Each is off by rounding
that is bounded; the b that may be nearest are looked at once more, as sums of vectors.

*Exact*, up to rounding of the vectors that are added (some 10⁻¹⁶ of their lengths): what is passed
over is longer, or shorter by less than one part in 10⁹ (a tie); once a sum is zero as far as double
precision can tell, nothing shorter is looked for.

*Cost.* All k^d sums, about 2 nanoseconds each on one thread, three times as much where most of them
tie (`benchmarks/bench_balance.py`), and the memory of k^(d/2) of them.
"""

from __future__ import annotations

import numpy as np
from jaxtyping import Float

_MOST = 2**36  # sums: some minutes
_TILE = 256  # rows and columns of a product, so that it stays in the cache
_TIE = 1 - 1e-9  # of a squared norm


def second_smallest_norm(
    base: Float[np.ndarray, " dim"], choices: Float[np.ndarray, "level choice dim"]
) -> float:
    """P of Eq. 17: the least ‖base + Σ_m choices[m, t_m]‖ over t with another end than the best t.

    Equally: of the least norms for each choice at the last level, the second smallest.

    Args:
        base: what is in every sum.
        choices: one of which is added per level; at least a level, and two choices.

    Returns:
        The norm of that sum, computed from the vectors themselves.

    Raises:
        ValueError: too many sums, or numbers that are not finite.
    """
    levels, k, _ = choices.shape
    if k**levels > _MOST:
        raise ValueError(
            f"the shortest of {k}^{levels} sums is asked for, but at most {_MOST:,} can be tried: "
            "take a language of fewer types or a smaller depth"
        )
    if not (np.isfinite(base).all() and np.isfinite(choices).all()):
        raise ValueError("there are numbers that are not finite among the vectors to add up")
    # by a power of two, so that no square is too large or too small
    # the largest number becomes 1/2 to 1, and no digit changes
    exponent = int(np.frexp(max(np.abs(base).max(initial=0), np.abs(choices).max(initial=0)))[1])
    base, choices = np.ldexp(base, -exponent), np.ldexp(choices, -exponent)
    return float(np.ldexp(_second(_least(base, choices)), exponent))


def _least(
    base: Float[np.ndarray, " dim"], choices: Float[np.ndarray, "level choice dim"]
) -> Float[np.ndarray, " choice"]:
    """The least norm for each choice at the last level, right up to the second smallest."""
    levels, k, dim = choices.shape
    eps, half = float(np.finfo(float).eps), levels // 2
    size = float(np.linalg.norm(base) + np.linalg.norm(choices, axis=-1).max(1).sum())
    # less the means of levels, which are in every sum, and on the axes that they span
    mean = choices.mean(1)
    vectors = np.vstack([base + mean.sum(0), (choices - mean[:, None]).reshape(-1, dim)])
    _, strength, axes = np.linalg.svd(vectors, full_matrices=False)
    # axes along which nothing varies but rounding
    axes = axes[strength >= eps * strength[0]]
    start, rest = vectors[0] @ axes.T, (vectors[1:] @ axes.T).reshape(levels, k, len(axes))
    # meet in the middle: k^(levels / 2) sums on either side, instead of k^levels
    first, last = _all_sums(start, rest[:half]), _all_sums(np.zeros_like(start), rest[half:])
    span = float(sum(np.sqrt((part**2).sum(1).max()) for part in (first, last)))
    # the last level varies fastest in `last`, so end % k is its choice
    ends, found = np.arange(len(last)), np.full(k, np.inf)
    for precision in (np.float32, np.float64):  # the quick one leaves few to the other
        near = _nearest(first.astype(precision), last[ends].astype(precision))
        # every term of a product, and every factor, is a rounding error away
        slack = 2 * (len(axes) + 8) * float(np.finfo(precision).eps) * span**2
        least = np.full(k, np.inf)
        np.minimum.at(least, ends % k, near)
        # both may be off by `slack`, in opposite directions
        kept = near <= _second(least) + 2 * slack
        ends, near = ends[kept], near[kept]
    for at in np.argsort(near, kind="stable"):
        # in order of how near they come, each computed anew from the vectors as they were given
        end, bound = ends[at], near[at] - slack
        if _second(found) <= (levels + 1) * eps * size or bound > _second(found) ** 2 * _TIE:
            break
        if bound > found[end % k] ** 2 * _TIE:
            continue
        begin = ((first + last[end]) ** 2).sum(1).argmin()
        chosen = np.unravel_index(begin * len(last) + end, (k,) * levels)
        total = base + sum(level[one] for level, one in zip(choices, chosen, strict=True))
        found[end % k] = min(found[end % k], np.linalg.norm(total))
    return found


def _second(values: Float[np.ndarray, " choice"]) -> float:
    return float(np.partition(values, 1)[1])


def _nearest(
    first: Float[np.ndarray, "begin axis"], last: Float[np.ndarray, "end axis"]
) -> Float[np.ndarray, " end"]:
    """The least ‖a + b‖² over all a of `first`, for each b of `last`; a tile at a time."""
    # |a + b|² = (2 a · b + |a|²) + |b|²: the bracket is one product of (2a, |a|²) and (b, 1)
    rows = np.column_stack([2 * first, (first**2).sum(1)])
    columns = np.vstack([last.T, np.ones(len(last), last.dtype)])
    near = np.full(len(last), np.inf)
    for end in range(0, len(last), _TILE):
        some = np.ascontiguousarray(columns[:, end : end + _TILE])
        for at in range(0, len(first), _TILE):
            part = (rows[at : at + _TILE] @ some).min(0)
            near[end : end + _TILE] = np.minimum(near[end : end + _TILE], part)
    near += (last.astype(float) ** 2).sum(1)
    return near


def _all_sums(
    base: Float[np.ndarray, " axis"], choices: Float[np.ndarray, "level choice axis"]
) -> Float[np.ndarray, "sum axis"]:
    """All sums; the choice at the last level varies fastest."""
    total = base[None]
    for level in choices:
        total = (total[:, None] + level).reshape(-1, len(base))
    return total
