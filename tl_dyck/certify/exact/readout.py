"""Linear lower bounds of objectives over a region: the chain of stages, ln_final, unembedding."""

from __future__ import annotations

from dataclasses import dataclass
from typing import final

import numpy as np

from tl_dyck.certify.exact.balls import UNIT, Array, Ball, BoolArray, gamma
from tl_dyck.certify.exact.functional import Functional, Linear
from tl_dyck.certify.exact.mlp import Mlp
from tl_dyck.certify.exact.network import Network
from tl_dyck.certify.exact.region import Region
from tl_dyck.certify.exact.stages import Lifted, Normed, Shifted, SquareRange, Stage, projected


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


@final
class Readout:
    """The readout of a network on all strings of a region's items.

    Args:
        network: the network.
        unembed: what `Network.unembed` returns for the objectives: [d, K] and [K].
        region: the items; all of them sound. In the projective view (unit 0), x is shown up to a
            factor only.
        r: [I, d] the residual stream of each item's last symbol.
        exact: False linearises as if every item held its centre alone: first-order guesses instead
            of bounds.
    """

    def __init__(
        self,
        network: Network,
        unembed: tuple[Ball, Ball],
        region: Region,
        r: Ball,
        *,
        exact: bool = True,
    ) -> None:
        config = network.config
        self.config, self.n_items = config, len(region.items)
        lift = (network.w_o, network.weight("b_O")) if region.unit else None
        # x = Σ_h o^h W_O^h + b_O; LN_C(x); m = r + x; LN_C(m); m + MLP(norm(m)): what the
        # configuration has of these
        stage: Stage = Lifted(region, lift, exact=exact)
        if config.ln_c is not None:
            stage = Normed(stage, factor=1.0, eps=0.0, floor=config.ln_c if region.unit else 0.0)
        if config.residual:
            stage = Shifted(stage, r)
        if config.ln_mid is not None:
            stage = Normed(stage, factor=1.0, eps=0.0, floor=config.ln_mid)
        if config.act_fn is not None:
            scale = shift = None
            normed = stage
            if config.ln2 is not None:
                normed = Normed(stage, factor=1 / config.d_model, eps=config.eps, floor=0.0)
            if config.ln2 == "ln":
                scale, shift = network.weight("ln2_w"), network.weight("ln2_b")
            stage = Mlp(network, region, stage, normed, scale, shift)
        self.stage = stage
        weight, bias = unembed
        if config.ln_final == "ln":
            # (n * gain + shift) W_U + b_U = n (gain * W_U) + (shift W_U + b_U)
            gain, shift = network.weight("ln_final_w"), network.weight("ln_final_b")
            bias = bias.plus(shift.matmul(weight))
            weight = Ball(gain.mid[:, None], gain.rad[:, None]).times(weight)
        self.weight, self.bias = weight, bias
        self.square = SquareRange(stage) if config.ln_final is not None else None

    def lower(self, threshold: float) -> LinearBound:
        """Bound the objectives minus a threshold from below."""
        n, stage = self.n_items, self.stage
        one = np.ones(n)
        f = Functional.of(np.ascontiguousarray(self.weight.mid.T)[None])
        size = stage.size + stage.size.mean(-1, keepdims=True)
        beta = self.bias.mid - threshold
        # the coefficients stand for weights that are off by up to weight.rad, on a vector
        # |v| ≤ size
        lost = (size @ self.weight.rad)[:, 0] + self.bias.rad + UNIT * abs(beta)
        if self.square is None:
            return _bound(stage.lower(Functional(f.coef, f.const + beta, f.slack + lost)), one, one)
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
        tangent = projected(stage, q.tangent)
        g = f.plus(tangent.times(tilt[..., None], stage.size), stage.size)
        # β < 0: √ is concave, so that σ ≤ (σ² + σ₀²) / 2σ₀, and σ² ≤ (2 c · P
        # v - |c|² + spread) / d + eps. In both cases the coefficient of 2 c · P v is β / 2dσ₀
        above = (
            beta * ((q.spread - q.square)[:, None] / d + self.config.eps + sigma**2) / (2 * sigma)
        )
        below = shrink * beta * self.config.eps / sigma
        const = np.where(beta >= 0, below, above)
        rounding = (
            gamma(d + 40) * abs(beta) * (sigma + (q.spread + q.square)[:, None] / (d * sigma))
        )
        slack = g.slack + abs(tilt) * tangent.slack + lost * (1 + high[:, None]) + rounding
        g = Functional(g.coef, np.broadcast_to(const, slack.shape), slack)
        return _bound(stage.lower(g), low * (1 - 8 * UNIT), high * (1 + 8 * UNIT))


def _bound(linear: Linear, low: Array, high: Array) -> LinearBound:
    """Subtract what rounding may have added; give up the items on which something overflowed."""
    constant = linear.const - linear.slack * (1 + 1e-9)
    finite = np.isfinite(linear.directions).all((1, 2, 3)) & np.isfinite(constant).all(1)
    finite &= (low > 0) & np.isfinite(low) & np.isfinite(high)
    directions = np.where(finite[:, None, None, None], linear.directions, 0.0)
    constant = np.where(finite[:, None], constant, -1.0)
    return LinearBound(
        directions, constant, np.where(finite, low, 1.0), np.where(finite, high, 1.0), finite
    )
