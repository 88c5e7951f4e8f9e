"""The balance condition: Eq. 11 from the weights, written again here from the formula."""

from __future__ import annotations

import itertools
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from tl_dyck import DyckLanguage, DyckTask, balance_violation, build_model, construct, get_config


def residual_by_formula(model: Any) -> float:
    """Eq. 11 as it is written: loops over W_K, W_Q and the embedding table."""
    language, attn = model.cfg.language, model.blocks[0].attn
    table = model.embed.table.double()
    k, deepest = language.n_types, language.max_depth
    worst = 0.0
    for head in range(model.cfg.n_heads):
        W_Q, W_K = attn.W_Q[head].detach().double(), attn.W_K[head].detach().double()
        queries = [table[2 * j + 1, d] @ W_Q for j in range(k) for d in range(1, deepest)]
        for i in range(k):
            for pair in range(1, deepest + 1):
                difference = (table[2 * i, pair] - table[2 * i + 1, pair - 1]) @ W_K
                for one, two in itertools.combinations(queries, 2):
                    worst = max(worst, abs(float(difference @ (one - two))) / attn.attn_scale)
    return worst


@settings(max_examples=15)
@given(
    seed=st.integers(0, 10**6),
    k=st.integers(1, 3),
    deepest=st.integers(1, 3),
    n_heads=st.integers(1, 2),
)
def test_residual_is_the_formula(seed: int, k: int, deepest: int, n_heads: int) -> None:
    task = DyckTask(name="any", n_types=k, max_depth=deepest)
    for family in ("minimal-onehot", "minimal-split"):
        config = get_config(family, task, n_heads=n_heads, dtype=torch.float64)
        model = build_model(config, seed=seed)
        assert construct.balance_residual(model) == pytest.approx(
            residual_by_formula(model), rel=1e-9, abs=1e-15
        )


@settings(max_examples=20)
@given(
    seed=st.integers(0, 10**6),
    k=st.integers(1, 3),
    deepest=st.integers(1, 4),
    spread=st.floats(0.1, 3),
)
def test_balanced_satisfies_the_formula(seed: int, k: int, deepest: int, spread: float) -> None:
    model = construct.balanced(DyckLanguage(k, deepest), seed=seed, spread=spread)
    assert residual_by_formula(model) < 1e-12
    assert construct.satisfies_balance(model, tolerance=1e-12)


def test_the_draw_uses_all_the_freedom_that_equation_11_leaves() -> None:
    """Over many draws, scores fill a space of the equation's dimension; opens' queries are free."""
    language = DyckLanguage(2, 2)
    n = 2 * 2 * 2 + 1  # states: token · D + depth, closing at depth >= 1 are 3 and 7
    scores = []
    for seed in range(90):
        attn = construct.balanced(language, seed=seed, n_ctx=9).blocks[0].attn
        scores.append((attn.W_Q[0, :n] @ attn.W_K[0, :n].T / attn.attn_scale).detach().flatten())
    pairs, queries = 4, 2
    assert torch.linalg.matrix_rank(torch.stack(scores), rtol=1e-9) == n * n - pairs * (queries - 1)


def test_the_layer_that_counts_is_the_last_one() -> None:
    """With a first layer that computes states, random keys and queries on them aren't balanced."""
    model = construct.uniform_attention(DyckLanguage(2, 3), first_layer="attention")
    generator = torch.Generator().manual_seed(0)
    with torch.no_grad():
        for weight in (model.blocks[1].attn.W_Q, model.blocks[1].attn.W_K):
            weight[0, :12] = torch.randn(
                weight[0, :12].shape, generator=generator, dtype=weight.dtype
            )
    assert not construct.satisfies_balance(model)


@pytest.mark.parametrize("seed", range(2))
def test_a_perturbed_construction_is_not_balanced_and_fails(seed: int, prefix: Any) -> None:
    language = DyckLanguage(2, 3)
    model = construct.balanced(language, seed=seed)
    assert float(balance_violation(model)) < 1e-6
    with torch.no_grad():
        model.blocks[0].attn.W_K[0, 2] *= 1.5  # one opening bracket; its partner stays
    assert not construct.satisfies_balance(model)
    assert float(balance_violation(model)) > 1e-4
    # What does not cancel grows with the string until the stack cannot be read any more
    right = torch.tensor([[4, 0, *[0, 0, 1, 1] * 400, 0]])
    with torch.no_grad():
        chance = model(right).softmax(-1)[0, 5::4, 1]  # of closing the outer bracket
    assert chance[0] == pytest.approx(0.5)
    assert (chance < 0.4).any()


@pytest.mark.parametrize("first_layer", ["minimal", "attention", None])
def test_matched_pairs_leave_the_normalised_output_alone(
    first_layer: str | None, prefix: Any
) -> None:
    """The property that pins Eq. 11 and 15: inserted pairs change nothing at a later close."""
    language = DyckLanguage(2, 4)
    model = (
        construct.uniform_attention(language, first_layer=first_layer)
        if first_layer
        else construct.balanced(language, seed=1)
    )
    name = f"blocks.{model.cfg.n_layers - 1}.hook_attn_out"
    outputs = []
    for pairs in ([], [0, 1], [2, 3] * 20, [2, 0, 1, 3, 0, 1] * 50):
        tokens = torch.tensor([[4, 0, *pairs, 2, 0, *[2, 3] * len(pairs), 1, 3]])
        _, cache = model.run_with_cache(tokens, names_filter=name)
        outputs.append(cache[name][0, -1])
    for output in outputs[1:]:
        assert torch.allclose(output, outputs[0], atol=1e-9)


def test_what_the_condition_cannot_be_asked_of() -> None:
    with pytest.raises(ValueError, match="'linear' ones"):
        construct.satisfies_balance(construct.stack(DyckLanguage(2, 3)))
    with pytest.raises(ValueError, match="minimal first layer"):
        construct.satisfies_balance(build_model(get_config("gpt", "dyck-2-4")))
    with pytest.raises(ValueError, match="n_ctx is 8"):
        construct.satisfies_balance(construct.uniform_attention(DyckLanguage(2, 4), n_ctx=8))
