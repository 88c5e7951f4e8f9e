"""How a part of a space is split in two.

Knows: which options of a lattice exclude one another.
"""

from __future__ import annotations

from typing import final

import numpy as np

from tl_dyck.certify.exact.balls import Array, BoolArray, IntArray
from tl_dyck.certify.exact.graph import PREFIX, StringGraph
from tl_dyck.certify.lattice import KEEP


@final
class Brancher:
    """Splits parts of a space in two, so that every string falls on exactly one side.

    Every path passes each level step of the lattice inside exactly one option (see
    `tl_dyck.certify.lattice`). So the options that cover one step, split into two sets, split the
    strings; forbidding either set gives the two halves.
    """

    def __init__(self, graph: StringGraph) -> None:
        self.graph = graph
        options = graph.lattice.options
        steps = np.arange(graph.lattice.last_level)
        source = np.array([o.source for o in options])
        target = np.array([o.target for o in options])
        self.covers = (source[:, None] <= steps) & (steps < target[:, None])  # [options, steps]
        self.keeps = np.array([o.kind == KEEP for o in options])

    def split(
        self, allowed: BoolArray | None, path: IntArray, impact: Array
    ) -> tuple[BoolArray, BoolArray] | None:
        """Split a part.

        Args:
            allowed: [E] its allowed emissions; None for all.
            path: emissions of a string of the part that the split should isolate.
            impact: [E] how much difference an emission makes.

        Returns:
            The allowed emissions of the two halves; None if the part has a single path.
        """
        graph = self.graph
        if allowed is None:
            allowed = np.ones(len(graph.option), dtype=bool)
        # options with an allowed emission, and how much difference each can make
        live = np.zeros(len(self.keeps), dtype=bool)
        real = allowed & (graph.option != PREFIX)
        live[graph.option[real]] = True
        weight = np.zeros(len(self.keeps))
        np.maximum.at(weight, graph.option[real], impact[real])
        choices = self.covers & live[:, None]  # [options, steps]
        open_steps = choices.sum(0) > 1
        if not open_steps.any():
            return None
        # a step that the path edits, if one is open; of those the one at which the most is at stake
        used = np.unique(graph.option[path[(path >= 0)]])
        used = used[used != PREFIX]
        edited = (self.covers[used] & ~self.keeps[used, None]).any(0) & open_steps
        steps = np.flatnonzero(edited if edited.any() else open_steps)
        step = steps[(choices[:, steps] * weight[:, None]).max(0).argmax()]
        here = np.flatnonzero(choices[:, step])
        side = here[self.keeps[here]]
        if not 0 < len(side) < len(here):  # no longer "edit here or not", but which edit
            side = here[np.isin(here, used)]
            if not 0 < len(side) < len(here):
                side = here[:1]
        first = np.zeros(len(self.keeps) + 1, dtype=bool)
        first[side] = True
        second = np.zeros(len(self.keeps) + 1, dtype=bool)
        second[np.setdiff1d(here, side)] = True
        # option PREFIX = -1 indexes the extra last entry, which is on neither side
        return allowed & ~second[graph.option], allowed & ~first[graph.option]
