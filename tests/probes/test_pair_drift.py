"""Drift of matched pairs against sums over drawn strings, and the lengths that it predicts."""

import math

import numpy as np
import pytest
import torch

from tests.probes.test_accuracy_at_length import unbalanced
from tests.probes.test_balance_violation import make_model
from tl_dyck.language import DyckDistribution, NoStackError
from tl_dyck.models import build_model, construct, get_config
from tl_dyck.probes.balance import state_contributions
from tl_dyck.probes.drift import pair_drift
from tl_dyck.reading.states import StateIndex
from tl_dyck.tasks import load_task


def sums_along(model, counts, d, j, pair):
    """Σ over a string's brackets of u(close(j, d), ·) · e, by how often each state came."""
    u, index = state_contributions(model).numpy(), StateIndex(model.cfg.language)
    query = u[index.close(j, d)]
    between = query[index.open(pair[0], d)] - query[index.open(pair[1], d)]
    return counts @ (query @ (between / np.linalg.norm(between)))


@pytest.mark.parametrize(
    ("family", "k", "depth", "q"),
    [("minimal-onehot", 2, 4, 0.5), ("minimal-split", 3, 3, 0.3), ("figure2-yao", 2, 2, 0.7)],
)
def test_mean_and_variance_grow_as_they_do_over_drawn_strings(family, k, depth, q):
    """From 200 to 1,000 brackets, so that what the ends add cancels; within five errors."""
    model = make_model(family, k, depth, seed=3)
    distribution = DyckDistribution(model.cfg.language, q)
    found = pair_drift(model, distribution)
    generator = torch.Generator().manual_seed(0)
    strings = distribution.sample(3000, 1000, mode="prefix", generator=generator)
    states = (strings * (depth + 1) + model.cfg.language.depth(strings)).numpy()
    counts = np.zeros((2, 3000, len(state_contributions(model))))
    for each, length in zip(counts, (200, 1000), strict=True):
        np.add.at(each, (np.arange(3000)[:, None], states[:, :length]), 1.0)
    for d in range(1, depth):
        short, long = (sums_along(model, each, d, 1, (0, 1)) for each in counts)
        grown = (long - short) / 800
        error = grown.std() / math.sqrt(len(grown))
        assert found.drift[d - 1, 1, 0] == pytest.approx(grown.mean(), abs=5 * error)
        variance = (long.var() - short.var()) / 800
        error = 5 * math.sqrt(2 / len(grown)) * (long.var() + short.var()) / 800
        assert found.spread[d - 1, 1, 0] ** 2 == pytest.approx(variance, abs=error)


def test_half_is_half_the_distance_between_two_answers():
    model = make_model("minimal-onehot", 3, 3, seed=1)
    found, u, index = pair_drift(model), state_contributions(model), StateIndex(model.cfg.language)
    assert found.half.shape == (2, 3, 3)
    for place, (a, b) in enumerate([(0, 1), (0, 2), (1, 2)]):
        query = u[index.close(2, 1)]
        distance = (query[index.open(a, 1)] - query[index.open(b, 1)]).norm()
        assert found.half[0, 2, place] == pytest.approx(float(distance) / 2)
    assert found.weight.sum() == pytest.approx(1)


@pytest.mark.parametrize("make", [construct.uniform_attention, construct.balanced])
def test_where_pairs_cancel_nothing_drifts(make):
    found = pair_drift(make(load_task("dyck-2-4").language))
    assert float(found) < 1e-12
    assert found.accuracy(1e6) == pytest.approx(1)
    assert found.length_at(0.75) > 1e9


def test_more_damage_drifts_more_and_fails_sooner():
    found = [pair_drift(unbalanced(by)) for by in (0.01, 0.05, 0.25)]
    assert sorted(map(float, found)) == list(map(float, found))
    lengths = [each.length_at(0.9) for each in found]
    assert sorted(lengths, reverse=True) == lengths
    for each in found:
        assert each.accuracy(each.length_at(0.9)) == pytest.approx(0.9, abs=1e-3)
        assert each.accuracy(1) >= each.accuracy(100) > each.accuracy(10_000) >= 0.5


def test_accuracy_by_hand():
    """One query that drifts by 0.02 a bracket, with answers 1 to either side of the middle."""
    shape = (1, 2, 1)
    found = pair_drift(make_model("minimal-onehot", 2, 2, seed=0))
    found = type(found)(
        drift=np.full(shape, 0.02),
        spread=np.full(shape, 0.1),
        half=np.ones(shape),
        weight=np.ones(1),
    )
    # after 100 brackets: 2 away, spread 1; so one answer is 1 beyond the middle, the other 3 within
    upper, lower = 0.5 * math.erfc(1 / math.sqrt(2)), 1 - 0.5 * math.erfc(3 / math.sqrt(2))
    assert found.accuracy(100) == pytest.approx((upper + lower) / 2)
    assert float(found) == pytest.approx(0.01)
    assert found.length_at(0.75) == pytest.approx(50, rel=0.01)


@pytest.mark.parametrize("q", [0.3, 0.7])
def test_the_weight_of_a_depth_is_how_often_a_bracket_closes_to_it(q):
    """Of long strings, by a chain in plain loops: closing brackets that leave 1, 2 or 3 open."""
    reach, closes = [1.0, 0.0, 0.0, 0.0, 0.0], [0.0] * 4
    for step in range(4000):
        after = [0.0] * 5
        for depth, chance in enumerate(reach):
            up = 1.0 if depth == 0 else 0.0 if depth == 4 else q
            if up:
                after[depth + 1] += chance * up
            if up < 1:
                after[depth - 1] += chance * (1 - up)
                closes[depth - 1] += chance * (1 - up) * (step >= 2000)
        reach = after
    model = make_model("minimal-onehot", 2, 4, seed=0)
    found = pair_drift(model, DyckDistribution(model.cfg.language, q))
    assert found.weight == pytest.approx(np.array(closes[1:]) / sum(closes[1:]), abs=1e-9)


def test_a_language_without_a_stack_is_refused_in_its_own_name():
    model = build_model(get_config("gpt", "shuffle-dyck"))
    with pytest.raises(NoStackError, match="has no stack: pair_drift is of Dyck languages only"):
        pair_drift(model)
