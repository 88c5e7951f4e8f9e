"""Branch and bound over parts of a perturbation space: the least value of some objectives on any of its strings."""

from __future__ import annotations

import heapq
import itertools
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import final

import numpy as np

from tl_dyck.certify.balls import Array, Ball, gamma
from tl_dyck.certify.deadline import OutOfTime
from tl_dyck.certify.graph import PREFIX
from tl_dyck.certify.lattice import KEEP
from tl_dyck.certify.network import IntArray
from tl_dyck.certify.paths import BoolArray, count_paths, emission_costs, enumerate_below, sweep
from tl_dyck_hooks.certifiers._attention import Attention, Items, View
from tl_dyck_hooks.certifiers._branch import Brancher
from tl_dyck_hooks.certifiers._columns import Columns, test_bound
from tl_dyck_hooks.certifiers._incumbent import Incumbent
from tl_dyck_hooks.certifiers._readout import Readout
from tl_dyck_hooks.certifiers._region import Region

__all__ = ["Part", "Search"]

_BATCH = 16
_ROUNDS = 3


@final
@dataclass(order=True)
class Part:
    """Some of the strings: those of a group that use allowed emissions only.

    Attributes:
        bound: a proved lower bound of the objectives on its strings.
        order: breaks ties.
        group: index of its last symbol.
        allowed: [E]; None for all.
    """

    bound: float
    order: int
    group: int = field(compare=False)
    allowed: BoolArray | None = field(compare=False)


@final
class Search:
    """One search.

    Args:
        attention: weights and strings, and when to stop.
        incumbent: the strings run so far, and what is to be minimised.
        decide: stop as soon as the sign of the minimum is proved; otherwise find the minimum.
        tolerance: parts whose bound is within this (relative to max(1, |value|)) of the least value seen are done.
        most_listed: parts with fewer candidates than this are listed and run instead of being split.
        always_listed: parts with at most this many strings are run without being bounded first.

    Attributes:
        incumbent: the strings that were run.
        closed: a proved lower bound on all strings that need no further attention.
    """

    def __init__(
        self,
        attention: Attention,
        incumbent: Incumbent,
        *,
        decide: bool,
        tolerance: float,
        most_listed: int = 2048,
        always_listed: int = 64,
    ) -> None:
        self.attention, self.incumbent = attention, incumbent
        self.network, self.graph, self.unembed = attention.network, attention.graph, incumbent.unembed
        self.brancher = Brancher(self.graph)
        self.decide, self.tolerance = decide, tolerance
        self.most_listed, self.always_listed = most_listed, always_listed
        self.closed = math.inf
        self.open: list[Part] = []
        self.stats = {"parts": 0, "listed": 0}
        self._numbers = itertools.count()

    # ------------------------------------------------------------------ the loop

    def run(self) -> None:
        """Search until done or out of time."""
        groups = np.arange(len(self.graph.groups))
        alive = count_paths(self.graph, groups) > 0
        self.open = [self._part(-math.inf, int(group), None) for group in groups[alive]]
        heapq.heapify(self.open)
        batch: list[Part] = []
        try:
            self._guess()
            while self.open and not self.finished:
                batch = self._next_batch()
                if batch:
                    self._examine(batch)
        except OutOfTime:
            for part in batch:  # some may be closed or split already: then they are covered twice
                self._keep(part)

    def _next_batch(self) -> list[Part]:
        """The most promising parts; those that need no attention are closed on the way."""
        batch: list[Part] = []
        while self.open and len(batch) < _BATCH:
            part = heapq.heappop(self.open)
            if part.bound >= self.threshold():
                self._close(part.bound)
            else:
                batch.append(part)
        return batch

    @property
    def lower(self) -> float:
        """A proved lower bound on all strings."""
        return min(self.closed, *(part.bound for part in self.open), math.inf)

    @property
    def finished(self) -> bool:
        """Whether to stop: the sign is known, or time is up, or some string's value is beyond all bounds."""
        known = (self.decide and self.incumbent.upper < 0) or self.closed == -math.inf
        return known or self.attention.deadline.passed

    def threshold(self, fraction: float = 1 / 16) -> float:
        """What a part's bound must reach to be of no further interest."""
        upper = self.incumbent.upper
        return upper * fraction if self.decide and upper > 0 else upper - self.tolerance * max(1.0, abs(upper))

    def _part(self, bound: float, group: int, allowed: BoolArray | None) -> Part:
        return Part(bound, next(self._numbers), group, allowed)

    def _close(self, bound: float) -> None:
        self.closed = min(self.closed, bound)

    def _keep(self, part: Part) -> None:
        heapq.heappush(self.open, part)

    # ------------------------------------------------------------------ one batch

    def _guess(self) -> None:
        """Run the strings that a first-order expansion thinks worst, to have a good incumbent before bounding."""
        for part in (self.open[i : i + 4 * _BATCH] for i in range(0, len(self.open), 4 * _BATCH)):
            items = self._items(part)
            paths = self._centres(items)
            self.incumbent.run(paths)
            if self.finished:
                return
            region = self._region(items, self.incumbent.outputs(paths))
            sound = np.flatnonzero(region.even)
            if len(sound):
                region = region.take(sound)
                readout = Readout(self.network, self.unembed, region, self._residual(region.items), exact=False)
                columns = test_bound(region, readout.lower(self.incumbent.upper), region.centre)
                self.incumbent.run(self._worst_paths(columns, np.arange(len(sound))))

    def _examine(self, parts: list[Part]) -> None:
        """Bound some parts; close, list or split each."""
        self.stats["parts"] += len(parts)
        items = self._items(parts)
        count = count_paths(self.graph, items.groups, items.allowed)
        for index in np.flatnonzero((count > 0) & (count <= self.always_listed)):
            self._list_all(items.take(np.array([index])))
        rest = np.flatnonzero(count > self.always_listed)
        if not len(rest) or self.finished:
            for index in rest:
                self._keep(parts[index])
            return
        parts, items = [parts[i] for i in rest], items.take(rest)
        paths = self._centres(items)
        self.incumbent.run(paths)
        centre = self.incumbent.outputs(paths)
        region = self._region(items, centre)
        sound = np.flatnonzero(region.even)
        for index in np.flatnonzero(~region.even):
            self._split(parts[index], paths[index], self._impact(region, int(index)))
        if len(sound):
            for chosen, viewed in self._views(region.take(sound)):
                if len(chosen):
                    self._bound([parts[i] for i in sound[chosen]], viewed)

    def _bound(self, parts: list[Part], region: Region) -> None:
        """Bound parts with linear bounds of the readout; list or split those that stay unresolved."""
        readout = Readout(self.network, self.unembed, region, self._residual(region.items))
        reference = region.centre.copy()
        for fraction in (0.5, *[1 / 16] * (_ROUNDS - 1)):
            threshold = self.threshold(fraction)
            bound = readout.lower(threshold)
            columns = test_bound(region, bound, reference)
            scale = np.where(columns.values < 0, bound.scale_low[:, None], bound.scale_high[:, None])
            values = threshold + columns.values / scale
            for part, value in zip(parts, values.min(1).tolist(), strict=True):
                part.bound = max(part.bound, value - 4e-16 * (abs(value) + abs(threshold)))
            unresolved = np.flatnonzero([part.bound < self.threshold() for part in parts])
            if not len(unresolved) or self.finished:
                break
            paths = self._worst_paths(columns, unresolved)
            self.incumbent.run(paths)
            if self.finished:
                break
            if region.unit:
                reference[unresolved] = self.incumbent.outputs(paths)
        for index, part in enumerate(parts):
            if part.bound >= self.threshold():
                self._close(part.bound)
            elif self.finished:
                self._keep(part)
            elif not (bound.finite[index] and self._list(columns, index, threshold)):
                path = self._worst_paths(columns, np.array([index]))[0]
                self._split(part, path, self._impact(region, index))

    def _worst_paths(self, columns: Columns, items: IntArray) -> IntArray:
        """For each of some items a string on which the linear bound is least."""
        excess = columns.least - columns.threshold
        order = np.lexsort((excess, columns.item))
        first = order[np.searchsorted(columns.item[order], items)]
        return columns.swept(first).paths(np.arange(len(first)))

    def _list(self, columns: Columns, item: int, threshold: float) -> bool:
        """Run every string of an item on which the linear bound is negative, unless there are too many."""
        negative = columns.negative(item)
        swept = columns.swept(negative)
        lower = threshold
        for index, column in enumerate(negative):
            paths = enumerate_below(swept, index, float(columns.threshold[column]), self.most_listed)
            if paths is None:
                return False
            if len(paths):
                self.stats["listed"] += len(paths)
                lower = min(lower, float(self.incumbent.run(paths).min()))
        self._close(lower)
        return True

    def _list_all(self, items: Items) -> None:
        """Run every string of one item."""
        costs = emission_costs(self.graph, np.zeros((len(self.graph.symbols.tokens), 1)), items.groups, items.allowed)
        paths = enumerate_below(sweep(self.graph, costs), 0, math.inf, 10**9)
        assert paths is not None
        self._close(float(self.incumbent.run(paths).min()))

    def _split(self, part: Part, path: IntArray, impact: Array) -> None:
        halves = self.brancher.split(part.allowed, path, impact)
        if halves is None:
            self._list_all(self._items([part]))
            return
        for allowed in halves:
            self._keep(self._part(part.bound, part.group, allowed))

    # ------------------------------------------------------------------ what a batch is made of

    def _items(self, parts: Sequence[Part]) -> Items:
        """Parts side by side."""
        groups = np.array([part.group for part in parts])
        if all(part.allowed is None for part in parts):
            return Items(groups)
        every = np.ones(len(self.graph.option), dtype=bool)
        return Items(groups, np.stack([every if p.allowed is None else p.allowed for p in parts], axis=1))

    def _centres(self, items: Items) -> IntArray:
        """For each item the path with the fewest edits."""
        option = self.graph.option
        kinds = np.array([o.kind for o in self.graph.lattice.options])
        edits = np.where(option == PREFIX, 0.0, kinds[np.maximum(option, 0)] != KEEP)
        costs = emission_costs(
            self.graph, np.zeros((len(self.graph.symbols.tokens), len(items))), items.groups, items.allowed, edits
        )
        return sweep(self.graph, costs).paths(np.arange(len(items)))

    def _residual(self, items: Items) -> Ball:
        """The residual stream of each item's last symbol."""
        return self.graph.symbols.r.at(self.graph.groups[items.groups])

    def _region(self, items: Items, centre: Array) -> Region:
        """The attention's own outputs on the items' strings."""
        return Region.build(self.attention, self.attention.values, items, np.zeros_like(centre), 1.0, centre)

    def _views(self, region: Region) -> Iterator[tuple[IntArray, Region]]:
        """The region in the view that shows most, item by item.

        With one head and LN_C nowhere below its constant C, only the direction of P x matters, x = W_O o + b_O. That is
        the direction of Σ E P(W_O v + b_O), without the denominator: a sum that edits change little, or not at all if
        they insert balanced pairs into a balanced model (Wen et al. 2023, Theorem 1).
        """
        everything = np.arange(len(region.items))
        c = self.network.config.ln_c
        if c is None or region.n_heads > 1:
            yield everything, region
            return
        x = self._projected_view
        at = self.network.attention_output(Ball.exact(region.centre[:, 0])).mid
        at = at - at.mean(-1, keepdims=True)
        length = np.linalg.norm(at, axis=-1, keepdims=True)
        base = (at / np.maximum(length, 1e-300) * (1 - 1e-13))[:, None]
        clear = self.attention.sweep(x, region.items, base, np.full((len(at), 1), -c * (1 + 1e-13))).least >= 0
        chosen = np.flatnonzero(clear & (length[:, 0] > c))
        if len(chosen):
            base = base[chosen]
            projective = Region.build(self.attention, x, region.items.take(chosen), base, 0.0, base)
            # strings whose directions are nearly opposite would make it useless
            good = np.flatnonzero((projective.low > 0.05 * projective.high).all(1))
            yield chosen[good], projective.take(good)
            chosen = chosen[good]
        rest = np.setdiff1d(everything, chosen)
        if len(rest):
            yield rest, region.take(rest)

    @cached_property
    def _projected_view(self) -> View:
        """P (W_O v + b_O) of every symbol."""
        value = self.graph.symbols.value
        x = self.network.attention_output(value.reshape(len(value.mid), -1))
        mid = x.mid - x.mid.mean(-1, keepdims=True)
        rad = (
            x.rad
            + x.rad.mean(-1, keepdims=True)
            + gamma(x.mid.shape[-1] + 4) * (abs(x.mid) + abs(x.mid).mean(-1, keepdims=True))
        )
        return View.of(Ball(mid, rad).reshape(len(mid), 1, -1))

    def _impact(self, region: Region, item: int) -> Array:
        """[E] how far an emission moves the attention's output, roughly."""
        low = np.maximum(region.low[item], 1e-290)
        weight = self.attention.weights[region.items.groups[item]] / low  # [S, H]
        away = np.linalg.norm(region.view.x.mid - region.centre[item], axis=-1)  # [S, H]
        symbols = np.append((weight * (away + away.mean(0))).sum(1), 0.0)
        impact: Array = symbols[self.graph.emits].sum(1)
        return impact
