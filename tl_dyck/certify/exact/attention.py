"""The attention's outputs over all strings of a space, and their exact extremes in any direction.

For the strings of one group the query is fixed, so that each symbol s has a fixed weight
E_s = exp(score - largest score). Everything below is a statement about *columns*: direction D and
number τ per head, for the group's strings y

    r(y) = Σ_h Σ_{s in y} E^h_s (D^h · x^h_s + τ^h),

whose least value over all strings is one shortest path. Here x_s is the head's value vector, or (a
`View`) a fixed linear image of it.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import final

import numpy as np

from tl_dyck.certify.deadline import Deadline
from tl_dyck.certify.exact.balls import UNIT, Array, Ball, BoolArray, IntArray, centre, gamma
from tl_dyck.certify.exact.graph import StringGraph
from tl_dyck.certify.exact.network import Network
from tl_dyck.certify.exact.paths import ShortestPaths, emission_costs, sweep

_MOST_NUMBERS = 4_000_000
"""Costs (of emissions, of bundles, to go) are kept below this many numbers (32 MB each) by working
on some columns at a time."""


@final
@dataclass(frozen=True)
class Items:
    """Parts of the space that are examined side by side; I of them.

    Attributes:
        groups: [I] the group of each.
        allowed: [E, I] the emissions each may use; None if nothing is forbidden.
    """

    groups: IntArray
    allowed: BoolArray | None = None

    def __len__(self) -> int:
        return len(self.groups)

    def take(self, index: IntArray) -> Items:
        """Some of them, possibly repeated."""
        return Items(self.groups[index], None if self.allowed is None else self.allowed[:, index])


@final
@dataclass(frozen=True)
class View:
    """Vectors of symbols that are summed along a string, with bounds of their errors.

    Attributes:
        x: [S, H, width] a vector per symbol, with its error.
        largest: [H, width] the largest absolute values.
        error: [H, width] the largest errors.
    """

    x: Ball
    largest: Array
    error: Array

    @classmethod
    def of(cls, x: Ball) -> View:
        """A view of these vectors."""
        return cls(x, x.size.max(0), x.rad.max(0))


@final
class AttentionWeights:
    """Weights of all symbols for all groups."""

    def __init__(
        self, network: Network, graph: StringGraph, deadline: Deadline | None = None
    ) -> None:
        self.network, self.graph, self.deadline = network, graph, deadline or Deadline()
        # a group's query is that of its last symbol
        scores, error = graph.symbols.scores(graph.groups)  # [G, S, H], [G, H]
        # [G, S, H] E_s = exp(score - largest score) ≤ 1; the factor that is left out cancels in
        # N / Z
        self.weights = np.exp(scores - scores.max(1, keepdims=True))
        # [G, H] relative error of a weight: of the score, of the subtraction, of exp
        # as in `network.weights_error`: 2 u of twice the largest score, and 4 ulp of exp
        self.epsilon = np.expm1(error + 4 * UNIT * abs(scores).max(1)) + 8 * UNIT
        self.values = View.of(graph.symbols.value)

    @cached_property
    def projected(self) -> View:
        """P (W_O v + b_O) of every symbol, for one head.

        These are all of the values that P x shows, x = W_O o + b_O.
        """
        value = self.graph.symbols.value
        x = self.network.attention_output(value.reshape(len(value.mid), -1))
        return View.of(centre(x).reshape(len(value.mid), 1, -1))

    @cached_property
    def axes(self) -> Array:
        """[H, width, width]: orthogonal directions of each head, along which values vary apart."""
        away = (self.values.x.mid - self.values.x.mid.mean(0)).transpose(1, 0, 2)
        # any axes are sound (`Region._boxed`); NaN would make LAPACK fail
        found = np.linalg.eigh(np.nan_to_num(away.transpose(0, 2, 1) @ away)).eigenvectors
        axes: Array = found.transpose(0, 2, 1)
        return axes

    def relative_error(self, groups: IntArray, head: int) -> Array:
        """[B] What a string's Σ E |x| loses to the weights' errors and to rounding along a path."""
        config, graph = self.network.config, self.graph
        steps = (
            max(config.d_head, config.d_model)
            + config.n_heads
            + graph.emits.shape[1]
            + len(graph.level_nodes)
        )
        # A term goes through the product with D, a sum over heads, over its emission's
        # symbols and over the path's levels, and six operations more (τ, slack, E, scales,
        # t): steps + 6, twice counted.
        relative: Array = self.epsilon[groups, head] + gamma(2 * steps + 20)
        return relative

    def columns(self, view: View, groups: IntArray, directions: Array, taus: Array) -> Array:
        """Costs of symbols, [S, B], for directions [B, H, width] and taus [B, H].

        They are lowered by as much as rounding can have raised them: the least cost computed for a
        string is at most its exact r(y), so that "computed ≥ 0" proves "exact ≥ 0".
        """
        costs = np.zeros((len(view.x.mid), len(groups)))
        size = abs(directions)
        for head in range(taus.shape[1]):
            # |D · x + τ| ≤ |D| · largest + |τ| for every symbol, and D · x is off by |D| · error at
            # most
            spread = size[:, head] @ view.largest[head] + abs(taus[:, head])
            relative = self.relative_error(groups, head)
            # 1e-6: `spread` and these sums are themselves rounded, by γ of the width
            slack = (1 + 1e-6) * (relative * spread + size[:, head] @ view.error[head])
            # E (D · x + τ - slack), [S, B]
            part = view.x.mid[:, head] @ directions[:, head].T
            part += taus[:, head] - slack
            part *= self.weights[groups, :, head].T
            costs += part
        return costs

    def sweep(self, view: View, items: Items, directions: Array, taus: Array) -> ShortestPaths:
        """The shortest paths for one column per item.

        Raises:
            OutOfTime: the deadline has passed.
        """
        self.deadline.check()
        costs = self.columns(view, items.groups, directions, taus)
        return sweep(self.graph, emission_costs(self.graph, costs, items.groups, items.allowed))

    def least(
        self, view: View, items: Items, which: IntArray, directions: Array, taus: Array
    ) -> Array:
        """The least r(y) of each column; column b belongs to item which[b].

        Works on some columns at a time.
        """
        least = np.empty(len(which))
        for piece in self.pieces(len(which)):
            part = items.take(which[piece])
            least[piece] = self.sweep(view, part, directions[piece], taus[piece]).least
        return least

    def pieces(self, n_columns: int) -> Iterator[slice]:
        """Cut columns into pieces that fit the memory bound."""
        # emissions, bundles, nodes: the three arrays that a sweep makes, whichever is longest
        step = max(
            1,
            _MOST_NUMBERS // max(len(self.graph.option), self.graph.n_bundles, self.graph.n_nodes),
        )
        for start in range(0, n_columns, step):
            yield slice(start, min(n_columns, start + step))
