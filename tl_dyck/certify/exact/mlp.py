"""The MLP as a stage of the readout, and lines below and above its activation over an interval."""

from __future__ import annotations

from dataclasses import dataclass
from typing import final

import numpy as np

from tl_dyck.certify.exact.balls import UNIT, Array, Ball, apply_activation, gamma
from tl_dyck.certify.exact.functional import Functional, Linear, ulp
from tl_dyck.certify.exact.network import Network
from tl_dyck.certify.exact.region import Region
from tl_dyck.certify.exact.stages import Stage
from tl_dyck.reading.activations import ACTIVATIONS

_POINTS = 9


@final
@dataclass(frozen=True)
class ActivationLines:
    """slope_below · p + rest_below ≤ φ(p) ≤ slope_above · p + rest_above, low ≤ p ≤ high, [I, m].

    `low` and `high` bound φ itself.
    """

    slope_below: Array
    rest_below: Array
    slope_above: Array
    rest_above: Array
    low: Array
    high: Array


def activation_lines(name: str, low: Array, high: Array, centre: Array) -> ActivationLines:
    """Find lines for the activation `name` on [low, high], elementwise.

    For a given slope α the best line below is α p + min (φ(p) - α p). The minimum is taken over a
    grid (and 0, where ReLU bends); between grid points a function with |φ''| ≤ c falls at most c
    h²/8 below the lower of its neighbours, h their distance. Two slopes are tried, the chord's and
    the tangent's at the centre; the line that is better halfway between the centre and the middle
    of the interval is kept. Any choice is sound.
    """
    centre = np.clip(centre, low, high)
    # [points, I, m]: a grid; for a ReLU its ends and its bend, between which it is linear
    weights = np.array([0.0, 1.0]) if name == "relu" else np.linspace(0, 1, _POINTS)
    grid = low + weights.reshape(-1, 1, 1) * (high - low)
    if name == "relu":
        grid = np.concatenate([grid, np.clip(0.0, low, high)[None]])
    phi = apply_activation(name, grid)
    # how far φ can fall below the lower of two neighbours on the grid: c h²/8
    bend = (
        ACTIVATIONS[name].known("curvature")
        / 8
        * ((high - low) / max(1, _POINTS - 1)) ** 2
        * (1 + 1e-6)
    )
    step = 1e-5
    # slopes may be rounded as they like: the rest is computed for the slope that is used
    tangent = (apply_activation(name, centre + step) - apply_activation(name, centre - step)) / (
        2 * step
    )
    wide = high - low > step
    chord = np.where(
        wide, (phi[len(weights) - 1] - phi[0]) / np.where(wide, high - low, 1), tangent
    )
    judge = (centre + (low + high) / 2) / 2
    size = np.maximum(abs(low), abs(high))
    best: list[tuple[Array, Array]] = []
    for sign in (1.0, -1.0):  # below, then above: a line above φ is one below -φ, negated
        lines = []
        for slope in (chord, tangent):
            # sign (φ - slope p) ≥ its least value on the grid - bend; φ is right to 16 u |p|, and
            # so is the subtraction
            slack = 24 * UNIT * (1 + abs(slope)) * size + 1e-300
            rest = (sign * (phi - slope * grid)).min(0) - bend - slack
            lines.append((slope, sign * rest))
        at_judge = [sign * (slope * judge + rest) for slope, rest in lines]
        first = at_judge[0] >= at_judge[1]
        best.append(
            (np.where(first, lines[0][0], lines[1][0]), np.where(first, lines[0][1], lines[1][1]))
        )
    slack = 24 * UNIT * size + 1e-300 + bend
    return ActivationLines(*best[0], *best[1], phi.min(0) - slack, phi.max(0) + slack)


@final
class Mlp(Stage):
    """out = m + act(n W_in + b_in) W_out + b_out; n is m or its norm times `scale` plus `shift`."""

    is_centred = False

    def __init__(
        self,
        network: Network,
        region: Region,
        m: Stage,
        n: Stage,
        scale: Ball | None,
        shift: Ball | None,
    ) -> None:
        self.region, self.m, self.n, self.scale, self.shift = region, m, n, scale, shift
        self.exact = m.exact
        self.w_in, self.b_in = network.weight("W_in"), network.weight("b_in")
        self.w_out, self.b_out = network.weight("W_out"), network.weight("b_out")
        name = network.config.act_fn
        assert name is not None
        # any centre will do: it only chooses between lines that are sound
        normed = n.centre if scale is None or shift is None else n.centre * scale.mid + shift.mid
        p0 = normed @ self.w_in.mid + self.b_in.mid
        # [I, m] each: pre-activations p lie in [low, high], and φ(p) between the lines
        if self.exact:
            hidden = Functional.outputs(self.w_in, self.b_in, self._normed_size)
            # a ReLU of known sign is linear; how large it is matters to norms alone
            signs = name == "relu" and network.config.ln_final is None
            self.low, self.high = n.ranges(self._scaled(hidden), signs=signs)
        else:
            self.low = self.high = p0
        self.lines = activation_lines(name, self.low, self.high, p0)
        self.centre = m.centre + apply_activation(name, p0) @ self.w_out.mid + self.b_out.mid
        hidden_size = np.maximum(abs(self.lines.low), abs(self.lines.high))
        self.hidden_size = hidden_size[:, None]
        # |out| ≤ |m| + |φ| |W_out| + |b_out|
        self.size = m.size + (hidden_size @ self.w_out.size + self.b_out.size)[:, None]

    @property
    def _normed_size(self) -> Array:
        """The largest |n * scale + shift|."""
        if self.scale is None or self.shift is None:
            return self.n.size
        return self.n.size * self.scale.size + self.shift.size

    def _scaled(self, f: Functional) -> Functional:
        """Functionals of n, given those of n * scale + shift."""
        if self.scale is None or self.shift is None:
            return f
        return f.scaled(self.scale.mid, self.shift.mid, self.n.size)

    def _of_n(self, f: Functional) -> Functional:
        """Functionals of n, given those of the pre-activations p = (n * scale + shift) W_in + b_in.

        Back through W_in first, then through scale and shift.
        """
        return self._scaled(f.through(self.w_in, self.b_in, self._normed_size))

    def ranges(self, f: Functional, *, signs: bool = False) -> tuple[Array, Array]:
        """See `Stage`."""
        low, high = self._hidden_part(f)
        m_low, m_high = self.m.ranges(Functional.of(f.coef))
        slack = ulp(low, m_low) + ulp(high, m_high)
        return low + m_low - slack, high + m_high + slack

    def _hidden_part(self, f: Functional) -> tuple[Array, Array]:
        """Ranges of f(act(…) W_out + b_out), with the hidden layer taken as a box."""
        hidden = f.through(self.w_out, self.b_out, self.hidden_size)
        # Σ_j a_j φ_j ∈ Σ_j a_j middle_j ± Σ_j |a_j| radius_j
        middle = (self.lines.low + self.lines.high) / 2
        radius = np.maximum(self.lines.high - middle, middle - self.lines.low)
        value = hidden.at(middle)
        size = Functional.of(abs(hidden.coef))
        reach = size.at(radius) + hidden.slack
        reach += gamma(len(self.b_in.mid) + 8) * (
            size.at(self.hidden_size[:, 0]) + abs(hidden.const)
        )
        return value - reach * (1 + 1e-9), value + reach * (1 + 1e-9)

    def lower(self, f: Functional) -> Linear:
        """See `Stage`."""
        hidden = f.through(self.w_out, self.b_out, self.hidden_size)
        # a_j φ(p_j) ≥ a_j (slope_j p_j + rest_j) with the line below where a_j ≥ 0, and that above
        # elsewhere
        lines, up = self.lines, hidden.coef >= 0
        slope = np.where(up, lines.slope_below[:, None], lines.slope_above[:, None])
        rest = hidden.coef * np.where(up, lines.rest_below[:, None], lines.rest_above[:, None])
        pre = hidden.times(slope, np.maximum(abs(self.low), abs(self.high))[:, None])
        error = gamma(rest.shape[-1] + 2) * abs(rest).sum(-1)
        pre = Functional(pre.coef, hidden.const, pre.slack + hidden.slack + error).shifted(
            rest.sum(-1)
        )
        # f(out) = f's coefficients on m, which skips the MLP, plus those on p, carried back to n
        through_mlp = self.n.lower(self._of_n(pre))
        past_it = self.m.lower(Functional.of(f.coef))
        return through_mlp.plus(past_it, self.region.output_size)
