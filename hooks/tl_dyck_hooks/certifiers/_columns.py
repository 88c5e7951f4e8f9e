"""Testing a linear bound on every string of an item: is Σ_h D^h · o^h + c ever negative?

One head: o = Σ E x / Σ E ω with a positive denominator, so the sign of D · o + c is that of Σ E (D · x + c ω), which is
additive: one shortest path decides, exactly.

Several heads: with numbers t^h and r^h = Σ E (D^h · x - t^h), the functional is Σ_h r^h / Z^h + (c + Σ t^h).
Where Z^h is only known to lie in [low, high], r / Z ≥ min(r / low, r / high), so the minimum over the 2^H
patterns of Σ_h λ^h (Σ E^h (D^h · x - t^h + leftover)), λ^h ∈ {1/low, 1/high}, each one shortest path, is a
lower bound. It is tight near strings on which every r^h is 0, so t is taken from the most promising string.
Heads beyond the four whose Z varies most get λ in the middle and pay max|r| times half the width.
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass
from typing import final

import numpy as np

from tl_dyck.certify.balls import UNIT, Array
from tl_dyck.certify.network import IntArray
from tl_dyck.certify.paths import Sweep
from tl_dyck_hooks.certifiers._readout import LinearBound
from tl_dyck_hooks.certifiers._region import Region

__all__ = ["Columns", "test_bound"]

_PATTERN_HEADS = 4


@final
@dataclass(frozen=True)
class Columns:
    """One shortest path problem per item, objective and pattern, and its result.

    Attributes:
        region: the items.
        item: [B].
        objective: [B].
        directions: [B, H, width].
        taus: [B, H].
        threshold: [B] what the column's functional must reach for the linear bound to be non-negative.
        least: [B] the least it is on any string.
        values: [I, K] lower bounds of the linear bound itself (not of the objective).
    """

    region: Region
    item: IntArray
    objective: IntArray
    directions: Array
    taus: Array
    threshold: Array
    least: Array
    values: Array

    def negative(self, item: int) -> IntArray:
        """The columns of an item whose functional is somewhere below what it must reach."""
        return np.flatnonzero((self.least < self.threshold) & (self.item == item))

    def swept(self, columns: IntArray) -> Sweep:
        """The shortest paths of some columns."""
        region = self.region
        return region.attention.sweep(
            region.view, region.items.take(self.item[columns]), self.directions[columns], self.taus[columns]
        )


def test_bound(region: Region, bound: LinearBound, reference: Array) -> Columns:
    """Minimise a linear bound over every item's strings; `reference` [I, H, width] is where it should be tight."""
    n, k, heads, width = bound.directions.shape
    if heads == 1:
        tau = bound.constant[..., None]
        # adding c ω to D · x rounds; the costs' own slack covers one more rounding of each coefficient
        directions = (bound.directions + tau[..., None] * region.base[:, None])[:, :, None]
        taus = (tau * region.unit)[:, :, None]
        penalty = np.zeros((n, k))
    else:
        directions, taus, penalty = _patterns(region, bound, reference)
    patterns = directions.shape[2]
    item, objective = (part.ravel() for part in np.indices((n, k, patterns))[:2])
    flat, flat_taus = directions.reshape(-1, heads, width), taus.reshape(-1, heads)
    least = region.attention.least(region.view, region.items, item, flat, flat_taus)
    worst = least.reshape(n, k, patterns).min(2)
    if heads == 1:
        with np.errstate(over="ignore"):
            values = worst / np.where(worst < 0, region.low, region.high) * (1 - 4 * UNIT * np.sign(worst))
    else:
        values = worst - penalty
    values = np.where(bound.finite[:, None], values, -np.inf)
    threshold = np.repeat(penalty.ravel(), patterns)
    return Columns(region, item, objective, flat, flat_taus, threshold, least, values)


def _patterns(region: Region, bound: LinearBound, reference: Array) -> tuple[Array, Array, Array]:
    """Directions [I, K, P, H, width], taus [I, K, P, H] and what must be subtracted from the result, [I, K]."""
    n, k, heads, _ = bound.directions.shape
    t = np.einsum("ikhe,ihe->ikh", bound.directions, reference)
    leftover = bound.constant + t.sum(-1)
    lost = 4 * (heads + 2) * UNIT * (abs(bound.constant) + abs(t).sum(-1))
    tau = ((leftover - lost) / heads)[..., None] - t
    # 1/Z lies between these for every string
    small, large = 1 / region.high * (1 - 4 * UNIT), 1 / region.low * (1 + 4 * UNIT)
    width = (large - small).max(0)
    chosen = np.sort(np.argsort(-width)[:_PATTERN_HEADS])
    middle, half = (small + large) / 2, (large - small) / 2 * (1 + 8 * UNIT)
    penalty = np.zeros((n, k))
    for head in sorted(set(range(heads)) - set(chosen.tolist())):
        penalty += half[:, head, None] * _largest_remainder(region, bound.directions, tau, head)
    factors = []
    for pattern in itertools.product((small, large), repeat=len(chosen)):
        factor = middle.copy()
        for head, ends in zip(chosen, pattern, strict=True):
            factor[:, head] = ends[:, head]
        factors.append(factor)
    scale = np.stack(factors, axis=1)[:, None]  # [I, 1, P, H]
    return bound.directions[:, :, None] * scale[..., None], tau[:, :, None] * scale, penalty * (1 + 1e-9)


def _largest_remainder(region: Region, directions: Array, tau: Array, head: int) -> Array:
    """The largest |Σ E (D · x + τ)| of one head over an item's strings, [I, K]."""
    n, k, heads, width = directions.shape
    item = np.repeat(np.arange(n), k)
    d, t = np.zeros((n * k, heads, width)), np.zeros((n * k, heads))
    d[:, head], t[:, head] = directions[:, :, head].reshape(n * k, width), tau[:, :, head].ravel()
    ends = [region.attention.least(region.view, region.items, item, sign * d, sign * t) for sign in (1.0, -1.0)]
    return np.maximum(-ends[0], -ends[1]).clip(0).reshape(n, k)
