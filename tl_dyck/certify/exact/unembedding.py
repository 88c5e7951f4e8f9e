"""The unembedding: objectives of the vector that it reads, for some or all of them.

A model of 50,000 tokens has 50,000 objectives, nearly all of which no string makes the least. So
some can be taken out (`Unembedding.take`), and what is computed for all is computed in pieces.

Knows: how objectives come of the unembedding's input.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import cached_property
from typing import Any, NamedTuple, final

import numpy as np
from numpy.typing import NDArray

from tl_dyck.certify.exact.balls import SINGLE, UNIT, Array, Ball, IntArray, gamma, length
from tl_dyck.certify.objectives import Objectives

MANY = 64
"""More objectives than this are looked through for those that matter, before one is bounded."""

_MOST_NUMBERS = 4_000_000
"""Arrays of logits, or of weights, are kept below this many numbers (32 MB) by taking some strings,
or some objectives, at a time."""


class LeastValues(NamedTuple):
    """The least objective on each of B strings, [B] each.

    Attributes:
        lower: a proved lower bound.
        upper: a proved upper bound; inf where nothing is known of any objective.
        rounding: twice the largest error of any objective that may be the least.
    """

    lower: Array
    upper: Array
    rounding: Array


@final
class Weights:
    """W_U and b_U, and what is computed once of all their columns.

    Attributes:
        weight: W_U, [d_model, logits], exactly.
        bias: b_U, [logits].
    """

    def __init__(self, weight: Array, bias: Array) -> None:
        self.weight, self.bias = weight, bias

    @cached_property
    def lengths(self) -> Array:
        """[logits]: |w| of each column, from above."""
        # as `balls.length` of columns, without turning so large a matrix
        lengths: Array = np.sqrt((self.weight**2).sum(0)) * (1 + 1e-9) + 1e-150
        return lengths

    @cached_property
    def single(self) -> NDArray[np.float32]:
        """W_U in single precision."""
        return self.weight.astype(np.float32)


@final
class Unembedding:
    """K objectives as functions of what the unembedding reads.

    Args:
        weights: W_U and b_U.
        objectives: the functions of the logits.
    """

    def __init__(self, weights: Weights, objectives: Objectives) -> None:
        self.weights, self.objectives = weights, objectives

    def __len__(self) -> int:
        return len(self.objectives.offsets)

    def take(self, which: IntArray) -> Unembedding:
        """Some of the objectives, in order; itself for all of them."""
        if len(which) == len(self):
            return self
        return Unembedding(self.weights, self.objectives.take(which))

    def pieces(self) -> Iterator[Unembedding]:
        """The objectives, so many at a time that their weights are few."""
        step = max(1, _MOST_NUMBERS // len(self.weights.weight))
        for start in range(0, len(self), step):
            yield self.take(np.arange(start, min(start + step, len(self))))

    @cached_property
    def differences(self) -> tuple[Ball, Ball]:
        """The objectives as weights, [d_model, K], and constants, [K]."""
        weights, constants = (
            Ball.exact(plus).minus(Ball.exact(minus))
            for plus, minus in map(self.objectives.terms, (self.weights.weight, self.weights.bias))
        )
        return weights, constants.plus(Ball.exact(self.objectives.offsets))

    @cached_property
    def _logits(self) -> tuple[IntArray, Objectives, Array, Array]:
        """The logits asked for, the objectives of these alone, and what errors grow with.

        That is |w| of both logits, and |b| of both and |offset|, [K] each.
        """
        used, objectives = self.objectives.renumbered()
        lengths = sum(objectives.terms(self.weights.lengths[used]))
        constants = sum(objectives.terms(abs(self.weights.bias[used]))) + abs(objectives.offsets)
        return used, objectives, np.asarray(lengths), np.asarray(constants)

    @cached_property
    def _double(self) -> Array:
        """W_U of the logits asked for."""
        return _columns(self.weights.weight, self._logits[0])

    @cached_property
    def _single(self) -> NDArray[np.float32]:
        """The same in single precision."""
        return _columns(self.weights.single, self._logits[0])

    def values(self, n: Ball) -> Ball:
        """The objectives of what the unembedding reads, [B, d_model] to [B, K].

        Where something overflowed on the way nothing is known: the ball is 0 ± inf, and never NaN.
        """
        values = self._few(n) if len(self) <= MANY else self._many(n)
        known = np.isfinite(values.mid + values.rad)
        if known.all():
            return values
        return Ball(np.where(known, values.mid, 0.0), np.where(known, values.rad, np.inf))

    def _few(self, n: Ball) -> Ball:
        """By their own weights: with the least error."""
        weight, constants = self.differences
        return n.matmul(weight).plus(constants)

    def _many(self, n: Ball) -> Ball:
        """By the logits: with one product of matrices, and few passes over what comes of it."""
        used, objectives, lengths, constants = self._logits
        logits = n.mid @ self._double
        logits += self.weights.bias[used]
        mid = objectives.values(logits)
        # |n · w - its value| ≤ |δn + γ n| |w| (Cauchy-Schwarz); then two additions of numbers no
        # larger than |n| |w| + |b|, and the offset
        relative = gamma(n.mid.shape[-1] + 2)
        error = length(n.rad + relative * abs(n.mid)) + 4 * UNIT * length(n.mid)
        return Ball(mid, error * lengths + ((relative + 4 * UNIT) * constants + 1e-300))

    def least(self, n: Ball) -> LeastValues:
        """The least objective for each row of what the unembedding reads, [B, d_model]."""
        # rows of `LeastValues`, in the order of its fields
        least = LeastValues(*np.empty((3, len(n.mid))))
        # 1 more: never a division by 0
        step = max(1, _MOST_NUMBERS // (len(self) + 1))
        for start in range(0, len(n.mid), step):
            piece = slice(start, start + step)
            values = self._near(n.at(piece)).values(n.at(piece))
            # the least of the rounded ends is the rounded least end: the next float is beyond it
            least.lower[piece] = np.nextafter((values.mid - values.rad).min(1), -np.inf)
            least.upper[piece] = np.nextafter((values.mid + values.rad).min(1), np.inf)
            # a ball is two radii wide
            least.rounding[piece] = 2 * values.rad.max(1)
        return least

    def _near(self, n: Ball) -> Unembedding:
        """The objectives that can be the least on some row; others are not, by single precision.

        A product of matrices takes half the time in it. What it gives is off by no more than e, so
        that an objective that is more than 2 e above the least is above another on every string.
        """
        # for one string the product is no longer what takes the time
        if len(self) <= MANY or len(n.mid) == 1:
            return self
        used, objectives, lengths, constants = self._logits
        with np.errstate(over="ignore", invalid="ignore"):
            logits: NDArray[Any] = n.mid.astype(np.float32) @ self._single
            logits += self.weights.bias[used].astype(np.float32)
            values = objectives.values(logits)
        # as in `_many`, of other rounding: n and w are rounded too, and may underflow
        d, largest, constant = n.mid.shape[1], lengths.max(), constants.max()
        # n and w rounded (2), d of the product, the bias rounded and added (2), the difference (1):
        # d + 5 roundings of 2⁻²⁴; the offset is added in float64
        relative = gamma(d + 8, SINGLE)
        error = length(n.rad + relative * abs(n.mid)) * largest + relative * constant
        # what underflows in float32 is below 1.2e-38, in each of d products
        error += 1e-36 * d * (1 + length(n.mid) + largest + constant)
        least = values.min(1, keepdims=True)
        # both may be off by the error; the tenth is for the comparison itself
        near = (values <= least + 2.1 * error).any(0)
        # float32 overflowed, or rules out less than half: all are as quick
        if not np.isfinite(least + error).all() or 2 * near.sum() > len(self):
            return self
        return self.take(np.flatnonzero(near))


def _columns(weight: NDArray[Any], which: IntArray) -> NDArray[Any]:
    """Some columns, or all."""
    return weight if len(which) == weight.shape[1] else np.take(weight, which, axis=1)
