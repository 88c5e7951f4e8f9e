"""Parts that are settled cell by cell of where the attention's outputs lie.

A part of the strings whose bound is loose is usually split by its symbols. Where an output hangs on
many positions that takes many splits: each moves it a little. But the readout reads the output
alone, and a head of width 4 has outputs in four dimensions. So the box of all outputs, along the
attention's axes, is split instead, until on each cell the readout's linear bound suffices: on all
of the cell, or on all strings of the part. No string is looked at for the former.

Knows: which parts such cells settle; a part that they leave open is split by symbols.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import final

import numpy as np

from tl_dyck.certify.exact.balls import UNIT, Array, Ball, BoolArray, IntArray
from tl_dyck.certify.exact.columns import minimise_bound
from tl_dyck.certify.exact.network import Network
from tl_dyck.certify.exact.readout import LinearBound, Readout
from tl_dyck.certify.exact.region import Region
from tl_dyck.certify.exact.unembedding import Unembedding

_AT_ONCE = 256  # cells bounded at once: more take no less time each
_FIRST, _MOST = 64, 1024
"""A part gets so many cells at first, and at most: twice as many after each success."""
_WIDEST = 8
"""Heads that are wider are not tried: halving a box along each axis takes 2^width cells."""
_PAUSE = 64
"""After failures in a row 1, 3, 7, … calls are not tried, fewer than this: so digits of an adder,
which symbols decide, take 2 % longer."""
_HOPELESS = 6
"""In a row of cells, each half of the one before, so many centres below what is asked for give a
part up: a wrong string, or none so near, which splitting by symbols shows."""


@final
@dataclass
class _Open:
    """Cells that are to be bounded, n of them.

    Attributes:
        part: [n] index of the part that each is of.
        low: [n, H, width] along the axes,
        high: [n, H, width] and up to where.
        asked: [n, K] objectives that are still asked about.
        below: [n] how many of its centre and those that it was cut from, in a row, were negative.
    """

    part: IntArray
    low: Array
    high: Array
    asked: BoolArray
    below: IntArray

    def take(self, index: IntArray | BoolArray | slice) -> _Open:
        """Some of them."""
        return _Open(
            self.part[index],
            self.low[index],
            self.high[index],
            self.asked[index],
            self.below[index],
        )

    def join(self, other: _Open) -> _Open:
        """These, then others."""
        return _Open(
            np.concatenate([self.part, other.part]),
            np.concatenate([self.low, other.low]),
            np.concatenate([self.high, other.high]),
            np.concatenate([self.asked, other.asked]),
            np.concatenate([self.below, other.below]),
        )


@final
class Cells:
    """What settles parts of a graph cell by cell; it learns how many cells are worth trying.

    Args:
        network: what is bounded.

    Attributes:
        bounded: cells, so far.
    """

    def __init__(self, network: Network) -> None:
        self.network = network
        self.bounded = 0
        self._most, self._failed, self._waits = _FIRST, 0, 0

    def settled(
        self, region: Region, r: Ball, among: Unembedding, asked: BoolArray, threshold: float
    ) -> BoolArray:
        """[I] of which parts it is proved that no string is below a threshold.

        Args:
            region: the parts; all of them sound. In a projective view, with several heads or
                wide ones nothing is tried.
            r: [I, d] the residual stream of each part's last symbol.
            among: the objectives.
            asked: [I, K] which of them are asked about.
            threshold: what they must reach.
        """
        many = region.n_heads > 1 or region.base.shape[2] > _WIDEST
        if self._waits or not region.unit or many:
            self._waits = max(self._waits - 1, 0)
            return np.zeros(len(asked), dtype=bool)
        cells = _Open(
            np.arange(len(asked)), *region.along_axes, asked, np.zeros(len(asked), dtype=np.int64)
        )
        alive, spent = np.ones(len(asked), dtype=bool), np.zeros(len(asked), dtype=np.int64)
        while len(cells.part):
            # the last first: a part that fails does so early, and few cells wait
            some, cells = cells.take(slice(-_AT_ONCE, None)), cells.take(slice(None, -_AT_ONCE))
            self.bounded += len(some.part)
            np.add.at(spent, some.part, 1)
            halves = self._halves(region, r, among, some, threshold)
            alive[halves.part[halves.below >= _HOPELESS]] = False
            # what is open takes as many cells more at least
            waiting = np.bincount(cells.part, minlength=len(alive))
            waiting += np.bincount(halves.part, minlength=len(alive))
            alive &= spent + waiting <= self._most
            cells = cells.join(halves)
            cells = cells.take(alive[cells.part])
        self._learn(won=bool(alive.any()))
        return alive

    def _learn(self, *, won: bool) -> None:
        """What pays gets more cells; what does not is tried less and less."""
        self._failed = 0 if won else self._failed + 1
        self._most = min(2 * self._most, _MOST) if won else _FIRST
        self._waits = min(2**self._failed, _PAUSE) - 1

    def _halves(
        self, region: Region, r: Ball, among: Unembedding, cells: _Open, threshold: float
    ) -> _Open:
        """Bound some cells; those on which that says too little are halved."""
        here = region.take(cells.part).within(cells.low, cells.high)
        readout = Readout(self.network, here, r.at(cells.part))
        bound = readout.lower(among, threshold)
        least = in_box(here, bound)
        cells.asked &= ~((least >= 0) & bound.finite[:, None])
        if not cells.asked.any():
            return cells.take(np.flatnonzero(cells.asked.any(1)))
        left, columns = (np.flatnonzero(cells.asked.any(axis)) for axis in (1, 0))
        few = LinearBound(
            bound.directions[left][:, columns],
            bound.constant[left][:, columns],
            bound.scale_low[left],
            bound.scale_high[left],
            bound.finite[left],
        )
        # of all strings of the part, wherever their outputs lie
        strings = minimise_bound(here.take(left), few).values
        cells.asked[np.ix_(left, columns)] &= ~(strings >= 0)
        left = np.flatnonzero(cells.asked.any(1))
        if not len(left):
            return cells.take(left)
        open_ = cells.take(left)
        values = readout.at_centre(among)[left] - threshold
        negative = (np.where(open_.asked, values, np.inf) < 0).any(1)
        open_.below = np.where(negative, open_.below + 1, 0)
        # of the objective that is least, where along an axis the bound changes most
        worst = np.where(open_.asked, least[left], np.inf).argmin(1)
        slope = bound.directions[left, worst]
        return _cut(open_, region, slope)


def in_box(region: Region, bound: LinearBound) -> Array:
    """[I, K] what a linear bound is at least in a region's box, whichever strings are there."""
    low, _ = region.ranges(bound.directions)
    found: Array = low + bound.constant
    # the sum is rounded once
    found -= 2 * UNIT * (abs(low) + abs(bound.constant))
    return np.where(np.isfinite(found), found, -np.inf)


def _cut(cells: _Open, region: Region, slope: Array) -> _Open:
    """Both halves of each cell, along the axis of the largest effect; none is left much longer."""
    width = cells.high - cells.low
    effect = abs(np.einsum("ihe,hje->ihj", slope, region.attention.axes)) * width
    low, high = region.along_axes
    whole = np.maximum((high - low)[cells.part], 1e-300)
    share = (width / whole).reshape(len(width), -1)
    axis, every = effect.reshape(share.shape).argmax(1), np.arange(len(share))
    # 8: three halvings in a row, and then the longest, whatever the bound says
    axis = np.where(share.max(1) > 8 * share[every, axis], share.argmax(1), axis)
    at = np.unravel_index(axis, width.shape[1:])
    middle = (cells.low + cells.high)[every, at[0], at[1]] / 2
    first = _Open(cells.part, cells.low, cells.high.copy(), cells.asked, cells.below)
    second = _Open(cells.part, cells.low.copy(), cells.high, cells.asked.copy(), cells.below.copy())
    first.high[every, at[0], at[1]] = middle
    second.low[every, at[0], at[1]] = middle
    return first.join(second)
