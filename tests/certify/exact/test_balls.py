"""Ball arithmetic: the exact result of any points of the balls lies in the resulting ball."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tl_dyck.certify.exact.balls import (
    Ball,
    activation,
    apply_activation,
    folded,
    gamma,
    layer_norm,
    length,
    unit_norm,
)
from tl_dyck.reading.activations import ACTIVATIONS

numbers = st.floats(-1e6, 1e6, allow_nan=False, allow_subnormal=False)


@st.composite
def arrays(draw: st.DrawFn, *shape: int) -> np.ndarray:
    return np.array(
        draw(st.lists(numbers, min_size=int(np.prod(shape)), max_size=int(np.prod(shape))))
    ).reshape(shape)


def contains(ball: Ball, index: tuple[int, ...], exact: Fraction) -> bool:
    return abs(Fraction(float(ball.mid[index])) - exact) <= Fraction(float(ball.rad[index]))


@given(a=arrays(3), b=arrays(3), spread=st.floats(0, 10))
def test_sums_and_products_hold_the_exact_results_of_corners(
    a: np.ndarray, b: np.ndarray, spread: float
) -> None:
    x, y = Ball(a, np.full(3, spread)), Ball(b, np.full(3, spread / 3))
    total, product, difference = x.plus(y), x.times(y), x.minus(y)
    for i in range(3):
        for s in (-1, 0, 1):
            for t in (-1, 0, 1):
                u = Fraction(a[i]) + s * Fraction(spread)
                v = Fraction(b[i]) + t * Fraction(spread / 3)
                assert contains(total, (i,), u + v)
                assert contains(difference, (i,), u - v)
                assert contains(product, (i,), u * v)


@given(a=arrays(2, 4), w=arrays(4, 2), bias=arrays(2))
def test_matrix_products_hold_the_exact_result(
    a: np.ndarray, w: np.ndarray, bias: np.ndarray
) -> None:
    product = Ball.exact(a).matmul(Ball.exact(w))
    affine = Ball.exact(a).affine(w, abs(w), bias, length(w.T)[:, 0])
    for i in range(2):
        for j in range(2):
            exact = sum(Fraction(a[i, k]) * Fraction(w[k, j]) for k in range(4))
            assert contains(product, (i, j), Fraction(exact))
            assert contains(affine, (i, j), exact + Fraction(bias[j]))


@pytest.mark.parametrize("spread", [0.0, 1e-12, 1e-3])  # points but for rounding, and a box
def test_products_with_a_large_matrix_hold_the_exact_results_of_corners(spread: float) -> None:
    rng = np.random.default_rng(0)
    w, bias = rng.normal(size=(64, 40)), rng.normal(size=40)
    # radii of row i in proportion to column i: there Cauchy and Schwarz have an equality
    x = Ball(rng.normal(size=(2, 64)), spread * abs(w[:, :2].T))
    product = x.affine(w, abs(w), bias, length(w.T)[:, 0])
    for i, j in np.ndindex(2, 40):
        terms = zip(x.mid[i], np.sign(w[:, j]) * x.rad[i], w[:, j], strict=True)
        exact = sum((Fraction(m) + Fraction(r)) * Fraction(v) for m, r, v in terms)
        assert contains(product, (i, j), exact + Fraction(bias[j]))
    needed = x.rad @ abs(w) + 1e-12
    assert (product.rad <= needed * (1.0001 if spread > 1e-9 else 3)).all()


@settings(max_examples=60)
@given(
    a=arrays(2, 4),
    w=arrays(4, 2),
    seed=st.integers(0, 99),
    spread=st.sampled_from([0.0, 1e-9, 0.1, 10.0]),
)
def test_wide_balls_hold_what_any_of_their_points_gives(
    a: np.ndarray, w: np.ndarray, seed: int, spread: float
) -> None:
    rng = np.random.default_rng(seed)
    x, y = Ball(a, np.full_like(a, spread)), Ball(w, np.full_like(w, spread / 2))
    product, norm, unit = x.matmul(y), layer_norm(x, 1e-5), unit_norm(x, 0.5)
    for _ in range(10):
        point = (a + spread * rng.uniform(-1, 1, a.shape)).astype(np.longdouble)
        weight = (w + spread / 2 * rng.uniform(-1, 1, w.shape)).astype(np.longdouble)
        centred = point - point.mean(-1, keepdims=True)
        normed = centred / np.sqrt((centred**2).mean(-1, keepdims=True) + np.longdouble(1e-5))
        united = centred / np.maximum(
            np.sqrt((centred**2).sum(-1, keepdims=True)), np.longdouble(0.5)
        )
        for ball, exact in ((product, point @ weight), (norm, normed), (unit, united)):
            assert (abs(ball.mid - exact) <= ball.rad * (1 + 1e-12) + 1e-300).all()


@settings(max_examples=60)
@given(low=st.floats(-9, 9), width=st.sampled_from([0.0, 1e-12, 0.01, 1.0, 20.0]))
@pytest.mark.parametrize("name", ACTIVATIONS)
def test_activations_hold_their_values(name: str, low: float, width: float) -> None:
    ball = activation(Ball.between(np.array([low]), np.array([low + width])), name)
    values = apply_activation(name, np.linspace(low, low + width, 201))
    assert ball.low[0] <= values.min()
    assert values.max() <= ball.high[0]
    # and they are tight: no wider than the values, but for rounding and the grid
    assert ball.high[0] - ball.low[0] <= np.ptp(values) + 1e-3 * width + 1e-13


def test_bounds_of_a_ball_are_rounded_outwards() -> None:
    ball = Ball(np.array([1.0]), np.array([1e-17]))
    assert Fraction(float(ball.low[0])) <= 1 - Fraction(1e-17)
    assert Fraction(float(ball.high[0])) >= 1 + Fraction(1e-17)


def test_division_by_something_that_may_be_zero_is_unbounded() -> None:
    ball = Ball.exact(np.ones(2)).over(np.array([0.0, 1.0]), np.array([1.0, 2.0]))
    assert ball.rad[0] == np.inf
    assert ball.low[1] <= 0.5 <= 1.0 <= ball.high[1]


def test_gamma_is_highams() -> None:
    u = Fraction(1, 2**53)
    exact = 1000 * u / (1 - 1000 * u)
    assert abs(Fraction(gamma(1000)) - exact) < exact / 10**12


@pytest.mark.parametrize("columns", [1, 2, 16, 17])
@pytest.mark.parametrize("operation", [np.add, np.minimum, np.maximum])
def test_rows_are_folded_as_by_reduce(operation: np.ufunc, columns: int) -> None:
    for rows in (0, 1, 40):  # whole numbers: their sums have no order
        drawn = np.random.default_rng(columns).integers(-9, 9, (rows, columns)).astype(float)
        for view in (drawn, np.asfortranarray(drawn)):
            assert np.array_equal(folded(operation, view), operation.reduce(view, axis=1))
    assert np.array_equal(folded(np.add, np.zeros((3, 0))), np.zeros(3))
