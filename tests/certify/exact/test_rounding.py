"""Radii that hold what rounding loses, held to exact fractions."""

from __future__ import annotations

from fractions import Fraction
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch

from tests.certify.exact.rational import Rational, exact, exp
from tests.certify.oracles import READOUTS, random_rnn
from tl_dyck.certify.deadline import Deadline
from tl_dyck.certify.exact.balls import Ball
from tl_dyck.certify.exact.network import Network
from tl_dyck.certify.exact.single import Layer, Rounded, SingleRun, _gamma, is_plain
from tl_dyck.certify.exact.unembedding import Unembedding, Weights
from tl_dyck.certify.language.automata import Answers, Margins
from tl_dyck.certify.language.counted import Counted
from tl_dyck.certify.objectives import Objectives


@pytest.mark.parametrize("readout", [*READOUTS, {"ln_c": 1.0}, {"ln_mid": 1.0}], ids=str)
def test_what_single_precision_runs_has_neither_divisor(readout):
    plain = all(readout.get(name) is None for name in ("ln_c", "ln_mid", "gated"))
    assert is_plain(Network(random_rnn(0, **readout))) is plain


def test_a_norm_in_single_precision_holds_what_any_error_makes_of_it():
    """|v' - v| ≤ e moves v / σ by nearly e / σ where it stands at right angles to v."""
    rng = np.random.default_rng(0)
    for size in (1e-3, 1.0, 1e4):
        v = rng.normal(size=(1, 8)).astype(np.float32) * np.float32(size)
        v -= v.mean()
        across = rng.normal(size=8)
        across -= across.mean()
        across -= across @ v[0] / (v[0] @ v[0]) * v[0]
        length = np.linalg.norm(v[0].astype(np.float64))

        def normed(x):
            x = x - x.mean()
            return x / np.sqrt((x**2).mean())

        for share in (1e-4, 0.3, 0.9):  # of |v|: the nearest that turns it most stands across
            error = share * length
            turned = (1 - share**2) * v[0].astype(np.float64)
            turned += share * (1 - share**2) ** 0.5 * length * across / np.linalg.norm(across)
            bound = Rounded(v, np.array([error])).normed(0.0)
            apart = np.linalg.norm(normed(turned) - normed(v[0].astype(np.float64)))
            assert apart <= bound.error[0]
            assert bound.error[0] >= 1.0005 * error / normed_size(v)
            assert bound.error[0] <= 1.01 * error / normed_size(v) / (1 - share) + 1e-5


@pytest.mark.parametrize("shape", [(3, 7), (7, 3), (40, 40)])
def test_a_layer_in_single_precision_holds_what_any_error_makes_of_it(shape):
    """Along its largest singular vector an error grows most; and it is said to grow little more."""
    rng = np.random.default_rng(0)
    for error in (0.0, 1e-3, 10.0):
        weight, bias = rng.normal(size=shape), rng.normal(size=shape[1])
        v = rng.normal(size=(1, shape[0])).astype(np.float32)
        along, sizes, _ = np.linalg.svd(weight)
        moved = exact(v[0]) + exact(error * along[:, 0] * (1 - 1e-12))
        found = Layer(weight, bias)(Rounded(v, np.array([error])))
        apart = moved @ exact(weight) + exact(bias) - exact(found.mid[0])
        assert (apart * apart).sum() <= Fraction(found.error[0]) ** 2
        rounding = 1e-4 * (np.linalg.norm(weight) * np.linalg.norm(v) + np.linalg.norm(bias))
        assert found.error[0] <= 1.3 * error * sizes[0] + rounding
        both = found.plus(found)
        assert (2 * apart @ (2 * apart)) <= Fraction(both.error[0]) ** 2
        assert both.error[0] <= 2 * found.error[0] + rounding


@pytest.mark.parametrize("large", [2.0**43, 2.0**46])
def test_what_values_lose_where_they_cancel_is_in_the_error_of_their_mean(large: float) -> None:
    """A bias undoes most of a value, whose float64 is then no better than single precision."""
    outside = 0
    for seed in range(4):
        rnn = random_rnn(seed)
        rnn.weights["W_E"][:, 0] = 1.0
        rnn.weights["W_V"][:, 0] += large
        rnn.weights["b_V"] -= large
        network, string = Network(rnn), [6, 0, 3, 1, 5]
        states = rnn.states(torch.tensor([string]))[0].numpy()
        single = SingleRun(network, network.symbols(np.array(string), states), None)  # type: ignore[arg-type]
        every = np.arange(len(string))
        found = single._attended(every[None], single._sums(every, len(string) - 1))
        read = Rational(rnn).read(string, states.tolist())
        weight = [exp(x) for x in Rational(rnn).scores(read, len(string) - 1)[:, 0]]
        mean = sum(w * v for w, v in zip(weight, read.v[:, 0], strict=True)) / sum(weight)
        apart = mean - exact(found.mid[0])
        assert (apart @ apart) <= Fraction(found.error[0]) ** 2
        lost = np.linalg.norm((4 * _gamma(len(string)) + 1e-9) * (single.table.largest_value + 1))
        outside += float(apart @ apart) ** 0.5 > 1.1 * lost
    assert outside  # or that error would not be needed


def normed_size(v: np.ndarray) -> float:
    """σ, from exact fractions."""
    exact = [Fraction(float(x)) for x in v[0]]
    mean = sum(exact) / len(exact)
    return float(sum((x - mean) ** 2 for x in exact) / len(exact)) ** 0.5


def test_a_mean_of_values_is_in_its_ball():
    """Sums of products in float64, of weights that are known exactly."""
    rng = np.random.default_rng(1)
    outside = 0
    for _ in range(50):
        n, d = int(rng.integers(2, 9)), 3
        weight, value = rng.random((n, 1)), rng.normal(size=(n, 1, d))
        counts = np.eye(n)
        rows = rng.integers(1, 50, size=(1, n)).astype(float)
        seen: list[Ball] = []
        made = Counted.__new__(Counted)
        made._counts, made._weights = counts, Ball(weight, 0 * weight)
        made._value, made._value_error = Ball(value, 0 * value), 0.0
        made._largest = np.abs(value).max(0)
        made._r = Ball(np.zeros((1, d)), np.zeros((1, d)))
        made._network = SimpleNamespace(readout=lambda r, out, seen=seen: seen.append(out))
        made._unembedding = SimpleNamespace(values=lambda read: (None, None))
        made.values(rows)
        (ball,) = seen
        weights = [Fraction(rows[0, s]) * Fraction(weight[s, 0]) for s in range(n)]
        for i in range(d):
            exact = sum(w * Fraction(value[s, 0, i]) for s, w in enumerate(weights)) / sum(weights)
            off = abs(exact - Fraction(float(ball.mid[0, i])))
            outside += off > Fraction(float(np.broadcast_to(ball.rad, ball.mid.shape)[0, i]))
    assert outside == 0


def test_ends_of_the_least_objective_are_rounded_outwards():
    rng = np.random.default_rng(0)
    weights = Weights(rng.normal(size=(5, 7)), rng.normal(size=7))
    unembedding = Unembedding(weights, Objectives.margins(2, 7))
    n = Ball(rng.normal(size=(50, 5)), 1e-3 * rng.random((50, 5)))
    values, least = unembedding.values(n), unembedding.least(n)
    mid, rad = exact(values.mid), exact(values.rad)
    assert (exact(least.lower) <= (mid - rad).min(1)).all()
    assert (exact(least.upper) >= (mid + rad).min(1)).all()


def test_where_no_string_can_be_run_nothing_is_proved():
    """All scores are infinite, so that the network's own logits are no numbers."""
    rnn: Any = random_rnn(0, act_fn="relu", attn_scale=1e-320)
    answers = Answers(np.array([[0, 0]]), np.array([0]))
    margins = Margins(Network(rnn), answers, lambda each: Objectives.margins(each, 3))
    for decide in (True, False):
        with np.errstate(all="ignore"):
            found = margins.least(2, Deadline(), decide=decide)
        assert found.low == -np.inf
        assert found.string is None
        assert not found.lost
