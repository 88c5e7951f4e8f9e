"""Ball arithmetic: numbers with a proved error, used for intervals and for rounding alike.

A `Ball` is a midpoint and a radius, elementwise; it stands for every array within the radius of the
midpoint. Each operation returns a ball that holds the exact (real-number) result for every choice
of arguments in its argument balls, *including* the rounding of its own float64 arithmetic. With
radius 0 in, the radius that comes out is a rounding bound that was computed, not guessed; with wide
balls in, this is interval arithmetic.

The rounding model is the standard one (Higham, *Accuracy and Stability of Numerical Algorithms*,
ch. 3): each operation has relative error at most u = 2⁻⁵³, so that a sum of products of n terms, in
any order and with or without fused multiply-add, is off by at most γ_n Σ|x_i||y_i| with γ_n = n
u / (1 - n u). Of the mathematical library we assume 4 ulp for exp, erf and tanh. Radii are
themselves rounded: each is enlarged by a factor 1 + 2⁻³⁰, far more than their own rounding, and by
10⁻³⁰⁰, more than underflow can lose.
"""

from __future__ import annotations

from functools import reduce
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray

from tl_dyck.reading.activations import ACTIVATIONS

Array = NDArray[np.float64]
IntArray = NDArray[np.int64]
BoolArray = NDArray[np.bool_]

UNIT = 2.0**-53  # u of double precision: a result rounded to nearest is off by at most u of itself
SINGLE = 2.0**-24  # of single precision
# A radius is a sum of n terms, itself off by γ_n: 2⁻³⁰ covers n up to some 8 million.
_GROW = 1.0 + 2.0**-30
_TINY = 1e-300  # above all that is lost by underflow, which is at most 2.3e-308 each time
_FEW = 2048
"""Matrices with so many numbers at most are multiplied twice: bounds are better by a half."""
_COLUMNS = 16
"""Rows of so many numbers are folded column by column: beyond, that misses the cache too often."""
_POINT = 1e-9
"""Balls with radii below this part of their largest number are points, but for rounding."""


def folded(operation: np.ufunc, rows: NDArray[Any]) -> Any:
    """What ``operation.reduce(rows, axis=1)`` gives, for which numpy begins a loop in each row."""
    if not 0 < rows.shape[1] <= _COLUMNS:
        return operation.reduce(rows, axis=1)
    return reduce(operation, rows.T)


def gamma(n: int, unit: float = UNIT) -> float:
    """γ_n = n u / (1 - n u): the relative error of n roundings in a row."""
    return n * unit / (1 - n * unit)


class Ball(NamedTuple):
    """Midpoint and radius, arrays of one shape (the radius may be broadcast)."""

    mid: Array
    rad: Array

    @classmethod
    def exact(cls, values: Any) -> Ball:
        """A ball of radius 0."""
        mid = np.asarray(values, dtype=np.float64)
        return cls(mid, np.zeros_like(mid))

    @classmethod
    def between(cls, low: Array, high: Array) -> Ball:
        """The smallest ball around [low, high]."""
        mid = (low + high) / 2
        # the middle may be off by two roundings of numbers as large as both ends
        return cls(mid, _outward((high - low) / 2 + 2 * UNIT * (abs(low) + abs(high))))

    @property
    def low(self) -> Array:
        """A lower bound, rounded down."""
        low: Array = self.mid - self.rad
        # one rounding of the difference, and one to spare
        return low - (2 * UNIT * (abs(self.mid) + self.rad) + _TINY)

    @property
    def high(self) -> Array:
        """An upper bound, rounded up."""
        high: Array = self.mid + self.rad
        return high + (2 * UNIT * (abs(self.mid) + self.rad) + _TINY)

    @property
    def size(self) -> Array:
        """An upper bound of the absolute value."""
        return _outward(abs(self.mid) + self.rad)

    def at(self, index: Any) -> Ball:
        """Numpy indexing of both parts."""
        return Ball(self.mid[index], self.rad[index])

    def reshape(self, *shape: int) -> Ball:
        """Numpy reshape of both parts."""
        return Ball(self.mid.reshape(shape), self.rad.reshape(shape))

    def plus(self, other: Ball) -> Ball:
        """Elementwise sum."""
        mid = self.mid + other.mid
        # u of the computed sum, not of the exact one: rounding to nearest
        # is off by at most that, too
        return Ball(mid, _outward(self.rad + other.rad + UNIT * abs(mid)))

    def minus(self, other: Ball) -> Ball:
        """Elementwise difference."""
        return self.plus(Ball(-other.mid, other.rad))

    def times(self, other: Ball) -> Ball:
        """Elementwise product."""
        mid = self.mid * other.mid
        # |ab - a'b'| ≤ |a| s + r (|b| + s) for a' within r of a, b' within s of b
        rad = abs(self.mid) * other.rad + self.rad * (abs(other.mid) + other.rad)
        return Ball(mid, _outward(rad + UNIT * abs(mid)))

    def matmul(self, other: Ball) -> Ball:
        """Matrix product over the last axis of self and the first (or last but one) of other."""
        mid = self.mid @ other.mid
        size = abs(other.mid)
        n = self.mid.shape[-1]
        if other.rad.any():
            # r (|b| + s) + |a| s is how far (a ± r)(b ± s) is from ab
            # a term goes through one product and n - 1 sums at most: γ_n, and one to spare
            rad = self.rad @ (size + other.rad) + abs(self.mid) @ (other.rad + gamma(n + 1) * size)
        else:
            rad = (self.rad + gamma(n + 2) * abs(self.mid)) @ size
        return Ball(mid, _outward(rad))

    def affine(
        self, weight: Array, absolute: Array, bias: Array, lengths: Array | None = None
    ) -> Ball:
        """Self @ weight + bias for exact weights, `absolute` being abs(weight).

        With `lengths`, those of its columns, radii of points may be larger, and take less time.
        """
        mid, size = self.mid @ weight + bias, abs(self.mid)
        # of the product alone, two operations to spare; the bias is added, and counted, below
        rad = self.rad + gamma(self.mid.shape[-1] + 2) * size
        point = rad.max(initial=0) <= _POINT * size.max(initial=0)
        if lengths is not None and weight.size > _FEW and point:
            # Σ_i r_i |w_ij| ≤ |r| |w_j| (Cauchy-Schwarz), which saves a second product of matrices
            rad = length(rad) * lengths
        else:
            rad = rad @ absolute
        # one rounding, of the sum with the bias; twice that is generous
        rad += 2 * UNIT * (abs(mid) + abs(bias))
        return Ball(mid, _outward(rad))

    def over(self, low: Array, high: Array) -> Ball:
        """Elementwise quotient by anything in [low, high]; low > 0, else the radius is infinite."""
        with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
            a, b = self.low, self.high
            # a quotient is least at the end of the divisor that its numerator's sign says
            bottom = np.where(a >= 0, a / high, a / low)
            top = np.where(b >= 0, b / low, b / high)
            ball = Ball.between(bottom, top)
            bad = ~(low > 0) | ~np.isfinite(ball.rad)
            return Ball(np.where(bad, 0.0, ball.mid), np.where(bad, np.inf, ball.rad))


def layer_norm(x: Ball, eps: float) -> Ball:
    """(x - mean) / sqrt(mean((x - mean)²) + eps), over the last axis."""
    return rms_norm(centre(x), eps)


def rms_norm(x: Ball, eps: float) -> Ball:
    """X / sqrt(mean(x²) + eps), over the last axis."""
    low, high = _mean_square(x)
    # the sum and the root are rounded, each by a unit: four are enough for both, outwards
    return x.over(np.sqrt(low + eps) * (1 - 4 * UNIT), np.sqrt(high + eps) * (1 + 4 * UNIT))


def unit_norm(x: Ball, c: float) -> Ball:
    """P x / max(|P x|, c), over the last axis; P subtracts the mean (Wen et al. 2023, Eq. 7)."""
    centred = centre(x)
    # |P x| is √d times the root of the mean square
    # the product, the root and the factor below are 2.5 u: 4 u are allowed for
    low, high = (np.sqrt(square * x.mid.shape[-1]) for square in _mean_square(centred))
    return centred.over(np.maximum(low * (1 - 4 * UNIT), c), np.maximum(high * (1 + 4 * UNIT), c))


def activation(x: Ball, name: str) -> Ball:
    """The MLP's activation, elementwise."""
    low, high = x.low, x.high
    at_low, at_high = apply_activation(name, low), apply_activation(name, high)
    bottom, top = np.minimum(at_low, at_high), np.maximum(at_low, at_high)
    known = ACTIVATIONS[name]
    sharp = known.is_piecewise_linear
    # of two lines the lowest point, or the highest, may be where they meet
    turn = 0.0 if sharp else known.known("lowest_at")
    # the minimum's place is known to 1e-9, and its value, second order in that, to the last digit
    room = 0.0 if sharp else 1e-9
    inside = (low <= turn + room) & (high >= turn - room)
    at_turn = apply_activation(name, np.array([turn]))[0]
    bottom = np.where(inside, np.minimum(bottom, at_turn), bottom)
    if sharp:
        top = np.where(inside, np.maximum(top, at_turn), top)
    ball = Ball.between(bottom, top)
    lost = known.known("rounding") * UNIT * np.maximum(abs(low), abs(high))
    return Ball(ball.mid, _outward(ball.rad + lost))


def apply_activation(name: str, x: Array) -> Array:
    """The activation of plain numbers, by the very function that the RNN uses."""
    values: Array = ACTIVATIONS[name](torch.from_numpy(np.ascontiguousarray(x))).numpy()
    return values


def length(rows: Array) -> Array:
    """|row|, from above, [..., n] to [..., 1]; squares may underflow."""
    # 1e-9 covers (n + 3) / 2 roundings of up to 10⁷ numbers; a square below 1e-308 is lost, whose
    # root is below 1e-150 for as many
    found: Array = np.sqrt((rows**2).sum(-1, keepdims=True)) * (1 + 1e-9) + 1e-150
    return found


def _outward(rad: Array) -> Array:
    return rad * _GROW + _TINY


def centre(x: Ball) -> Ball:
    """P x. The matrix P has 1 - 1/d on its diagonal and -1/d elsewhere."""
    d = x.mid.shape[-1]
    mid = x.mid - x.mid.mean(-1, keepdims=True)
    # |1 − 1/d| r_i + Σ_{j ≠ i} r_j / d, with r_i taken out of the sum
    rad = x.rad * abs(1 - 2 / d) + x.rad.sum(-1, keepdims=True) / d
    # the mean takes d operations; the difference one, which is counted twice
    rounding = gamma(d + 2) * abs(x.mid).sum(-1, keepdims=True) / d + 2 * UNIT * abs(mid)
    return Ball(mid, _outward(rad + rounding))


def _mean_square(x: Ball) -> tuple[Array, Array]:
    """Bounds of the mean of x² over the last axis (kept)."""
    d = x.mid.shape[-1]
    # the least |x| is 0 where the ball holds 0
    low = (np.maximum(abs(x.mid) - x.rad, 0) ** 2).mean(-1, keepdims=True)
    high = ((abs(x.mid) + x.rad) ** 2).mean(-1, keepdims=True)
    # d sums, and the squares, the division and the radius of each
    slack = gamma(d + 8)
    return low * (1 - slack), high * (1 + slack) + _TINY
