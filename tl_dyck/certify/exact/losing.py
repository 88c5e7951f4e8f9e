"""How many strings of a group lose: counted along paths, most of them without being listed.

Per objective two linear functionals of the attention's outputs are known, below it and (of the
objective negated) above it, and the sign of each on a string is that of a sum along its path. So of
all that continue a partial path it is known, from the sum so far and the least that is to come,
whether none of them loses, or every one: then they are counted at once. What stays in between until
its end is run. Where no ReLU is unstable, both functionals are the objective itself, and only what
rounding hides is run. A search in depth, so that memory is bounded however many lose.

Knows: how strings are counted by their value; `paths` counts all.
"""

from __future__ import annotations

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
from tl_dyck.certify.exact.paths import ShortestPaths, emission_costs, sweep
from tl_dyck.certify.exact.readout import Readout
from tl_dyck.certify.exact.region import Region
from tl_dyck.certify.objectives import Objectives

_PIECE = 1 << 14
"""So many partial paths are extended at once."""

_MOST = 1 << 24
"""So many are extended in all, per group; what is left then is counted as unknown."""

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
        extended = 0
        while self.stack and extended < _MOST and not self.attention.deadline.passed:
            piece = self.stack.pop()
            extended += len(piece[0])
            self._extend(*piece)
        self.unknown += sum(int(self.ways[node].sum()) for node, *_ in self.stack)
        return Losing(self.sure, self.sure + self.unknown)

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
        keep = ~self.below.clear(low, node, strictly=False).all(1)
        origin, emission, node, low = origin[keep], emission[keep], node[keep], low[keep]
        high = self.above.after(high[origin], bundle[keep], emission)
        clear = self.above.clear(high, node, strictly=True)
        # some objective is negative on every continuation
        k = self.above.objective
        lost = np.zeros(len(node), dtype=bool)
        for each in np.unique(k):
            lost |= clear[:, k == each].all(1)
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
    graph = attention.graph
    costs = emission_costs(graph, np.zeros((len(graph.symbols.tokens), len(items))), items.groups)
    paths = sweep(graph, costs).paths(np.arange(len(items)))
    return Region.of_values(attention, items, incumbent.outputs(paths))


def _lower(
    attention: AttentionWeights, incumbent: Incumbent, region: Region, objectives: Objectives
) -> BoundMinimum | None:
    """The least of linear functionals below the objectives; None if nothing is known of any."""
    network, graph = attention.network, attention.graph
    if not len(region.items):
        return None
    r = graph.symbols.r.at(graph.groups[region.items.groups])
    bound = Readout(network, network.unembed(objectives), region, r).lower(0.0)
    return minimise_bound(region, bound, region.centre) if bound.finite.all() else None


def _count_item(
    attention: AttentionWeights, incumbent: Incumbent, region: Region, ways: Counts
) -> Losing:
    """Count one group's, of a region that is sound."""
    asked = incumbent.objectives
    negated = Objectives(asked.minus, asked.plus, -asked.offsets)
    below = _lower(attention, incumbent, region, asked)
    above = _lower(attention, incumbent, region, negated)
    if below is None or above is None:
        return Losing(0, int(ways[attention.graph.root]))
    some = below.negative(0)
    if not len(some):
        return Losing(0, 0)
    patterns = len(below.least) // len(asked.plus)
    rivals = np.unique(some // patterns)
    every = (rivals[:, None] * patterns + np.arange(patterns)).ravel()
    return _Count(
        attention,
        incumbent,
        int(region.items.groups[0]),
        _Side(below.columns.take(some).swept(), below.threshold[some], some // patterns),
        _Side(above.columns.take(every).swept(), above.threshold[every], every // patterns),
        ways,
    ).run()


def paths_to_go(graph: StringGraph, group: int) -> Counts:
    """[nodes] how many paths of a group lead from each node to the end, exactly."""
    size: Any = np.diff(graph.bundle_start).astype(object)
    size[(graph.bundle_group != NO_GROUP) & (graph.bundle_group != group)] = 0
    ways: Counts = np.zeros(graph.n_nodes, dtype=object)
    ways[graph.finals] = 1
    for first, last in reversed(graph.level_nodes):
        start, end = graph.arc_start[first], graph.arc_start[last]
        through = size[graph.arc_bundle[start:end]] * ways[graph.arc_target[start:end]]
        ways[first:last] = np.add.reduceat(through, graph.arc_start[first:last] - start)
    return ways
