"""The strings that were run through the network, and the worst of them."""

from __future__ import annotations

import math
from functools import cached_property
from typing import final

import numpy as np
import torch

from tl_dyck.certify.exact.balls import Array, IntArray
from tl_dyck.certify.exact.graph import StringGraph
from tl_dyck.certify.exact.network import Network
from tl_dyck.certify.exact.single import SingleRun, is_plain
from tl_dyck.certify.exact.unembedding import LeastValues, Unembedding
from tl_dyck.certify.objectives import Objectives

_MANY = 512
"""So many strings are run in single precision first."""


@final
class Incumbent:
    """The least value seen so far, and where.

    Attributes:
        upper: least value of any objective on any string that was run, error included; inf if
            nothing is known of any.
        string: that string, without BOS.
        rounding: width of the ball around its value.
        strings_run: how many strings were run.
    """

    def __init__(self, network: Network, graph: StringGraph, objectives: Objectives) -> None:
        self.network, self.graph, self.objectives = network, graph, objectives
        self.upper = math.inf
        self.string: tuple[int, ...] | None = None
        self.rounding = 0.0
        self.unembedding = network.unembedding(objectives)
        self.strings_run = 0

    def run_string(self, string: tuple[int, ...]) -> Array:
        """Run one string of the graph; returns the attention's output, [H, d_head]."""
        network, table = self.network, self.graph.symbols
        read = torch.tensor([(*network.prefix, *string)])
        tokens, states = read.numpy().T, network.machine.states(read).numpy().T
        # the string is one of the graph, so that each of its symbols is found
        index = ((table.tokens == tokens) & (table.states == states)).argmax(1)[None]
        z = network.attend(table, index)
        least = self.unembedding.least(network.readout(table.r.at(index[:, -1]), z))
        self._remember(least, np.array([string], dtype=np.int64))
        config = network.config
        return z.mid.reshape(config.n_heads, config.d_head)

    def bound_by(self, below: float) -> None:
        """Only what is less is looked for."""
        if self.upper > below:
            self.upper, self.string = below, None

    def _remember(self, least: LeastValues, strings: IntArray) -> None:
        """Note the worst of some strings (one row each)."""
        best = int(least.upper.argmin())
        # the upper end of the ball: what the string is at most, and so what the least is at most
        if least.upper[best] < self.upper:
            self.upper, self.rounding = float(least.upper[best]), float(least.rounding[best])
            self.string = tuple(strings[best].tolist())
        self.strings_run += len(strings)

    def run(self, paths: IntArray, unembedding: Unembedding | None = None) -> Array:
        """Run the network on some paths ([n, steps] emissions, -1 pads), and remember the worst.

        Args:
            paths: the paths.
            unembedding: some of the objectives; all if not given.

        Returns:
            [n] a proved lower bound of the least objective on each.
        """
        return self.values(paths, unembedding)[0]

    def values(
        self, paths: IntArray, unembedding: Unembedding | None = None
    ) -> tuple[Array, Array]:
        """The same, and a proved upper bound of the least objective on each, [n] twice."""
        lower, upper = np.empty((2, len(paths)))
        for rows, symbols in self._by_length(paths):
            distinct, which = symbols, np.arange(len(rows))
            if len(rows) > 1:
                # paths differ by edits, strings need not
                distinct, which = np.unique(symbols, axis=0, return_inverse=True)
            read = self.network.inputs_at(self.graph.symbols, distinct)
            least = (unembedding or self.unembedding).least(read)
            lower[rows], upper[rows] = least.lower[which.ravel()], least.upper[which.ravel()]
            self._remember(
                least, self.graph.symbols.tokens[distinct[:, len(self.network.prefix) :]]
            )
        return lower, upper

    def least(self, paths: IntArray, which: IntArray, enough: float) -> float:
        """A proved lower bound of the least of some objectives on all of some paths of one group.

        Args:
            paths: the paths, one at least.
            which: the objectives.
            enough: strings known to be no lower, by single precision, are not looked at further.
        """
        lower = np.full(len(paths), -np.inf)
        if len(paths) >= _MANY and self._single is not None:
            for rows, symbols in self._by_length(paths):
                lower[rows] = self._single.lower(symbols, which, enough)
        # -inf, of what was not run in single precision, is among them
        near = lower < enough
        self.strings_run += len(paths) - int(near.sum())
        if near.any():
            lower[near] = self.run(paths[near], self.unembedding.take(which))
        return float(lower.min())

    @cached_property
    def _single(self) -> SingleRun | None:
        if not is_plain(self.network):
            return None
        return SingleRun(self.network, self.graph.symbols, self.unembedding)

    def outputs(self, paths: IntArray, *, run: bool = False) -> Array:
        """The attention's outputs of some paths, [n, H, d_head], rounded.

        With `run` the rest of the network is run, too, and the worst remembered.
        """
        config, table = self.network.config, self.graph.symbols
        z = np.empty((len(paths), config.n_heads, config.d_head))
        for rows, symbols in self._by_length(paths):
            attended = self.network.attend(table, symbols)
            z[rows] = attended.mid.reshape(-1, *z.shape[1:])
            if run:
                read = self.network.readout(table.r.at(symbols[:, -1]), attended)
                strings = table.tokens[symbols[:, len(self.network.prefix) :]]
                self._remember(self.unembedding.least(read), strings)
        return z

    def _by_length(self, paths: IntArray) -> list[tuple[IntArray, IntArray]]:
        """Per length: which paths, and their symbols [·, length]."""
        symbols = self.graph.symbols_on(paths)
        real = symbols < len(self.graph.symbols.tokens)
        lengths = real.sum(1)
        groups = ((length, np.flatnonzero(lengths == length)) for length in np.unique(lengths))
        return [
            (rows, symbols[rows][real[rows]].reshape(len(rows), length)) for length, rows in groups
        ]
