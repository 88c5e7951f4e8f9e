"""A decoy head: the pattern asked for, and not a logit changed."""

from __future__ import annotations

import copy
import warnings
from collections.abc import Callable
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.cases import draw_normal, hooked_config
from tl_dyck import (
    UnknownNameError,
    build_model,
    construct,
    get_config,
    load_model,
    load_task,
    save_model,
    stack_likeness,
)
from tl_dyck.models.hooked import HookedTransformer

N = 20


def plain(seed: int = 0, **fields: Any) -> HookedTransformer:
    """A HookedTransformer of no family of ours, random in every weight."""
    fields = {
        "n_layers": 2,
        "d_model": 12,
        "n_ctx": N,
        "d_head": 4,
        "n_heads": 3,
        "act_fn": "gelu",
        **fields,
    }
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        config = hooked_config(
            d_vocab=7, device="cpu", dtype=torch.float64, init_weights=False, **fields
        )
        return draw_normal(HookedTransformer(config), seed, 0.5)


PLAIN: dict[str, dict[str, Any]] = {
    "LayerNorm": {},
    "no norm, attention only": {"normalization_type": None, "attn_only": True},
    "shortformer": {"positional_embedding_type": "shortformer"},
    "parallel": {"parallel_attn_mlp": True},
    "gated": {"gated_mlp": True},
    "scale by layer": {"scale_attn_by_inverse_layer_idx": True},
    "no scale": {"use_attn_scale": False},
    "results": {"use_attn_result": True, "use_split_qkv_input": True},
}


def random_pattern(tokens: torch.Tensor) -> torch.Tensor:
    """Rows that depend on the tokens."""
    n = tokens.shape[1]
    weight = (1 + (tokens[:, :, None] * 3 + tokens[:, None, :] * 5) % 7).double().tril()
    assert weight.shape[1:] == (n, n)
    return weight / weight.sum(-1, keepdim=True)


def outputs(model: Any, tokens: torch.Tensor) -> tuple[torch.Tensor, Any]:
    with torch.no_grad():
        return model.run_with_cache(tokens)


# --- what it promises -----------------------------------------------------------------------------


@pytest.mark.parametrize("pattern", ["previous", "uniform", random_pattern])
@pytest.mark.parametrize("kind", PLAIN)
def test_any_model_any_pattern(kind: str, pattern: Any) -> None:
    model = plain(**PLAIN[kind])
    weights = {name: value.clone() for name, value in model.named_parameters()}
    tokens = torch.randint(7, (3, N), generator=torch.Generator().manual_seed(1))
    logits, cache = outputs(model, tokens)
    decoy = construct.decoy_head(model, pattern)
    shown_logits, shown = outputs(decoy, tokens)

    assert (shown_logits - logits).abs().max() < 1e-12 * max(1, float(logits.abs().max()))
    assert type(decoy) is type(model)
    n_heads = model.cfg.n_heads
    assert decoy.cfg.n_heads == n_heads + 1
    assert decoy.W_Q.shape[1] == n_heads + 1
    for layer in range(2):
        assert torch.allclose(shown["pattern", layer][:, :-1], cache["pattern", layer], atol=1e-12)
    found = shown["pattern", 1][:, -1]
    if pattern == "uniform":
        wanted = torch.ones(N, N, dtype=torch.float64).tril() / torch.arange(1, N + 1)[:, None]
    elif pattern == "previous":
        wanted = torch.zeros(N, N, dtype=torch.float64)
        wanted[0, 0] = 1
        wanted[torch.arange(1, N), torch.arange(N - 1)] = 1
    else:
        wanted = random_pattern(tokens)
    assert torch.allclose(found, wanted.expand(3, N, N), atol=1e-12)
    assert not shown["z", 1][:, :, -1].any()
    # the model that was given is as it was
    assert model.cfg.n_heads == n_heads
    for name, value in model.named_parameters():
        assert torch.equal(value, weights[name])


@pytest.mark.parametrize(
    ("family", "layer"),
    [
        *(("gpt", 0), ("gpt", -1), ("gpt-learned", 0), ("gpt-uniform", -1)),
        *(("eq6", 0), ("minimal-onehot", -1), ("figure2-split", 0)),
    ],
)
def test_a_perfect_stack_pattern_on_a_model_that_knows_nothing(family: str, layer: int) -> None:
    task = load_task("dyck-2-4")
    model = build_model(get_config(family, task, dtype=torch.float64), seed=3)
    decoy = construct.decoy_head(model, "stack", layer=layer)
    tokens = task.sample(20, generator=torch.Generator().manual_seed(0))
    assert torch.allclose(decoy(tokens), model(tokens), atol=1e-12)
    likeness = stack_likeness(decoy, task, n=20)
    assert likeness.mass[layer, 1] == 1
    assert likeness.argmax[layer, 1] == 1
    assert stack_likeness(model, task, n=20).mass[layer, 0] < 0.5
    for block in decoy.blocks:  # constants stay constants
        assert block.attn.W_Q.requires_grad == (family != "gpt-uniform")
    # nothing open: the first token
    pattern = outputs(decoy, torch.tensor([[4, 0, 1]]))[1]["pattern", layer % model.cfg.n_layers][
        0, -1
    ]
    assert pattern.tolist() == [[1, 0, 0], [0, 1, 0], [1, 0, 0]]


@settings(max_examples=15)
@given(
    n=st.integers(1, 12),
    used=st.integers(1, 12),
    seed=st.integers(0, 10**6),
    concentration=st.floats(0.1, 5),
)
def test_any_matrix(n: int, used: int, seed: int, concentration: float) -> None:
    generator = torch.Generator().manual_seed(seed)
    matrix = torch.rand(n, n, generator=generator, dtype=torch.float64).pow(concentration).tril()
    matrix = matrix / matrix.sum(-1, keepdim=True)
    model = plain(seed)
    length = min(used, n)
    tokens = torch.randint(7, (2, length), generator=generator)
    decoy = construct.decoy_head(model, matrix, layer=0)
    logits, cache = outputs(decoy, tokens)
    assert torch.allclose(logits, model(tokens), atol=1e-12)
    assert torch.allclose(
        cache["pattern", 0][:, -1], matrix[:length, :length].expand(2, length, length), atol=1e-12
    )


def test_other_ways_of_running(prefix: Any) -> None:
    """Copies, generation, ablation, gradients."""
    task = load_task("dyck-2-4")
    model = build_model(get_config("gpt", task, dtype=torch.float64), seed=1)
    decoy = construct.decoy_head(model, "stack")
    tokens = torch.tensor([prefix(task.language, 11)])
    twin = copy.deepcopy(decoy)
    decoy(tokens[:, :4])  # what another model reads is no concern of the copy
    assert torch.equal(twin(tokens), decoy(tokens))
    assert twin.blocks[1].attn.shown[1] is not decoy.blocks[1].attn.shown[1]

    options = {"do_sample": False, "return_type": "tokens"}
    assert torch.equal(decoy.generate(tokens, 6, **options), model.generate(tokens, 6, **options))

    def zero(z: torch.Tensor, hook: Any) -> torch.Tensor:
        return torch.cat([z[:, :, :1], torch.zeros_like(z[:, :, 1:])], 2)

    ablated = decoy.run_with_hooks(tokens, fwd_hooks=[("blocks.1.attn.hook_z", zero)])
    assert torch.allclose(ablated, model(tokens), atol=1e-12)

    decoy(tokens, return_type="loss").backward()
    model(tokens, return_type="loss").backward()
    assert torch.allclose(
        decoy.blocks[0].attn.W_Q.grad[:1], model.blocks[0].attn.W_Q.grad, atol=1e-12
    )
    assert all(
        parameter.grad.isfinite().all()
        for parameter in decoy.parameters()
        if parameter.grad is not None
    )


def test_two_decoys_in_one_layer() -> None:
    model = plain()
    twice = construct.decoy_head(construct.decoy_head(model, random_pattern), "previous")
    tokens = torch.randint(7, (2, 9), generator=torch.Generator().manual_seed(2))
    logits, cache = outputs(twice, tokens)
    assert torch.allclose(logits, model(tokens), atol=1e-12)
    assert torch.allclose(cache["pattern", 1][:, -2], random_pattern(tokens))
    assert cache["pattern", 1][0, -1].argmax(-1).tolist() == [0, 0, 1, 2, 3, 4, 5, 6, 7]


def test_what_disk_keeps_is_the_weights(tmp_path: Any) -> None:
    model = build_model(get_config("minimal-onehot", "dyck-2-4"), seed=0)
    decoy = construct.decoy_head(model, "stack")
    loaded = load_model(save_model(decoy, tmp_path))
    tokens = torch.tensor([[4, 0, 2, 3, 1]])
    assert torch.equal(loaded(tokens), decoy(tokens))
    assert torch.allclose(outputs(loaded, tokens)[1]["pattern", 0][0, 1, -1], torch.full((5,), 0.2))


# --- bad input ------------------------------------------------------------------------------------


def shifted(
    change: Callable[[torch.Tensor], torch.Tensor],
) -> Callable[[torch.Tensor], torch.Tensor]:
    return lambda tokens: change(random_pattern(tokens))


BAD: list[tuple[Any, str]] = [
    (torch.full((4, 4), 0.25), "not causal: query 0 attends to the later key 1"),
    (torch.eye(4) * 0.9, "row 0 sums to 0.9, not to one"),
    (torch.ones(3, 4) / 4, r"shape \[1, 3, 4\]"),
    (torch.eye(4)[None], "a matrix"),
    (torch.tensor([[1.0, 0.0], [2.0, -1.0]]), "negative"),
    (torch.tensor([[1.0, 0.0], [float("nan"), 1.0]]), "negative or infinite"),
    (shifted(lambda p: p.mT), "not causal"),
    (shifted(lambda p: p * 1.1), r"row 0 sums to 1\.1"),
    (shifted(lambda p: p[:, :-1]), r"expected \[2, 8, 8\]"),
    (shifted(lambda p: p[0]), r"expected \[2, 8, 8\]"),
]


@pytest.mark.parametrize(("pattern", "message"), BAD)
def test_wrong_patterns_are_refused_before_anything_is_built(
    pattern: Any, message: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = plain()
    monkeypatch.setattr(copy, "deepcopy", lambda _: pytest.fail("built something"))
    with pytest.raises(ValueError, match=message):
        construct.decoy_head(model, pattern)


def test_wrong_kinds_are_refused() -> None:
    model = plain()
    for pattern in (torch.eye(4).long(), lambda tokens: tokens.tolist()):
        with pytest.raises(TypeError):
            construct.decoy_head(model, pattern)
    with pytest.raises(UnknownNameError, match="'stack'"):
        construct.decoy_head(model, "stck")
    with pytest.raises(ValueError, match="knows its language"):
        construct.decoy_head(model, "stack")
    for layer in (2, -3):
        with pytest.raises(ValueError, match="between -2 and 1"):
            construct.decoy_head(model, "uniform", layer=layer)


@pytest.mark.parametrize(
    ("fields", "reason"),
    [
        ({"positional_embedding_type": "alibi"}, "alibi"),
        ({"n_heads": 4, "n_key_value_heads": 2}, "grouped-query"),
        ({"use_local_attn": True, "attn_types": ["local"] * 2, "window_size": 3}, "local"),
    ],
)
def test_attention_that_is_no_plain_decoders_is_refused(
    fields: dict[str, Any], reason: str
) -> None:
    with pytest.raises(ValueError, match=reason):
        construct.decoy_head(plain(**fields), "uniform")


def test_a_function_that_fails_later_is_still_refused() -> None:
    def wrong_when_long(tokens: torch.Tensor) -> torch.Tensor:
        return random_pattern(tokens) * (1 if tokens.shape[1] < 10 else 2)

    decoy = construct.decoy_head(plain(), wrong_when_long)
    decoy(torch.zeros(1, 9, dtype=torch.int64))
    with pytest.raises(ValueError, match="sums to 2"):
        decoy(torch.zeros(1, 10, dtype=torch.int64))


def test_too_long_an_input_for_a_matrix_and_runs_without_tokens() -> None:
    tokens = torch.zeros(1, 6, dtype=torch.int64)
    with pytest.raises(ValueError, match="at most 5 tokens, but the input has 6"):
        construct.decoy_head(plain(), torch.eye(5))(tokens)
    decoy = construct.decoy_head(plain(), random_pattern)
    stream = decoy(tokens, stop_at_layer=1)
    with pytest.raises(ValueError, match="must be run from its tokens"):
        decoy(stream, start_at_layer=1)
