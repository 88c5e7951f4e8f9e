"""Every string of a space as a path, with the state machine of the RNN's first layer run along.

A node is (level of the lattice, budget spent, state), so a path is a string *together with the
symbols it is made of*: what the attention sums over is additive along paths. Two things make the
graph more convenient than that product:

- Paths whose only difference is which synonym they take share an arc. An arc carries a *bundle* of
  *emissions*; an emission is one option read in one state: a short sequence of symbols.
- The readout's query belongs to the last symbol. So every path has exactly one *closing* arc, whose
  emission ends with the last symbol of its string; after it come only options that emit nothing
  (deletions at the end). The last symbols that occur are the *groups*, and a closing bundle belongs
  to one of them: forbidding the others' fixes the query.

Arcs always lead to a higher level. Nodes: O(n · Π(budget + 1) · states per place); emissions:
O(n · (options per place) · states per place). A model without positions or depths has one state per
place; one with positions has as many as the string can have grown or shrunk by.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cached_property
from typing import final

import numpy as np

from tl_dyck.certify.deadline import Deadline
from tl_dyck.certify.exact.balls import Array, IntArray
from tl_dyck.certify.exact.symbols import SymbolTable
from tl_dyck.certify.lattice import Lattice

PREFIX = -1
"""The option of the emission that stands before every string: BOS, if there is one."""

NO_GROUP = -1
"""What stands for a group at bundles that close no string."""


@final
@dataclass(frozen=True)
class StringGraph:
    """All strings of a space around one string; see the module's docstring.

    Attributes:
        lattice: the options that emissions refer to.
        symbols: S symbols, tabulated.
        groups: [G] the last symbol of each group.
        n_nodes: nodes are 0 … n_nodes - 1; the first `n_sinks` have no arcs.
        root: the node before the first symbol.
        finals: the nodes where strings end.
        option: [E] the option of each emission; emissions are sorted by bundle.
        emits: [E, longest] its symbols, padded with S.
        lengths: [E] its number of symbols.
        bundle_start: [bundles + 1] emissions of bundle b are bundle_start[b] …
            bundle_start[b + 1] - 1.
        bundle_group: [bundles] the group of a closing bundle, else `NO_GROUP`.
        arc_source: [A] arcs are sorted by source, and so by level.
        arc_target: [A].
        arc_bundle: [A].
        arc_start: [n_nodes + 1] arcs of node v are arc_start[v] … arc_start[v + 1] - 1.
        level_nodes: pairs (first node, last node + 1) of each level with arcs, in order of level.
        deadline: looked at by the clock at each level that is gone through: of a long string a
            sweep takes tenths of a second, and raises `OutOfTime` in the middle.
    """

    lattice: Lattice
    symbols: SymbolTable
    groups: IntArray
    n_nodes: int
    n_sinks: int
    root: int
    finals: IntArray
    option: IntArray
    emits: IntArray
    lengths: IntArray
    bundle_start: IntArray
    bundle_group: IntArray
    arc_source: IntArray
    arc_target: IntArray
    arc_bundle: IntArray
    arc_start: IntArray
    level_nodes: tuple[tuple[int, int], ...]
    deadline: Deadline = field(default_factory=Deadline)

    @property
    def n_bundles(self) -> int:
        """Number of bundles."""
        return len(self.bundle_group)

    @cached_property
    def closing(self) -> tuple[IntArray, IntArray]:
        """The closing bundles, [C], and the group of each, [C, 1]."""
        closing = np.flatnonzero(self.bundle_group != NO_GROUP)
        return closing, self.bundle_group[closing][:, None]

    @cached_property
    def padded_arcs(self) -> tuple[IntArray, IntArray, Array]:
        """The arcs of each node side by side: bundles, targets, and a cost of inf where none is.

        Each is [n_nodes, most arcs]. A node without arcs gets one that leads nowhere, to itself.
        """
        index = _padded(self.arc_start)
        real = index >= 0
        bundle = np.where(real, self.arc_bundle[index], 0)
        target = np.where(real, self.arc_target[index], np.arange(self.n_nodes)[:, None])
        closed = np.where(real, 0.0, np.inf)
        # sinks stay where they are, at no cost, until the longest path of a batch has ended
        closed[: self.n_sinks, 0] = 0.0
        return bundle, target, closed

    @cached_property
    def levels_up(self) -> tuple[tuple[IntArray, IntArray, IntArray, int], ...]:
        """What sums from the end to the root go through: nodes of a level, the last level first.

        That is: some nodes, and of each its arcs side by side: where they lead to, their bundles;
        and how many a node has, see `side_by_side`.
        """
        return tuple(
            (first + nodes, self.arc_target[arcs], self.arc_bundle[arcs], most)
            for first, last in self.backwards()
            for nodes, arcs, most in side_by_side(self.arc_start[first : last + 1])
        )

    def backwards(self) -> Iterator[tuple[int, int]]:
        """The levels, the last first, as long as there is time.

        Raises:
            OutOfTime: the deadline has passed.
        """
        for nodes in reversed(self.level_nodes):
            self.deadline.check_clock()
            yield nodes

    @cached_property
    def bundle_sides(self) -> tuple[Side, ...]:
        """The emissions of each bundle side by side."""
        return side_by_side(self.bundle_start)

    @cached_property
    def padded_emissions(self) -> tuple[IntArray, Array]:
        """Each bundle's emissions side by side, [bundles, most]; a cost of inf where none is."""
        index = _padded(self.bundle_start)
        return np.maximum(index, 0), np.where(index >= 0, 0.0, np.inf)

    @cached_property
    def _padded_emits(self) -> IntArray:
        """As `emits`; the last row is that of "emission" -1, which pads paths."""
        nothing = np.full((1, self.emits.shape[1]), len(self.symbols.tokens))
        return np.concatenate([self.emits, nothing])

    def symbols_on(self, paths: IntArray) -> IntArray:
        """The symbols on paths, one row each, with S for none between them."""
        return self._padded_emits[paths].reshape(len(paths), -1)

    def string_of(self, emissions: IntArray) -> tuple[int, ...]:
        """The string (without BOS) that a path emits; emissions come in order (-1 is skipped)."""
        # -1 would index the last emission
        path = emissions[emissions >= 0]
        path = path[self.option[path] != PREFIX]
        flat = self.emits[path].ravel()
        # S pads, and has no token
        return tuple(self.symbols.tokens[flat[flat < len(self.symbols.tokens)]].tolist())


Side = tuple[IntArray, IntArray, int]
"""Some segments of a list; the places of their first entries, their second, …; how many each."""


def side_by_side(start: IntArray) -> tuple[Side, ...]:
    """Segments as columns of few arrays, so that numpy takes the least of each with one call.

    As rows it takes two to four times as long, since the least of a row is found number by number.

    Segment i is start[i] … start[i + 1] - 1, and none is empty. A short one has its last entry
    several times, which changes neither its least nor its greatest. Together where that at most
    doubles the entries; else those whose sizes lie between the same powers of two.
    """
    size = np.diff(start)
    # twice the entries cost less than another call for each level
    together = len(size) * size.max(initial=0) <= 2 * size.sum()
    kind = np.zeros(len(size)) if together else np.ceil(np.log2(size))
    found = []
    for each in np.unique(kind):
        which = np.flatnonzero(kind == each)
        most = int(size[which].max())
        # size - 1: the last entry, again and again
        entries = start[which] + np.minimum(np.arange(most)[:, None], size[which] - 1)
        found.append((which, entries.ravel(), most))
    return tuple(found)


def ranges(start: IntArray, count: IntArray) -> IntArray:
    """Count up: start[0], start[0] + 1, …, start[0] + count[0] - 1, start[1], and so on."""
    ends = np.cumsum(count)
    within = np.arange(int(ends[-1]) if len(ends) else 0) - np.repeat(ends - count, count)
    return np.repeat(start, count) + within


def unique_columns(columns: IntArray) -> tuple[IntArray, IntArray]:
    """The distinct columns, [rows, unique], and which of them each column is."""
    low = columns.min(1, initial=0, keepdims=True)
    # `initial` of 0 widens a span at most; what matters is that no two columns get one number
    span = columns.max(1, initial=0) - low[:, 0] + 1
    # one number of mixed radix per column, which is quicker to compare than a column
    key = np.zeros(columns.shape[1], dtype=np.int64)
    for row, width in zip(columns - low, span, strict=True):
        key = key * width + row
    _, first, inverse = np.unique(key, return_index=True, return_inverse=True)
    return columns[:, first], inverse


def _padded(start: IntArray) -> IntArray:
    """Row i lists start[i] … start[i + 1] - 1, padded with -1."""
    count = np.diff(start)
    index = start[:-1, None] + np.arange(count.max(initial=1))
    return np.where(index < start[1:, None], index, -1)
