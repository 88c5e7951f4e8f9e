import itertools

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from tl_dyck.intervals import mean
from tl_dyck.models import build_model, get_config
from tl_dyck.probes.variation import attention_variation, random_attention_variation

TEXT = "[[][(())]]"


def wide_model(seed, **overrides):
    """A model with far from uniform patterns."""
    return build_model(get_config("gpt", "dyck-2-4", initializer_range=0.6, **overrides), seed=seed)


def slow_patterns(model):
    _, cache = model.run_with_cache(TEXT)
    return [
        [
            cache[f"blocks.{layer}.attn.hook_pattern"][0, head].tolist()
            for head in range(model.cfg.n_heads)
        ]
        for layer in range(model.cfg.n_layers)
    ]


def slow_distance(a, b):
    return sum(
        (x - y) ** 2
        for row_a, row_b in zip(a, b, strict=True)
        for x, y in zip(row_a, row_b, strict=True)
    )


def test_is_the_mean_squared_frobenius_distance_over_pairs():
    models = [wide_model(seed, n_heads=2) for seed in range(4)]
    patterns = [slow_patterns(model) for model in models]
    found = attention_variation(models, TEXT)
    for layer in range(2):
        for head in range(2):
            pairs = [
                slow_distance(a[layer][head], b[layer][head])
                for a, b in itertools.combinations(patterns, 2)
            ]
            assert found.mean[layer, head] == pytest.approx(sum(pairs) / 6, rel=1e-5)
        best = [  # the better of the two ways to pair the heads
            min(
                slow_distance(a[layer][0], b[layer][0]) + slow_distance(a[layer][1], b[layer][1]),
                slow_distance(a[layer][0], b[layer][1]) + slow_distance(a[layer][1], b[layer][0]),
            )
            / 2
            for a, b in itertools.combinations(patterns, 2)
        ]
        assert found.matched[layer] == pytest.approx(sum(best) / 6, rel=1e-5)
    assert found.mean.mean() > 0.5
    assert found.input == ["<bos>", *TEXT]


def test_heads_in_another_order_are_the_same_heads():
    model, shuffled = wide_model(0, n_heads=3), wide_model(0, n_heads=3)
    with torch.no_grad():
        for block in shuffled.blocks:
            for name in ("W_Q", "W_K", "W_V", "W_O", "b_Q", "b_K", "b_V"):
                weight = getattr(block.attn, name)
                weight.copy_(weight[[2, 0, 1]].clone())
    found = attention_variation([model, shuffled], TEXT)
    assert found.matched == pytest.approx(np.zeros(2), abs=1e-8)
    assert found.mean.min() > 0.1


def test_interval_is_that_of_what_each_model_adds():
    """Tukey's pseudo-values, counted pair by pair, have the interval of a mean."""
    models = [wide_model(seed) for seed in range(5)]
    found = attention_variation(models, TEXT, level=0.8)
    patterns = [slow_patterns(model) for model in models]
    distance = [[slow_distance(a[1][0], b[1][0]) for b in patterns] for a in patterns]

    def average(chosen):
        return np.mean([distance[a][b] for a, b in itertools.combinations(chosen, 2)])

    every = range(5)
    added = [5 * average(every) - 4 * average([m for m in every if m != each]) for each in every]
    known = mean(added, level=0.8)
    assert found.interval[1, 0] == pytest.approx((known.low, known.high), rel=1e-5)


@given(n=st.integers(1, 12), seed=st.integers(0, 1000))
@settings(max_examples=15)
def test_random_baseline_is_what_random_patterns_give(n, seed):
    generator = np.random.default_rng(seed)
    draws = np.zeros(4000)
    for m in range(1, n + 1):
        a, b = generator.dirichlet(np.ones(m), 4000), generator.dirichlet(np.ones(m), 4000)
        draws += ((a - b) ** 2).sum(1)
    error = draws.std() / 4000**0.5
    assert abs(random_attention_variation(n) - draws.mean()) <= 5 * error + 1e-12


def test_baseline_of_the_paper_is_near_three_for_sixteen_rows():
    assert random_attention_variation(16) == pytest.approx(3.0, abs=0.01)


def test_uniform_attention_does_not_vary():
    models = [build_model(get_config("gpt-uniform", "dyck-2-4"), seed=seed) for seed in range(3)]
    found = attention_variation(models)
    assert found.mean.max() == 0
    assert found.interval.max() == 0
    assert "".join(found.input[1:]) == "[[[[]]]](((())))"


def test_two_models_have_no_interval():
    found = attention_variation([wide_model(0), wide_model(1)], TEXT)
    assert np.isnan(found.interval).all()
    assert np.isnan(found.matched_interval).all()
    assert "[" not in repr(found)
    assert found.mean.min() > 0
