"""Linear lower bounds of objectives over a region: the chain of stages, ln_final, unembedding."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import final

import numpy as np
from einops import rearrange

from tl_dyck.certify.exact.balls import UNIT, Array, Ball, BoolArray, gamma
from tl_dyck.certify.exact.functional import Functional
from tl_dyck.certify.exact.gated import Gated
from tl_dyck.certify.exact.mlp import Mlp
from tl_dyck.certify.exact.network import Network
from tl_dyck.certify.exact.region import Region
from tl_dyck.certify.exact.stages import (
    Lifted,
    Normed,
    Shifted,
    SquareRange,
    Stage,
    identity,
    projected,
)
from tl_dyck.certify.exact.unembedding import Unembedding


@final
@dataclass(frozen=True)
class LinearBound:
    """scale(y) · (objective_k(y) - threshold) ≥ Σ_h D^h · o^h(y) + constant on item i's strings y.

    Attributes:
        directions: [I, K, H, width].
        constant: [I, K]; all that rounding may have added is subtracted.
        scale_low: [I] scale(y) > 0 is at least this,
        scale_high: [I] and at most this.
        finite: [I] False where some number overflowed on the way: nothing is known, and the bound
            is made up to be negative.
    """

    directions: Array
    constant: Array
    scale_low: Array
    scale_high: Array
    finite: BoolArray

    @classmethod
    def joined(cls, bounds: Sequence[LinearBound]) -> LinearBound:
        """Bounds of other objectives side by side."""
        first, *rest = bounds
        if not rest:
            return first
        return cls(
            np.concatenate([bound.directions for bound in bounds], axis=1),
            np.concatenate([bound.constant for bound in bounds], axis=1),
            first.scale_low,
            first.scale_high,
            np.all([bound.finite for bound in bounds], axis=0),
        )


@final
class Readout:
    """The readout of a network on all strings of a region's items.

    Args:
        network: the network.
        region: the items; all of them sound. In the projective view (unit 0), x is shown up to a
            factor only.
        r: [I, d] the residual stream of each item's last symbol.
        exact: False linearises as if every item held its centre alone: first-order guesses instead
            of bounds.
    """

    def __init__(self, network: Network, region: Region, r: Ball, *, exact: bool = True) -> None:
        config = network.config
        self.network, self.config, self.region = network, config, region
        lift = (network.w_o, network.weight("b_O")) if region.unit else None
        # x = Σ_h o^h W_O^h + b_O; LN_C(x); m = r + x; LN_C(m); m + MLP(norm(m)): what the
        # configuration has of these
        stage: Stage = Lifted(region, lift, exact=exact)
        if config.ln_c is not None:
            # In the projective view (unit 0) |P x| ≥ C is proved of all
            # strings, so that no floor holds.
            stage = Normed(stage, factor=1.0, eps=0.0, floor=config.ln_c if region.unit else 0.0)
        if config.residual:
            stage = Shifted(stage, r)
        if config.ln_mid is not None:
            stage = Normed(stage, factor=1.0, eps=0.0, floor=config.ln_mid)
        if config.act_fn is not None:
            scale = shift = None
            normed = stage
            if config.ln2 is not None:
                # mean square = |P m|² / d: the factor; eps > 0 does what a floor would
                normed = Normed(stage, factor=1 / config.d_model, eps=config.eps, floor=0.0)
            if config.ln2 == "ln":
                scale, shift = network.weight("ln2_w"), network.weight("ln2_b")
            kind = Gated if config.gated else Mlp
            stage = kind(network, region, stage, normed, scale, shift)
        self.stage = stage
        self.square = SquareRange(stage) if config.ln_final is not None else None

    def at_centre(self, unembedding: Unembedding) -> Array:
        """[I, K]: the objectives at the centre of each item, rounded."""
        n, q = self.stage.centre, self.square
        if q is not None:
            n = q.centre / np.sqrt(q.square / self.config.d_model + self.config.eps)[:, None]
        if self.config.ln_final == "ln":
            n = n * self.network.weight("ln_final_w").mid + self.network.weight("ln_final_b").mid
        return unembedding.values(Ball.exact(n)).mid

    def screen(self, unembedding: Unembedding) -> Array:
        """A lower bound of each objective on each item, [I, K], of the ranges of coordinates alone.

        Cheap, and loose; -inf where something overflows.
        """
        stage, q = self.stage, self.square
        low, high = stage.ranges(identity(stage)) if q is None else stage.coordinates
        middle = (low + high) / 2
        reach = np.maximum(high - middle, middle - low)
        size = np.maximum(abs(low), abs(high))
        bounds = []
        for piece in unembedding.pieces():
            self.region.attention.deadline.check()
            weight, bias = self.network.objectives_of_normed(piece)
            # d of the products and of P w, and some for σ and the sums behind them
            w, error = weight.mid, weight.rad + gamma(len(weight.mid) + 20) * abs(weight.mid)
            if q is not None:  # w · P v = (P w) · P v
                w = w - w.mean(0)
                error = error + error.mean(0)
            value = middle @ w - (reach * (1 + 1e-9)) @ abs(w) - (size * (1 + 1e-9)) @ error
            if q is not None:  # divided by σ, at whichever end is worse
                square = np.where(value < 0, q.low[:, None], q.high[:, None])
                value /= np.sqrt(square / self.config.d_model + self.config.eps)
            value += bias.mid
            # σ takes 2.5 u, the quotient 1, and the two sums 1 each of |value| + |bias|: 6 u
            value -= bias.rad + 16 * UNIT * (abs(value) + 2 * abs(bias.mid))
            bounds.append(np.where(np.isfinite(value), value, -np.inf))
        return np.concatenate(bounds, axis=1)

    def lower(self, unembedding: Unembedding, threshold: float) -> LinearBound:
        """Bound the objectives minus a threshold from below."""
        n, stage = len(self.region.items), self.stage
        one = np.ones(n)
        weight, bias = self.network.objectives_of_normed(unembedding)
        f = Functional.of(np.ascontiguousarray(weight.mid.T)[None])
        # |P v| ≤ |v| + mean |v|
        size = stage.size + stage.size.mean(-1, keepdims=True)
        beta = bias.mid - threshold
        # the coefficients stand for weights that are off by up to weight.rad, on a vector
        # |v| ≤ size
        lost = (size @ weight.rad)[:, 0] + bias.rad + UNIT * abs(beta)
        if self.square is None:
            return self._bound(Functional(f.coef, f.const + beta, f.slack + lost), one, one)
        # objective - threshold = w · P v / σ + β, with σ = √(q / d + eps) and q = |P v|².
        # Multiplied by σ > 0: w · P v + β σ, in which only β σ is not linear
        q, d = self.square, self.config.d_model
        sigma = np.sqrt(q.square / d + self.config.eps)[:, None]
        low, high = np.sqrt(q.low / d + self.config.eps), np.sqrt(q.high / d + self.config.eps)
        # β ≥ 0: σ = |(P v / √d, √eps)| ≥ its product with (c / √d, √eps) / σ₀, σ₀ = `sigma`, a unit
        # vector; shrunk a little, so that rounding leaves it no longer than 1. So β σ ≥ β (c · P
        # v / d + eps) / σ₀
        shrink = np.where(beta >= 0, 1 - 1e-12, 1.0)
        tilt = shrink * beta / (2 * d * sigma)
        f = projected(stage, f)
        g = f.plus(q.tangent.times(tilt[..., None], stage.size), stage.size)
        # β < 0: √ is concave, so that σ ≤ (σ² + σ₀²) / 2σ₀, and σ² ≤ (2 c · P
        # v - |c|² + spread) / d + eps. In both cases the coefficient of 2 c · P v is β / 2dσ₀
        above = (
            beta * ((q.spread - q.square)[:, None] / d + self.config.eps + sigma**2) / (2 * sigma)
        )
        below = shrink * beta * self.config.eps / sigma
        const = np.where(beta >= 0, below, above)
        # |c|² takes d + 1, and each term of the constants fewer than 10 operations; the tangent,
        # whose coefficient took 4, comes to 1.5 of the terms in brackets at most: d + 16
        rounding = (
            gamma(d + 40) * abs(beta) * (sigma + (q.spread + q.square)[:, None] / (d * sigma))
        )
        # of `lost`, the weights' part is not multiplied by σ, the constants' is: 1 + the largest σ
        slack = g.slack + abs(tilt) * q.tangent.slack + lost * (1 + high[:, None]) + rounding
        g = Functional(g.coef, np.broadcast_to(const, slack.shape), slack)
        # a quotient, a sum, a root and this product: 3 u
        return self._bound(g, low * (1 - 8 * UNIT), high * (1 + 8 * UNIT))

    def _bound(self, f: Functional, low: Array, high: Array) -> LinearBound:
        """Subtract what rounding may have added; give up items on which something overflowed."""
        linear, n, heads = self.stage.lower(f), len(low), self.region.n_heads
        # slacks are sums of some hundreds of numbers, rounded to nearest:
        # 1e-14 of them, many times less
        constant = np.broadcast_to(linear.const - linear.slack * (1 + 1e-9), (n, len(f.coef[0])))
        directions = rearrange(linear.coef, "item k (head e) -> item k head e", head=heads)
        directions = np.broadcast_to(directions, (n, *directions.shape[1:]))
        finite = np.isfinite(directions).all((1, 2, 3)) & np.isfinite(constant).all(1)
        finite &= (low > 0) & np.isfinite(low) & np.isfinite(high)
        directions = np.where(finite[:, None, None, None], directions, 0.0)
        # any negative number: what is not known must not look proved
        constant = np.where(finite[:, None], constant, -1.0)
        low, high = np.where(finite, low, 1.0), np.where(finite, high, 1.0)
        return LinearBound(directions, constant, low, high, finite)
