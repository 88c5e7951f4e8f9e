"""The readout as a chain of stages, from the attention's output to the vector unembedded.

`mlp` has one more.

Each stage holds a vector v (one for every string) and answers two questions about functionals of v,
for I items at a time:

- `ranges`: between which numbers does each lie on all strings of the item?
- `lower`: which *linear* functional of the attention's outputs is below it on all strings of the
  item?

Each hands the question down to the stage it is made of, and the lowest to shortest paths
(`Region`). The answers of linear stages lose nothing (but rounding); those of norms and activations
lose an amount that is second order in the size of the region.

Axes everywhere: I items (parts of the space), K functionals, H heads, d coordinates of the vector.
"""

from __future__ import annotations

import abc
from functools import cached_property
from typing import final

import numpy as np
from einops import einsum, rearrange

from tl_dyck.certify.exact.balls import UNIT, Array, Ball, gamma
from tl_dyck.certify.exact.functional import Functional, ulp
from tl_dyck.certify.exact.region import Region


class Stage(abc.ABC):
    """A vector of the readout.

    Attributes:
        centre: [I, d] its value for one string of each item (or near it: nothing depends on that).
        size: [I or 1, 1, d] the largest absolute values; crude, for rounding only.
        is_centred: whether its mean is 0 already.
        exact: False where every range is taken to be the centre alone: first-order guesses instead
            of bounds.
    """

    centre: Array
    size: Array
    is_centred: bool
    exact: bool

    @cached_property
    def coordinates(self) -> tuple[Array, Array]:
        """[I, d] twice: each coordinate of P v lies between them (P subtracts the mean)."""
        if self.exact:
            return self.ranges(projected(self, identity(self)))
        mean = 0.0 if self.is_centred else self.centre.mean(-1, keepdims=True)
        return self.centre - mean, self.centre - mean

    @abc.abstractmethod
    def ranges(self, f: Functional, *, signs: bool = False) -> tuple[Array, Array]:
        """[I, K] twice: f(v) lies between them on every string.

        With `signs` they may be further apart where they show the sign of f(v).
        """

    @abc.abstractmethod
    def lower(self, f: Functional) -> Functional:
        """Functionals of all heads' outputs, side by side, at most f(v) on every string."""


@final
class Lifted(Stage):
    """x = Σ_h o^h W_O^h + b_O; or, in the projective view, o itself.

    Args:
        region: the strings.
        lift: (W_O [H, d_head, d], b_O), or None for the projective view.
        exact: as of `Stage`.
    """

    def __init__(self, region: Region, lift: tuple[Ball, Ball] | None, *, exact: bool) -> None:
        self.region, self.lift, self.exact = region, lift, exact
        self.is_centred = lift is None
        # there is one head in the projective view: index 0
        if lift is None:
            self.centre = region.centre[:, 0]
            self.size = region.output_size
        else:
            weight, bias = lift
            self.centre = (
                einsum(region.centre, weight.mid, "item head e, head e d -> item d") + bias.mid
            )
            # |x| ≤ Σ_h |o^h| |W_O^h| + |b_O|
            self.size = (
                einsum(region.view.largest, weight.size, "head e, head e d -> d") + bias.size
            )[None, None]

    def lower(self, f: Functional) -> Functional:
        """See `Stage`: as functionals of outputs nothing is lost but rounding."""
        if self.lift is None:
            return f
        weight, bias = self.lift
        heads, width, d = weight.mid.shape
        # coef · x = (coef W_Oᵀ) · o + coef · b_O, with all heads' outputs side by side
        return f.through(
            weight.reshape(heads * width, d), bias, self.region.view.largest.reshape(1, 1, -1)
        )

    def ranges(self, f: Functional, *, signs: bool = False) -> tuple[Array, Array]:
        """See `Stage`."""
        g = self.lower(f)
        directions = rearrange(g.coef, "item k (head e) -> item k head e", head=self.region.n_heads)
        if self.exact:
            low, high = self.region.ranges(directions, g.const if signs else None)
        else:
            low = high = self.region.at_centre(directions)
        slack = g.slack + ulp(g.const, low) + ulp(g.const, high)
        return low + g.const - slack, high + g.const + slack


@final
class Shifted(Stage):
    """m = r + y, where r is fixed by the last symbol."""

    is_centred = False

    def __init__(self, inner: Stage, r: Ball) -> None:
        self.inner, self.r, self.exact = inner, r, inner.exact
        self.centre = r.mid + inner.centre
        self.size = r.size[:, None] + inner.size

    def _rest(self, f: Functional) -> Functional:
        """The functional of y: coef · m + const = coef · y + (const + coef · r)."""
        # coef · r alone: what is constant is added once, below
        r = Functional(f.coef, 0 * f.const, f.slack).at(self.r.mid)
        coef = abs(f.coef)
        # coef · r is off by r's own error and by γ_d Σ |coef| |r|
        error = (coef * (self.r.rad + gamma(f.coef.shape[-1] + 4) * abs(self.r.mid))[:, None]).sum(
            -1
        )
        return Functional(f.coef, f.const + r, f.slack + error + ulp(f.const, r))

    def ranges(self, f: Functional, *, signs: bool = False) -> tuple[Array, Array]:
        """See `Stage`."""
        return self.inner.ranges(self._rest(f), signs=signs)

    def lower(self, f: Functional) -> Functional:
        """See `Stage`."""
        return self.inner.lower(self._rest(f))


@final
class SquareRange:
    """Bounds on q = |P v|², v a stage's vector: [I] each; `centre`, any numbers, is [I, d].

    q lies in [low, high], and, since |x|² = 2 c · x - |c|² + |x - c|², in 2 centre · P
    v - |centre|² + [0, spread].
    """

    def __init__(self, stage: Stage) -> None:
        d = stage.centre.shape[-1]
        low, high = stage.coordinates
        self.centre = (
            stage.centre
            if stage.is_centred
            else stage.centre - stage.centre.mean(-1, keepdims=True)
        )
        # a difference (of which the square has two), a square, d sums and the last product: d + 4
        grow = 1 + gamma(d + 20)
        # |P v - c|² ≤ Σ_j max (high_j - c_j, c_j - low_j)²
        reach = np.maximum(high - self.centre, self.centre - low)
        self.spread = (np.maximum(reach, 0) ** 2).sum(-1) * grow
        self.square = (self.centre**2).sum(-1)
        # of v: 2 centre · P v, one per item
        self.tangent = projected(stage, Functional.of(2 * self.centre[:, None]))
        # the box: Σ_j min (P v)_j² ≤ q ≤ Σ_j max (P v)_j²
        least = np.where((low <= 0) & (high >= 0), 0.0, np.minimum(abs(low), abs(high)))
        most = np.maximum(abs(low), abs(high))
        # the tangent: min 2 c · P v - |c|² ≤ q ≤ max 2 c · P v - |c|² + spread; the better of the
        # two is kept
        along = stage.ranges(self.tangent)
        # |c|² itself is off by γ_(d + 1), and tangents on strings within the spread are at
        # most 3 |c|² + spread: three roundings of that are 9 u of |c|² and, of the
        # spread, less than it grows by
        slack = gamma(d + 20) * 3 * self.square
        # [:, 0]: the tangent is one functional an item
        self.low = np.maximum((least**2).sum(-1) / grow, along[0][:, 0] - self.square - slack).clip(
            0
        )
        self.high = np.minimum(
            (most**2).sum(-1) * grow, along[1][:, 0] - self.square + self.spread * grow + slack
        ).clip(self.low)


def identity(stage: Stage) -> Functional:
    """The coordinates, as functionals."""
    return Functional.of(np.eye(stage.centre.shape[-1])[None])


def projected(stage: Stage, f: Functional) -> Functional:
    """As functionals of the stage's v, given those of P v."""
    return f if stage.is_centred else f.centred(stage.size)


@final
class Normed(Stage):
    """n = s P v with s = 1 / max(√(f q + eps), c), q = |P v|².

    LayerNorm has f = 1/d and c = 0, LN_C f = 1 and eps = 0.

    For z = ζ · P v, writing index 0 for the centre,

        s z = s₀ z + z₀ s - s₀ z₀ + (s - s₀)(z - z₀) ≥ s₀ z + z₀ s - s₀ z₀ - max|s - s₀|
        max|z - z₀|,

    and s lies between two lines of the same slope in q, which `SquareRange` knows to be nearly
    linear in v.
    """

    is_centred = True

    def __init__(self, inner: Stage, *, factor: float, eps: float, floor: float) -> None:
        self.inner, self.exact = inner, inner.exact
        q = self.q = SquareRange(inner)

        def s(square: Array) -> Array:
            with np.errstate(divide="ignore"):
                # a product, a sum, a root and a quotient: 3 u, a root halving what is under it
                value: Array = 1 / np.maximum(np.sqrt(square * factor + eps), floor)
            return value

        at = np.clip(q.square, q.low, q.high)  # where the tangent touches
        self.s0 = s(at)
        steep = np.sqrt(at * factor + eps) > floor
        # ds/dq = -f/2 (f q + eps)^(-3/2) = -f s³/2, and 0 where the floor holds
        self.slope = np.where(steep, -0.5 * factor * self.s0**3, 0.0)
        # Below the kink s is 1 / floor and the rest grows with q; above, s is convex, so that its
        # rest is least where the tangent touches and largest at an end.
        # s - slope·q is monotone or convex between these points (q = kink: where the floor ends;
        # at: the tangent's)
        kink = np.clip((floor**2 - eps) / factor, q.low, q.high)
        points = np.stack([q.low, q.high, at, kink])
        rest = (
            s(points) - self.slope * points
        )  # [4, I]: slope·q + rest_low ≤ s ≤ slope·q + rest_high
        # s is off by 3 u, the product and the difference by 1 u each, the kink by 3 u of itself,
        # which moves slope·q by as much; a slope that is off moves the least in second order alone
        slack = 32 * UNIT * (s(points) + abs(self.slope * points)).max(0)
        self.rest_low, self.rest_high = rest.min(0) - slack, rest.max(0) + slack
        # s falls as q grows
        # 3 u of s and 1 of this product
        self.low, self.high = s(q.high) * (1 - 8 * UNIT), s(q.low) * (1 + 8 * UNIT)
        self.centre = q.centre * self.s0[:, None]
        bound = np.sqrt(1 / factor) * (1 + 1e-9)  # |n| ≤ 1/√factor
        self.size = np.full((1, 1, inner.centre.shape[-1]), bound)

    def ranges(self, f: Functional, *, signs: bool = False) -> tuple[Array, Array]:
        """See `Stage`."""
        g = projected(self.inner, Functional(f.coef, 0 * f.const, 0 * f.slack))
        z_low, z_high = self.inner.ranges(g)
        s_low, s_high = self.low[:, None], self.high[:, None]
        # s z with 0 < s_low ≤ s ≤ s_high: which end of s is worse depends on the sign of z
        low = np.where(z_low >= 0, z_low * s_low, z_low * s_high)
        high = np.where(z_high >= 0, z_high * s_high, z_high * s_low)
        # `ulp` of two terms is γ_8: a product, a sum, a difference
        slack = f.slack + ulp(low, f.const) + ulp(high, f.const)
        return low + f.const - slack, high + f.const + slack

    def lower(self, f: Functional) -> Functional:
        """See `Stage`."""
        q, inner, size = self.q, self.inner, self.inner.size
        z = projected(inner, Functional(f.coef, 0 * f.const, 0 * f.slack))
        z0 = z.at(inner.centre)  # [I, K]
        z_low, z_high = inner.ranges(z)
        # (s - s₀)(z - z₀) ≥ -max|s - s₀| max|z - z₀|
        product = np.maximum(self.high - self.s0, self.s0 - self.low)[:, None] * np.maximum(
            z_high - z0, z0 - z_low
        )
        s0, tilt = self.s0[:, None], z0 * self.slope[:, None]
        # z₀ s ≥ z₀ slope · q + min(z₀ rest_low, z₀ rest_high), and with tilt = z₀ slope, since
        # q ≤ tangent + spread, tilt q ≥ tilt (2 c · P v - |c|²) + min(tilt, 0) spread
        rest = np.minimum(z0 * self.rest_low[:, None], z0 * self.rest_high[:, None])
        # what is linear in v: s₀ z + tilt (2 c · P v)
        g = z.times(s0[..., None], size).plus(q.tangent.times(tilt[..., None], size), size)
        # the two projections were rounded as well: s0 and |tilt| times their slack
        lost = f.slack + s0 * z.slack + abs(tilt) * q.tangent.slack
        g = Functional(g.coef, f.const, g.slack + lost).shifted(
            -tilt * q.square[:, None],
            np.minimum(tilt, 0) * q.spread[:, None],
            rest,
            -s0 * z0,
            # two differences and a product: 3 u
            -product * (1 + 8 * UNIT),
            # so was z₀ slope, by u: of q ≤ 2 |c|² + 2 |P v - c|², the latter is u
            # of what the tangent leaves
            -gamma(q.centre.shape[-1] + 8) * abs(tilt) * q.square[:, None],  # |c|² was rounded
        )
        return inner.lower(g)
