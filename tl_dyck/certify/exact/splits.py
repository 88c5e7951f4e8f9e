"""Parts of a space, split in two.

Every path passes each level step of the lattice inside exactly one option (see
`tl_dyck.certify.lattice`). So the options that cover one step, split into two sets, split the
strings; forbidding either set gives the two halves. An option stands for a rewriting of the
original string, or, of an automaton's strings, for a symbol at a position.
"""

from __future__ import annotations

from functools import cached_property
from typing import final

import numpy as np

from tl_dyck.certify.exact.balls import Array, BoolArray, IntArray
from tl_dyck.certify.exact.graph import PREFIX, StringGraph


@final
class Brancher:
    """Splits parts of a space in two, so that every string falls on exactly one side.

    Args:
        graph: the strings.
    """

    def __init__(self, graph: StringGraph) -> None:
        self.graph = graph
        self.n_options = len(graph.lattice.options)

    @cached_property
    def covers(self) -> BoolArray:
        """Which steps each option covers, ``[options, steps]``; large, and rarely asked for."""
        steps = np.arange(self.graph.lattice.last_level)
        source, target = self.graph.lattice.table[:2]
        found: BoolArray = (source[:, None] <= steps) & (steps < target[:, None])
        return found

    def halves(self, allowed: BoolArray, pull: Array) -> tuple[BoolArray, BoolArray] | None:
        """Split a part at the step where what may stand there differs most, in the middle.

        Args:
            allowed: [E] its emissions that are on some path.
            pull: [E, d] where to each moves what the strings are judged by.

        Returns:
            The allowed emissions of the two halves; None if the part has a single path.
        """
        real, choices, open_steps = self._choices(allowed)
        if not open_steps.any():
            return None
        vectors = np.zeros((self.n_options, pull.shape[1]))
        vectors[self.graph.option[real]] = pull[real]
        number = np.maximum(choices.sum(0), 1)
        mean = choices.T.astype(np.float64) @ vectors / number[:, None]
        # variance: mean square less the square of the mean
        spread = choices.T @ (vectors**2).sum(1) / number - (mean**2).sum(1)
        step = int(np.where(open_steps, spread, -np.inf).argmax())
        here = np.flatnonzero(choices[:, step])
        # [0] is U: how far each lies along the direction of most variance, the first column
        along = np.linalg.svd(vectors[here] - mean[step], full_matrices=False)[0][:, 0]
        side = along > (along.min() + along.max()) / 2
        if not 0 < side.sum() < len(here):  # they differ in nothing, or in no number
            # one option against the rest: both halves are smaller, so that the search ends
            side = np.arange(len(here)) == 0
        return self._parted(allowed, here, side)

    def _choices(self, allowed: BoolArray) -> tuple[BoolArray, BoolArray, BoolArray]:
        """Emissions that are options', which options cover a step, [options, steps]; is it open."""
        live = np.zeros(self.n_options, dtype=bool)
        real = allowed & (self.graph.option != PREFIX)
        live[self.graph.option[real]] = True
        choices = self.covers & live[:, None]
        return real, choices, np.asarray(choices.sum(0) > 1)

    def _parted(
        self, allowed: BoolArray, here: IntArray, side: BoolArray
    ) -> tuple[BoolArray, BoolArray]:
        """Without the options of a step that are on one side, and without the others."""
        option = self.graph.option
        # option PREFIX = -1 indexes the extra last entry, which is on neither side
        out = np.zeros((2, self.n_options + 1), dtype=bool)
        out[0, here[side]], out[1, here[~side]] = True, True
        return allowed & ~out[1, option], allowed & ~out[0, option]
