"""Functionals and stages against exact rationals: what they state holds, and nothing is given away.

Strings are a handful of known vectors here, so that every range is a minimum over a list.
"""

from __future__ import annotations

from fractions import Fraction
from math import isqrt
from types import SimpleNamespace

import numpy as np
import pytest

from tl_dyck.certify.exact.balls import Array, Ball
from tl_dyck.certify.exact.functional import Functional
from tl_dyck.certify.exact.mlp import ActivationLines, Mlp, below_lines
from tl_dyck.certify.exact.stages import Normed, Shifted, SquareRange, Stage

D, K, N = 4, 3, 2  # coordinates, functionals, items
TINY = 1e-12
ROUNDED = Fraction(1 + 2**-50)  # slacks are added up in float64 themselves, to the nearest


def exact(values: Array) -> np.ndarray:
    """The same numbers as fractions."""
    return np.array([Fraction(float(x)) for x in np.ravel(values)], object).reshape(
        np.shape(values)
    )


def root(x: Fraction) -> Fraction:
    """√x to 40 digits."""
    return Fraction(isqrt(x.numerator * 10**80 // x.denominator), 10**40)


def drawn(rng: np.random.Generator, *shape: int) -> Array:
    """Numbers of both signs and many sizes, a third of them zeros or ties."""
    value = rng.normal(size=shape) * 10.0 ** rng.integers(-3, 4, size=shape)
    return np.where(rng.random(shape) < 0.3, rng.integers(-1, 2, size=shape), value)


def functional(rng: np.random.Generator, items: int = N, *, slack: float = 0.0) -> Functional:
    return Functional(drawn(rng, items, K, D), drawn(rng, items, K), np.full((items, K), slack))


def applied(f: Functional, v: Array) -> np.ndarray:
    """coef · v + const in fractions, [N, K]; v is [N, d]."""
    coef = np.broadcast_to(f.coef, (len(v), *f.coef.shape[1:]))
    return (exact(coef) * exact(v)[:, None]).sum(-1) + exact(f.const)


def off(found: Functional, v: Array, wanted: np.ndarray, given: float = 0.0) -> None:
    """Wanted is within slack; and slack is what was given and rounding, no more."""
    error = abs(applied(found, v) - wanted) + Fraction(given)
    assert (error <= exact(found.slack) * ROUNDED).all()
    size = (abs(found.coef) * abs(v)[:, None]).sum(-1) + abs(found.const) + 1
    assert (found.slack <= given * (1 + 1e-9) + 1e-9 * size.max()).all()


@pytest.mark.parametrize("seed", range(20))
def test_sums_multiples_and_constants_of_functionals(seed: int) -> None:
    rng = np.random.default_rng(seed)
    f, g, v = functional(rng, slack=0.5), functional(rng, slack=0.25), drawn(rng, N, D)
    size = abs(v)[:, None]
    off(f.plus(g, size), v, applied(f, v) + applied(g, v), 0.75)
    a, b = drawn(rng, N, K), drawn(rng, N, K)
    off(f.shifted(a, b), v, applied(f, v) + exact(a) + exact(b), 0.5)
    off(f.shifted(a), v, applied(f, v) + exact(a), 0.5)


@pytest.mark.parametrize("seed", range(20))
def test_a_product_is_that_of_the_coefficients_alone(seed: int) -> None:
    rng = np.random.default_rng(seed)
    f, v, factor = functional(rng, slack=0.5), drawn(rng, N, D), drawn(rng, N, K, 1)
    found = f.times(factor, abs(v)[:, None])
    # constants and slack are the callers' to add: none is left here
    off(found, v, (exact(f.coef) * exact(factor) * exact(v)[:, None]).sum(-1))


@pytest.mark.parametrize("seed", range(20))
def test_functionals_are_carried_through_matrices_scales_and_means(seed: int) -> None:
    rng = np.random.default_rng(seed)
    f, v = functional(rng, slack=0.5), drawn(rng, N, D)
    size = abs(v)[:, None]
    w, b = drawn(rng, D, D), drawn(rng, D)
    before = (exact(v)[:, :, None] * exact(w)).sum(1) + exact(b)
    wanted = (exact(f.coef) * before[:, None]).sum(-1) + exact(f.const)
    found = f.through(Ball.exact(w), Ball.exact(b), size)
    assert (abs(applied(found, v) - wanted) + Fraction(1, 2) <= exact(found.slack) * ROUNDED).all()
    reach = (abs(f.coef) @ abs(w.T) * size).sum(-1) + abs(f.coef) @ abs(b) + abs(f.const)
    assert (found.slack <= 0.5 + TINY * (1 + reach)).all()

    before = exact(v) * exact(b) + exact(w[0])
    wanted = (exact(f.coef) * before[:, None]).sum(-1) + exact(f.const)
    found = f.scaled(b, w[0], size)
    assert (abs(applied(found, v) - wanted) + Fraction(1, 2) <= exact(found.slack) * ROUNDED).all()
    reach = (abs(f.coef * b) * size).sum(-1) + abs(f.coef) @ abs(w[0]) + abs(f.const)
    assert (found.slack <= 0.5 + TINY * (1 + reach)).all()

    centred = exact(v) - exact(v).sum(-1, keepdims=True) / D
    wanted = (exact(f.coef) * centred[:, None]).sum(-1) + exact(f.const)
    found = f.centred(size)
    assert (abs(applied(found, v) - wanted) + Fraction(1, 2) <= exact(found.slack) * ROUNDED).all()
    assert (found.slack <= 0.5 + TINY * (1 + abs(f.coef).sum(-1) * size.max())).all()


@pytest.mark.parametrize("seed", range(10))
def test_errors_of_weights_cost_what_they_can_do_at_worst(seed: int) -> None:
    rng = np.random.default_rng(seed)
    f, v = functional(rng, slack=0.5), drawn(rng, N, D)
    w, b = Ball(drawn(rng, D, D), rng.random((D, D))), Ball(drawn(rng, D), rng.random(D))
    found, size = f.through(w, b, abs(v)[:, None]), abs(v)[:, None]
    worst = 0.5 + (abs(f.coef) @ w.rad.T * size).sum(-1) + abs(f.coef) @ b.rad
    assert (found.slack >= worst * (1 - TINY)).all()
    reach = (abs(f.coef) @ abs(w.mid.T) * size).sum(-1) + abs(f.coef) @ abs(b.mid)
    assert (found.slack <= worst * (1 + 1e-9) + TINY * (1 + reach + abs(f.const))).all()
    outputs = Functional.outputs(w, b, size)
    assert np.allclose(outputs.slack, (w.rad.T * size).sum(-1) + b.rad, rtol=1e-12)
    wanted = (exact(v)[:, :, None] * exact(w.mid)).sum(1) + exact(b.mid)
    assert (applied(outputs, v) == wanted).all()


class Listed(Stage):
    """A vector that takes the values of a list, [N, n, d]: its strings are these."""

    is_centred, exact = False, True

    def __init__(self, values: Array) -> None:
        self.values = values
        self.centre = values[:, 0]
        self.size = abs(values).max(1, keepdims=True)

    def ranges(self, f: Functional, *, signs: bool = False) -> tuple[Array, Array]:
        coef = np.broadcast_to(f.coef, (len(self.values), *f.coef.shape[1:]))
        value = np.einsum("ikd,ind->ikn", coef, self.values)
        lost = f.slack + 1e-14 * (1 + np.einsum("ikd,id->ik", abs(coef), self.size[:, 0]))
        return value.min(-1) + f.const - lost, value.max(-1) + f.const + lost

    def lower(self, f: Functional) -> Functional:
        return f


def listed(rng: np.random.Generator, spread: float) -> Array:
    at = rng.normal(size=(N, 1, D)) + np.array([1.0, -1.0, 0.5, 0.0])
    return at + spread * rng.uniform(-1, 1, size=(N, 6, D)) * (np.arange(6)[:, None] > 0)


def check(
    stage: Stage,
    inputs: Array,
    f: Functional,
    wanted: np.ndarray,
    room: float,
    width: Array | None = None,
) -> None:
    """Wanted [N, n, K] lies in the ranges and above the linear bound, which is no further than
    `room` below its least. Ranges are no wider than its own width, or one that is given [N, K]."""
    low, high = stage.ranges(f)
    assert (exact(low)[:, None] <= wanted).all()
    assert (wanted <= exact(high)[:, None]).all()
    bound = stage.lower(f)
    for n in range(inputs.shape[1]):
        value = applied(bound, inputs[:, n]) - exact(bound.slack)
        assert (value <= wanted[:, n]).all()
        assert (value >= wanted[:, n] - Fraction(room)).all()
    width = spread_of(wanted) if width is None else width
    assert (high - low <= width + room + 20 * room**0.5).all()


def spread_of(values: np.ndarray) -> Array:
    """From least to greatest over the list, [N, n, …] to [N, …]."""
    return np.asarray(values.max(1) - values.min(1), dtype=np.float64)


ROOMS = [(0.0, 1e-10), (1e-3, 1e-3), (0.05, 2.0)]  # what bends costs the square of the spread


def normed(values: Array, factor: float, eps: float, floor: float) -> np.ndarray:
    """s P v of each, in fractions."""
    x = exact(values)
    x = x - x.sum(-1, keepdims=True) / D
    square = (x * x).sum(-1)
    length = [
        max(root(q * Fraction(factor) + Fraction(eps)), Fraction(floor)) for q in square.ravel()
    ]
    return x / np.array(length, object).reshape(*square.shape, 1)


@pytest.mark.parametrize(("spread", "room"), ROOMS)
@pytest.mark.parametrize(
    "norm", [(1 / D, 1e-5, 0.0), (1.0, 0.0, 1e-3), (1.0, 0.0, 50.0), (1.0, 0.0, 2.0)]
)
@pytest.mark.parametrize("seed", range(3))
def test_a_norm_is_bounded_from_both_sides(
    seed: int, norm: tuple[float, float, float], spread: float, room: float
) -> None:
    rng = np.random.default_rng(seed)
    values = listed(rng, spread)
    factor, eps, floor = norm
    stage = Normed(Listed(values), factor=factor, eps=eps, floor=floor)
    f = Functional(rng.normal(size=(N, K, D)), rng.normal(size=(N, K)), np.zeros((N, K)))
    n = normed(values, factor, eps, floor)
    wanted = (exact(f.coef)[:, None] * n[:, :, None]).sum(-1) + exact(f.const)[:, None]
    check(stage, values, f, wanted, room)
    half = Functional(f.coef, f.const, f.slack + 0.5)  # slack is not lost on the way
    assert np.allclose(stage.lower(half).slack, stage.lower(f).slack + 0.5)
    assert np.allclose(stage.ranges(half)[0], stage.ranges(f)[0] - 0.5)


@pytest.mark.parametrize("spread", [0.0, 1e-3, 0.5, 3.0])
@pytest.mark.parametrize("seed", range(3))
def test_a_square_lies_in_its_range_and_near_its_tangent(seed: int, spread: float) -> None:
    values = listed(np.random.default_rng(seed), spread)
    q = SquareRange(Listed(values))
    x = exact(values)
    x = x - x.sum(-1, keepdims=True) / D
    square = (x * x).sum(-1)
    assert (exact(q.low)[:, None] <= square).all()
    assert (square <= exact(q.high)[:, None]).all()
    c = exact(q.centre)
    above = square - 2 * (x * c[:, None]).sum(-1) + (c * c).sum(-1)[:, None]
    assert (above <= exact(q.spread)[:, None]).all()
    assert (q.spread <= D * 4 * (spread + 1e-9) ** 2).all()
    found = (square.max(1) - square.min(1)).astype(float)
    assert (q.high - q.low <= found + 2 * q.spread + 1e-10).all()


@pytest.mark.parametrize("seed", range(5))
def test_a_shift_adds_what_the_last_symbol_adds(seed: int) -> None:
    rng = np.random.default_rng(seed)
    values, r = listed(rng, 0.5), Ball(rng.normal(size=(N, D)), rng.random((N, D)) / 8)
    f = Functional(rng.normal(size=(N, K, D)), rng.normal(size=(N, K)), np.zeros((N, K)))
    low, high = Shifted(Listed(values), r).ranges(f)
    value = np.einsum("ikd,ind->ikn", f.coef, values + r.mid[:, None]) + f.const[..., None]
    lost = np.einsum("ikd,id->ik", abs(f.coef), r.rad)
    assert np.allclose(low, value.min(-1) - lost, atol=1e-11)
    assert np.allclose(high, value.max(-1) + lost, atol=1e-11)


@pytest.mark.parametrize(("spread", "room"), ROOMS)
@pytest.mark.parametrize("scaled", [False, True])
@pytest.mark.parametrize("seed", range(4))
def test_a_hidden_layer_of_relus_is_bounded_from_both_sides(
    seed: int, scaled: bool, spread: float, room: float
) -> None:
    rng = np.random.default_rng(seed)
    values, hidden = listed(rng, spread), 7
    weights = {
        "W_in": rng.normal(size=(D, hidden)),
        "b_in": rng.normal(size=hidden),
        "W_out": rng.normal(size=(hidden, D)),
        "b_out": rng.normal(size=D),
    }
    weights["W_in"][:, 0], weights["b_in"][0] = 0, 0  # a unit that rests on its bend
    scale, shift = rng.normal(size=(2, D))
    no_norms = dict.fromkeys(("ln_c", "ln_mid", "ln2", "ln_final"))
    stage = Mlp(
        SimpleNamespace(  # type: ignore[arg-type]
            weight=lambda name: Ball.exact(weights[name]),
            config=SimpleNamespace(act_fn="relu", gated=False, d_head=D, **no_norms),
        ),
        SimpleNamespace(output_size=Listed(values).size),  # type: ignore[arg-type]
        Listed(values),
        Listed(values),
        Ball.exact(scale) if scaled else None,
        Ball.exact(shift) if scaled else None,
    )
    w = {name: exact(value) for name, value in weights.items()}
    x = exact(values)
    n = x * exact(scale) + exact(shift) if scaled else x
    pre = (n[..., None] * w["W_in"]).sum(-2) + w["b_in"]
    out = x + (np.maximum(pre, Fraction(0))[..., None] * w["W_out"]).sum(-2) + w["b_out"]
    f = Functional(rng.normal(size=(N, K, D)), rng.normal(size=(N, K)), np.zeros((N, K)))
    wanted = (exact(f.coef)[:, None] * out[:, :, None]).sum(-1) + exact(f.const)[:, None]
    near = float(abs(pre[:, :, 1:]).min()) > 8 * spread  # no unit bends: nothing is lost
    # ranges take what skips the layer and each of its units apart
    past_it = spread_of((exact(f.coef)[:, None] * x[:, :, None]).sum(-1))
    units = spread_of(np.maximum(pre, Fraction(0)))
    width = past_it + (abs(f.coef @ weights["W_out"].T) * units[:, None]).sum(-1)
    check(stage, values, f, wanted, 1e-9 if near else 40 * room, width)
    half = Functional(f.coef, f.const, f.slack + 0.5)
    assert np.allclose(stage.lower(half).slack, stage.lower(f).slack + 0.5)


@pytest.mark.parametrize("seed", range(5))
def test_what_lines_add_up_to_is_right_where_it_cancels(seed: int) -> None:
    """Level lines, so that nothing but the rounding of their sum is lost."""
    rng = np.random.default_rng(seed)
    rest, level, size = rng.normal(size=(N, D)), np.zeros((N, D)), np.ones((N, 1, D))
    coef = rng.normal(size=(N, K, D))
    coef[..., -1] = -(coef[..., :-1] * rest[:, None, :-1]).sum(-1) / rest[:, None, -1]
    zero = np.zeros((N, K))
    lines = ActivationLines(level, rest, level, rest, rest, rest)
    found = below_lines(Functional(coef, zero, zero), lines, size)
    wanted = (exact(coef) * exact(rest)[:, None]).sum(-1)
    assert (abs(wanted - exact(found.const)) <= exact(found.slack)).all()
    assert (found.slack <= TINY * (1 + abs(coef).max())).all()
