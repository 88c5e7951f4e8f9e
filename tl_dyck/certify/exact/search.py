"""Branch and bound over parts of a perturbation space: the least value of some objectives.

`Search.run` takes the most promising parts, `_examine` and `_bound` bound them, and what stays
unresolved is listed (`_list`, `_list_all`) or split (`splits`). The invariant that makes it
sound is in the package's docstring.
"""

from __future__ import annotations

import contextlib
import heapq
import itertools
import math
from collections.abc import Sequence
from dataclasses import replace
from typing import final

import numpy as np

from tl_dyck.certify.deadline import OutOfTime
from tl_dyck.certify.exact.attention import AttentionWeights, Items
from tl_dyck.certify.exact.balls import Array, Ball, BoolArray, IntArray
from tl_dyck.certify.exact.columns import BoundMinimum, minimise_bound
from tl_dyck.certify.exact.incumbent import Incumbent
from tl_dyck.certify.exact.mlp import by_signs
from tl_dyck.certify.exact.parts import Part, as_items, centres, improve, union
from tl_dyck.certify.exact.paths import (
    count_paths,
    emission_costs,
    enumerate_below,
    live_emissions,
    sweep,
)
from tl_dyck.certify.exact.readout import Readout
from tl_dyck.certify.exact.region import Region
from tl_dyck.certify.exact.splits import Brancher
from tl_dyck.certify.exact.unembedding import MANY, Unembedding
from tl_dyck.certify.exact.work import Work

# parts bounded at once: calls of numpy are shared, and few are bounded that a better string ends
_BATCH = 32
# strings below a bound were too many to list: what is listed next has so many times fewer strings
_FEWER = 4
# parts of more strings are cut where a guess says that a bound would not settle them
_LARGE = 1e6
# of many rivals so many are bounded first: those whose margin at the centre is least
_NEAREST = 8
_GUESSES = 2
"""So often: their halves are guessed at again."""


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
        always_listed: parts with at most this many strings are run without being bounded first;
            None: those that it takes less work to run (`work`), and all that are left once bounds
            have taken as much work as running them takes, or a tenth if no part was settled by one.
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
        always_listed: int | None = None,
        most_parts: int | None = None,
    ) -> None:
        self.attention, self.incumbent = attention, incumbent
        self.network, self.graph = attention.network, attention.graph
        self.unembedding = incumbent.unembedding
        self.brancher = Brancher(self.graph)
        self.decide, self.tolerance = decide, tolerance
        self.most_listed = most_listed
        self.most_parts = math.inf if most_parts is None else most_parts
        self.closed = math.inf
        self.open: list[Part] = []
        self.stats: dict[str, int] = {}  # of a search that has begun
        self.work = Work(self.network, self.graph, always_listed)
        self._numbers = itertools.count()
        self._listable = math.inf
        self._begun = False

    def run(self) -> None:
        """Search until done or out of time; called again, it goes on."""
        if not self._begun:
            self._begin()
        batch: list[Part] = []
        try:
            while self.open and not self.finished:
                batch = self._next_batch()
                if batch:
                    self._examine(batch)
        except OutOfTime:
            for part in batch:  # some may be closed or split already: then they are covered twice
                self._keep(part)

    @property
    def kept(self) -> float:
        """Bytes that it holds while it waits for time; inf if it has not begun."""
        graph = sum(
            each.nbytes for each in vars(self.graph).values() if isinstance(each, np.ndarray)
        )
        parts = len(self.open) * len(self.graph.option)  # of each, which emissions it allows
        return graph + self.attention.weights.nbytes + parts if self._begun else math.inf

    def _begin(self) -> None:
        """All strings are open; the worst that a guess knows are run."""
        self.stats = {"parts": 0, "listed": 0}
        groups = np.arange(len(self.graph.groups))
        every = np.arange(len(self.unembedding))
        counts = np.ones(len(groups))  # if there is no time to count
        with contextlib.suppress(OutOfTime):
            counts = count_paths(self.graph, groups)
            self._begun = True
        # a group may have lost all its strings to the budgets
        # -∞: nothing is proved of any group yet
        self.open = [
            Part(-math.inf, next(self._numbers), group, None, every, count)
            for group, count in enumerate(counts.tolist())
            if count
        ]
        with contextlib.suppress(OutOfTime):
            self._guess()
        if not self._known:
            self._bound_at_once()

    def _bound_at_once(self) -> None:
        """A lower bound on all strings, from the sizes of what occurs."""
        read = self.network.largest_read(self.graph.symbols, self.graph.groups)
        bound = float(self.unembedding.least(read).lower[0])
        for part in self.open:
            part.bound = -math.inf if math.isnan(bound) else bound

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
        spent = self.stats["parts"] > self.most_parts
        return self._known or spent or self.attention.deadline.passed

    @property
    def _known(self) -> bool:
        return (self.decide and self.incumbent.upper < 0) or self.closed == -math.inf

    def threshold(self, fraction: float = 1 / 16) -> float:
        """Value that a part's bound must reach to be of no further interest."""
        upper = self.incumbent.upper
        return (
            upper * fraction
            if self.decide and upper > 0
            else upper - self.tolerance * max(1.0, abs(upper))
        )

    def _close(self, bound: float) -> None:
        self.closed = min(self.closed, bound)

    def _keep(self, part: Part) -> None:
        heapq.heappush(self.open, part)

    # ------------------------------------------------------------------ one batch

    def _guess(self) -> None:
        """Run the strings that a first-order expansion thinks worst, for a good first incumbent.

        Large parts that it thinks too low are cut at once: bounds, which are lower still, would not
        settle them.
        """
        first = 0
        for _ in range(_GUESSES):
            every = [part for part in self.open if part.order >= first]
            first = next(self._numbers)
            # four batches at once: a guess takes no ranges, so that more parts share the calls of
            # numpy
            for i in range(0, len(every), 4 * _BATCH):
                if self.finished:
                    return
                self._guess_of(every[i : i + 4 * _BATCH])

    def _guess_of(self, parts: list[Part]) -> None:
        items = as_items(self.graph, parts)
        region = self._region(items)
        sound = np.flatnonzero(region.even)
        if self.finished or not len(sound):
            return
        region = region.take(sound)
        readout = Readout(self.network, region, self._residual(region.items), exact=False)
        near = readout.at_centre(self.unembedding).min(0).argsort()[:_NEAREST]
        upper = self.incumbent.upper
        bound = readout.lower(self.unembedding.take(near), upper)
        least = minimise_bound(region, bound)
        self.incumbent.run(least.worst_paths(np.arange(len(sound))))
        low = least.of_objectives(bound, upper).min(1) < self.threshold()
        self._cut([parts[i] for i in sound.tolist()], region, low)

    def _region(self, items: Items) -> Region:
        """What the attention returns on items; a string of each is run."""
        paths = centres(self.graph, items)
        region = Region.of_values(self.attention, items, self.incumbent.outputs(paths, run=True))
        return replace(region, quick=by_signs(self.network))

    def _cut(self, parts: Sequence[Part], region: Region, low: BoolArray) -> None:
        """Split the large ones of the parts that a guess thinks too low."""
        large = [i for i in np.flatnonzero(low).tolist() if parts[i].count > _LARGE]
        if large and not self.finished:
            # out of time, both stay open: halves, and what they are halves of
            self._split(parts, region, large)
            cut = {parts[i].order for i in large}
            self.open = [part for part in self.open if part.order not in cut]
            heapq.heapify(self.open)

    def _examine(self, parts: list[Part]) -> None:
        """Bound some parts; close, list or split each."""
        self.stats["parts"] += len(parts)
        most = self.work.most_run(parts, self.open)
        for part in parts:
            if part.count <= most:
                self._list_all(part)
        parts = [part for part in parts if part.count > most]
        if not parts or self.finished:
            for part in parts:
                self._keep(part)
            return
        items = as_items(self.graph, parts)
        self.work.spent += self.work.to_range(len(parts))
        region = self._region(items)
        sound = np.flatnonzero(region.even)
        # where denominators may vanish a ratio cannot be bounded: split until they do not
        self._split(parts, region, np.flatnonzero(~region.even).tolist())
        if len(sound):
            for chosen, viewed in region.take(sound).views():
                if len(chosen):
                    self._bound([parts[i] for i in sound[chosen]], viewed)

    def _bound(self, parts: list[Part], region: Region) -> None:
        """Bound parts with linear bounds of the readout; list or split the unresolved ones.

        Of a quick region they are bounded once more instead.
        """
        readout = Readout(self.network, region, self._residual(region.items))
        rivals, mine = union([part.rivals for part in parts])
        among = self.unembedding.take(rivals)
        # [I, K]: what is proved of each objective, as far as it is asked about
        values = np.where(mine, -np.inf, np.inf)
        if len(rivals) > MANY:
            self.work.spent += self.work.to_screen(len(rivals))
            values = np.maximum(values, readout.screen(among))
            improve(parts, values)
            order, some = readout.at_centre(among).min(0).argsort(), _NEAREST
        else:
            # few: all at once, in any order
            order, some = np.arange(len(rivals)), MANY
        counts = np.array([part.count for part in parts])
        while True:
            # those first that are least at some centre
            asked = order[(values < self.threshold())[:, order].any(0)][:some]
            if not len(asked) or self.finished:
                break
            least, threshold = self._raise(parts, readout, among, asked, values)
            lost = (values[:, asked] < self.threshold()).any(1)
            if 2 * counts[lost].sum() > counts.sum() or self.work.enough(parts, self.open):
                break  # what else there is does not help: most strings are to be split
            order, some = order[~np.isin(order, asked)], MANY
        divided, again = [], []
        for index, part in enumerate(parts):
            if part.bound >= self.threshold():
                self._close(part.bound)
                self.work.useful = True
            elif self.finished:
                self._keep(part)
            elif region.quick:
                again.append(index)
            else:
                self._narrow(part, rivals[mine[index]], values[index, mine[index]])
                whole = np.isin(part.rivals, rivals[asked]).all()
                # what `least` says nothing of could be below on other strings
                # than those that are listed
                if not (whole and self._list(least, index, threshold, part)):
                    divided.append(index)
        self._split(parts, region, divided)
        if again:
            region = replace(region.take(np.array(again)), quick=False)
            self._bound([parts[index] for index in again], region)

    def _raise(
        self,
        parts: list[Part],
        readout: Readout,
        among: Unembedding,
        asked: IntArray,
        values: Array,
    ) -> tuple[BoundMinimum, float]:
        """Bound some objectives among others; `values` and the bounds of parts are raised.

        Returns:
            The minima, and the threshold that they were made for.
        """
        region = readout.region
        # whatever the linear bound is made for, it is a bound; half-way to what was seen, it is
        # nearly as good for zero
        threshold = self.threshold(0.5)
        self.work.spent += len(parts) * self.work.to_minimise(len(asked))
        bound = readout.lower(among.take(asked), threshold)
        least = minimise_bound(region, bound)
        found = least.of_objectives(bound, threshold)
        # the quotient and the sum, each rounded once
        found -= 4e-16 * (abs(found) + abs(threshold))
        values[:, asked] = np.maximum(values[:, asked], found)
        improve(parts, values)
        unresolved = np.flatnonzero((values[:, asked] < self.threshold()).any(1))
        if len(unresolved) and not self.finished:
            self.incumbent.run(least.worst_paths(unresolved), among)
        return least, threshold

    def _narrow(self, part: Part, rivals: IntArray, values: Array) -> None:
        """Ask no more about objectives that are large enough on all of a part's strings."""
        settled = values >= self.threshold()
        if settled.any():
            self._close(float(values[settled].min()))
            part.rivals = rivals[~settled]

    def _list(self, least: BoundMinimum, item: int, threshold: float, part: Part) -> bool:
        """Run every string of an item on which the linear bound is negative, unless too many."""
        if not least.finite[item] or part.count > self._listable:
            return False
        negative = least.negative(item)
        # again, for these columns: `least` keeps no paths
        swept = least.columns.take(negative).swept()
        # strings that are not listed are at the threshold at least: the linear bound says so
        lower = threshold
        for index, column in enumerate(negative):
            paths = enumerate_below(swept, index, float(least.threshold[column]), self.most_listed)
            if paths is None:
                self._listable = min(self._listable, part.count / _FEWER)
                return False
            if len(paths):
                self.stats["listed"] += len(paths)
                lower = min(lower, self._run_all(paths, part.rivals))
        self._close(lower)
        return True

    def _run_all(self, paths: IntArray, asked: IntArray) -> float:
        """Run paths, some at a time; a lower bound of some objectives on them."""
        lower = math.inf
        step = self.work.strings_at_once(len(asked))
        for start in range(0, len(paths), step):
            self.attention.deadline.check()
            some = paths[start : start + step]
            lower = min(lower, self.incumbent.least(some, asked, self.threshold()))
        return lower

    def _list_all(self, part: Part) -> None:
        """Run every string of a part."""
        items = as_items(self.graph, [part])
        costs = emission_costs(
            self.graph, np.zeros((len(self.graph.symbols.tokens), 1)), items.groups, items.allowed
        )
        # 10⁹: no limit, for how many there may be was decided before (`Work.most_run`)
        paths = enumerate_below(
            sweep(self.graph, costs), 0, math.inf, 10**9, self.attention.deadline
        )
        assert paths is not None
        self._close(self._run_all(paths, part.rivals))

    def _split(self, parts: Sequence[Part], region: Region, which: Sequence[int]) -> None:
        """Cut some of a region's parts in two; what cannot be cut is listed."""
        halved: list[tuple[Part, BoolArray]] = []
        for item in which:
            part = parts[item]
            live = live_emissions(self.graph, part.group, part.allowed)
            halves = self.brancher.halves(live, region.pull(item))
            if halves is None:
                self._list_all(part)
            else:
                halved += [(part, half) for half in halves]
        # some at a time, as of other columns, so that memory is bounded
        for piece in self.attention.pieces(len(halved)):
            some = halved[piece]
            groups = np.array([part.group for part, _ in some])
            counts = count_paths(self.graph, groups, np.stack([half for _, half in some], axis=1))
            for (part, allowed), count in zip(some, counts.tolist(), strict=True):
                if count:  # empty ones need nothing
                    # heaps compare numbers where bounds are equal: older parts first
                    number = next(self._numbers)
                    self._keep(Part(part.bound, number, part.group, allowed, part.rivals, count))

    # ------------------------------------------------------------------ what a batch is made of

    def _residual(self, items: Items) -> Ball:
        """The residual stream of each item's last symbol."""
        return self.graph.symbols.r.at(self.graph.groups[items.groups])
