"""States of a minimal first layer, what keys add to a query, and what matched pairs amount to.

A *state* is a bracket with its depth, ``open(t, d)``, d = 1..D, or ``close(t, d)``, d = 0..D−1 (the
depth is counted after the bracket), or BOS. With a minimal first layer, query, key and value of the
attention are functions of the state. The contribution of a key to the output of a query, before
normalisation (Wen et al. 2023, Eq. 12), is

    u(query, key) = exp(score) · P⊥ (W_O v + b_O),
    score = q · k / attn_scale,    P⊥x = x − mean(x).

After a long prefix the output of a query q = close(j, d) is the sum of u(q, ·) over the open
brackets, which carry the answer, and over matched pairs, which should not count. Two types a, b of
the bracket on top of the stack are told apart along

    e = (u(q, open(a, d)) - u(q, open(b, d))) / 2h,    2h = ‖u(q, open(a, d)) - u(q, open(b, d))‖.

A pair of type i at level l adds x_l(i) = (u(q, open(i, l)) + u(q, close(i, l - 1))) · e. A prefix
of D(q, k, D) completes pairs of level l at a rate r_l per bracket, the share of positions at depth
l times the probability of a close there, and types are uniform and independent. So by the law of
large numbers and the central limit theorem for Markov chains, N brackets add about

    N μ + √N σ Z,    μ = Σ_l r_l c_l,    c_l = mean of x_l,    Z standard normal,
    σ² = Σ_l r_l var(x_l) + Σ_{x,y} π_x P_xy (f_xy + g_y - g_x - μ)²,

f_xy = c_x where y = x - 1, else 0, and g the solution of Poisson's equation g - P g = P f - μ (f
summed over y) with π g = 0. In every other direction they add likewise.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from itertools import combinations
from typing import Any, final

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor

from tl_dyck.language import DyckDistribution, DyckLanguage


class StateIndex:
    """Rows of states in a table of all tokens and depths, token · (D + 1) + depth.

    Or, if `packed`, in the order of Eq. 19, which has no rows that no string reaches: 2kD brackets,
    then BOS.
    """

    def __init__(self, language: DyckLanguage, *, packed: bool = False) -> None:
        self.language = language
        self.depths = language.max_depth + (not packed)
        self._lowest = int(packed)  # depth of an opening bracket's first row
        self.bos = language.bos_token * self.depths

    def open(self, t: Any, depth: Any) -> Any:
        """Row of the opening bracket of type t that leads to this depth, or of many."""
        return 2 * t * self.depths + depth - self._lowest

    def close(self, t: Any, depth: Any) -> Any:
        """Row of the closing bracket of type t that leads to this depth, or of many."""
        return (2 * t + 1) * self.depths + depth

    def pairs(self) -> tuple[Int[np.ndarray, "level n_types"], Int[np.ndarray, "level n_types"]]:
        """Rows of the two brackets of a matched pair, by its level 1..D and type."""
        types = np.arange(self.language.n_types)
        levels = np.arange(1, self.language.max_depth + 1)[:, None]
        return self.open(types, levels), self.close(types, levels - 1)

    def of(self, token: Any, depth: Any) -> Any:
        """Row of a token that leads to this depth, or of many; if not packed."""
        return token * self.depths + depth

    def reachable(self) -> list[int]:
        """Rows of the states that strings reach: BOS, opening and closing brackets."""
        opens, closes = self.pairs()
        return [self.bos, *opens.ravel().tolist(), *closes.ravel().tolist()]


def visit_all(language: DyckLanguage) -> Int[Tensor, "batch pos"]:
    """Strings that visit every state: for each type BOS, then D openings and D closings."""
    steps = torch.arange(2 * language.max_depth)
    tokens = torch.full((language.n_types, 2 * language.max_depth + 1), language.bos_token)
    for t in range(language.n_types):
        # 2t opens and 2t + 1 closes: D of each
        tokens[t, 1:] = 2 * t + (steps >= language.max_depth).long()
    return tokens


def contributions(
    q: Float[Tensor, "state d_head"],
    k: Float[Tensor, "state d_head"],
    value: Float[Tensor, "state d_model"],
    attn_scale: float,
) -> Float[Tensor, "query key d_model"]:
    """u(query, key) for all pairs of some states, each query times exp(−its largest score)."""
    # P⊥: LN_C takes the mean away, so that contributions are compared without it
    value = value - value.mean(-1, keepdim=True)
    score = q @ k.T / attn_scale
    weight = torch.exp(score - score.max(-1, keepdim=True).values)
    return weight[:, :, None] * value


@final
@dataclass(frozen=True)
class Displacement:
    """What a bracket adds on average, and how far that spreads, for each query close(j, d).

    All numbers of a query share a positive factor. Indices: d - 1 for d = 1..D-1, j, and pairs of
    types (0, 1), (0, 2), …, (k-2, k-1).

    Attributes:
        drift: μ along e, per bracket; its sign says towards which type.
        variance: σ² along e, per bracket.
        half: h.
        drift_anywhere: the mean vector, per bracket.
        variance_anywhere: the sum of the variances along all axes, per bracket.
    """

    drift: Float[Tensor, "depth n_types pair"]
    variance: Float[Tensor, "depth n_types pair"]
    half: Float[Tensor, "depth n_types pair"]
    drift_anywhere: Float[Tensor, "depth n_types d_model"]
    variance_anywhere: Float[Tensor, "depth n_types"]

    def second_moment(self, length: int, *, anywhere: bool) -> Float[Tensor, "depth n_types pair"]:
        """(N² μ² + N σ²) / h²: how far N brackets move the output, squared, in units of h.

        Args:
            length: N.
            anywhere: in all directions together, not only along e.
        """
        drift, variance = self.drift.square(), self.variance
        if anywhere:
            drift = self.drift_anywhere.square().sum(-1, keepdim=True)
            variance = self.variance_anywhere[..., None]
        # 1e-300: types that nothing tells apart have h = 0, and any movement is then too far
        return (length**2 * drift + length * variance) / self.half.square().clamp_min(1e-300)


def displacement(
    u: Float[Tensor, "query key d_model"],
    opens: Int[np.ndarray, "level n_types"],
    closes: Int[np.ndarray, "level n_types"],
    distribution: DyckDistribution,
) -> Displacement:
    """What brackets add along the axes that tell types apart; differentiable.

    Args:
        u: contributions, float64.
        opens: row of ``open(t, l)`` at ``[l - 1, t]``; of ``close(t, l - 1)``, `closes`.
        closes: likewise.
        distribution: of the strings, at least two types and depth 2.
    """
    k, depth = distribution.language.n_types, distribution.language.max_depth
    # row 0 closes to depth 0, where nothing is left to ask for
    query = u[torch.as_tensor(closes[1:])]  # d - 1, j, key, d_model
    opening = query[:, :, torch.as_tensor(opens)]  # d - 1, j, level, type, d_model
    added = opening + query[:, :, torch.as_tensor(closes)]
    # with d + 1 brackets open (d from 0) the one on top is of level d + 1, which is row d
    answers = torch.stack([opening[d, :, d] for d in range(depth - 1)])  # d - 1, j, type, d_model
    first, second = map(list, zip(*combinations(range(k), 2), strict=True))
    between = answers[:, :, first] - answers[:, :, second]  # d - 1, j, pair, d_model
    distance = between.square().sum(-1)
    # the root of 0 has no derivative: it is taken of 1, and multiplied with 0
    distance = torch.where(distance > 0, distance, 1.0).sqrt() * (distance > 0)
    axis = between / torch.where(distance > 0, distance, 1.0)[..., None]
    along = torch.einsum("djltm,djpm->djplt", added, axis)
    drift, variance = _per_bracket(added.movedim(-1, 2), distribution)
    return Displacement(*_per_bracket(along, distribution), distance / 2, drift, variance.sum(-1))


def _per_bracket(
    along: Float[Tensor, "*query level n_types"], distribution: DyckDistribution
) -> tuple[Float[Tensor, "*query"], Float[Tensor, "*query"]]:
    """μ and σ² of what a bracket adds, if a pair of (level, type) adds `along`."""
    solve, closing, up, down = _walk(distribution)
    mean = along.mean(-1)
    drift = mean @ down
    expected = torch.nn.functional.pad(mean * closing, (1, 0)) - drift[..., None]
    g = expected @ solve
    rise = g[..., 1:] - g[..., :-1]
    walk = (rise - drift[..., None]).square() @ up + (
        mean - rise - drift[..., None]
    ).square() @ down
    return drift, walk + along.var(-1, correction=0) @ down


@lru_cache(maxsize=8)  # training asks at every step
def _walk(distribution: DyckDistribution) -> tuple[Tensor, ...]:
    """The chain of depths: Poisson's solution, P(close), and how often a bracket goes up and down.

    The last is also the rate of pairs of level 1..D that a bracket completes.
    """
    opens, share = distribution.open_probability(), distribution.depth_share()
    # depths up by an opening bracket (above the diagonal), down by a closing one (below)
    step = np.diag(opens[:-1], 1) + np.diag(1 - opens[1:], -1)
    # the last row is π g = 0, which makes the solution one
    poisson = np.vstack([np.eye(len(share)) - step, share])
    parts = (
        # without the column of that row, whose right side is 0
        np.linalg.pinv(poisson)[:, :-1].T,
        1 - opens[1:],
        share[:-1] * opens[:-1],
        share[1:] * (1 - opens[1:]),
    )
    # memory of torch's own: by where operands lie products are rounded
    return tuple(torch.tensor(each) for each in parts)
