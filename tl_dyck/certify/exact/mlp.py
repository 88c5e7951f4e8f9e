"""The MLP as a stage of the readout, and lines below and above its activation over an interval."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import final

import numpy as np
from einops import rearrange

from tl_dyck.certify.exact.balls import UNIT, Array, Ball, apply_activation, gamma
from tl_dyck.certify.exact.functional import Functional, ulp
from tl_dyck.certify.exact.network import Network
from tl_dyck.certify.exact.region import Region
from tl_dyck.certify.exact.stages import Stage, identity, projected
from tl_dyck.reading.activations import ACTIVATIONS

_BOXED = 2
"""Signs are looked for in a box where it takes this many times fewer ranges."""
_POINTS = 9  # of a smooth activation; the lines' room falls with the square of their distance


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


def by_signs(network: Network) -> bool:
    """Whether of the hidden layer signs alone matter, and a box around o may show most of them.

    A unit of known sign is linear; how large it is matters to norms alone.
    """
    config = network.config
    norms = (config.ln_c, config.ln_mid, config.ln2, config.ln_final)
    if config.act_fn is None or config.gated or any(norm is not None for norm in norms):
        return False
    straight = ACTIVATIONS[config.act_fn].is_piecewise_linear
    return straight and len(network.weight("b_in").mid) > _BOXED * config.d_head


def activation_lines(name: str, low: Array, high: Array, centre: Array) -> ActivationLines:
    """Find lines for the activation `name` on [low, high], elementwise.

    For a given slope α the best line below is α p + min (φ(p) - α p). The minimum is taken over a
    grid (and 0, where two lines meet); between grid points a function with |φ''| ≤ c falls at most
    c h²/8 below the lower of its neighbours, h their distance. Two slopes are tried, the chord's
    and the tangent's at the centre; the line that is better halfway between the centre and the
    middle of the interval is kept. Any choice is sound.
    """
    centre = np.clip(centre, low, high)
    known = ACTIVATIONS[name]
    # [points, I, m]: a grid; of two lines its ends and their corner, between which it is linear
    weights = np.linspace(0, 1, 2 if known.is_piecewise_linear else _POINTS)
    grid = low + weights.reshape(-1, 1, 1) * (high - low)
    # 0, or where 0 would be, if the interval lies on one side of it
    if known.is_piecewise_linear:
        grid = np.concatenate([grid, np.clip(0.0, low, high)[None]])
    phi = apply_activation(name, grid)
    # how far φ can fall below the lower of two neighbours on the grid: c h²/8
    bend = known.known("curvature") / 8 * ((high - low) / (len(weights) - 1)) ** 2 * (1 + 1e-6)
    step = 1e-5
    # slopes may be rounded as they like: the rest is computed for the slope that is used
    tangent = (apply_activation(name, centre + step) - apply_activation(name, centre - step)) / (
        2 * step
    )
    # on a narrower interval the chord's quotient is mostly rounding
    wide = high - low > step
    chord = np.where(
        wide, (phi[len(weights) - 1] - phi[0]) / np.where(wide, high - low, 1), tangent
    )
    judge = (centre + (low + high) / 2) / 2
    size = np.maximum(abs(low), abs(high))
    # With |φ| ≤ s |p|, s the steepest slope, in u |p|: r of φ; |slope| of the product; s + |slope|
    # of the difference, of each of two subtractions below, and twice of the grid's end, which
    # rounding may leave short of `high`: r + 5 s + 6 |slope|, at most (r + 7 s) (1 + |slope|) for
    # s ≥ 1
    lost = (known.known("rounding") + 7 * max(1.0, known.known("steepest"))) * UNIT * size
    best: list[tuple[Array, Array]] = []
    for sign in (1.0, -1.0):  # below, then above: a line above φ is one below -φ, negated
        lines = []
        for slope in (chord, tangent):
            # sign (φ - slope p) ≥ its least value on the grid - bend
            slack = lost * (1 + abs(slope)) + 1e-300
            rest = (sign * (phi - slope * grid)).min(0) - bend - slack
            lines.append((slope, sign * rest))
        at_judge = [sign * (slope * judge + rest) for slope, rest in lines]
        # 0 is the chord, 1 the tangent; the higher line below is the better one
        first = at_judge[0] >= at_judge[1]
        best.append(
            (np.where(first, lines[0][0], lines[1][0]), np.where(first, lines[0][1], lines[1][1]))
        )
    # the same without a slope, and φ may turn between two points of the grid
    slack = lost + 1e-300 + bend
    return ActivationLines(*best[0], *best[1], phi.min(0) - slack, phi.max(0) + slack)


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
        self.network, self.region, self.m, self.n = network, region, m, n
        self.scale, self.shift, self.exact = scale, shift, m.exact
        self.w_out, self.b_out = network.weight("W_out"), network.weight("b_out")
        name = network.config.act_fn
        assert name is not None
        self.name = name
        # [I, m] each: the hidden layer lies in [low, high], and at the centre it is `centre`
        self.low, self.high, centre = self._hidden()
        self.centre = m.centre + centre @ self.w_out.mid + self.b_out.mid
        self.hidden_size = np.maximum(abs(self.low), abs(self.high))[:, None]
        # |out| ≤ |m| + |hidden| |W_out| + |b_out|
        self.size = m.size + self.hidden_size @ self.w_out.size + self.b_out.size

    def _hidden(self) -> tuple[Array, Array, Array]:
        """Ranges of the hidden layer, and its values at the centre."""
        low, high, centre = self._pre("in", signs=by_signs(self.network))
        self.pre_size = np.maximum(abs(low), abs(high))[:, None]
        self.lines = activation_lines(self.name, low, high, centre)
        return self.lines.low, self.lines.high, apply_activation(self.name, centre)

    def _pre(self, name: str, *, signs: bool = False) -> tuple[Array, Array, Array]:
        """Ranges of (n * scale + shift) W + b, of "in" or "gate", and its values at the centre."""
        # any centre will do: it only chooses between lines that are sound
        n, scale, shift = self.n.centre, self.scale, self.shift
        weight, bias = self.network.weight(f"W_{name}"), self.network.weight(f"b_{name}")
        normed = n if scale is None or shift is None else n * scale.mid + shift.mid
        centre = normed @ weight.mid + bias.mid
        if not self.exact:
            return centre, centre, centre
        outputs = Functional.outputs(weight, bias, self._normed_size)
        return *self.n.ranges(self._scaled(outputs), signs=signs), centre

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

    def _of_n(self, f: Functional, name: str) -> Functional:
        """Functionals of n, given those of (n * scale + shift) W + b, of "in" or "gate".

        Back through W first, then through scale and shift.
        """
        weight, bias = self.network.weight(f"W_{name}"), self.network.weight(f"b_{name}")
        return self._scaled(f.through(weight, bias, self._normed_size))

    @cached_property
    def coordinates(self) -> tuple[Array, Array]:
        """See `Stage`; those of m are known already, if a norm stands before the MLP."""
        if not self.exact:
            return super().coordinates
        return self._with_hidden(projected(self, identity(self)), self.m.coordinates)

    def ranges(self, f: Functional, *, signs: bool = False) -> tuple[Array, Array]:
        """See `Stage`."""
        return self._with_hidden(f, self.m.ranges(Functional.of(f.coef)))

    def _with_hidden(self, f: Functional, of_m: tuple[Array, Array]) -> tuple[Array, Array]:
        """Ranges of f, given those of its coefficients on m."""
        (low, high), (m_low, m_high) = self._hidden_part(f), of_m
        slack = ulp(low, m_low) + ulp(high, m_high)
        return low + m_low - slack, high + m_high + slack

    def _hidden_part(self, f: Functional) -> tuple[Array, Array]:
        """Ranges of f(act(…) W_out + b_out), with the hidden layer taken as a box."""
        hidden = f.through(self.w_out, self.b_out, self.hidden_size)
        # Σ_j a_j h_j ∈ Σ_j a_j middle_j ± Σ_j |a_j| radius_j
        # any middle is right, since `radius` is taken from the one that is computed
        middle = (self.low + self.high) / 2
        radius = np.maximum(self.high - middle, middle - self.low)
        value = hidden.at(middle)
        size = Functional.of(abs(hidden.coef))
        reach = size.at(radius) + hidden.slack
        # `value` is a sum of m products and a constant; 8 more for `middle`, `radius` and the ends
        reach += gamma(middle.shape[-1] + 8) * (size.at(self.hidden_size[:, 0]) + abs(hidden.const))
        return value - reach * (1 + 1e-9), value + reach * (1 + 1e-9)

    def lower(self, f: Functional) -> Functional:
        """See `Stage`."""
        hidden = f.through(self.w_out, self.b_out, self.hidden_size)
        # f(out) = f's coefficients on m, which skips the MLP, plus those on the hidden layer,
        # carried back to n
        through_mlp = self.n.lower(self._below(hidden))
        past_it = self.m.lower(Functional.of(f.coef))
        size = rearrange(self.region.output_size, "item head e -> item 1 (head e)")
        return through_mlp.plus(past_it, size)

    def _below(self, hidden: Functional) -> Functional:
        """Functionals of n that are at most those of the hidden layer, on every string."""
        return self._of_n(below_lines(hidden, self.lines, self.pre_size), "in")


def below_lines(f: Functional, lines: ActivationLines, size: Array) -> Functional:
    """Functionals of p, |p| ≤ size, that are at most those of φ(p).

    a φ(p) ≥ a (slope p + rest), with the line below where a ≥ 0, and that above elsewhere.
    """
    up = f.coef >= 0
    slope = np.where(up, lines.slope_below[:, None], lines.slope_above[:, None])
    # a ≥ 0 keeps the order of a line and φ, a < 0 turns it round
    rest = f.coef * np.where(up, lines.rest_below[:, None], lines.rest_above[:, None])
    pre = f.times(slope, size)
    # one product and m - 1 sums
    error = gamma(rest.shape[-1] + 2) * abs(rest).sum(-1)
    found = Functional(pre.coef, f.const, pre.slack + f.slack + error)
    return found.shifted(rest.sum(-1))
