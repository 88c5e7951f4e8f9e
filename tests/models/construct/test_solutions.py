"""Constructions of solutions: exact on every prefix, each with the attention it should show."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.enumerated import stacks
from tl_dyck import (
    DyckLanguage,
    UnknownNameError,
    attention_variation,
    balance_violation,
    construct,
    load_task,
    stack_likeness,
)

KINDS = ("uniform", "uniform-attention", "balanced", "stack")


def build(kind: str, language: DyckLanguage, seed: int = 0, **options: Any) -> Any:
    if kind == "balanced":
        return construct.balanced(language, seed=seed, **options)
    if kind == "stack":
        return construct.stack(language, **options)
    first_layer = "attention" if kind == "uniform-attention" else "minimal"
    return construct.uniform_attention(language, first_layer=first_layer, **options)


# --- exactness ------------------------------------------------------------------------------------


@given(
    kind=st.sampled_from(KINDS),
    k=st.integers(1, 4),
    deepest=st.integers(1, 6),
    q=st.floats(0.02, 0.98),
    length=st.integers(0, 80),
    seed=st.integers(0, 10**6),
)
def test_exact_on_any_prefix(
    kind: str, k: int, deepest: int, q: float, length: int, seed: int, exact: Any, prefix: Any
) -> None:
    language = DyckLanguage(k, deepest)
    model = build(kind, language, seed, q=q, n_ctx=81)
    exact(model, language, prefix(language, length, q=0.5, seed=seed), q, tolerance=1e-9)


@pytest.mark.parametrize("kind", KINDS)
def test_exact_at_length_2000(kind: str, exact: Any, prefix: Any) -> None:
    language = DyckLanguage(4, 6)
    model = build(kind, language, seed=7, q=0.4)
    # 0.7 stays near the greatest depth, where the signal is weakest
    exact(model, language, prefix(language, 2000, q=0.7, seed=2), 0.4, tolerance=1e-9)


@pytest.mark.parametrize("kind", KINDS)
def test_exact_when_errors_add_up(kind: str, exact: Any) -> None:
    """A full stack of one type, then another pair over and over.

    Whatever does not cancel grows a thousandfold.
    """
    language = DyckLanguage(2, 4)
    model = build(kind, language, seed=3)
    exact(model, language, [4, 2, 0, 2, *[0, 1] * 990], 0.5, tolerance=1e-9)
    exact(model, language, [4, 2, *[0, 0, 0, 1, 1, 1] * 160], 0.5, tolerance=1e-9)


@pytest.mark.parametrize("kind", KINDS)
def test_float32_is_enough_at_length_2000(kind: str, exact: Any, prefix: Any) -> None:
    language = DyckLanguage(4, 6)
    model = build(kind, language, dtype=torch.float32)
    assert model(torch.tensor([[8, 0]])).dtype == torch.float32
    exact(model, language, prefix(language, 2000, seed=5), 0.5, tolerance=2e-6)


@pytest.mark.parametrize("first_layer", ["minimal", "attention"])
def test_a_larger_c_bounds_the_length(first_layer: str, exact: Any) -> None:
    language = DyckLanguage(2, 4)
    model = construct.uniform_attention(language, first_layer=first_layer, ln_c=0.01)
    assert model.cfg.ln_c == 0.01
    longest = int(math.sqrt(2) / 0.01)
    for start in ([0], [2, 0, 2], [2, 0, 0]):
        tokens = [4, *start, *[0, 1] * longest][:longest]
        exact(model, language, tokens, 0.5, tolerance=1e-9)
    with pytest.raises(AssertionError):
        exact(model, language, [4, 0, *[0, 1] * 900], 0.5)


# --- attention ------------------------------------------------------------------------------------


@pytest.mark.parametrize("first_layer", ["minimal", "attention"])
def test_uniform_attention_is_uniform(first_layer: str, prefix: Any) -> None:
    language = DyckLanguage(3, 3)
    model = construct.uniform_attention(language, first_layer=first_layer, n_ctx=51)
    _, cache = model.run_with_cache(torch.tensor([prefix(language, 50)]))
    expected = torch.ones(51, 51, dtype=torch.float64).tril() / torch.arange(1, 52)[:, None]
    assert model.cfg.n_layers == (1 if first_layer == "minimal" else 2)
    for layer in range(model.cfg.n_layers):
        assert torch.allclose(cache["pattern", layer][0, 0], expected, atol=1e-15)


def test_the_first_layer_by_attention_is_minimal(prefix: Any) -> None:
    """It writes the states of Eq. 19, and nothing that depends on more than token and depth."""
    language = DyckLanguage(2, 5)
    model = construct.uniform_attention(language, first_layer="attention", n_ctx=301)
    seen: dict[tuple[int, int], torch.Tensor] = {}
    n_states = 2 * 2 * 5 + 1
    for seed in range(6):
        tokens = prefix(language, 300, seed=seed)
        _, cache = model.run_with_cache(torch.tensor([tokens]))
        stream = cache["resid_pre", 1][0]
        for token, stack, vector in zip(tokens, stacks(tokens), stream, strict=True):
            depth = len(stack)
            state = n_states - 1 if token == 4 else token * 5 + depth - (token % 2 == 0)
            one_hot = torch.zeros(n_states, dtype=torch.float64)
            one_hot[state] = 1
            assert torch.allclose(vector[:n_states], one_hot, atol=1e-12)
            assert torch.allclose(vector, seen.setdefault((token, depth), vector), atol=1e-11)
    assert len(seen) == n_states


@settings(max_examples=25)
@given(
    gap=st.floats(0.5, 40),
    seed=st.integers(0, 10**6),
    deepest=st.integers(1, 5),
    length=st.integers(1, 200),
)
def test_stack_attention_is_on_top(
    gap: float, seed: int, deepest: int, length: int, prefix: Any
) -> None:
    """The bound of the docstring, at every position; BOS stands for an empty stack."""
    language = DyckLanguage(2, deepest)
    tokens = prefix(language, length, seed=seed)
    _, cache = construct.stack(language, gap=gap, n_ctx=201).run_with_cache(torch.tensor([tokens]))
    pattern = cache["pattern", 0][0, 0]
    top = [stack[-1] if stack else 0 for stack in stacks(tokens)]
    on_top = pattern[torch.arange(length + 1), top]
    bound = math.exp(-gap) * (1 + 1 / (1 - math.exp(-gap)))
    assert float((1 - on_top).max()) <= bound + 1e-9


def test_probes_say_what_theory_says() -> None:
    task = load_task("dyck-2-4")
    stack = stack_likeness(construct.stack(task.language), task)
    uniform = stack_likeness(construct.uniform_attention(task.language), task)
    assert stack.mass[0, 0] >= 1 - 1e-12
    assert stack.argmax[0, 0] == 1
    assert abs(uniform.mass[0, 0] - uniform.chance) < 1e-12
    assert uniform.mass[0, 0] < 0.3
    for seed in range(5):
        assert float(balance_violation(construct.balanced(task.language, seed=seed))) < 1e-12
    assert float(balance_violation(construct.uniform_attention(task.language))) == 0


def test_dozens_of_patterns_one_function(prefix: Any) -> None:
    language = DyckLanguage(2, 3)
    tokens = torch.tensor([prefix(language, 40, seed=seed) for seed in range(3)])
    models = [construct.balanced(language, seed=seed, n_ctx=41) for seed in range(30)]
    with torch.no_grad():
        patterns, logits = [], []
        for model in models:
            out, cache = model.run_with_cache(tokens, names_filter="blocks.0.attn.hook_pattern")
            patterns.append(cache["pattern", 0][:, 0])
            logits.append(out)
    assert max(float((out - logits[0]).abs().max()) for out in logits) < 1e-9
    flat = torch.stack(patterns).flatten(1)
    first, second = torch.triu_indices(30, 30, 1)
    distance = torch.cdist(flat, flat)[first, second].square()
    assert distance.min() > 1  # no two alike
    variation = attention_variation(models)
    assert variation.mean[0, 0] > variation.random_baseline


def test_same_seed_same_model() -> None:
    language = DyckLanguage(2, 3)
    first, again, other = (construct.balanced(language, seed=seed) for seed in (4, 4, 5))
    assert torch.equal(first.W_Q, again.W_Q)
    assert torch.equal(first.W_K, again.W_K)
    assert not torch.equal(first.W_Q, other.W_Q)


# --- bad input ------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("q", [0.0, 1.0, -0.1, math.nan])
def test_q_must_leave_all_prefixes_possible(kind: str, q: float) -> None:
    with pytest.raises(ValueError, match="strictly between 0 and 1"):
        build(kind, DyckLanguage(2, 3), q=q)


def test_other_bad_input() -> None:
    language = DyckLanguage(2, 3)
    with pytest.raises(UnknownNameError, match="'minimal'"):
        construct.uniform_attention(language, first_layer="minimum")
    for spread in (-1.0, math.inf, math.nan):
        with pytest.raises(ValueError, match="spread"):
            construct.balanced(language, spread=spread)
    for gap in (0.0, -1.0, math.inf, math.nan):
        with pytest.raises(ValueError, match="gap"):
            construct.stack(language, gap=gap)


def test_too_wide_a_spread_is_refused_with_the_length_that_would_do() -> None:
    language = DyckLanguage(4, 6)
    with pytest.raises(
        ValueError, match=r"spread=4.0 is too large for n_ctx=2048 in float32.* beyond \d+ tokens"
    ):
        construct.balanced(language, spread=4.0, dtype=torch.float32)
    construct.balanced(language, spread=4.0)
