"""A one-layer network in fractions, to fifty digits where a root or an exponential is drawn.

An account of its own: of the library it calls the RNN's weights and its state machine alone.
"""

from __future__ import annotations

from collections.abc import Sequence
from decimal import Context, Decimal
from fractions import Fraction
from math import isqrt
from typing import Any, NamedTuple

import numpy as np
import torch

from tl_dyck.rnn import TwoLayerRNN

Exacts = np.ndarray[Any, Any]
"""Of fractions."""

_DIGITS = 10**60
_EXP = Context(prec=70, Emin=-(10**6), Emax=10**6)


def exact(values: Any) -> Exacts:
    """The same numbers as fractions."""
    flat = [Fraction(float(x)) for x in np.ravel(values)]
    return np.array([*flat, None], object)[:-1].reshape(np.shape(values))


def cut(x: Fraction) -> Fraction:
    """To sixty digits behind the point, so that numbers do not grow."""
    return Fraction(x.numerator * _DIGITS // x.denominator, _DIGITS)


def root(x: Fraction) -> Fraction:
    """√x."""
    return Fraction(isqrt(x.numerator * _DIGITS**2 // x.denominator), _DIGITS)


def exp(x: Fraction) -> Fraction:
    """exp(x)."""
    value = _EXP.exp(_EXP.divide(Decimal(x.numerator), Decimal(x.denominator)))
    return cut(Fraction(value)) if value > Decimal("1e-20") else Fraction(value)


def centred(x: Exacts) -> Exacts:
    """P x: the mean taken away."""
    return x - x.sum(-1, keepdims=True) / x.shape[-1]


class Read(NamedTuple):
    """What a network makes of symbols: residual stream, queries, keys and values of heads."""

    r: Exacts  # [S, d]
    q: Exacts  # [S, H, e]
    k: Exacts
    v: Exacts


class Rational:
    """A network.

    Args:
        rnn: the network, with no MLP or one of ReLUs.
    """

    def __init__(self, rnn: TwoLayerRNN) -> None:
        self.rnn, self.c = rnn, rnn.config
        self.w = {name: exact(weight.numpy()) for name, weight in rnn.weights.items()}

    def read(self, tokens: Sequence[int], states: Sequence[int]) -> Read:
        """Symbols, one by one."""
        rows = []
        for token, state in zip(tokens, states, strict=True):
            row = self.w["W_E"][token]
            place, depth = self.rnn_parts(state)
            row = row[depth] if row.ndim == 2 else row
            rows.append(row + self.w["W_pos"][place] if "W_pos" in self.w else row)
        r = np.array(rows, object)
        x = self.normed("ln1", r)
        heads = [
            np.stack([x @ w + b for w, b in zip(self.w[f"W_{n}"], self.w[f"b_{n}"], strict=True)])
            for n in "QKV"
        ]
        return Read(r, *(each.transpose(1, 0, 2) for each in heads))

    def rnn_parts(self, state: int) -> tuple[int, int]:
        """Place and depth of a state."""
        place, depth = (0, state) if self.c.state == "depth" else (state, 0)
        assert self.c.state != "position+depth"
        return max(place, 0), max(depth, 0)

    def normed(self, name: str, x: Exacts) -> Exacts:
        """Of a layer norm, if the network has it: P x / √(|P x|² / d + eps), scaled and moved."""
        kind = getattr(self.c, name)
        if kind is None:
            return x
        x = centred(x)
        square = np.atleast_1d((x * x).sum(-1)) / x.shape[-1] + Fraction(self.c.eps)
        size = np.array([root(each) for each in square], object).reshape(*x.shape[:-1], 1)
        return x / size * self.w[f"{name}_w"] + self.w[f"{name}_b"] if kind == "ln" else x / size

    def scores(self, read: Read, last: int) -> Exacts:
        """Of all symbols for the query of one, [S, H]."""
        return (read.q[last] * read.k).sum(-1) / Fraction(self.c.attn_scale)

    def after_attention(self, read: Read, last: int, z: Exacts) -> Exacts:
        """The logits, of what the heads return, [H, e]."""
        w, c = self.w, self.c
        x = sum((each @ of for each, of in zip(z, w["W_O"], strict=True)), w["b_O"])
        x = divided(x, c.ln_c)
        x = x + read.r[last] if c.residual else x
        x = divided(x, c.ln_mid)
        if c.act_fn is not None:
            assert c.act_fn == "relu"
            pre = self.normed("ln2", x) @ w["W_in"] + w["b_in"]
            x = x + np.maximum(pre, Fraction(0)) @ w["W_out"] + w["b_out"]
        return self.normed("ln_final", x) @ w["W_U"] + w["b_U"]

    def counted(self, string: Sequence[int]) -> tuple[Read, Exacts, int]:
        """The symbols of a string (BOS included), how often each occurs, which is the last."""
        states = self.rnn.states(torch.tensor([string]))[0].tolist()
        pairs = list(zip(string, states, strict=True))
        found = {pair: pairs.count(pair) for pair in sorted(set(pairs))} if len(pairs) < 99 else {}
        if not found:
            for pair in pairs:
                found[pair] = found.get(pair, 0) + 1
        read = self.read(*zip(*found, strict=True))
        times = np.array([Fraction(n) for n in found.values()], object)
        return read, times, list(found).index(pairs[-1])

    def logits(self, string: Sequence[int]) -> Exacts:
        """After a string, BOS included."""
        read, times, last = self.counted(string)
        scores = self.scores(read, last)
        e = np.array([[exp(x - top) for x, top in zip(row, scores.max(0), strict=True)]
                      for row in scores], object)  # fmt: skip
        weight = times[:, None] * e
        z = (weight[..., None] * read.v).sum(0) / weight.sum(0)[:, None]
        return self.after_attention(read, last, np.vectorize(cut, otypes=[object])(z))


def divided(x: Exacts, floor: float | None) -> Exacts:
    """P x / max(|P x|, C), or x."""
    if floor is None:
        return x
    x = centred(x)
    return x / max(root((x * x).sum()), Fraction(floor))
