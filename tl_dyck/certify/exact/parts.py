"""Parts of a space, and what is proved of each.

Knows: what a search remembers of the strings that it has not settled, and where it looks at them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import final

import numpy as np

from tl_dyck.certify.exact.attention import Items
from tl_dyck.certify.exact.balls import Array, BoolArray, IntArray
from tl_dyck.certify.exact.graph import StringGraph
from tl_dyck.certify.exact.paths import emission_costs, sweep
from tl_dyck.certify.lattice import KEEP


@final
@dataclass(order=True)
class Part:
    """Some of the strings: those of a group that use allowed emissions only.

    Attributes:
        bound: a proved lower bound of the objectives on its strings.
        order: breaks ties.
        group: index of its last symbol.
        allowed: [E]; None for all.
        rivals: indices of the objectives that are still asked about: the others are known to be at
            least `Search.closed` on its strings.
        count: how many paths it has; exactly min(number of paths, `MOST_COUNTED`).
    """

    bound: float
    order: int
    group: int = field(compare=False)
    allowed: BoolArray | None = field(compare=False)
    rivals: IntArray = field(compare=False)
    count: float = field(compare=False)


def as_items(graph: StringGraph, parts: Sequence[Part]) -> Items:
    """Parts beside each other."""
    groups = np.array([part.group for part in parts])
    if all(part.allowed is None for part in parts):
        return Items(groups)
    every = np.ones(len(graph.option), dtype=bool)
    allowed = [every if part.allowed is None else part.allowed for part in parts]
    return Items(groups, np.stack(allowed, axis=1))


def union(rivals: Sequence[IntArray]) -> tuple[IntArray, BoolArray]:
    """The union of I sets of indices, [K], sorted; and which of them are in each set, [I, K]."""
    if all(np.array_equal(rivals[0], each) for each in rivals[1:]):
        return rivals[0], np.ones((len(rivals), len(rivals[0])), dtype=bool)
    union = np.unique(np.concatenate(rivals))
    return union, np.stack([np.isin(union, each) for each in rivals])


def improve(parts: Sequence[Part], values: Array) -> None:
    """Raise the bounds of parts to what is proved of all objectives, [I, K]."""
    for part, value in zip(parts, values.min(1).tolist(), strict=True):
        part.bound = max(part.bound, value)


def centres(graph: StringGraph, items: Items) -> IntArray:
    """For each item the path with the fewest edits, [I, steps]."""
    # option PREFIX = -1 indexes the extra last entry, which is no edit; "" has no other
    # an edit costs 1, all else 0: the string that is most like the original
    edits = np.append(graph.lattice.table[2] != KEEP, False)[graph.option]
    nothing = np.zeros((len(graph.symbols.tokens), len(items)))
    costs = emission_costs(graph, nothing, items.groups, items.allowed, edits)
    return sweep(graph, costs).paths(np.arange(len(items)))
