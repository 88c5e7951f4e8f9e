"""Lines below and above an activation over an interval."""

from __future__ import annotations

from dataclasses import dataclass
from typing import final

import numpy as np

from tl_dyck.certify.balls import UNIT, Array, apply_activation

__all__ = ["ActivationLines", "activation_lines"]

_POINTS = 9
# max |φ''|: GELU √(2/π) (both forms), SiLU 1/2, each attained at 0
_CURVATURE = {"relu": 0.0, "gelu": 0.8, "gelu_new": 0.8, "silu": 0.51}


@final
@dataclass(frozen=True)
class ActivationLines:
    """slope_below · p + rest_below ≤ φ(p) ≤ slope_above · p + rest_above for low ≤ p ≤ high, all [I, m].

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

    For a given slope α the best line below is α p + min (φ(p) - α p). The minimum is taken over a grid (and 0,
    where ReLU bends); between grid points a function with |φ''| ≤ c falls at most c h²/8 below the lower of its
    neighbours, h their distance. Two slopes are tried, the chord's and the tangent's at the centre; the line
    that is better halfway between the centre and the middle of the interval is kept. Any choice is sound.
    """
    centre = np.clip(centre, low, high)
    weights = np.array([0.0, 1.0]) if name == "relu" else np.linspace(0, 1, _POINTS)
    grid = low + weights.reshape(-1, 1, 1) * (high - low)
    if name == "relu":
        grid = np.concatenate([grid, np.clip(0.0, low, high)[None]])
    phi = apply_activation(name, grid)
    bend = _CURVATURE[name] / 8 * ((high - low) / max(1, _POINTS - 1)) ** 2 * (1 + 1e-6)
    step = 1e-5
    tangent = (apply_activation(name, centre + step) - apply_activation(name, centre - step)) / (2 * step)
    wide = high - low > step
    chord = np.where(wide, (phi[len(weights) - 1] - phi[0]) / np.where(wide, high - low, 1), tangent)
    judge = (centre + (low + high) / 2) / 2
    size = np.maximum(abs(low), abs(high))
    best: list[tuple[Array, Array]] = []
    for sign in (1.0, -1.0):
        lines = []
        for slope in (chord, tangent):
            # the values of φ are right to 16 u |p|, and so is the subtraction
            slack = 24 * UNIT * (1 + abs(slope)) * size + 1e-300
            rest = (sign * (phi - slope * grid)).min(0) - bend - slack
            lines.append((slope, sign * rest))
        at_judge = [sign * (slope * judge + rest) for slope, rest in lines]
        first = at_judge[0] >= at_judge[1]
        best.append((np.where(first, lines[0][0], lines[1][0]), np.where(first, lines[0][1], lines[1][1])))
    slack = 24 * UNIT * size + 1e-300 + bend
    return ActivationLines(*best[0], *best[1], phi.min(0) - slack, phi.max(0) + slack)
