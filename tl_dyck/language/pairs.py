"""How many pairs of each level a prefix has: exact moments, by a recursion over its depth.

The level of a pair is the depth inside it, 1..D. With A_N(x) the expectation of 1, n or n nᵀ over
prefixes of N brackets that leave x open (n counts pairs by level, o(x) is the probability of an
opening bracket), a bracket more gives

    A_N+1(x) = o(x - 1) A_N(x - 1) + (1 - o(x + 1)) E[… (n + e_x+1)],

where the second term is that of prefixes which end with a closing bracket.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import final

import numpy as np
from jaxtyping import Float

from tl_dyck.language.distribution import DyckDistribution


@final
@dataclass(frozen=True, kw_only=True)
class PairCounts:
    """Matched pairs of prefixes that end with a closing bracket, by what that leaves open.

    Indices: lengths as they were asked for; d = 0..D-1 brackets left open; level - 1.

    Attributes:
        probability: that a prefix of this length ends so, ``[length, d]``.
        mean: expected number of pairs given that, the last one included; NaN where it is
            impossible.
        covariance: of these numbers, likewise.
    """

    probability: Float[np.ndarray, "length depth"]
    mean: Float[np.ndarray, "length depth level"]
    covariance: Float[np.ndarray, "length depth level level"]


def pair_counts(distribution: DyckDistribution, lengths: Sequence[int]) -> PairCounts:
    """Moments of the numbers of matched pairs in prefixes of so many brackets, up to rounding.

    At least one length, and each at least 1.
    """
    levels = distribution.language.max_depth
    opens = distribution.open_probability()
    up, down = opens[:-1], 1 - opens[1:]
    own = np.eye(levels)  # a bracket that leaves d open closes a pair of level d + 1
    reach = np.eye(1, levels + 1)[0]
    first, second = np.zeros((levels + 1, levels)), np.zeros((levels + 1, levels, levels))
    found, wanted = {}, set(lengths)
    for length in range(1, max(wanted) + 1):
        closed = down * reach[1:]
        once = down[:, None] * first[1:]
        mixed = np.einsum("da,db->dab", once, own)
        twice = down[:, None, None] * second[1:] + mixed + mixed.swapaxes(1, 2)
        once = once + closed[:, None] * own
        twice = twice + np.einsum("d,da,db->dab", closed, own, own)
        if length in wanted:
            found[length] = closed, once, twice
        reach, first, second = (
            _grown(one, more, up)
            for one, more in zip((reach, first, second), (closed, once, twice), strict=True)
        )
    probability, once, twice = (np.stack([found[n][i] for n in lengths]) for i in range(3))
    given = np.where(probability > 0, probability, np.nan)
    mean = once / given[..., None]
    covariance = twice / given[..., None, None] - mean[..., :, None] * mean[..., None, :]
    return PairCounts(probability=probability, mean=mean, covariance=covariance)


def _grown(before: np.ndarray, closed: np.ndarray, up: np.ndarray) -> np.ndarray:
    """A_N+1 of A_N and of the part of it that ends with a closing bracket."""
    after = np.zeros_like(before)
    after[:-1] = closed
    after[1:] += (up * before[:-1].T).T
    return after
