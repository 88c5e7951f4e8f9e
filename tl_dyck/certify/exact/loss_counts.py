"""How many strings of a group lose: counted along paths, most of them without being listed.

Per objective two linear functionals of the attention's outputs are known, below it and (of the
objective negated) above it, and the sign of each on a string is that of a sum along its path. So of
all that continue a partial path it is known, from the sum so far and the least that is to come,
whether none of them loses, or every one: then they are counted at once. What stays in between until
its end is run. Where no ReLU is unstable, both functionals are the objective itself, and only what
rounding hides is run. A search in depth, so that memory is bounded however many lose. Where too
many paths stay in between (`_MOST`), those that have come to nearly the same are taken for one,
objective by objective, on the side that makes the number a bound.

Knows: how strings are counted by their value; `paths` counts all.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Any, NamedTuple, final

import numpy as np
from numpy.typing import NDArray

from tl_dyck.certify.deadline import OutOfTime
from tl_dyck.certify.exact.attention import AttentionWeights, Items
from tl_dyck.certify.exact.balls import Array, BoolArray, IntArray
from tl_dyck.certify.exact.columns import BoundMinimum, minimise_bound
from tl_dyck.certify.exact.graph import NO_GROUP, StringGraph, ranges
from tl_dyck.certify.exact.incumbent import Incumbent
from tl_dyck.certify.exact.parts import centres
from tl_dyck.certify.exact.paths import ShortestPaths, least_to_go
from tl_dyck.certify.exact.readout import Readout
from tl_dyck.certify.exact.region import Region
from tl_dyck.certify.objectives import Objectives

_PIECE = 1 << 14
"""So many partial paths are extended at once."""

_MOST = 1 << 20
"""So many are extended in all, per group, times objectives; then their number is bounded first."""

_LISTED = 50_000_000
"""Unless it turns out that no more than so many lose; they are counted after all."""

_OBJECTIVES = 8
"""Of groups in which more may be negative nothing more is known."""

_MERGED = 1 << 13
"""So many kinds of paths are told apart, per level, where they are bounded."""

_COUNTED = 1 << 1000
"""Nor of groups of so many strings: as floats, which end at 2^1024, they could not be added up."""

Counts = NDArray[np.object_]
"""Python's integers: a language has more strings than int64 knows."""


class Losing(NamedTuple):
    """How many strings lose: at least, and at most."""

    low: int
    high: int


@final
@dataclass(frozen=True)
class _Side:
    """Columns of one side, swept; `reach` is what a path must come to for its bound to say no.

    Attributes:
        swept: B columns.
        reach: [B].
        objective: [B] which objective each is about.
    """

    swept: ShortestPaths
    reach: Array
    objective: IntArray

    def after(self, spent: Array, bundle: IntArray, emission: IntArray) -> Array:
        """What partial paths come to, one emission further; inf where that is forbidden."""
        costs = self.swept.costs
        closed = np.isinf(costs.bundles[bundle])
        return np.where(closed, np.inf, spent + costs.emissions[emission])

    def clear(self, spent: Array, node: IntArray, *, strictly: bool) -> BoolArray:
        """[n, B]: whether all that continue them come to as much."""
        least = spent + self.swept.to_go[node]
        return least > self.reach if strictly else least >= self.reach


@final
@dataclass
class _Count:
    """One group: how many lose for certain, and of how many nothing is known."""

    attention: AttentionWeights
    incumbent: Incumbent
    group: int
    below: _Side
    above: _Side
    ways: Counts
    sure: int = 0
    unknown: int = 0
    stack: list[tuple[IntArray, Array, Array, IntArray]] = field(default_factory=list)

    def run(self) -> Losing:
        """Count, the longest partial paths first."""
        graph = self.attention.graph
        zero = np.zeros((1, len(self.below.reach))), np.zeros((1, len(self.above.reach)))
        self.stack.append((np.array([graph.root]), *zero, np.empty((1, 0), dtype=np.int64)))
        # each column is carried along with every path
        self._go_on(_MOST // (len(self.below.reach) + len(self.above.reach)))
        if self.stack and not self.attention.deadline.passed:
            bounds = self._bounds()
            # too many to be extended one by one
            if bounds.high > _LISTED:
                return bounds
            self._go_on(math.inf)
        self.unknown += sum(int(self.ways[node].sum()) for node, *_ in self.stack)
        return Losing(self.sure, self.sure + self.unknown)

    def _go_on(self, most: float) -> None:
        """Extend so many partial paths, as long as there is time."""
        extended = 0
        while self.stack and extended < most and not self.attention.deadline.passed:
            piece = self.stack.pop()
            extended += len(piece[0])
            self._extend(*piece)

    def _bounds(self) -> Losing:
        """Bounds of how many lose by one objective at least: the most by any, and all of them."""
        graph, total = self.attention.graph, int(self.ways[self.attention.graph.root])
        mine = (graph.bundle_group == NO_GROUP) | (graph.bundle_group == self.group)
        if len(self.below.reach) > _OBJECTIVES or total >= _COUNTED:
            return Losing(self.sure, total)
        low, high = 0.0, 0.0
        for column, reach in enumerate(self.below.reach.tolist()):
            costs = self.below.swept.costs.emissions[:, column]
            high += _number_below(graph, mine, self.ways, costs, reach, up=False)
            self.attention.deadline.check()
        # of several patterns all must agree, which counts along one column cannot tell
        patterns = len(self.above.reach) // len(np.unique(self.above.objective))
        for column, reach in enumerate(self.above.reach.tolist() if patterns == 1 else []):
            costs = -self.above.swept.costs.emissions[:, column]
            low = max(low, _number_below(graph, mine, self.ways, costs, -reach, up=True))
            self.attention.deadline.check()
        # counts are sums of floats here: rounded down, and up below
        # sums of positive floats, pairwise: some 30 u a level, 1e-9 for
        # thousands of levels and to spare
        sure = max(self.sure, int(low * (1 - 1e-9)))
        return Losing(min(sure, total), min(total, max(sure, int(high * (1 + 1e-9)) + 1)))

    def _extend(self, node: IntArray, low: Array, high: Array, path: IntArray) -> None:
        graph = self.attention.graph
        arcs = graph.arc_start[node + 1] - graph.arc_start[node]
        arc, origin = ranges(graph.arc_start[node], arcs), np.repeat(np.arange(len(node)), arcs)
        own = graph.bundle_group[graph.arc_bundle[arc]]
        mine = (own == NO_GROUP) | (own == self.group)
        arc, origin = arc[mine], origin[mine]
        bundle = graph.arc_bundle[arc]
        size = graph.bundle_start[bundle + 1] - graph.bundle_start[bundle]
        emission, which = (
            ranges(graph.bundle_start[bundle], size),
            np.repeat(np.arange(len(arc)), size),
        )
        origin, bundle, node = origin[which], bundle[which], graph.arc_target[arc[which]]
        low = self.below.after(low[origin], bundle, emission)
        # no objective can be negative on any continuation
        # not strictly: an objective of exactly 0 does not lose
        keep = ~self.below.clear(low, node, strictly=False).all(1)
        origin, emission, node, low = origin[keep], emission[keep], node[keep], low[keep]
        high = self.above.after(high[origin], bundle[keep], emission)
        clear = self.above.clear(high, node, strictly=True)
        # some objective is negative on every continuation
        k = self.above.objective
        # all patterns of an objective must say so, one objective suffices
        lost = np.zeros(len(node), dtype=bool)
        for each in np.unique(k):
            lost |= clear[:, k == each].all(1)
        # a node that is an end leads to one string: itself
        self.sure += int(self.ways[node[lost]].sum())
        path = np.concatenate([path[origin], emission[:, None]], axis=1)
        ended = ~lost & (node < graph.n_sinks)
        if ended.any():
            self._judge(path[ended])
        going = np.flatnonzero(~lost & ~ended)
        for start in range(0, len(going), _PIECE):
            at = going[start : start + _PIECE]
            self.stack.append((node[at], low[at], high[at], path[at]))

    def _judge(self, paths: IntArray) -> None:
        """Strings on which neither bound says enough are run."""
        least, most = self.incumbent.values(paths)
        # by the ends of the enclosures of a run
        self.sure += int((most < 0).sum())
        self.unknown += int(((most >= 0) & (least < 0)).sum())


def count_losing(attention: AttentionWeights, incumbent: Incumbent) -> Losing:
    """How many strings of a graph have a negative objective: exactly if both numbers are equal.

    Args:
        attention: the strings and their weights, and when to stop.
        incumbent: the objectives; strings are run through it.
    """
    graph, objectives = attention.graph, incumbent.objectives
    every = [paths_to_go(graph, group) for group in range(len(graph.groups))]
    groups = np.flatnonzero([ways[graph.root] > 0 for ways in every])
    ways = [every[group] for group in groups]
    unknown = Losing(0, sum(int(each[graph.root]) for each in ways))
    try:
        region = _region(attention, incumbent, Items(groups))
        known = np.flatnonzero(region.sound)
        found = _lower(attention, incumbent, region.take(known), objectives)
        if found is None:
            return unknown
        some = np.unique(found.columns.item[found.least < found.threshold])
        low = high = 0
        for item in np.flatnonzero(~region.sound):
            # where a denominator may underflow nothing is known of a group
            high += int(ways[item][graph.root])
        for item in some:
            counted = _count_item(
                attention, incumbent, region.take(known[[item]]), ways[known[item]]
            )
            low, high = low + counted.low, high + counted.high
    except OutOfTime:
        return unknown
    return Losing(low, high)


def _region(attention: AttentionWeights, incumbent: Incumbent, items: Items) -> Region:
    paths = centres(attention.graph, items)
    return Region.of_values(attention, items, incumbent.outputs(paths))


def _lower(
    attention: AttentionWeights, incumbent: Incumbent, region: Region, objectives: Objectives
) -> BoundMinimum | None:
    """The least of linear functionals below the objectives; None if nothing is known of any."""
    network, graph = attention.network, attention.graph
    if not len(region.items):
        return None
    r = graph.symbols.r.at(graph.groups[region.items.groups])
    bound = Readout(network, region, r).lower(network.unembedding(objectives), 0.0)
    return minimise_bound(region, bound) if bound.finite.all() else None


def _count_item(
    attention: AttentionWeights, incumbent: Incumbent, region: Region, ways: Counts
) -> Losing:
    """Count one group's, of a region that is sound."""
    asked = incumbent.objectives
    # a bound of −g from below is one of g from above
    negated = Objectives(asked.minus, asked.plus, -asked.offsets)
    below = _lower(attention, incumbent, region, asked)
    above = _lower(attention, incumbent, region, negated)
    if below is None or above is None:
        return Losing(0, int(ways[attention.graph.root]))
    some = below.negative(0)
    if not len(some):
        return Losing(0, 0)
    patterns = len(below.least) // len(asked.plus)
    # the number of a column's objective
    rivals = np.unique(some // patterns)
    # columns are objective by objective, its patterns side by side
    every = (rivals[:, None] * patterns + np.arange(patterns)).ravel()
    return _Count(
        attention,
        incumbent,
        int(region.items.groups[0]),
        _Side(below.columns.take(some).swept(), below.threshold[some], some // patterns),
        _Side(above.columns.take(every).swept(), above.threshold[every], every // patterns),
        ways,
    ).run()


def _number_below(
    graph: StringGraph, mine: BoolArray, ways: Counts, costs: Array, reach: float, *, up: bool
) -> float:
    """How many paths cost less than `reach`: at least (`up`), or at most; to some 10 digits.

    Level by level; of partial paths to a node, those that cost nearly the same are taken for one,
    which costs as much as the dearest of them (`up`) or the cheapest.

    Args:
        graph: the strings.
        mine: [bundles] which may be used.
        ways: [nodes] how many paths lead from each to the end.
        costs: [E] of emissions.
        reach: what a path must stay below.
        up: for a lower bound.
    """
    ends = [_extreme_to_go(graph, mine, costs, sign) for sign in (1.0, -1.0)]
    # counts up to 1e308: some 15 digits, and 1e-9 is allowed for
    onward = ways.astype(np.float64)
    node, spent, many = np.array([graph.root]), np.zeros(1), np.ones(1)
    number = 0.0
    while len(node):
        arcs = graph.arc_start[node + 1] - graph.arc_start[node]
        arc, origin = ranges(graph.arc_start[node], arcs), np.repeat(np.arange(len(node)), arcs)
        used = mine[graph.arc_bundle[arc]]
        arc, origin = arc[used], origin[used]
        bundle = graph.arc_bundle[arc]
        size = graph.bundle_start[bundle + 1] - graph.bundle_start[bundle]
        which = np.repeat(np.arange(len(arc)), size)
        emission, origin = ranges(graph.bundle_start[bundle], size), origin[which]
        node, many = graph.arc_target[arc[which]], many[origin]
        spent = spent[origin] + costs[emission]
        # a path that is on neither side by more than rounding is on the side of the bound
        # more than rounding of sums of as many costs as a string has symbols
        # the costs' own slack covers any order of adding them
        # (`AttentionWeights.columns`): this is beside it
        close = 1e-12 * (abs(spent) + abs(ends[0][node]) + abs(ends[1][node]))
        # a lower bound counts what is below for certain, an upper one what may be
        slack = close if up else -close
        all_below = spent + ends[1][node] + slack < reach
        some_below = spent + ends[0][node] + slack < reach
        number += float((many * onward[node])[all_below].sum())
        going = some_below & ~all_below & (node >= graph.n_sinks)
        node, spent, many = _merged(node[going], spent[going], many[going], up=up)
    return number


def _merged(
    node: IntArray, spent: Array, many: Array, *, up: bool
) -> tuple[IntArray, Array, Array]:
    """At most some `_MERGED` partial paths instead of many, see `_number_below`."""
    if len(node) <= _MERGED:
        return node, spent, many
    # by node, then by cost
    order = np.lexsort((spent, node))
    node, spent, many = node[order], spent[order], many[order]
    # nodes share the cells, so that all together they are about `_MERGED`
    # not 0: all costs may be equal
    step = max(float(spent.max() - spent.min()) / _MERGED * len(np.unique(node)), 1e-300)
    cell = np.floor((spent - spent.min()) / step)
    # -1 is no node and no cell: the first begins a run of its own
    start = np.flatnonzero((np.diff(node, prepend=-1) != 0) | (np.diff(cell, prepend=-1) != 0))
    last = np.append(start[1:], len(node)) - 1
    # up: as if all cost as much as the dearest, so that fewer are counted
    return node[start], spent[last if up else start], np.add.reduceat(many, start)


def _extreme_to_go(graph: StringGraph, mine: BoolArray, costs: Array, sign: float) -> Array:
    """[nodes] the least (sign 1) or the greatest (-1) cost from each to the end."""
    bundles = np.minimum.reduceat(sign * costs, graph.bundle_start[:-1])
    return sign * least_to_go(graph, np.where(mine, bundles, np.inf)[:, None])[:, 0]


def paths_to_go(graph: StringGraph, group: int, allowed: BoolArray | None = None) -> Counts:
    """[nodes] how many paths of a group, of allowed emissions, lead on to the end, exactly."""
    size: Any = np.diff(graph.bundle_start).astype(object)
    if allowed is not None:
        size = np.add.reduceat(allowed.astype(np.int64), graph.bundle_start[:-1]).astype(object)
    # no string of this group passes another's closing bundle
    size[(graph.bundle_group != NO_GROUP) & (graph.bundle_group != group)] = 0
    ways: Counts = np.zeros(graph.n_nodes, dtype=object)
    ways[graph.finals] = 1
    for first, last in reversed(graph.level_nodes):
        start, end = graph.arc_start[first], graph.arc_start[last]
        through = size[graph.arc_bundle[start:end]] * ways[graph.arc_target[start:end]]
        ways[first:last] = np.add.reduceat(through, graph.arc_start[first:last] - start)
    return ways
