"""Symbols with their scores and values, in balls; and a network's weights as such.

A symbol is a token together with the state after it. Its query and key are those of
`tl_dyck.rnn.scores`, whatever the positions, so that a score is of two symbols and nothing else.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property
from typing import final

import numpy as np
import torch
from einops import rearrange

from tl_dyck.certify.exact.balls import UNIT, Array, Ball, IntArray, gamma, length, rms_norm
from tl_dyck.rnn import TwoLayerRNN
from tl_dyck.rnn.scores import adjusted, is_adjusted, projected, swap


@final
class OfBalls:
    """The weights of an RNN, and what `tl_dyck.rnn.scores` computes with, as balls."""

    def __init__(self, rnn: TwoLayerRNN) -> None:
        self.rnn, self.config = rnn, rnn.config
        self._balls: dict[str, Ball] = {}
        self._maps: dict[str, tuple[Array, Array, Array, Array | None]] = {}

    def weight(self, name: str) -> Ball:
        """A weight of the RNN."""
        if name not in self._balls:
            self._balls[name] = Ball.exact(getattr(self.rnn, name).numpy())
        return self._balls[name]

    def affine(self, x: Ball, name: str) -> Ball:
        """X @ W + b, of "K", "V", "Q", "O", "in", "gate" or "out"; heads are side by side."""
        if name not in self._maps:
            w, b = self.weight(f"W_{name}").mid, self.weight(f"b_{name}").mid.reshape(-1)
            if name in "KVQ":
                w = np.ascontiguousarray(rearrange(w, "head model width -> model (head width)"))
            w = w.reshape(-1, w.shape[-1])
            self._maps[name] = w, abs(w), b, length(w.T)[:, 0] if name in "KVQ" else None
        return x.affine(*self._maps[name])

    def rows(self, name: str, index: IntArray | None = None) -> Ball:
        """See `tl_dyck.rnn.scores.Numbers`, as all below."""
        return self.weight(name) if index is None else self.weight(name).at(index)

    def heads(self, x: Ball, name: str) -> Ball:
        """X W + b of "Q", "K" or "V", [S, H, d_head]."""
        return self.affine(x, name).reshape(-1, self.config.n_heads, self.config.d_head)

    def plus(self, x: Ball, y: Ball) -> Ball:
        """The sum."""
        return x.plus(y)

    def times(self, x: Ball, y: Ball) -> Ball:
        """The product, elementwise."""
        return x.times(y)

    def rms(self, x: Ball) -> Ball:
        """X / √(mean x² + eps)."""
        return rms_norm(x, self.config.eps)

    def swapped(self, x: Ball) -> Ball:
        """Neighbours of the last axis exchanged."""
        return x.at((..., swap(x.mid.shape[-1])))

    def each_head(self, x: Ball) -> Ball:
        """[S, e] as [S, 1, e]."""
        return x.at((slice(None), None))


@final
@dataclass(frozen=True)
class SymbolTable:
    """Scores and values that the network gives to each symbol; S symbols, H heads.

    Attributes:
        numbers: the weights of the network whose symbols these are.
        tokens: [S].
        states: [S].
        r: residual stream before the block, [S, d_model].
        attended: what keys, values and queries are made of: ln1(r), or r, [S, d_model].
    """

    numbers: OfBalls
    tokens: IntArray
    states: IntArray
    r: Ball
    attended: Ball
    _kept: list[tuple[IntArray, Array, Array]] = field(default_factory=list, repr=False)

    @cached_property
    def key(self) -> Ball:
        """[S, H, d_head]."""
        return self._projected("K", self.attended, self.states)

    @cached_property
    def value(self) -> Ball:
        """[S, H, d_head]."""
        return self.numbers.heads(self.attended, "V")

    @cached_property
    def _key_lengths(self) -> tuple[Array, Array]:
        """[H] twice: the largest |key| of any symbol, and its largest error."""
        # to the nearest: the 1e-6 in `scores` covers it
        mid, rad = (np.sqrt((part**2).sum(-1)).max(0) for part in self.key)
        return mid, rad

    @cached_property
    def largest_value(self) -> Array:
        """[H, d_head]: the largest |v| of any symbol, error included."""
        largest: Array = self.value.size.max(0)
        return largest

    @cached_property
    def value_error(self) -> Array:
        """[H, d_head]: the largest error of any symbol's value."""
        error: Array = self.value.rad.max(0)
        return error

    def take(self, which: IntArray) -> SymbolTable:
        """Some of the symbols."""
        tokens, states = self.tokens[which], self.states[which]
        return SymbolTable(self.numbers, tokens, states, self.r.at(which), self.attended.at(which))

    def scores(self, queries: IntArray) -> tuple[Array, Array]:
        """Scores of every symbol for some symbols' queries, and a bound of their errors.

        Returns:
            [Q, S, H] and [Q, H]; they are kept for `scored`.
        """
        scale, states = self.numbers.config.attn_scale, self.states[queries]
        query, key = self._projected("Q", self.attended.at(queries), states), self.key
        # [H, Q, e] @ [H, e, S] -> [H, Q, S] -> [Q, S, H]
        q_mid, k_mid = query.mid.transpose(1, 0, 2), key.mid.transpose(1, 2, 0)
        scores: Array = (q_mid @ k_mid).transpose(1, 2, 0) / scale
        # |q·k - its value| ≤ |q| |δk| + |δq| (|k| + |δk|) + γ |q| |k| (Cauchy-Schwarz), k the
        # largest
        q, e_q = (np.sqrt((part**2).sum(-1)) for part in query)
        k, e_k = self._key_lengths
        # e of the product and 1 of the quotient; 5 to spare
        error: Array = q * e_k + e_q * (k + e_k) + gamma(query.mid.shape[-1] + 6) * q * k
        # the lengths above are off by (e + 3) / 2 roundings: 1e-6 covers widths up to 10⁹
        error = error / scale * (1 + 1e-6)
        if is_adjusted(self.numbers.config):
            scores, error = self._adjusted(scores, error, states)
        self._kept[:] = [(queries, scores, error)]
        return self._kept[0][1:]

    def _projected(self, name: str, attended: Ball, states: IntArray) -> Ball:
        """Queries or keys, [S, H, d_head]; queries are not yet divided by attn_scale."""
        return projected(self.numbers, self.numbers.config, name, attended, self._places(states))

    def _places(self, states: IntArray) -> IntArray | None:
        if not self.numbers.config.has_position:  # asked often: torch and checks take longer
            return None
        places = self.numbers.rnn.places(torch.from_numpy(states))
        return None if places is None else places.numpy()

    def _adjusted(self, scores: Array, error: Array, states: IntArray) -> tuple[Array, Array]:
        """Capped, and with what is added by distance: no slope is above 1, so errors do not grow.

        What a symbol behind the query would get is of no string: any number does.
        """
        config, largest = self.numbers.config, abs(scores).max((0, 1), initial=0)
        most = largest.copy()

        def near() -> Array:
            ahead, behind = self._places(states), self._places(self.states)
            assert ahead is not None
            assert behind is not None
            table = self.numbers.weight("W_near").mid
            # as if each score met the largest entry
            most[:] += abs(table).max(0)
            # a symbol behind the query has a negative distance, which would index from the end
            rows: Array = table[np.maximum(ahead[:, None] - behind, 0)]
            return rows

        # u of s / c, whose slope is at most 1; 8 u of tanh (4 ulp), which is no larger than s / c;
        # u of the product and u of the sum: 11 u, and 16 are allowed for
        found: Array = adjusted(config, scores, np.tanh, near)
        # of the quotient, tanh (4 ulp), the product and the sum
        return found, error + 16 * UNIT * most

    def scored(self, last: IntArray) -> tuple[IntArray, Array, Array]:
        """Scores as above, of some symbols [B] at least; and which row is that of each, [B]."""
        # [0][0]: the queries that are kept
        if not self._kept or not np.isin(last, self._kept[0][0]).all():
            self.scores(np.unique(last))
        queries, scores, error = self._kept[0]
        return np.searchsorted(queries, last), scores, error
