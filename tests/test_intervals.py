"""Means over seeds: against a plain percentile bootstrap; memory; samples that are too small."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tl_dyck import intervals
from tl_dyck.intervals import mean

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
