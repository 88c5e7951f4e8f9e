"""Shortest paths over a `StringGraph`, for many costs at once.

Costs are additive over symbols. All functions work on columns: column b has its own cost of every
symbol, its own group (last symbol) and, where a search has narrowed the space down, its own set of
allowed emissions. One sweep from the end to the root computes, for every node and column, the least
cost from there to the end; it takes O(arcs) vector operations on columns, in one numpy call per
level and step, and needs (nodes + bundles + emissions) × columns numbers.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import final

import numpy as np

from tl_dyck.certify.deadline import Deadline
from tl_dyck.certify.exact.balls import Array, BoolArray, IntArray
from tl_dyck.certify.exact.graph import NO_GROUP, StringGraph, ranges

MOST_COUNTED = 2.0**53
"""Paths are counted up to this many.

Up to here float64 holds every integer, and no product of two counts overflows.
"""


@final
@dataclass(frozen=True)
class Costs:
    """Costs of emissions and bundles, B columns.

    Attributes:
        emissions: [E, B]; inf where forbidden.
        bundles: [bundles, B]: the least of each bundle's emissions; inf for closing bundles of
            other groups.
    """

    emissions: Array
    bundles: Array


@final
@dataclass(frozen=True)
class ShortestPaths:
    """The shortest paths to the end, from every node, for every column: the result of one `sweep`.

    Attributes:
        costs: what was swept.
        to_go: [nodes, B]: the least cost from a node to the end; inf if the end cannot be reached.
    """

    graph: StringGraph
    costs: Costs
    to_go: Array

    @property
    def least(self) -> Array:
        """[B]: the least cost of any string; inf if no string is left."""
        least: Array = self.to_go[self.graph.root]
        return least

    def paths(self, columns: IntArray) -> IntArray:
        """A cheapest path of each of some columns, as emissions, [columns, steps], padded with -1.

        Every column must have a path.
        """
        # all arcs at once, then a walk in Python: for one column quicker than arrays of one row
        if len(columns) == 1:
            return self._path(int(columns[0]))
        graph, n_columns = self.graph, self.to_go.shape[1]
        bundle_of, target_of, closed = graph.padded_arcs
        cost_of, to_go = self.costs.bundles.ravel(), self.to_go.ravel()
        node = np.full(len(columns), graph.root)
        # arrays [·, B] are read as flat ones: entry (i, b) is at i * B + b
        column, nodes, bundles = columns[:, None], [], []
        # a node below `n_sinks` has no arcs; its own, padded, leads back to it
        while node.max() >= graph.n_sinks:
            bundle, target = bundle_of[node], target_of[node]  # [columns, most arcs]
            cost = cost_of.take(bundle * n_columns + column)
            cost += to_go.take(target * n_columns + column)
            cost += closed[node]  # inf where there is no such arc
            # shape[1]: arcs side by side of each node
            best = node * bundle_of.shape[1] + cost.argmin(1)
            nodes.append(node)
            bundles.append(bundle_of.take(best))
            node = target_of.take(best)
        bundle = np.stack(bundles, axis=1)  # [columns, steps]
        # of each bundle on the way its cheapest emission
        emission, missing = graph.padded_emissions
        cost = self.costs.emissions.ravel().take(
            emission[bundle] * n_columns + columns[:, None, None]
        )
        best = bundle * emission.shape[1] + (cost + missing[bundle]).argmin(2)
        # steps after the end emit nothing
        return np.where(np.stack(nodes, axis=1) < graph.n_sinks, -1, emission.take(best))

    def _path(self, column: int) -> IntArray:
        """The same of one column: of every arc at once, then a list is followed."""
        graph, to_go = self.graph, self.to_go[:, column]
        cost = self.costs.bundles[:, column]
        through = cost.take(graph.arc_bundle) + to_go.take(graph.arc_target)
        # equal to the last bit: `to_go` is the least of these very sums
        best = np.flatnonzero(through == to_go.take(graph.arc_source))
        # the first best arc of each node; "clip" is for nodes behind the last one, which have none
        first = best.take(np.searchsorted(best, graph.arc_start[:-1]), mode="clip").tolist()
        node, arcs = graph.root, []
        while node >= graph.n_sinks:
            arcs.append(first[node])
            node = int(graph.arc_target[arcs[-1]])
        emission, missing = graph.padded_emissions
        bundle = graph.arc_bundle[arcs]
        cheapest = (self.costs.emissions[:, column][emission[bundle]] + missing[bundle]).argmin(1)
        path: IntArray = emission[bundle, cheapest]
        return path[None]


def emission_costs(
    graph: StringGraph,
    symbols: Array,
    groups: IntArray,
    allowed: BoolArray | None = None,
    extra: Array | None = None,
) -> Costs:
    """Add up the costs of symbols.

    Args:
        graph: the strings.
        symbols: [S, B] cost of each symbol.
        groups: [B] the group that each column's strings belong to.
        allowed: [E, B] which emissions may be used; all if not given.
        extra: [E] costs of emissions themselves.
    """
    padded = np.concatenate([symbols, np.zeros((1, symbols.shape[1]))])
    costs = _emission_sums(graph, padded)
    if extra is not None:
        costs += extra[:, None]
    if allowed is not None:
        costs[~allowed] = np.inf
    bundles = _least_of_bundles(graph, costs)
    _close(graph, bundles, groups, np.inf)
    return Costs(costs, bundles)


def sweep(graph: StringGraph, costs: Costs) -> ShortestPaths:
    """The least cost from every node to the end."""
    return ShortestPaths(graph, costs, least_to_go(graph, costs.bundles))


def extremes(
    graph: StringGraph, symbols: Array, groups: IntArray | int, allowed: BoolArray | None = None
) -> tuple[Array, Array]:
    """The least and the greatest cost of any string of a group, for B costs of symbols, [S, B].

    Args:
        graph: the strings.
        symbols: [S, B].
        groups: of the strings: one, or one per column, [B].
        allowed: [E, B] which emissions may be used; all if not given.

    Returns:
        [B] and [B].
    """
    # as above: symbol S costs nothing
    padded = np.concatenate([symbols, np.zeros((1, symbols.shape[1]))])
    costs = _emission_sums(graph, np.concatenate([padded, -padded], axis=1))
    if allowed is not None:
        np.copyto(costs.reshape(len(costs), 2, -1), np.inf, where=~allowed[:, None])
    bundles = _least_of_bundles(graph, costs)
    _close(graph, bundles, np.tile(np.broadcast_to(groups, symbols.shape[1]), 2), np.inf)
    # the greatest is minus the least of the negated costs: [least of B | -greatest of B]
    both = least_to_go(graph, bundles)[graph.root]
    return both[: symbols.shape[1]], -both[symbols.shape[1] :]


def least_costs(graph: StringGraph, symbols: Array, allowed: BoolArray) -> Array:
    """The least cost of any string, [B], of some costs of symbols, [S, B].

    Args:
        graph: the strings.
        symbols: [S, B].
        allowed: [E, B] which emissions may be used, also as a string's last.
    """
    costs = _emission_sums(graph, np.concatenate([symbols, np.zeros((1, symbols.shape[1]))]))
    np.copyto(costs, np.inf, where=~allowed)
    least: Array = least_to_go(graph, _least_of_bundles(graph, costs))[graph.root]
    return least


def least_to_go(graph: StringGraph, bundles: Array) -> Array:
    """[nodes, B]: to_go[v] = min over v → w of (its bundle's cost + to_go[w]), last level first."""
    to_go = np.empty((graph.n_nodes, bundles.shape[1]))
    to_go[: graph.n_sinks] = np.inf  # the others have arcs
    to_go[graph.finals] = 0.0
    for nodes, target, bundle, most in graph.levels_up:
        graph.deadline.check_clock()
        through = to_go.take(target, axis=0)
        through += bundles.take(bundle, axis=0)
        to_go[nodes] = _least_of_each(through, most)
    return to_go


def _least_of_bundles(graph: StringGraph, costs: Array) -> Array:
    """The least cost of each bundle's emissions, [bundles, B]."""
    bundles = np.empty((graph.n_bundles, costs.shape[1]))
    for which, emissions, most in graph.bundle_sides:
        bundles[which] = _least_of_each(costs.take(emissions, axis=0), most)
    return bundles


def _least_of_each(offered: Array, most: int) -> Array:
    """The least of `most` numbers side by side; not by `reduceat`: it walks columns one by one."""
    if most == 1:
        return offered
    reduced: Array = np.minimum.reduce(offered.reshape(most, -1, offered.shape[1]), axis=0)
    return reduced


def _emission_sums(graph: StringGraph, padded: Array) -> Array:
    """Costs of emissions, [E, B], from those of symbols, [S + 1, B], the last of which is 0."""
    costs: Array = padded.take(graph.emits[:, 0], axis=0)
    for j in range(1, graph.emits.shape[1]):
        # most emissions are one symbol long: the others alone are added to
        rows = np.flatnonzero(graph.lengths > j)
        costs[rows] += padded.take(graph.emits[rows, j], axis=0)
    return costs


def count_paths(graph: StringGraph, groups: IntArray, allowed: BoolArray | None = None) -> Array:
    """[B]: how many paths each column has; exactly min(number of paths, `MOST_COUNTED`).

    Numbers of paths have no bound that float64 knows (10^400 is inf, and inf · 0 is NaN), so
    whatever exceeds `MOST_COUNTED` is cut down to it, node by node. Cutting down commutes with sums
    and products of whole numbers, and rounding never takes a number of at least 2⁵³ below it.
    """
    ways = (
        np.ones((len(graph.option), len(groups))) if allowed is None else allowed.astype(np.float64)
    )
    bundles = np.add.reduceat(ways, graph.bundle_start[:-1], axis=0)
    _close(graph, bundles, groups, 0.0)
    to_go = np.zeros((graph.n_nodes, len(groups)))
    to_go[graph.finals] = 1.0
    for first, last in graph.backwards():
        start, end = graph.arc_start[first], graph.arc_start[last]
        through = to_go.take(graph.arc_target[start:end], axis=0)
        through *= bundles.take(graph.arc_bundle[start:end], axis=0)
        ways_on = np.add.reduceat(through, graph.arc_start[first:last] - start, axis=0)
        to_go[first:last] = np.minimum(ways_on, MOST_COUNTED)
    counts: Array = to_go[graph.root]
    return counts


def enumerate_below(
    swept: ShortestPaths,
    column: int,
    threshold: float,
    limit: int,
    deadline: Deadline | None = None,
) -> IntArray | None:
    """All paths of one column whose cost is at most `threshold`; None if more than `limit`.

    Partial paths are extended level by level, and dropped when even the cheapest way to the end
    costs too much. So every one that is kept leads to a result, and the work is proportional to the
    number of results.

    Returns:
        [paths, steps] emissions, padded with -1.

    Raises:
        OutOfTime: the deadline has passed by the clock; looked at level by level.
    """
    graph, to_go = swept.graph, swept.to_go[:, column]
    deadline = deadline or Deadline()
    bundles, emissions = swept.costs.bundles[:, column], swept.costs.emissions[:, column]
    threshold = min(threshold, np.finfo(np.float64).max)  # forbidden is inf, and stays so
    # per partial path: index of the one it extends, emission
    # entry 0 is the empty path: it extends none, and emits nothing
    history = [(np.array([-1]), np.array([-1]))]
    n_history = 1
    waiting: dict[int, list[tuple[IntArray, Array, IntArray]]] = {}
    levels = [first for first, _ in graph.level_nodes]
    ended: list[IntArray] = []

    def put(node: IntArray, cost: Array, index: IntArray) -> None:
        done = node < graph.n_sinks
        ended.append(index[done])
        # the level whose first node is the last that is not behind
        which = np.searchsorted(levels, node, side="right") - 1
        for level in np.unique(which[~done]):
            there = (which == level) & ~done
            waiting.setdefault(int(level), []).append((node[there], cost[there], index[there]))

    put(np.array([graph.root]), np.zeros(1), np.array([0]))
    n_ended = len(ended[0])
    for level in range(len(levels)):
        if level not in waiting:
            continue
        deadline.check_clock()
        node, cost, index = (np.concatenate(part) for part in zip(*waiting.pop(level), strict=True))
        count = graph.arc_start[node + 1] - graph.arc_start[node]
        arc, origin = ranges(graph.arc_start[node], count), np.repeat(np.arange(len(node)), count)
        bundle, target = graph.arc_bundle[arc], graph.arc_target[arc]
        # so far + the cheapest emission + the cheapest rest: more than the threshold means no
        # result comes of it
        kept = cost[origin] + bundles[bundle] + to_go[target] <= threshold
        origin, bundle, target = origin[kept], bundle[kept], target[kept]
        count = graph.bundle_start[bundle + 1] - graph.bundle_start[bundle]
        row = ranges(graph.bundle_start[bundle], count)
        which = np.repeat(np.arange(len(bundle)), count)
        # a closing bundle of another group is forbidden as a whole, and was dropped with its arc
        spent = cost[origin[which]] + emissions[row]
        kept = spent + to_go[target[which]] <= threshold
        row, which, spent = row[kept], which[kept], spent[kept]
        history.append((index[origin[which]], row))
        put(target[which], spent, np.arange(n_history, n_history + len(row)))
        n_history += len(row)
        # every open end leads to a result at least: no need to go on to
        # know that there are too many
        open_ends = sum(len(part[0]) for parts in waiting.values() for part in parts)
        n_ended += len(ended[-1])
        if open_ends + n_ended > limit:
            return None
    return _read_back(history, np.concatenate(ended))


def _read_back(history: list[tuple[IntArray, IntArray]], at: IntArray) -> IntArray:
    """The emissions of whole paths, from which partial path each one extends, and by what."""
    parent, emission = (np.concatenate(part) for part in zip(*history, strict=True))
    steps = []
    # 0 is the empty path
    while (at > 0).any():
        steps.append(emission[at])
        at = np.where(at > 0, parent[at], 0)
    return np.stack(steps[::-1], axis=1) if steps else np.empty((0, 0), dtype=np.int64)


def _close(graph: StringGraph, bundles: Array, groups: IntArray, forbidden: float) -> None:
    """Forbid the closing bundles of other groups, in place."""
    closing, group = graph.closing
    bundles[closing] = np.where(group != groups, forbidden, bundles[closing])


def live_emissions(
    graph: StringGraph, groups: IntArray | int, allowed: BoolArray | None
) -> BoolArray:
    """[E]: which of the allowed emissions (all if not given) are on some path of a group."""
    return live(graph, groups, allowed)[0]


def live(
    graph: StringGraph, groups: IntArray | int, allowed: BoolArray | None
) -> tuple[BoolArray, BoolArray]:
    """The allowed emissions, and the arcs, that are on some path of a group: [E] and [A]."""
    if allowed is None:
        allowed = np.ones(len(graph.option), dtype=bool)
    alone = np.ndim(groups) == 0  # `isin` takes longer
    mine = graph.bundle_group == groups if alone else np.isin(graph.bundle_group, groups)
    closed = (graph.bundle_group != NO_GROUP) & ~mine
    bundles = np.logical_or.reduceat(allowed, graph.bundle_start[:-1]) & ~closed
    ends, begun = np.zeros((2, graph.n_nodes), dtype=bool)
    ends[graph.finals], begun[graph.root] = True, True
    for first, last in graph.backwards():
        start, end = graph.arc_start[first], graph.arc_start[last]
        through = ends[graph.arc_target[start:end]] & bundles[graph.arc_bundle[start:end]]
        ends[first:last] = np.logical_or.reduceat(through, graph.arc_start[first:last] - start)
    used = ends[graph.arc_target] & bundles[graph.arc_bundle]
    for first, last in graph.level_nodes:
        arcs = slice(graph.arc_start[first], graph.arc_start[last])
        used[arcs] &= begun[graph.arc_source[arcs]]
        begun[graph.arc_target[arcs][used[arcs]]] = True
    passed = np.zeros(graph.n_bundles, dtype=bool)
    passed[graph.arc_bundle[used]] = True
    return allowed & np.repeat(passed, np.diff(graph.bundle_start)), used
