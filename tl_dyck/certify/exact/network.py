"""A `TwoLayerRNN` in float64 numpy, with every result in a ball that holds the exact value.

What is certified is the real-number function that the RNN's weights define (float32 weights are
float64 numbers too). A symbol is a token together with the state after it: all that an embedding, a
key, a value and a query depend on.
"""

from __future__ import annotations

import copy
from collections.abc import Sequence
from dataclasses import replace
from functools import cached_property
from typing import Protocol, final

import numpy as np
import torch
from torch import Tensor

from tl_dyck.certify.exact.balls import (
    UNIT,
    Array,
    Ball,
    IntArray,
    activation,
    gamma,
    layer_norm,
    unit_norm,
)
from tl_dyck.certify.exact.symbols import OfBalls, SymbolTable
from tl_dyck.certify.exact.unembedding import LeastValues, Unembedding, Weights
from tl_dyck.certify.objectives import Objectives
from tl_dyck.rnn import TwoLayerRNN, UnsupportedModelError

_MOST_NUMBERS = 4_000_000
"""Arrays of values are kept below this many numbers (32 MB) by working in pieces."""


class Machine(Protocol):
    """A layer below: opaque integers after each token, and what it hands on there."""

    @property
    def start_state(self) -> int:
        """The state before the first token."""
        ...

    def next_state(self, state: Tensor | int, token: Tensor | int) -> Tensor:
        """The state after a token, given the one before it."""
        ...

    def states(self, tokens: Tensor) -> Tensor:
        """The state after each token of whole strings."""
        ...

    def residual(self, tokens: IntArray, states: IntArray) -> Ball:
        """What it hands on, [S, d_model]."""
        ...


@final
class InOrder:
    """A machine that counts positions, of strings whose symbols come in another order.

    Args:
        rnn: counts positions.
        n_before: how many tokens stand before a string.
        order: the place in it of each symbol that is read.
    """

    def __init__(self, rnn: TwoLayerRNN, n_before: int, order: Sequence[int]) -> None:
        at = torch.tensor([*range(n_before), *(n_before + place for place in order)])
        # the state at each position, which does not depend on the tokens
        self._states = rnn.states(torch.zeros(1 + int(at.max()), dtype=torch.int64))[at]
        self.start_state = rnn.start_state
        # each state is followed by that of the next position; the last by none
        before = [self.start_state, *self._states.tolist()]
        self._next = dict(zip(before, self._states.tolist(), strict=False))

    def next_state(self, state: Tensor | int, token: Tensor | int) -> Tensor:
        """The state at the position that is read next."""
        before, _ = np.broadcast_arrays(np.asarray(state), np.asarray(token))
        return torch.from_numpy(np.vectorize(self._next.__getitem__, otypes=[np.int64])(before))

    def states(self, tokens: Tensor) -> Tensor:
        """The state after each token of whole strings."""
        return self._states[: tokens.shape[-1]].expand(tokens.shape)


@final
class Network:
    """The network's functions, batched.

    Args:
        rnn: the network; with a layer below, what comes after its embedding.
        below: the layer below, which makes what is read, and carries the states; None if there is
            none.
        order: the place in a string of each symbol, where strings come in another order, the query
            last; None for from left to right.
        ahead: whether queries attend to later places, too.

    Raises:
        UnsupportedModelError: logits are capped: their differences are not linear in what is read.
    """

    def __init__(
        self,
        rnn: TwoLayerRNN,
        below: Machine | None = None,
        order: Sequence[int] | None = None,
        *,
        ahead: bool = False,
    ) -> None:
        if rnn.config.logit_cap is not None:
            raise UnsupportedModelError(
                f"unembed: logits are capped at {rnn.config.logit_cap:g}; a cap keeps their order, "
                "so set cfg.output_logits_soft_cap = -1.0 to decide which is the largest (margins "
                "are then those before the cap)."
            )
        if rnn.dtype != torch.float64 or rnn.device.type != "cpu":
            rnn = copy.deepcopy(rnn).to(device="cpu", dtype=torch.float64)
        self.rnn = rnn
        self.config = rnn.config
        if rnn.config.parallel:  # its MLP is in what symbols hand on
            self.config = replace(
                rnn.config, d_mlp=None, act_fn=None, ln2=None, gated=False, parallel=False
            )
        self.below, self.ahead = below, ahead
        self._in_order: InOrder | None = None
        if order is not None and rnn.config.state == "position":
            self._in_order = InOrder(self.rnn, len(self.prefix), order)
        self.numbers = OfBalls(rnn)

    @classmethod
    def of(cls, rnn: TwoLayerRNN) -> Network:
        """The network that an `Asker` keeps with its own RNN; of any other RNN a new one."""
        kept = vars(rnn).get("network")
        return kept if isinstance(kept, cls) else cls(rnn)

    @property
    def machine(self) -> TwoLayerRNN | Machine | InOrder:
        """What carries the states of strings."""
        return self._in_order or self.below or self.rnn

    def in_order(self, order: Sequence[int]) -> Network:
        """The same network, of strings whose symbols come in another order.

        Attention of one layer adds over positions: only what it reads last is special.

        Raises:
            UnsupportedModelError: it has depths, or a layer below, which read from left to right.
        """
        if self.below is not None or "depth" in self.config.state:
            raise UnsupportedModelError(
                f"{self.config.model_name}: places are read in any order by models of one layer "
                "without depths; of others run the strings"
            )
        return Network(self.rnn, order=order, ahead=self.ahead)

    @property
    def prefix(self) -> tuple[int, ...]:
        """Tokens before every string: BOS, or none."""
        return () if self.config.bos_token is None else (self.config.bos_token,)

    @cached_property
    def start(self) -> tuple[IntArray, int]:
        """The states after each token of the prefix, and the one before a string."""
        before = self.machine.states(torch.tensor([self.prefix], dtype=torch.int64))[0].tolist()
        # without BOS nothing stands before a string
        return np.array(before, dtype=np.int64), before[-1] if before else self.machine.start_state

    @property
    def w_o(self) -> Ball:
        """[H, d_head, d_model]."""
        return self.weight("W_O")

    def affine(self, x: Ball, name: str) -> Ball:
        """X @ W + b; see `OfBalls.affine`."""
        return self.numbers.affine(x, name)

    def weight(self, name: str) -> Ball:
        """A weight of the RNN."""
        return self.numbers.weight(name)

    def norm(self, name: str, x: Ball) -> Ball:
        """ln1, ln2 or ln_final."""
        kind = getattr(self.rnn.config, name)
        if kind is None:
            return x
        x = layer_norm(x, self.config.eps)
        return (
            x
            if kind == "lnpre"
            else x.times(self.weight(f"{name}_w")).plus(self.weight(f"{name}_b"))
        )

    def symbols(self, tokens: IntArray, states: IntArray) -> SymbolTable:
        """Tabulate embeddings, keys, values and queries."""
        if self.below is not None:
            r = self.below.residual(tokens, states)
            return SymbolTable(self.numbers, tokens, states, r, self.norm("ln1", r))
        with torch.no_grad():
            embedded = self.rnn.embed(torch.from_numpy(tokens), torch.from_numpy(states)).numpy()
        r = Ball(
            embedded, np.asarray(UNIT * abs(embedded), dtype=np.float64)
        )  # at most one addition: W_E + W_pos
        attended = self.norm("ln1", r)
        if self.rnn.config.parallel:
            r = self._with_mlp(r)
        return SymbolTable(self.numbers, tokens, states, r, attended)

    def attention_output(self, z: Ball) -> Ball:
        """Σ_h z^h W_O^h + b_O, from z as [..., H * d_head]."""
        return self.affine(z, "O")

    def readout(self, r: Ball, z: Ball) -> Ball:
        """From r_L and attention's output z, [..., H * d_head], to the unembedding's input.

        That is [..., d_model].
        """
        attn_out = self.attention_output(z)
        if self.config.ln_c is not None:
            attn_out = unit_norm(attn_out, self.config.ln_c)
        resid = r.plus(attn_out) if self.config.residual else attn_out
        if self.config.ln_mid is not None:
            resid = unit_norm(resid, self.config.ln_mid)
        if self.config.act_fn is not None:
            resid = self._with_mlp(resid)
        return self.norm("ln_final", resid)

    def _with_mlp(self, resid: Ball) -> Ball:
        """Resid + MLP(ln2(resid))."""
        return resid.plus(self.affine(self.hidden(self.norm("ln2", resid)), "out"))

    def hidden(self, normed: Ball) -> Ball:
        """The MLP's hidden layer, of what it reads."""
        config = self.rnn.config
        assert config.act_fn is not None
        pre = self.affine(normed, "in")
        if not config.gated:
            return activation(pre, config.act_fn)
        gate = activation(self.affine(normed, "gate"), config.act_fn)
        return gate.times(pre).plus(self.weight("b_post"))

    def largest_read(self, table: SymbolTable, last: IntArray) -> Ball:
        """All that the unembedding can read after any string of some symbols, [1, d_model].

        Args:
            table: the symbols.
            last: those that strings may end with.
        """
        config, width = self.config, self.config.d_model
        if config.ln_final is None:
            r, z = table.r.at(last), table.largest_value.reshape(1, -1)
            # the residual streams of all last symbols, in one ball
            r = Ball.between(r.low.min(0), r.high.max(0)).reshape(1, -1)
            return self.readout(r, Ball(0 * z, z))
        # |P v / σ| ≤ √d
        # 1e-12 covers the root's rounding, of 1e-16, many times
        read = Ball(np.zeros((1, width)), np.full((1, width), width**0.5 * (1 + 1e-12)))
        if config.ln_final == "lnpre":
            return read
        return read.times(self.weight("ln_final_w")).plus(self.weight("ln_final_b"))

    def unembedding(self, objectives: Objectives) -> Unembedding:
        """Objectives as functions of what the unembedding reads."""
        return Unembedding(self._read_out, objectives)

    def objectives_of_normed(self, unembedding: Unembedding) -> tuple[Ball, Ball]:
        """The objectives of P v / σ, or of v without ln_final: weights [d, K], constants [K]."""
        weight, bias = unembedding.differences
        if self.config.ln_final == "ln":
            # (n * gain + shift) W_U + b_U = n (gain * W_U) + (shift W_U + b_U)
            gain, shift = self.weight("ln_final_w"), self.weight("ln_final_b")
            bias = bias.plus(shift.matmul(weight))
            weight = Ball(gain.mid[:, None], gain.rad[:, None]).times(weight)
        return weight, bias

    @cached_property
    def _read_out(self) -> Weights:
        return Weights(self.rnn.W_U.numpy(), self.rnn.b_U.numpy())

    @np.errstate(over="ignore", invalid="ignore", divide="ignore")
    def values_of(self, strings: Sequence[tuple[int, ...]], objectives: Objectives) -> Ball:
        """The objectives on concrete strings (without BOS), [B, K], with proved rounding errors."""
        return self.unembedding(objectives).values(self._inputs_of(strings))

    @np.errstate(over="ignore", invalid="ignore", divide="ignore")
    def least_of(self, strings: Sequence[tuple[int, ...]], objectives: Objectives) -> LeastValues:
        """The least of the objectives on each; without B times K numbers at once."""
        return self.unembedding(objectives).least(self._inputs_of(strings))

    def _inputs_of(self, strings: Sequence[tuple[int, ...]]) -> Ball:
        """What the unembedding reads after concrete strings, [B, d_model]."""
        mid, rad = np.empty((2, len(strings), self.config.d_model))
        by_length: dict[int, list[int]] = {}
        for index, string in enumerate(strings):
            by_length.setdefault(len(string), []).append(index)
        for indices in by_length.values():
            tokens = np.array([(*self.prefix, *strings[i]) for i in indices], dtype=np.int64)
            states = self.machine.states(torch.from_numpy(tokens)).numpy()
            # of one string symbols mostly differ: looking for equal ones would take longer
            unique, inverse = np.stack([tokens.ravel(), states.ravel()]), np.arange(tokens.size)
            if len(indices) > 1:
                unique, inverse = np.unique(unique, axis=1, return_inverse=True)
            table = self.symbols(unique[0].copy(), unique[1].copy())
            result = self.inputs_at(table, inverse.reshape(tokens.shape))
            mid[indices], rad[indices] = result.mid, result.rad
        return Ball(mid, rad)

    def inputs_at(self, table: SymbolTable, index: IntArray) -> Ball:
        """What the unembedding reads, [B, d_model].

        Args:
            table: of the symbols.
            index: strings of one length, as symbols, [B, L], BOS included.
        """
        config = self.config
        hidden = 0 if config.act_fn is None else self.rnn.W_in.shape[1]
        # the largest array of a string is that of its values, or that of hidden units
        width = max(index.shape[1] * config.n_heads * config.d_head, hidden)
        step = max(1, _MOST_NUMBERS // width)
        pieces = []
        for start in range(0, max(1, len(index)), step):
            piece = index[start : start + step]
            pieces.append(self.readout(table.r.at(piece[:, -1]), self.attend(table, piece)))
        return Ball(*(np.concatenate(part) for part in zip(*pieces, strict=True)))

    def attend(self, table: SymbolTable, index: IntArray, times: Array | None = None) -> Ball:
        """The attention's output at the last of L symbols, [B, L] to [B, H * d_head].

        Args:
            table: the symbols.
            index: [B, L] which of them are read.
            times: [B, L] how often each, the last at least once; once each if not given.
        """
        which, scores, score_error = table.scored(index[:, -1])
        a = scores[which[:, None], index]  # [B, L, H]
        largest = abs(a).max()
        if times is not None:  # what does not occur must not be the largest, or all may underflow
            a = np.where(times[..., None] > 0, a, -np.inf)
        # The computed maximum is one number for all of a string, whatever
        # it is: it cancels in N / Z.
        weight = np.exp(a - a.max(1, keepdims=True))
        if times is not None:
            weight *= times[..., None]
        z = np.einsum("blh,blhe->bhe", weight, table.value.mid[index])
        z /= weight.sum(1)[..., None]
        relative = weights_error(score_error[which], largest)
        # N and Z are sums of L terms of 3 roundings, then a quotient: 2
        # γ_(L + 4) of the largest |v|
        relative += 4 * gamma(index.shape[1] + 8)
        rad = relative[..., None] * table.largest_value + table.value_error
        return Ball(z, rad * (1 + 1e-9) + 1e-300).reshape(len(index), -1)


def weights_error(score_error: Array, largest: float) -> Array:
    """By what part of the largest |v| errors of scores, no larger than `largest`, move means of v.

    exp(a) is off by a relative ε, which moves a weighted mean by at most 2ε/(1-ε) of that.
    """
    # Score - largest is at most 2 largest and rounded once: 2 u of it, and 4 are allowed for.
    # exp is right to 4 ulp: 8 u.
    epsilon = np.expm1(score_error + 4 * UNIT * largest) + 8 * UNIT
    # from one half on the bound says nothing worth having; the minimum keeps the divisor positive
    found: Array = np.where(epsilon < 0.5, 2 * epsilon / (1 - np.minimum(epsilon, 0.5)), np.inf)
    return found
