"""What it takes to run a string, and to bound a part: neither is done where the other is less.

In multiplications of a product of matrices, roughly, and from sizes alone: the same question always
takes the same course.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import final

import numpy as np

from tl_dyck.certify.exact.graph import StringGraph
from tl_dyck.certify.exact.linear import is_linear
from tl_dyck.certify.exact.network import Network
from tl_dyck.certify.exact.parts import Part
from tl_dyck.certify.exact.single import is_plain
from tl_dyck.certify.exact.unembedding import MANY
from tl_dyck.certify.lattice import KEEP, Lattice

_CALLS = 3_000_000
"""The calls of numpy for one part take as long as so many multiplications,"""
_SWEPT = 4
"""and what is added and compared along arcs so many times as long, as measured."""
_SCREENED = 500
"""and so does what is done to each weight of the unembedding to look through many objectives."""
_PATIENCE = 10
"""Bounds that settle nothing may take this share of what running takes: a tenth."""
_FEW_STRINGS = 64  # with few objectives: run sooner than any bound of their part is made
_MOST_STRINGS = 20_000
"""Parts with more strings than this are split before they are run."""
_LAID_OUT = 15_000_000
"""Laying out a graph takes as long as so many multiplications, with states, or with the guesses of
a search, twice as many;"""
_LISTED = 200_000
"""and so does what a string takes beside them: it is made in Python."""
_AT_ONCE = 1_000_000_000
"""Multiplications between two looks at the clock."""


def worth_running(network: Network, lattice: Lattice, n_objectives: int) -> bool:
    """Whether running every string takes less than laying out a graph and bounding its groups once.

    Strings are counted as if no two choices of edits made the same.
    """
    config, hidden = network.config, _hidden(network)
    # how many rewritings of each kind there are; of these, at most its budget is chosen
    kinds = lattice.table[2]
    uses = np.bincount(kinds[kinds != KEEP], minlength=len(lattice.budgets)).tolist()
    count = math.prod(
        sum(math.comb(uses[kind], used) for used in range(budget + 1))
        for kind, budget in enumerate(lattice.budgets)
    )
    each = _running(network, lattice.last_level, n_objectives) + _LISTED
    followed = network.below is not None or config.state != "none"
    # twice for states, twice for a search's guesses
    laid_out = _LAID_OUT * (1 + followed) * (2 - is_linear(network))
    # row 1: the target
    ends = np.flatnonzero(lattice.table[1] == lattice.last_level)
    # as many last tokens, as many groups to bound
    last = {lattice.options[i].emits[-1:] for i in ends.tolist()}
    # additions and comparisons of a column: emissions, and arcs of every node
    # rough constants of `Work._costs`, without a graph to count: two arcs a node, 4 each
    costs = 3 * len(lattice.options) + 8 * lattice.n_codes * lattice.last_level
    coordinates = 0 if is_linear(network) else hidden + config.d_model
    bound = _CALLS + _SWEPT * coordinates * config.n_heads * costs
    # 0 coordinates: a linear readout needs no ranges, and a column costs next to nothing
    return count * each <= laid_out + len(last) * bound * (coordinates > 0)


@final
class Work:
    """What the work of one search comes to.

    Args:
        network: what is bounded.
        graph: its strings.
        always_listed: as of `Search`.

    Attributes:
        spent: on bounds, so far.
        useful: whether a bound has settled a part.
    """

    def __init__(self, network: Network, graph: StringGraph, always_listed: int | None) -> None:
        self.network, self.graph, self.always_listed = network, graph, always_listed
        self.spent, self.useful = 0, False

    def most_run(self, parts: Sequence[Part], waiting: Sequence[Part]) -> float:
        """Parts with at most this many strings are run at once."""
        if self.always_listed is not None:
            return self.always_listed
        if self.enough(parts, waiting):
            return _MOST_STRINGS
        asked = len(parts[0].rivals)
        if asked <= MANY:
            return _FEW_STRINGS
        bound = self.to_range(1) + self.to_minimise(MANY) + self.to_screen(asked)
        return min(max(_FEW_STRINGS, _PATIENCE * bound / self.to_run(asked)), _MOST_STRINGS)

    def enough(self, parts: Sequence[Part], waiting: Sequence[Part]) -> bool:
        """Whether bounds took as much as running all that is open takes; if useless, a tenth."""
        left = sum(part.count for some in (parts, waiting) for part in some)
        # once bounds have settled something they may take as long as running all that is left
        patience = 1 if self.useful else _PATIENCE
        work = left * self.to_run(len(parts[0].rivals))
        return self.always_listed is None and work <= patience * self.spent

    def strings_at_once(self, n_objectives: int) -> int:
        """Strings that are run between two looks at the clock."""
        return max(1, _AT_ONCE // self.to_run(n_objectives))

    def to_run(self, n_objectives: int) -> int:
        """One string."""
        length = len(self.graph.level_nodes)
        # with fewer objectives `SingleRun` does not pay
        single = n_objectives > MANY and is_plain(self.network)
        return _running(self.network, length, n_objectives, single=single)

    def to_range(self, n_parts: int) -> int:
        """The ranges of some parts: of each coordinate that a norm or an activation sees, by head.

        What symbols add to a coordinate is found once for all of them.
        """
        config = self.network.config
        norms = (config.ln_c, config.ln_mid, config.ln2, config.ln_final)
        coordinates = config.d_model * sum(norm is not None for norm in norms) + _hidden(
            self.network
        )
        product = len(self.graph.symbols.tokens) * config.d_head
        swept = n_parts * _SWEPT * self._costs
        return n_parts * _CALLS + coordinates * config.n_heads * (product + swept)

    def to_screen(self, n_objectives: int) -> int:
        """Looking through many objectives: some passes over as many columns of weights."""
        return _SCREENED * self.network.config.d_model * n_objectives * (n_objectives > MANY)

    def to_minimise(self, n_objectives: int) -> int:
        """The linear bounds of some objectives on one part, and their columns."""
        config = self.network.config
        inner = config.n_heads * config.d_head
        # ends of denominators; beyond four heads they pay a penalty instead (`columns`)
        patterns = 2 ** min(config.n_heads, 4) if config.n_heads > 1 else 1
        swept = len(self.graph.symbols.tokens) * inner + self._costs
        products = config.d_model * (_hidden(self.network) + inner)
        return _SWEPT * n_objectives * (products + patterns * swept)

    @property
    def _costs(self) -> int:
        # an emission is taken, added and compared (3), an arc twice taken, added, compared (4)
        return 3 * len(self.graph.option) + 4 * len(self.graph.arc_source)


def _running(network: Network, length: int, n_objectives: int, *, single: bool = False) -> int:
    """One string: attention, products with W_O, W_in, W_out and with their sizes, and W_U.

    In single precision a product takes half the time, none with sizes is needed, and of many
    objectives most are ruled out for many strings at once. With few it does not pay as much.
    """
    config, hidden = network.config, _hidden(network)
    inner = config.n_heads * config.d_head
    # columns that d_model numbers are multiplied with: W_O and W_in, W_out, each twice (values and
    # sizes), half of W_U
    width = (2 * inner + 4 * hidden + n_objectives // 2) // (4 if single else 1)
    # 40: what norms and activations do to a number, counted as multiplications
    return 3 * length * inner + config.d_model * width + 40 * (config.d_model + hidden)


def _hidden(network: Network) -> int:
    return 0 if network.config.act_fn is None else len(network.weight("b_in").mid)
