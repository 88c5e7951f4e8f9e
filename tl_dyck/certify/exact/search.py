"""Branch and bound over parts of a perturbation space: the least value of some objectives.

`Search.run` takes the most promising parts, `_examine` and `_bound` bound them, and what stays
unresolved is listed (`_list`, `_list_all`) or split (`Brancher`). The invariant that makes it sound
is in the package's docstring.
"""

from __future__ import annotations

import heapq
import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import final

import numpy as np
from einops import rearrange

from tl_dyck.certify.deadline import OutOfTime
from tl_dyck.certify.exact.attention import AttentionWeights, Items
from tl_dyck.certify.exact.balls import Array, Ball, BoolArray, IntArray
from tl_dyck.certify.exact.branching import Brancher
from tl_dyck.certify.exact.columns import BoundMinimum, minimise_bound
from tl_dyck.certify.exact.graph import PREFIX
from tl_dyck.certify.exact.incumbent import Incumbent
from tl_dyck.certify.exact.paths import (
    count_paths,
    emission_costs,
    enumerate_below,
    live_emissions,
    sweep,
)
from tl_dyck.certify.exact.readout import Readout
from tl_dyck.certify.exact.region import Region
from tl_dyck.certify.lattice import KEEP

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
        tolerance: parts whose bound is within this (relative to max(1, |value|)) of the least value
            seen are done.
        most_listed: parts with fewer candidates than this are listed and run instead of being
            split.
        always_listed: parts with at most this many strings are run without being bounded first.
        most_parts: after so many it ends, whatever is still open; None for no limit.

    Attributes:
        incumbent: the strings that were run.
        closed: a proved lower bound on all strings that need no further attention.
    """

    def __init__(
        self,
        attention: AttentionWeights,
        incumbent: Incumbent,
        *,
        decide: bool,
        tolerance: float,
        most_listed: int = 2048,
        always_listed: int = 64,
        most_parts: int | None = None,
    ) -> None:
        self.attention, self.incumbent = attention, incumbent
        self.network, self.graph, self.unembed = (
            attention.network,
            attention.graph,
            incumbent.unembed,
        )
        self.brancher = Brancher(self.graph)
        self.decide, self.tolerance = decide, tolerance
        self.most_listed, self.always_listed = most_listed, always_listed
        self.most_parts = math.inf if most_parts is None else most_parts
        self.closed = math.inf
        self.open: list[Part] = []
        self.stats = {"parts": 0, "listed": 0}
        self._numbers = itertools.count()

    # ------------------------------------------------------------------ the loop

    def run(self) -> None:
        """Search until done or out of time."""
        groups = np.arange(len(self.graph.groups))
        alive = (
            count_paths(self.graph, groups) > 0
        )  # a group may have lost all its strings to the budgets
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
        """Whether to stop: the sign is known, time is up, or some string is beyond all bounds."""
        known = (self.decide and self.incumbent.upper < 0) or self.closed == -math.inf
        spent = self.stats["parts"] > self.most_parts
        return known or spent or self.attention.deadline.passed

    def threshold(self, fraction: float = 1 / 16) -> float:
        """Value that a part's bound must reach to be of no further interest."""
        upper = self.incumbent.upper
        return (
            upper * fraction
            if self.decide and upper > 0
            else upper - self.tolerance * max(1.0, abs(upper))
        )

    def _part(self, bound: float, group: int, allowed: BoolArray | None) -> Part:
        return Part(bound, next(self._numbers), group, allowed)

    def _close(self, bound: float) -> None:
        self.closed = min(self.closed, bound)

    def _keep(self, part: Part) -> None:
        heapq.heappush(self.open, part)

    # ------------------------------------------------------------------ one batch

    def _guess(self) -> None:
        """Run the strings that a first-order expansion thinks worst, for a good first incumbent."""
        for parts in (self.open[i : i + 4 * _BATCH] for i in range(0, len(self.open), 4 * _BATCH)):
            items = self._items(parts)
            paths = self._centres(items)
            self.incumbent.run(paths)
            if self.finished:
                return
            region = Region.of_values(self.attention, items, self.incumbent.outputs(paths))
            sound = np.flatnonzero(region.even)
            if len(sound):
                region = region.take(sound)
                readout = Readout(
                    self.network, self.unembed, region, self._residual(region.items), exact=False
                )
                least = minimise_bound(region, readout.lower(self.incumbent.upper), region.centre)
                self.incumbent.run(least.worst_paths(np.arange(len(sound))))

    def _examine(self, parts: list[Part]) -> None:
        """Bound some parts; close, list or split each."""
        self.stats["parts"] += len(parts)
        items = self._items(parts)
        count = count_paths(self.graph, items.groups, items.allowed)
        # small parts are run whole; empty ones need nothing, and are dropped
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
        region = Region.of_values(self.attention, items, self.incumbent.outputs(paths))
        sound = np.flatnonzero(region.even)
        # where denominators may vanish a ratio cannot be bounded: split until they do not
        for index in np.flatnonzero(~region.even):
            self._split(parts[index], paths[index], region, int(index))
        if len(sound):
            for chosen, viewed in region.take(sound).views():
                if len(chosen):
                    self._bound([parts[i] for i in sound[chosen]], viewed)

    def _bound(self, parts: list[Part], region: Region) -> None:
        """Bound parts with linear bounds of the readout; list or split the unresolved ones."""
        readout = Readout(self.network, self.unembed, region, self._residual(region.items))
        reference = region.centre.copy()
        # first aim high; whatever the linear bound is made for, it is a bound, and the best one is
        # kept
        for fraction in (0.5, *[1 / 16] * (_ROUNDS - 1)):
            threshold = self.threshold(fraction)
            bound = readout.lower(threshold)
            least = minimise_bound(region, bound, reference)
            # scale · (objective - threshold) ≥ least.values, divided by the end of the scale that
            # is worse
            scale = np.where(least.values < 0, bound.scale_low[:, None], bound.scale_high[:, None])
            values = threshold + least.values / scale  # [I, K]
            for part, value in zip(parts, values.min(1).tolist(), strict=True):
                part.bound = max(part.bound, value - 4e-16 * (abs(value) + abs(threshold)))
            unresolved = np.flatnonzero([part.bound < self.threshold() for part in parts])
            if not len(unresolved) or self.finished:
                break
            paths = least.worst_paths(unresolved)
            self.incumbent.run(paths)
            if self.finished:
                break
            if region.unit:  # the linear bound is least there: make the next one tight there
                reference[unresolved] = self.incumbent.outputs(paths)
        for index, part in enumerate(parts):
            if part.bound >= self.threshold():
                self._close(part.bound)
            elif self.finished:
                self._keep(part)
            elif not (bound.finite[index] and self._list(least, index, threshold)):
                path = least.worst_paths(np.array([index]))[0]
                self._split(part, path, region, index)

    def _list(self, least: BoundMinimum, item: int, threshold: float) -> bool:
        """Run every string of an item on which the linear bound is negative, unless too many."""
        negative = least.negative(item)
        swept = least.columns.take(negative).swept()
        lower = threshold
        for index, column in enumerate(negative):
            paths = enumerate_below(swept, index, float(least.threshold[column]), self.most_listed)
            if paths is None:
                return False
            if len(paths):
                self.stats["listed"] += len(paths)
                lower = min(lower, float(self.incumbent.run(paths).min()))
        self._close(lower)
        return True

    def _list_all(self, items: Items) -> None:
        """Run every string of one item."""
        costs = emission_costs(
            self.graph, np.zeros((len(self.graph.symbols.tokens), 1)), items.groups, items.allowed
        )
        paths = enumerate_below(sweep(self.graph, costs), 0, math.inf, 10**9)
        assert paths is not None
        self._close(float(self.incumbent.run(paths).min()))

    def _split(self, part: Part, path: IntArray, region: Region, item: int) -> None:
        live = live_emissions(self.graph, part.group, part.allowed)
        if self.brancher.rewrites:
            halves = self.brancher.split(live, path, self._impact(region, item))
        else:
            halves = self.brancher.halves(live, self._pull(region, item))
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
        return Items(
            groups, np.stack([every if p.allowed is None else p.allowed for p in parts], axis=1)
        )

    def _centres(self, items: Items) -> IntArray:
        """For each item the path with the fewest edits."""
        option = self.graph.option
        kinds = np.array([o.kind for o in self.graph.lattice.options])
        edits = np.where(option == PREFIX, 0.0, kinds[np.maximum(option, 0)] != KEEP)
        costs = emission_costs(
            self.graph,
            np.zeros((len(self.graph.symbols.tokens), len(items))),
            items.groups,
            items.allowed,
            edits,
        )
        return sweep(self.graph, costs).paths(np.arange(len(items)))

    def _residual(self, items: Items) -> Ball:
        """The residual stream of each item's last symbol."""
        return self.graph.symbols.r.at(self.graph.groups[items.groups])

    def _moves(self, region: Region, item: int) -> tuple[Array, Array]:
        """A symbol of weight E / Z moves o by about E / Z (x - o): [S, H], [S, H, width]."""
        low = np.maximum(region.low[item], 1e-290)
        weight: Array = self.attention.weights[region.items.groups[item]] / low
        return weight, region.view.x.mid - region.centre[item]

    def _impact(self, region: Region, item: int) -> Array:
        """[E] how far an emission moves the attention's output, roughly."""
        weight, moved = self._moves(region, item)
        away = np.linalg.norm(moved, axis=-1)  # [S, H]
        symbols = np.append((weight * (away + away.mean(0))).sum(1), 0.0)  # the last is padding
        impact: Array = symbols[self.graph.emits].sum(1)
        return impact

    def _pull(self, region: Region, item: int) -> Array:
        """[E, H width] where to it does."""
        weight, moved = self._moves(region, item)
        symbols = rearrange(weight[..., None] * moved, "symbol head e -> symbol (head e)")
        padded = np.append(symbols, np.zeros((1, symbols.shape[1])), axis=0)
        pull: Array = padded[self.graph.emits].sum(1)
        return pull
