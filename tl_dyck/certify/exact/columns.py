"""The least value of a linear bound on any string of an item: is Σ_h D^h · o^h + c ever negative?

One head: o = Σ E x / Σ E ω with a positive denominator, so the sign of D · o + c is that of Σ E
(D · x + c ω), which is additive: one shortest path decides, exactly.

Several heads: with numbers t^h and r^h = Σ E (D^h · x - t^h), the functional is Σ_h
r^h / Z^h + (c + Σ t^h). Where Z^h is only known to lie in [low, high], r / Z ≥ min(r / low,
r / high), so the minimum over the 2^H patterns of Σ_h λ^h (Σ E^h (D^h · x - t^h + leftover)),
λ^h ∈ {1/low, 1/high}, each one shortest path, is a lower bound. It is tight near strings on which
every r^h is 0, so t is taken from the string at an item's centre. Heads beyond the four whose Z
varies most get λ in the middle and pay max|r| times half the width.

Axes: I items, K objectives, P patterns, H heads, width of a head's output; B = I · K · P columns.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import final

import numpy as np
from einops import einsum, rearrange, reduce

from tl_dyck.certify.exact.balls import UNIT, Array, BoolArray, IntArray
from tl_dyck.certify.exact.paths import ShortestPaths
from tl_dyck.certify.exact.readout import LinearBound
from tl_dyck.certify.exact.region import Region
from tl_dyck.certify.exact.unembedding import MANY

_PATTERN_HEADS = 4  # 2^heads columns an objective: 16; the other heads pay a penalty instead

_MOST = 1e280
"""So large terms are still added up by the million, over a head's width, below 1e308."""


@final
@dataclass(frozen=True)
class Columns:
    """B shortest path problems: the least Σ_h Σ_s E^h (D^h · x^h_s + τ^h) of any string of an item.

    Attributes:
        region: the items.
        item: [B].
        directions: [B, H, width] D.
        taus: [B, H] τ.
    """

    region: Region
    item: IntArray
    directions: Array
    taus: Array

    def take(self, index: IntArray) -> Columns:
        """Some of them, possibly repeated."""
        return Columns(self.region, self.item[index], self.directions[index], self.taus[index])

    def lowered(self, t: Array | float) -> Columns:
        """τ - t instead of τ, for one t [B, 1] per column, or one for all."""
        return replace(self, taus=self.taus - t)

    def least(self) -> Array:
        """[B] the least on any string."""
        region = self.region
        return region.attention.least(
            region.view, region.items, self.item, self.directions, self.taus
        )

    def least_and_paths(self) -> tuple[Array, Callable[[IntArray], IntArray]]:
        """The same, and what gives a string on which each of some columns is least."""
        if len(self.item) > MANY:
            return self.least(), lambda some: self.take(some).paths()
        swept = self.swept()
        return swept.least, swept.paths

    def swept(self) -> ShortestPaths:
        """Return the shortest paths on which each column is least."""
        region = self.region
        return region.attention.sweep(
            region.view, region.items.take(self.item), self.directions, self.taus
        )

    def paths(self) -> IntArray:
        """[B, steps] a string on which each is least."""
        return self.swept().paths(np.arange(len(self.item)))


@final
@dataclass(frozen=True)
class BoundMinimum:
    """A linear bound and its least value: columns per item, objective and pattern, and results.

    Attributes:
        columns: B of them.
        threshold: [B] what a column must reach for the linear bound to be non-negative.
        least: [B] the least it is on any string.
        values: [I, K] lower bounds of the linear bound itself (not of the objective).
        finite: [I] as in `LinearBound`.
    """

    columns: Columns
    threshold: Array
    least: Array
    values: Array
    finite: BoolArray

    def negative(self, item: int) -> IntArray:
        """The columns of an item that are somewhere below what they must reach."""
        return np.flatnonzero((self.least < self.threshold) & (self.columns.item == item))

    def of_objectives(self, bound: LinearBound, threshold: float) -> Array:
        """What it says of the objectives that it was made for, less a threshold, [I, K], rounded.

        scale · (objective - threshold) ≥ values, divided by the end of the scale that is worse.
        """
        scale = np.where(self.values < 0, bound.scale_low[:, None], bound.scale_high[:, None])
        found: Array = threshold + self.values / scale
        return found

    def worst_paths(self, items: IntArray) -> IntArray:
        """[items, steps] for each of some items a string on which the linear bound is least."""
        # [B], in order: all columns of item 0 first
        item = self.columns.item
        # by item, then by how far below: the first of each item is its worst
        order = np.lexsort((self.least - self.threshold, item))
        first = order[np.searchsorted(item[order], items)]
        return self.columns.take(first).paths()


def minimise_bound(region: Region, bound: LinearBound) -> BoundMinimum:
    """Minimise a linear bound over every item's strings; it is tight at the items' centres."""
    n, k, heads, _ = bound.directions.shape
    if heads == 1:
        # D · x + c ω = (D + c base) · x + c unit. Adding rounds; the costs' own slack covers one
        # more rounding of each coefficient
        # 1: the only head
        c = rearrange(bound.constant, "i k -> i k 1")
        shifted = bound.directions + c[..., None] * rearrange(region.base, "i head e -> i 1 head e")
        directions = rearrange(shifted, "i k head e -> i k 1 head e")
        taus = rearrange(c * region.unit, "i k head -> i k 1 head")
        penalty = np.zeros((n, k))
    else:
        directions, taus, penalty = _patterns(region, bound)
    # what overflows is made up as in `LinearBound`: NaN is not below any number
    terms = abs(directions).max((1, 2, 3, 4)) * region.view.largest.max() + abs(taus).max((1, 2, 3))
    finite = bound.finite & (terms < _MOST) & np.isfinite(penalty).all(1)
    if not finite.all():
        directions = np.where(finite[:, None, None, None, None], directions, 0.0)
        taus = np.where(finite[:, None, None, None], taus, -1.0)
        penalty = np.where(finite[:, None], penalty, 0.0)
    patterns = directions.shape[2]
    columns = Columns(
        region,
        np.repeat(np.arange(n), k * patterns),
        rearrange(directions, "i k pattern head e -> (i k pattern) head e"),
        rearrange(taus, "i k pattern head -> (i k pattern) head"),
    )
    least = columns.least()
    worst = reduce(least, "(i k pattern) -> i k", "min", i=n, k=k)
    if heads == 1:
        # D · o + c = worst / Σ E ω, with the denominator at whichever end is worse
        with np.errstate(over="ignore"):
            values = (
                worst
                # a negative sum is worst over the least denominator, a
                # positive one over the largest
                / np.where(worst < 0, region.low, region.high)
                # towards -∞ whatever the sign; the quotient and this product are 2 u
                * (1 - 4 * UNIT * np.sign(worst))
            )
    else:
        values = worst - penalty
    values = np.where(finite[:, None], values, -np.inf)
    # what a column must reach: the penalty of its objective; with one head there is none
    threshold = np.repeat(penalty.ravel(), patterns)
    return BoundMinimum(columns, threshold, least, values, finite)


def _patterns(region: Region, bound: LinearBound) -> tuple[Array, Array, Array]:
    """Directions [I, K, P, H, width], taus [I, K, P, H].

    Also what must be subtracted from the result, [I, K].
    """
    n, k, heads, _ = bound.directions.shape
    # t^h = D^h · centre^h, so that r^h is 0 on the string at the centre
    t = einsum(bound.directions, region.centre, "i k head e, i head e -> i k head")
    # Σ_h D^h · o^h + c = Σ_h (D^h · o^h - t^h) + leftover, which is shared out evenly:
    # τ^h = leftover/H - t^h
    leftover = bound.constant + t.sum(-1)
    # H sums, less `lost`, over H, less t: H + 3 roundings of at most these sizes, for H ≥ 1
    lost = 4 * (heads + 2) * UNIT * (abs(bound.constant) + abs(t).sum(-1))
    # lowered by what these sums can have lost: the bound stays below
    tau = ((leftover - lost) / heads)[..., None] - t
    # 1/Z lies between these for every string
    # 2 u of the quotient and the product; the other 2 u leave the middle, which is rounded, room
    small, large = 1 / region.high * (1 - 4 * UNIT), 1 / region.low * (1 + 4 * UNIT)
    # heads whose 1/Z varies most get a pattern: there a penalty would cost most
    width = (large - small).max(0)
    chosen = np.sort(np.argsort(-width)[:_PATTERN_HEADS])
    middle, half = (small + large) / 2, (large - small) / 2 * (1 + 8 * UNIT)
    penalty = np.zeros((n, k))
    # r / Z ≥ middle · r - half · max|r| for the heads that get no pattern
    for head in sorted(set(range(heads)) - set(chosen.tolist())):
        penalty += half[:, head, None] * _largest_remainder(region, bound.directions, tau, head)
    factors = []
    for pattern in itertools.product((small, large), repeat=len(chosen)):
        # heads without a pattern count at their middle; the penalty covers the rest
        factor = middle.copy()
        for head, ends in zip(chosen, pattern, strict=True):
            factor[:, head] = ends[:, head]
        factors.append(factor)
    scale = np.stack(factors, axis=1)[:, None]  # λ, [I, 1, P, H]
    return (
        bound.directions[:, :, None] * scale[..., None],
        tau[:, :, None] * scale,
        # a sum of some H terms of 3 roundings
        penalty * (1 + 1e-9),
    )


def _largest_remainder(region: Region, directions: Array, tau: Array, head: int) -> Array:
    """The largest |Σ E (D · x + τ)| of one head over an item's strings, [I, K]."""
    n, k, heads, width = directions.shape
    # the other heads count nothing
    d, t = np.zeros((n * k, heads, width)), np.zeros((n * k, heads))
    d[:, head] = rearrange(directions[:, :, head], "i k e -> (i k) e")
    t[:, head] = rearrange(tau[:, :, head], "i k -> (i k)")
    item = np.repeat(np.arange(n), k)
    # max|r| = max(-min r, -min(-r)); never below 0
    ends = [Columns(region, item, sign * d, sign * t).least() for sign in (1.0, -1.0)]
    return rearrange(np.maximum(-ends[0], -ends[1]).clip(0), "(i k) -> i k", i=n)
