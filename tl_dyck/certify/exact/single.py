"""Thousands of strings of one group in single precision: a lower bound of what each comes to.

Where a part is run string by string, few strings come near the least. A product of matrices takes
half the time in single precision, and its errors are bounded by lengths here, |v' - v| ≤ e row by
row, for which no second product is needed. Only strings whose bound does not suffice are run in
balls. With u = 2⁻²⁴, and γ_n of it, n the number of terms:

- v W + b in single precision moves e to e ‖W‖₂ + γ (|v| ‖W‖_F + |b|);
- a norm P v / √(|P v|²/d + eps) moves e to e / σ, σ its least divisor near v, plus u √d;
- an activation moves e to e times the largest |φ'|, plus r u |v|, r its `rounding`.

Knows: how errors of vectors grow along the readout, in single precision.
"""

from __future__ import annotations

from functools import cached_property
from typing import NamedTuple, final

import numpy as np
import torch
from numpy.typing import NDArray

from tl_dyck.certify.exact.balls import SINGLE, Array, IntArray, gamma
from tl_dyck.certify.exact.network import Network, weights_error
from tl_dyck.certify.exact.symbols import SymbolTable
from tl_dyck.certify.exact.unembedding import Unembedding
from tl_dyck.reading.activations import ACTIVATIONS

Singles = NDArray[np.float32]

# A length of d numbers in single precision is off by (d + 2) / 2 · 2⁻²⁴:
# 1e-3 covers d up to 30,000.
_GROW = 1 + 1e-3  # what bounds lose themselves, lengths in single precision among them
_LEAST_WEIGHT = 1e-25  # below such a denominator, single precision may have lost some weights
# Strings at a time: with few tens of numbers each they stay in a core's cache.
_ROWS = 1024


def _gamma(n: int) -> float:
    """γ_n of single precision, and of one more rounding, of the weight."""
    # n of the product; weight and bias rounded to single, the bias added: 3; 5 to spare
    return gamma(n + 8, SINGLE)


class Rounded(NamedTuple):
    """Vectors, [B, d], and how far each may be from the exact one, [B]; B may be 1, for all."""

    mid: Singles
    error: Array

    @property
    def length(self) -> Array:
        """[B]: |v|, from above."""
        length: Array = np.sqrt(np.einsum("ij,ij->i", self.mid, self.mid), dtype=np.float64)
        # a square below 1.2e-38 is lost: of up to 8,000 numbers no more than 1e-17 of length
        return length * _GROW + 1e-17  # squares may underflow

    def plus(self, other: Rounded) -> Rounded:
        """The sum."""
        lost = SINGLE * (self.length + other.length)
        return Rounded(self.mid + other.mid, self.error + other.error + lost)

    def normed(self, eps: float) -> Rounded:
        """P v / √(|P v|² / d + eps), P v in float64."""
        d = self.mid.shape[1]
        x = self.mid.astype(np.float64)
        x -= x.mean(1, keepdims=True)
        # in float64: the mean and the difference, d + 1; the divisor, d + 3; the quotient
        error = self.error + gamma(2 * d + 20) * self.length
        sigma = np.sqrt(np.einsum("ij,ij->i", x, x) / d + eps)
        x /= sigma[:, None]
        # σ changes by no more than |v' - v| / √d on the way from v' to v
        least = np.maximum(sigma * (1 - 1e-9) - error / d**0.5, eps**0.5)
        # |x| ≤ √d, and rounding to single is off by u of it; twice that covers the quotient's own
        return Rounded(x.astype(np.float32), error / least * _GROW + 2 * SINGLE * d**0.5)

    def activated(self, name: str) -> Rounded:
        """φ(v), elementwise."""
        mid: Singles = ACTIVATIONS[name](torch.from_numpy(self.mid)).numpy()
        steepest, rounding = (ACTIVATIONS[name].known(each) for each in ("steepest", "rounding"))
        return Rounded(mid, self.error * steepest + rounding * SINGLE * self.length)


@final
class Layer:
    """v W + b, with what bounds its error.

    Args:
        weight: [n, m].
        bias: [m].
        lost: how far the bias may be off, and numbers whose rounding in float64 is in either.
    """

    def __init__(self, weight: Array, bias: Array, lost: float = 0.0) -> None:
        self.weight, self.bias = weight.astype(np.float32), bias.astype(np.float32)
        self.gamma = _gamma(len(weight))
        # 1e-28 and 1e-25: what underflows in single is below 1.2e-38 a product, and these are
        # multiplied by γ ≥ 5e-7 before they are added
        self.size = float(np.linalg.norm(weight)) * _GROW + 1e-28
        self.offset = float(np.linalg.norm(bias)) * _GROW + lost / self.gamma + 1e-25
        # (Σ σ^32)^(1/32) ≥ the largest singular value σ, from the smaller of W Wᵀ and Wᵀ W
        gram = weight @ weight.T if weight.shape[0] < weight.shape[1] else weight.T @ weight
        scale = max(float(np.linalg.norm(gram)), 1e-300)
        # Relative to the largest eigenvalue, errors of the Gram matrix of m rows grow to 8 m γ at
        # most, far below the 1.6 % that `_GROW` leaves after a 16th root.
        power = np.linalg.matrix_power(gram / scale, 8)  # three squarings, each off by γ at most
        largest = float(np.linalg.norm(power)) + 8 * gamma(len(gram))
        # the norm of the 8th power of W Wᵀ is √(Σ σ^32): its 8th root, then
        # the root, is (Σ σ^32)^(1/32)
        self.stretch = (largest ** (1 / 8) * scale) ** 0.5 * _GROW

    def __call__(self, v: Rounded) -> Rounded:
        """Of B rows."""
        mid = v.mid @ self.weight
        mid += self.bias
        return Rounded(
            mid, v.error * self.stretch + self.gamma * (v.length * self.size + self.offset)
        )


def _ended(n: Singles, error: Array) -> Singles:
    """Rounded of n with what is multiplied by constants, and by what an error of length 1 costs."""
    # the last two rows of `_objectives` are constants, and minus what an error costs
    ends = np.stack([np.ones(len(error)), error], axis=1).astype(np.float32)
    return np.concatenate([n, ends], axis=1)


def is_plain(network: Network) -> bool:
    """Whether its readout has none but these steps."""
    config = network.config
    return config.ln_c is None and config.ln_mid is None and not config.gated


@final
class SingleRun:
    """The network on strings of one symbol table, in single precision.

    Args:
        network: a plain one.
        table: the symbols.
        unembedding: all objectives.
    """

    def __init__(self, network: Network, table: SymbolTable, unembedding: Unembedding) -> None:
        self.network, self.table, self.unembedding = network, table, unembedding

    @cached_property
    def _attention_output(self) -> Layer:
        w_o = self.network.w_o.mid
        return Layer(w_o.reshape(-1, w_o.shape[-1]), self.network.weight("b_O").mid)

    @cached_property
    def _mlp(self) -> tuple[Layer, Layer]:
        """From P m / σ, or m, to pre-activations, and from activations to what is added to m."""
        network = self.network
        w_in, b_in = network.weight("W_in").mid, network.weight("b_in").mid
        lost = 0.0
        if network.config.ln2 == "ln":  # (n * scale + shift) W + b = n (scale * W) + (shift W + b)
            scale, shift = network.weight("ln2_w").mid, network.weight("ln2_b").mid
            # shift W in float64 is off by γ_d |shift| |W|: 1e-9 covers any width
            lost = 1e-9 * float(np.linalg.norm(shift) * np.linalg.norm(w_in))
            w_in, b_in = scale[:, None] * w_in, shift @ w_in + b_in
        out = Layer(network.weight("W_out").mid, network.weight("b_out").mid)
        return Layer(w_in, b_in, lost), out

    def lower(self, index: IntArray, which: IntArray, enough: float) -> Array:
        """A lower bound of the least objective on each string, [B]; -inf where nothing is known.

        Args:
            index: strings of one length and one last symbol, as symbols, [B, L], BOS included.
            which: the objectives.
            enough: what bounds need not show to be exceeded.
        """
        objectives = self._objectives.take(which, axis=1)
        used = np.flatnonzero(np.bincount(index.ravel()))
        number = np.searchsorted(used, index)
        sums = self._sums(used, int(index[0, -1]))
        last = self.table.r.at(index[:1, -1])
        r = Rounded(last.mid.astype(np.float32), np.linalg.norm(last.rad, axis=1))
        r = Rounded(r.mid, r.error * _GROW + SINGLE * r.length)
        lower = np.empty(len(index))
        for start in range(0, len(index), _ROWS):
            piece = slice(start, start + _ROWS)
            n = self._read(self._attended(number[piece], sums), r)
            # 1 times the constants, and |n' - n| times the lengths, are subtracted in the product
            # 2: the constants' column, and that of errors
            lost = _gamma(n.mid.shape[1] + 2)
            error = n.error + lost * n.length
            # n · w ≥ mean · w - |n - mean| |w|: rivals that are far on all rows are not multiplied
            # any vector would do as the mean; its error is not used
            mean = Rounded(n.mid.mean(0, keepdims=True), error[:1])
            away = Rounded(n.mid - mean.mid, error).length + error
            # the product with the mean is rounded as well: γ |mean| |w|
            reach = away.max(keepdims=True) + 2 * lost * mean.length
            far = (_ended(mean.mid, reach) @ objectives)[0]
            near = np.flatnonzero(~(far >= enough))
            lower[piece] = far.min(initial=np.inf, where=far >= enough)
            if len(near):
                least = (_ended(n.mid, error) @ objectives.take(near, axis=1)).min(1)
                lower[piece] = np.minimum(lower[piece], least)
        return np.where(np.isfinite(lower), lower, -np.inf)

    def _sums(self, used: IntArray, last: int) -> tuple[Singles, Array]:
        """What each symbol adds to N and Z of all heads, [S, H e + H]; [H, e] errors of N / Z."""
        scores, score_error = self.table.scores(np.array([last]))
        score = scores[0, used]
        weight = np.exp(score - score.max(0))
        value = weight[..., None] * self.table.value.mid[used]
        relative = weights_error(score_error[0], abs(score).max())
        sums = np.concatenate([value.reshape(len(used), -1), weight], axis=1)
        return sums.astype(np.float32), relative

    def _attended(self, number: IntArray, sums: tuple[Singles, Array]) -> Rounded:
        """N / Z of each string, from which symbols it has, [B, L]."""
        of_symbols, relative = sums
        heads = len(relative)
        times = np.zeros((len(number), len(of_symbols)), dtype=np.float32)
        for at in number.T:
            times[np.arange(len(number)), at] += 1
        both = times @ of_symbols
        z = both[:, :-heads].reshape(len(number), heads, -1) / both[:, -heads:, None]
        largest, error = self.table.largest_value, self.table.value_error
        # N and Z are sums of L terms, rounded to single first; the quotient;
        # 1e-9 is for float64 before
        relative = relative + 4 * _gamma(number.shape[1]) + 1e-9
        # + 1: products E v that underflow lose L · 1.2e-38 over a denominator
        # above 1e-25, less than 1e-9
        lost = float(np.linalg.norm(relative[:, None] * (largest + 1) + error)) * _GROW
        seen = both[:, -heads:].min(1) > _LEAST_WEIGHT
        return Rounded(z.reshape(len(number), -1), np.where(seen, lost, np.inf))

    def _read(self, z: Rounded, r: Rounded) -> Rounded:
        """What the unembedding reads, before the gain and the shift of ln_final."""
        config = self.network.config
        m = self._attention_output(z)
        if config.residual:
            m = m.plus(r)
        if config.act_fn is not None:
            before, after = self._mlp
            normed = m if config.ln2 is None else m.normed(config.eps)
            m = m.plus(after(before(normed).activated(config.act_fn)))
        return m if config.ln_final is None else m.normed(config.eps)

    @cached_property
    def _objectives(self) -> Singles:
        """[d + 2, K]: weights, constants, and what an error of length 1 costs."""
        weight, bias = self.network.objectives_of_normed(self.unembedding)
        # as in `lower`, where n.error has γ |n| already: so |δw| / γ is multiplied by at least |n|
        lost = _gamma(len(weight.mid) + 2)
        length = np.linalg.norm(weight.mid, axis=0) + np.linalg.norm(weight.rad, axis=0) / lost
        constant = bias.mid - (bias.rad + lost * abs(bias.mid) + 1e-25)
        # 8 γ: these columns are rounded to single, and so is the error that they are multiplied by
        ends = np.stack([constant, -(1 + 8 * lost) * (length + 1e-25)])
        return np.concatenate([weight.mid, ends]).astype(np.float32)
