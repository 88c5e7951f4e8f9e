"""Estimates over seeds, against plain bootstraps and loops; memory; samples that are too small."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from tl_dyck import intervals
from tl_dyck.intervals import correlation, distances, drawn_pair_mean, mean, regression

values = st.lists(st.floats(-1e6, 1e6), min_size=2, max_size=12)


@given(values=values, level=st.sampled_from([0.5, 0.9, 0.95]), seed=st.integers(0, 9))
def test_an_interval_is_that_of_its_resamples(values, level, seed):
    sample = np.array(values)
    index = np.random.default_rng(seed).integers(len(sample), size=(50, len(sample)))
    low, high = np.quantile(sample[index].mean(1), [(1 - level) / 2, (1 + level) / 2])
    found = mean(values, 50, seed, level=level)
    assert (found.value, found.low, found.high) == pytest.approx(
        (sample.mean(), low, high), rel=1e-12, abs=1e-9
    )
    assert found.n == len(values)


def test_a_generator_goes_on_where_it_stood():
    first = np.random.default_rng(3)
    found = [mean([1.0, 2.0, 4.0], 20, first) for _ in range(2)]
    assert found[0].low == mean([1.0, 2.0, 4.0], 20, 3).low
    second = np.random.default_rng(3)
    second.integers(3, size=(20, 3))
    assert found[1] == mean([1.0, 2.0, 4.0], 20, second)


def test_many_values_need_little_memory(monkeypatch):
    """What is drawn does not depend on how much is drawn at once."""
    sample = np.random.default_rng(0).normal(size=1001)
    whole = mean(sample, 500, 1)
    monkeypatch.setattr(intervals, "_DRAWN", 5000)
    few = mean(sample, 500, 1)
    assert (few.low, few.high) == pytest.approx((whole.low, whole.high), rel=1e-12)
    width = 2 * 1.96 * sample.std() / math.sqrt(len(sample))
    assert whole.high - whole.low == pytest.approx(width, rel=0.2)


def test_too_few_for_an_interval():
    one, none = mean([7.0], 10), mean([], 10)
    assert (one.value, one.n, one.text()) == (7.0, 1, "7.00")
    assert math.isnan(one.low)
    assert math.isnan(one.high)
    assert math.isnan(none.value)
    assert none.n == 0


samples = st.lists(st.integers(-1000, 1000).map(lambda x: x / 100), min_size=4, max_size=9)


@given(st.data())
def test_rank_correlation(data):
    x = np.array(data.draw(samples))
    y = np.array(
        data.draw(st.lists(st.integers(0, 3), min_size=len(x), max_size=len(x))), dtype=float
    )
    found = correlation(x, y, 30, 1)
    if np.ptp(x) == 0 or np.ptp(y) == 0:
        assert found.value == 0
    else:
        assert found.value == pytest.approx(stats.spearmanr(x, y).statistic, abs=1e-12)
    assert -1 <= found.low <= found.high <= 1


def test_clusters_are_resampled_whole():
    """Models of one seed go together: with one cluster alone, nothing varies."""
    x, y = np.array([1.0, 2, 3, 4]), np.array([1.0, 3, 2, 4])
    whole = correlation(x, y, 20, 0, clusters=np.zeros(4))
    assert whole.low == whole.high == pytest.approx(whole.value)
    assert whole.n == 1
    apart = correlation(x, y, 200, 0, clusters=np.arange(4))
    assert apart.low < whole.value
    assert apart.n == 4


def test_regression_is_least_squares_with_its_interval():
    generator = np.random.default_rng(0)
    x = generator.normal(size=30)
    y = 2 * x + 1 + 0.1 * generator.normal(size=30)
    at = np.array([-1.0, 0.5])
    line, low, high = regression(x, y, at, 400, 0)
    assert line == pytest.approx(np.polyval(np.polyfit(x, y, 1), at), rel=1e-9)
    assert (low < line).all()
    assert (line < high).all()
    # the classical interval of the height of a regression line
    fit = stats.linregress(x, y)
    error = np.sqrt(((y - fit.intercept - fit.slope * x) ** 2).sum() / 28)
    width = 2 * 2.05 * error * np.sqrt(1 / 30 + (at - x.mean()) ** 2 / ((x - x.mean()) ** 2).sum())
    assert high - low == pytest.approx(width, rel=0.5)


def test_distances_between_models():
    generator = np.random.default_rng(0)
    a, b = generator.normal(size=(3, 2, 2)), generator.normal(size=(4, 2, 2))
    matrix = distances(a, b)
    for i, j in itertools.product(range(3), range(4)):
        assert matrix[i, j] == pytest.approx(np.linalg.norm(a[i] - b[j]) ** 2)
    rows, columns = np.array([0, 0, 2]), np.array([3, 1, 1, 0])
    expected = np.mean([matrix[i, j] for i in rows for j in columns])
    assert drawn_pair_mean(matrix, rows, columns, False) == pytest.approx(expected)
    square = distances(a, a)
    pairs = [
        square[i, j] for i in rows for j in rows if i != j
    ]  # a model drawn twice is still itself
    assert drawn_pair_mean(square, rows, rows, True) == pytest.approx(np.mean(pairs))
    assert math.isnan(drawn_pair_mean(square, np.array([1, 1]), np.array([1, 1]), True))


def test_the_runs_of_a_seed_are_resampled_together():
    """Of two seeds, one run and five: 0, twice 5/6, 1, with equal chances; no mean of means."""
    numbers, seeds = np.array([0.0, 1, 1, 1, 1, 1]), np.array([7, 3, 3, 3, 3, 3])
    found = mean(numbers, 4000, level=0.1, clusters=seeds)
    assert found.value == pytest.approx(5 / 6)
    assert (found.low, found.high) == pytest.approx((5 / 6, 5 / 6))
    assert found.n == 2
    wide = mean(numbers, 4000, clusters=seeds)
    assert (wide.low, wide.high) == (0, 1)
