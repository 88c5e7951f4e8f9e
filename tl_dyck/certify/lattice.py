"""A perturbation space around a string, laid out as a lattice of options, as algorithms read it.

The string x_0 … x_{n-1} is cut into *levels*, read from left to right: before x_0, before x_1, …,
the end; a gap at which something may be inserted is a level of its own. An option leads from one
level to a later one and emits tokens: "keep x_i", "rewrite the span that starts here", "insert at
this gap", "insert nothing". A string of the space is what a path of options from the first level to
the last emits, with no more options of each transformation than its budget. Two facts follow, and
the rest of the package relies on them:

- Every path passes every level step ℓ → ℓ+1 exactly once, inside exactly one option. So the options
  that cover a step can be split into two sets, and every path falls on exactly one side
  (`tl_dyck.certify.exact` branches this way).
- Rewritten spans are disjoint, and a gap inside a rewritten span cannot be used.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple, final

import numpy as np
from numpy.typing import NDArray

from tl_dyck.kit.errors import DyckError

KEEP = -1
"""The kind of options that edit nothing: keep a word, leave a gap alone."""

MOST_NODES = 2**19
"""Spaces with more (level, code) pairs than this are not laid out: one with states has several
nodes for each, and a node with its arcs takes about a kilobyte."""


class SpaceTooLargeError(DyckError, ValueError):
    """A space has more strings than may be listed, or budgets too large to be laid out."""


class Option(NamedTuple):
    """One thing that can be done at one place.

    Attributes:
        source: level it starts from.
        target: level it leads to.
        kind: index of the transformation it spends budget of, or `KEEP`.
        start: index of the first original token it replaces (or of the gap).
        end: index after the last one; equal to `start` for an insertion.
        emits: the tokens put in their place.
    """

    source: int
    target: int
    kind: int
    start: int
    end: int
    emits: tuple[int, ...]


@final
@dataclass(frozen=True)
class Lattice:
    """All options around one string.

    Attributes:
        tokens: the original string.
        budgets: most uses of each transformation (never more than could be used at once).
        last_level: the level at the end of the string; the first level is 0.
        options: sorted by source.
    """

    tokens: tuple[int, ...]
    budgets: tuple[int, ...]
    last_level: int
    options: tuple[Option, ...]

    @property
    def n_codes(self) -> int:
        """Number of ways to have spent the budgets; a *code* 0 … n_codes - 1 stands for each."""
        return math.prod(budget + 1 for budget in self.budgets)

    @cached_property
    def strides(self) -> tuple[int, ...]:
        """Amount that a use of each transformation adds to the code: codes are of mixed radix."""
        strides, stride = [], 1
        for budget in self.budgets:
            strides.append(stride)
            stride *= budget + 1
        return tuple(strides)

    def spent(self, code: int) -> tuple[int, ...]:
        """The uses of each transformation that a code stands for."""
        return tuple(
            code // stride % (budget + 1)
            for stride, budget in zip(self.strides, self.budgets, strict=True)
        )

    def after(self, code: int, kind: int) -> int | None:
        """The code after one more option of that kind, or None if its budget is spent."""
        if kind == KEEP:
            return code
        stride, budget = self.strides[kind], self.budgets[kind]
        return None if code // stride % (budget + 1) == budget else code + stride

    @cached_property
    def table(self) -> NDArray[np.int64]:
        """[6, options]: source, target, kind, start, end, and number of tokens of each option."""
        # 6: source, target, kind, start, end, and what becomes the number of tokens
        *columns, emits = zip(*self.options, strict=True) if self.options else ((),) * 6
        table: NDArray[np.int64] = np.array([*columns, [*map(len, emits)]], dtype=np.int64)
        return table

    @cached_property
    def options_from(self) -> tuple[tuple[int, ...], ...]:
        """Indices of the options that start at each level."""
        table: list[list[int]] = [[] for _ in range(self.last_level + 1)]
        for index, option in enumerate(self.options):
            table[option.source].append(index)
        return tuple(map(tuple, table))

    def check_size(self) -> None:
        """Refuse budgets whose codes, at every level, are too many to be laid out.

        Raises:
            SpaceTooLargeError: there are more than `MOST_NODES`.
        """
        levels = self.last_level + 1
        if self.n_codes * levels > MOST_NODES:
            budgets = " x ".join(str(budget + 1) for budget in self.budgets)
            raise SpaceTooLargeError(
                f"the budgets can be spent in {budgets} = {self.n_codes:,} ways at each of "
                f"{levels:,} places, more than the {MOST_NODES:,} nodes that a graph may have; "
                "lower the budgets or shorten the string."
            )

    def n_edit_paths(self) -> int:
        """Number of paths: ways to choose disjoint rewritings within the budgets.

        This is not the number of distinct strings.
        """
        ways: list[dict[int, int]] = [{} for _ in range(self.last_level + 1)]
        ways[0][0] = 1
        for option in self.options:
            for code, count in ways[option.source].items():
                new = self.after(code, option.kind)
                if new is not None:
                    ways[option.target][new] = ways[option.target].get(new, 0) + count
        return sum(ways[-1].values())

    def length_range(self) -> tuple[int, int]:
        """Number of tokens of the shortest and of the longest string.

        Raises:
            SpaceTooLargeError: the budgets are too large, see `check_size`.
        """
        self.check_size()
        seen: list[dict[int, tuple[int, int]]] = [{} for _ in range(self.last_level + 1)]
        seen[0][0] = (0, 0)
        # synonyms differ in nothing that matters here
        for source, target, kind, more in dict.fromkeys(
            (o.source, o.target, o.kind, len(o.emits)) for o in self.options
        ):
            for code, (low, high) in tuple(seen[source].items()):
                new = self.after(code, kind)
                if new is not None:
                    shortest, longest = seen[target].get(new, (low + more, high + more))
                    seen[target][new] = (min(shortest, low + more), max(longest, high + more))
        ends = seen[-1].values()
        return min(low for low, _ in ends), max(high for _, high in ends)

    def length_bounds(self) -> tuple[int, int]:
        """Numbers that `length_range` cannot leave, at once.

        It is as if every edit could be the one that changes most.
        """
        _, _, kinds, start, end, length = self.table
        low = high = len(self.tokens)
        for kind, budget in enumerate(self.budgets):
            longer = (length + start - end)[kinds == kind]
            low += budget * int(longer.min(initial=0))
            high += budget * int(longer.max(initial=0))
        return max(0, low), high

    def path_to(self, string: Sequence[int]) -> tuple[int, ...] | None:
        """Indices of the options of a path that emits `string` by fewest edits, or None."""
        string = tuple(string)
        if string == self.tokens:  # at once, however many other paths there are
            return tuple(index for index, option in enumerate(self.options) if option.kind == KEEP)
        parents: dict[tuple[int, int, int], tuple[tuple[int, int, int], int] | None] = {
            (0, 0, 0): None
        }
        front: list[set[tuple[int, int, int]]] = [set() for _ in range(self.last_level + 1)]
        front[0].add((0, 0, 0))
        occur = set(string)
        for index, (source, target, kind, _, _, emits) in enumerate(self.options):
            if emits and emits[0] not in occur:
                continue
            for place in tuple(front[source]):
                _, code, read = place
                end = read + len(emits)
                if string[read:end] != emits or (new := self.after(code, kind)) is None:
                    continue
                reached = (target, new, end)
                if reached not in parents:
                    parents[reached] = (place, index)
                    front[target].add(reached)
        ends = [place for place in front[-1] if place[2] == len(string)]
        if not ends:
            return None
        # the number of edits is the number of budget units spent, so any path to the cheapest code
        # will do
        step = parents[min(ends, key=lambda place: (sum(self.spent(place[1])), place[1]))]
        path = []
        while step is not None:
            path.append(step[1])
            step = parents[step[0]]
        return tuple(reversed(path))
