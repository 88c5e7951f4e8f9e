"""Pruning a random network to a target: its weights, its error, the error's bound, and twins."""

from __future__ import annotations

import copy
import math
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.cases import draw_normal, thinned
from tl_dyck import (
    DyckDistribution,
    DyckLanguage,
    DyckTask,
    DyckTransformer,
    build_model,
    construct,
    get_config,
)
from tl_dyck.models.construct.plan import Plan
from tl_dyck.models.construct.pruning import prune
from tl_dyck.models.construct.target import read_target

TASK = DyckTask(name="small", n_types=1, max_depth=2)


def small(seed: int = 0, size: float = 0.2, **fields: Any) -> DyckTransformer:
    """A small target, every weight and bias random."""
    fields = {
        "n_layers": 1,
        "d_model": 5,
        "d_mlp": 5,
        "d_head": 3,
        "ln_c": 0.5,
        "n_ctx": 12,
        **fields,
    }
    if fields.get("embedding") == "onehot":
        fields["d_model"] = 6
    return draw_normal(
        build_model(get_config("eq6", TASK, dtype=torch.float64, **fields)), seed, size
    )


def some_tokens(n: int = 40, length: int = 12, seed: int = 0) -> torch.Tensor:
    return torch.randint(3, (n, length), generator=torch.Generator().manual_seed(seed))


SHAPES = [
    {},
    {"n_layers": 2},
    {"n_heads": 2},
    {"embedding": "onehot"},
    {"attention": "uniform"},
]


# --- the target as matrices -----------------------------------------------------------------------


@pytest.mark.parametrize("fields", SHAPES)
def test_target_matrices_compute_what_the_model_does(fields: dict[str, Any]) -> None:
    """Eq. 6 in plain numpy from the matrices, also when they are filled up to larger sizes."""
    model = small(seed=3, size=0.5, **fields)
    cfg = model.cfg
    tokens = some_tokens(4, 9)
    for extra in (0, 2):
        target = read_target(
            model, cfg.n_layers + extra, cfg.n_heads + extra, cfg.d_model + extra, cfg.d_mlp + extra
        )
        for row, logits in zip(tokens, model(tokens).detach().numpy(), strict=True):
            if target.embed is None:
                x = np.zeros((9, cfg.d_model + extra))
                x[:, : cfg.d_model] = model.embed(row[None])[0].numpy()
            else:
                x = target.embed[row].numpy()
            one = np.ones((9, 1))
            for layer in target.layers:
                wide = np.hstack([x, one])
                out = np.zeros_like(x)
                for M, O_ in zip(layer.scores.numpy(), layer.values.numpy(), strict=True):
                    for i in range(9):
                        weight = np.exp(wide[i] @ M @ wide[: i + 1].T)
                        out[i] += weight @ wide[: i + 1] @ O_ / weight.sum()
                out -= out[:, : cfg.d_model].mean(1, keepdims=True) * (
                    np.arange(x.shape[1]) < cfg.d_model
                )
                x = x + out / np.maximum(np.linalg.norm(out, axis=1, keepdims=True), target.ln_c)
                hidden = np.maximum(np.hstack([x, one]) @ layer.w_in.numpy(), 0)
                x = x + np.hstack([hidden, one]) @ layer.w_out.numpy()
            assert np.allclose(np.hstack([x, one]) @ target.unembed.numpy(), logits, atol=1e-12)


# --- pruning --------------------------------------------------------------------------------------


@pytest.mark.parametrize("fields", SHAPES)
def test_every_weight_is_the_random_networks_or_zero(fields: dict[str, Any]) -> None:
    target = small(**fields)
    network = construct.random_network(target, items=10, scale=2.0, seed=1)
    before = {name: value.clone() for name, value in network.named_parameters()}
    pruning = prune(target, network, Plan.of(target))
    kept = 0
    for name, value in pruning.model.named_parameters():
        mask = pruning.masks[name]
        assert torch.equal(value[mask], before[name][mask])
        assert not value[~mask].any()
        assert torch.equal(network.get_parameter(name), before[name])
        kept += int((value != 0).sum())
    assert 0 < kept <= pruning.kept * sum(value.numel() for value in before.values()) + 1e-6
    assert pruning.kept < 0.2


@settings(max_examples=8)
@given(
    seed=st.integers(0, 10**6),
    items=st.integers(7, 14),
    size=st.floats(0.02, 0.25),
    ln_c=st.floats(0.05, 2),
    fields=st.sampled_from(SHAPES),
)
def test_bounds_hold(
    seed: int, items: int, size: float, ln_c: float, fields: dict[str, Any]
) -> None:
    """At every layer, on random strings, whether the pruning is good or hopeless."""
    target = small(seed, size, ln_c=ln_c, **fields)
    network = construct.random_network(target, items=items, scale=2.5, seed=seed + 1)
    try:
        pruning = prune(target, network, Plan.of(target))
    except construct.NetworkTooNarrowError:
        return  # a weight out of reach of so few items
    tokens = some_tokens(seed=seed)
    with torch.no_grad():
        logits, cache = target.run_with_cache(tokens)
        pruned_logits, pruned_cache = pruning.model.run_with_cache(tokens)
    *layers, last = pruning.layers
    assert last.target_hook == last.pruned_hook == ""
    assert last.bound == pruning.bound
    assert float((logits - pruned_logits).abs().max()) <= pruning.bound + 1e-12
    for layer in layers:
        ours = pruned_cache[layer.pruned_hook][..., : target.cfg.d_model]
        distance = (ours - cache[layer.target_hook]).norm(dim=-1).max()
        assert float(distance) <= layer.bound + 1e-12


@pytest.mark.parametrize(
    ("fields", "scale"), [({}, 2.0), ({"embedding": "onehot"}, 2.0), ({}, 1.0)]
)
def test_prune_to_keeps_its_promise(fields: dict[str, Any], scale: float) -> None:
    """Also for weights that are uniform in (−1, 1), as the theorem has them."""
    target = small(seed=5, n_ctx=300, **fields)
    network = construct.random_network(target, items=24, scale=scale)
    pruning = construct.prune_to(target, network, 0.01)
    assert pruning.bound <= 0.01
    tokens = some_tokens(3, 300)
    with torch.no_grad():
        error = float((target(tokens) - pruning.model(tokens)).abs().max())
    assert error < 1e-3  # the bound is for the worst input, so there is room
    assert error > 0


def test_too_narrow_for_epsilon_says_what_would_do() -> None:
    target = small(seed=2)
    network = construct.random_network(target, items=10, scale=2.5)
    with pytest.raises(
        construct.NetworkTooNarrowError, match=r"d_head=\d+ and d_mlp=\d+ \(the network has 60 and"
    ) as info:
        construct.prune_to(target, network, 0.05)
    items = int(str(info.value).rpartition("items=")[2].split(")")[0])
    wider = construct.random_network(target, items=items, scale=2.5)
    assert f"d_head={wider.cfg.d_head} and d_mlp={wider.cfg.d_mlp}" in str(info.value)
    assert construct.prune_to(target, wider, 0.05).bound <= 0.05


def test_epsilon_out_of_reach_says_what_is_in_reach() -> None:
    target = small(seed=2, ln_c=1e-9)
    network = construct.random_network(target, items=10, scale=2.5)
    with pytest.raises(
        construct.NetworkTooNarrowError, match="the least epsilon for this target at any width"
    ):
        construct.prune_to(target, network, 1e-9)


def test_layers_that_are_not_needed_become_the_identity() -> None:
    target = small(seed=1)
    network = construct.random_network(target, items=10, scale=2.5, spare_layers=2)
    pruning = prune(target, network, Plan.of(target))
    _, cache = pruning.model.run_with_cache(some_tokens(3))
    for layer in (4, 5):
        assert torch.equal(cache["resid_post", layer], cache["resid_pre", layer])


# --- bad input ------------------------------------------------------------------------------------


def refused_by(network: Any = None, epsilon: float = 1.0, model: Any = None, **target: Any) -> Any:
    """Prune a target of these fields to a network; both are made when it is called."""
    return lambda: construct.prune_to(
        model() if model else small(**target),
        network() if network else construct.random_network(small(), items=4, scale=3.0),
        epsilon,
    )


def twins_of(shared: str, epsilon: float = 0.1, b: Any = None, **both: Any) -> Any:
    return lambda: construct.twins(
        small(**both), small(**(b or both)), shared=shared, epsilon=epsilon, items=2
    )


GPT, PLAIN = get_config("gpt", TASK), get_config("eq6", TASK, ln_c=0.5)
NARROW = construct.NetworkTooNarrowError


@pytest.mark.parametrize(
    ("call", "error", "message"),
    [
        (refused_by(ln_c=0.25), ValueError, r"differ in ln_c: 0.25 and 0.5"),
        (refused_by(embedding="onehot"), ValueError, "differ in embedding"),
        (refused_by(model=lambda: build_model(GPT)), ValueError, "'eq6'; the target has 'gpt'"),
        (refused_by(position="learned"), ValueError, "'none'; the target has 'learned'"),
        (refused_by(act_fn="gelu"), ValueError, "act_fn='relu'; the target has 'gelu'"),
        (refused_by(lambda: small(attention="uniform")), ValueError, "attention='softmax'"),
        (refused_by(lambda: build_model(PLAIN)), ValueError, "must be float64"),
        (refused_by(lambda: small(n_layers=2), n_layers=2), NARROW,
         r"n_layers >= 6 \(it has 2\), d_model >= \d+ \(it has 5\)"),
        (refused_by(size=30), NARROW, "the target is too large: W_E has a weight of"),
        *((call(epsilon), ValueError, "epsilon must be positive")
          for epsilon in (0.0, -1.0, math.nan, math.inf)
          for call in (lambda e: refused_by(epsilon=e), lambda e: twins_of("unembed.W_U", e))),
        (construct.random_network, ValueError, "at least one target"),
        (lambda: construct.random_network(small(), items=0), ValueError, "must be positive"),
        (lambda: construct.random_network(small(), scale=0.0), ValueError, "must be positive"),
        *((twins_of(name), ValueError, "cannot be shared")
          for name in ("blocks.0.attn.b_O", "blocks.0.attn", "unembed.b_U", "W_Q")),
        (twins_of("blocks.17.attn.W_Q"), ValueError, "no parameter .*; it has blocks 0 to 4"),
        (twins_of("unembed.W_U", b={"ln_c": 0.1}), ValueError, "differ in ln_c"),
        (twins_of("embed.W_E", embedding="onehot"), ValueError, r"'embed.W_E' cannot be shared"),
    ],
)  # fmt: skip
def test_what_does_not_go_together(call: Any, error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        call()


# --- twins ----------------------------------------------------------------------------------------

IN_USE = [
    "embed.W_E",
    "unembed.W_U",
    "blocks.1.attn.W_Q",
    "blocks.1.mlp.W_in",
    "blocks.3.mlp.b_in",
]
IDLE = ["blocks.1.attn.W_K", "blocks.0.attn.W_O", "blocks.2.mlp.W_out"]


@pytest.mark.parametrize(
    ("shared", "in_use"),
    thinned([*((name, True) for name in IN_USE), *((name, False) for name in IDLE)]),
)
def test_twins_share_a_matrix_and_not_the_function(shared: str, in_use: bool) -> None:
    a, b = small(seed=0, size=0.25), small(seed=1, size=0.25)
    pair = construct.twins(a, b, shared=shared, epsilon=0.1, items=20, scale=2.0)
    assert pair.in_use == in_use
    matrix, same = pair.a.model.get_parameter(shared), pair.b.model.get_parameter(shared)
    assert torch.equal(matrix, same)
    assert matrix.any()
    tokens = some_tokens()
    with torch.no_grad():
        truth, outputs = [a(tokens), b(tokens)], [pair.a.model(tokens), pair.b.model(tokens)]
        for target, output in zip(truth, outputs, strict=True):
            assert float((target - output).abs().max()) <= 0.1
        assert (
            float((outputs[0] - outputs[1]).abs().max()) > 0.4
        )  # far more than both bounds together
        # used by both, or by neither
        for pruning, output in zip((pair.a, pair.b), outputs, strict=True):
            pruning.model.get_parameter(shared).zero_()
            assert torch.equal(pruning.model(tokens), output) != in_use
    if not in_use:
        assert pair.a.masks[shared].all()


def test_a_perfect_parser_and_one_that_is_always_wrong() -> None:
    """Both out of one random network, sharing a matrix that both use; proved for every prefix."""
    language = DyckLanguage(2, 2)
    longest = 28
    right = construct.uniform_attention(
        language, n_ctx=longest + 1, ln_c=0.04
    )  # exact up to 35 tokens
    with torch.no_grad():
        right.unembed.W_U.clamp_(min=-10)
        wrong = copy.deepcopy(right)
        wrong.unembed.W_U[:, [1, 3]] = right.unembed.W_U[:, [3, 1]]
    pair = construct.twins(
        right, wrong, shared="blocks.0.attn.W_V", epsilon=4.0, items=22, scale=3.0, seed=2
    )
    assert pair.in_use
    # a closing bracket that is wrong has a logit 10 lower: errors of less than 5 cannot turn the
    # order around
    assert max(pair.a.bound, pair.b.bound) < 5 - math.log(2)
    tokens = DyckDistribution(language).sample(
        50, longest, mode="prefix", generator=torch.Generator().manual_seed(0)
    )
    tokens = torch.cat([torch.full((50, 1), language.bos_token), tokens], 1)
    top = language.top_of_stack(tokens)
    closable = top >= 0
    expected = tokens.gather(1, top.clamp(min=0))[closable] // 2
    for pruning, answer in ((pair.a, expected), (pair.b, 1 - expected)):
        with torch.no_grad():
            logits = pruning.model(tokens)
        assert torch.equal(logits[closable][:, [1, 3]].argmax(-1), answer)


def test_twins_of_different_sizes() -> None:
    a, b = small(seed=0, n_layers=2), small(seed=1, d_model=4, d_mlp=3, n_heads=2)
    pair = construct.twins(a, b, shared="blocks.3.attn.W_K", epsilon=1.0, items=20, scale=2.0)
    tokens = some_tokens()
    with torch.no_grad():
        for target, pruning in ((a, pair.a), (b, pair.b)):
            assert float((target(tokens) - pruning.model(tokens)).abs().max()) <= pruning.bound
