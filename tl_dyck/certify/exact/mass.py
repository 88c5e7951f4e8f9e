"""How many strings lose, between two numbers: by parts, of which all lose, or none does.

A part of the strings is bounded from below, and its negated objectives, too. If all objectives are
at least 0 on it, none of its strings loses; if one of them is below 0, all do. Otherwise it is
split, the part with the most strings first, or run if it has few. So both numbers hold at any time,
and in the end they meet, unless a margin is within rounding.

Knows: which parts are split first where strings are counted; `search` looks for the least value.
"""

from __future__ import annotations

import contextlib
import heapq
import itertools
import math
from dataclasses import dataclass, field
from typing import final

import numpy as np

from tl_dyck.certify.deadline import OutOfTime
from tl_dyck.certify.exact.attention import AttentionWeights, Items
from tl_dyck.certify.exact.balls import Array, BoolArray, IntArray
from tl_dyck.certify.exact.columns import minimise_bound
from tl_dyck.certify.exact.incumbent import Incumbent
from tl_dyck.certify.exact.linear import is_linear
from tl_dyck.certify.exact.loss_counts import Losing, count_losing, paths_to_go
from tl_dyck.certify.exact.parts import centres
from tl_dyck.certify.exact.paths import emission_costs, enumerate_below, live_emissions, sweep
from tl_dyck.certify.exact.readout import Readout
from tl_dyck.certify.exact.region import Region
from tl_dyck.certify.exact.splits import Brancher
from tl_dyck.certify.exact.unembedding import Unembedding

_BATCH = 16  # parts bounded at once, as in `search`
_FEW_STRINGS = 256  # a part with at most so many is run
_MOST_PARTS = 1_000
"""After so many parts strings are counted along paths, which takes a second a state of an adder of
342 nodes; then parts are split further only where a time limit ends it,"""
_USELESS = 0.01
"""and only as long as twice as many parts leave so much less of the unknown, as a share of it."""


def count_wrong(attention: AttentionWeights, incumbent: Incumbent, *, on: bool = True) -> Losing:
    """How many strings of a graph have a negative objective: exactly if both numbers are equal.

    Args:
        attention: the strings and their weights, and when to stop.
        incumbent: the objectives; strings are run through it.
        on: whether to split further what many parts leave open, until the deadline, if any.
    """
    if is_linear(attention.network):  # there the sum along a path decides
        found = count_losing(attention, incumbent)
        if found.low == found.high or attention.deadline.passed:
            return found
        # but where one weight is far larger than others, its rounding hides them: parts have less
        return _both(found, Mass(attention, incumbent).run(_MOST_PARTS))
    mass = Mass(attention, incumbent)
    found = mass.run(_MOST_PARTS)
    if found.low < found.high and not attention.deadline.passed:
        found = _both(found, count_losing(attention, incumbent))
        if found.low < found.high and on and attention.deadline.at < math.inf:
            found = _both(found, mass.go_on())
    return found


def _both(one: Losing, other: Losing) -> Losing:
    return Losing(max(one.low, other.low), min(one.high, other.high))


@final
@dataclass(order=True)
class _Part:
    """Strings of a group that use allowed emissions only; the most are first.

    Attributes:
        less: minus their number.
        order: breaks ties.
        rivals: objectives that may be negative on some of them.
    """

    less: int
    order: int
    group: int = field(compare=False)
    allowed: BoolArray = field(compare=False)
    rivals: IntArray = field(compare=False)


@final
class Mass:
    """The strings of a graph that lose.

    Args:
        attention: the strings and their weights, and when to stop.
        incumbent: the objectives; strings are run through it.

    Attributes:
        lost: so many lose for certain.
        hidden: of so many rounding hides it.
        open: parts of which it is not known yet.
    """

    def __init__(self, attention: AttentionWeights, incumbent: Incumbent) -> None:
        self.attention, self.incumbent = attention, incumbent
        self.graph, self.network = attention.graph, attention.network
        self.brancher, self.lost, self.hidden = Brancher(self.graph), 0, 0
        self.below = incumbent.unembedding
        asked = incumbent.objectives
        self.above = self.network.unembedding(type(asked)(asked.minus, asked.plus, -asked.offsets))
        self._numbers = itertools.count()
        self.open: list[_Part] = []
        everything = np.ones(len(self.graph.option), dtype=bool)
        for group in range(len(self.graph.groups)):
            self._keep(group, everything, np.arange(len(self.below)))

    def go_on(self) -> Losing:
        """Split until all is known, when time is up, or when splitting tells nothing any more."""
        found, parts = self.known, _MOST_PARTS
        while self.open and not self.attention.deadline.passed:
            before, found = found, self.run(parts)
            if found.high - found.low > (1 - _USELESS) * (before.high - before.low):
                break
            parts *= 2
        return found

    def run(self, most_parts: float) -> Losing:
        """Split until all is known, after so many parts, or when time is up."""
        parts = 0
        batch: list[_Part] = []
        with contextlib.suppress(OutOfTime):
            while self.open and parts < most_parts and not self.attention.deadline.passed:
                batch = [heapq.heappop(self.open) for _ in range(min(_BATCH, len(self.open)))]
                parts += len(batch)
                self._examine(batch)
        for part in batch:  # that there was no time for
            heapq.heappush(self.open, part)
        return self.known

    @property
    def known(self) -> Losing:
        """What is known so far."""
        unknown = self.hidden - sum(part.less for part in self.open)
        return Losing(self.lost, self.lost + unknown)

    def _keep(self, group: int, allowed: BoolArray, rivals: IntArray) -> None:
        number = int(paths_to_go(self.graph, group, allowed)[self.graph.root])
        if number:
            part = _Part(-number, next(self._numbers), group, allowed, rivals)
            heapq.heappush(self.open, part)

    def _examine(self, batch: list[_Part]) -> None:
        """Settle or split parts; each is taken from the batch when it is done."""
        for part in [part for part in batch if -part.less <= _FEW_STRINGS]:
            self._run(part)
            batch.remove(part)
        if not batch:
            return
        groups = np.array([part.group for part in batch])
        items = Items(groups, np.stack([part.allowed for part in batch], axis=1))
        paths = centres(self.graph, items)
        region = Region.of_values(self.attention, items, self.incumbent.outputs(paths))
        rivals = np.unique(np.concatenate([part.rivals for part in batch]))
        least, most = np.full((2, len(batch), len(self.below)), -np.inf)
        known = np.flatnonzero(region.even)
        if len(known):
            some = region.take(known)
            r = self.graph.symbols.r.at(self.graph.groups[some.items.groups])
            readout = Readout(self.network, some, r)
            at = np.ix_(known, rivals)
            least[at] = self._least(some, readout, self.below.take(rivals))
            most[at] = self._least(some, readout, self.above.take(rivals))
        for index, part in enumerate(batch.copy()):
            mine = part.rivals[~(least[index, part.rivals] >= 0)]
            if (most[index, mine] > 0).any():
                self.lost -= part.less
            elif len(mine):
                self._split(part, mine, region, index)
            batch.remove(part)

    def _least(self, region: Region, readout: Readout, objectives: Unembedding) -> Array:
        """What objectives, times a positive number, are at least, [I, K]."""
        return minimise_bound(region, readout.lower(objectives, 0.0)).values

    def _split(self, part: _Part, rivals: IntArray, region: Region, item: int) -> None:
        live = live_emissions(self.graph, part.group, part.allowed)
        halves = self.brancher.halves(live, region.pull(item))
        if halves is None:
            self._run(part)
            return
        for half in halves:
            self._keep(part.group, half, rivals)

    def _run(self, part: _Part) -> None:
        """Run every string of a part."""
        graph, group = self.graph, np.array([part.group])
        nothing = np.zeros((len(graph.symbols.tokens), 1))
        costs = emission_costs(graph, nothing, group, part.allowed[:, None])
        deadline = self.attention.deadline
        paths = enumerate_below(sweep(graph, costs), 0, math.inf, 10**9, deadline)
        assert paths is not None
        least, most = self.incumbent.values(paths)
        self.lost += int((most < 0).sum())
        self.hidden += int(((most >= 0) & (least < 0)).sum())
