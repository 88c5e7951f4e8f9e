"""Named configurations, their options, and building from a seed."""

from __future__ import annotations

import copy
import dataclasses
import pickle
import re

import jaxtyping
import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from tl_dyck.kit.registry import UnknownNameError
from tl_dyck.models import (
    DyckTransformer,
    DyckTransformerConfig,
    build_model,
    get_config,
    list_models,
    load_model,
    save_model,
)
from tl_dyck.models.hooked import HookedTransformer, HookedTransformerConfig

TASK = "dyck-2-4"


def weights(model: torch.nn.Module) -> dict[str, torch.Tensor]:
    return {name: parameter.detach().clone() for name, parameter in model.named_parameters()}


def same(a: dict[str, torch.Tensor], b: dict[str, torch.Tensor]) -> bool:
    return a.keys() == b.keys() and all(torch.equal(a[name], b[name]) for name in a)


def by_hand(**fields):
    sizes = {"n_types": 1, "max_depth": 2, "d_model": 4, "n_layers": 1, "n_heads": 1, "n_ctx": 9}
    return DyckTransformerConfig(**{**sizes, **fields})


# --- options --------------------------------------------------------------------------------------


@pytest.mark.parametrize("family", list_models())
def test_config_is_one_that_transformer_lens_can_read(family):
    config = get_config(family, TASK)
    assert isinstance(config, HookedTransformerConfig)
    assert (config.d_vocab, config.d_vocab_out, config.n_ctx, config.d_model, config.n_heads) == (
        5,
        5,
        501,
        50,
        1,
    )
    assert config.model_name == family
    assert config.attn_scale == pytest.approx(config.d_head**0.5)
    assert HookedTransformerConfig.unwrap(config) is config
    assert HookedTransformer.__subclasscheck__(type(build_model(config)))


@pytest.mark.parametrize(
    ("name", "value"),
    [
        *[("n_layers", 4), ("n_heads", 5), ("d_model", 64), ("d_head", 3),
          ("d_mlp", 7), ("n_ctx", 2001), ("t_max", 5)],
        *[("ln_c", 0.3), ("eps", 1e-3), ("act_fn", "gelu"),
          ("initializer_range", 0.02), ("dtype", torch.float64)],
        *[("embedding", "yao"), ("block", "bare"),
          ("position", "learned"), ("attention", "uniform")],
        *[("brackets", ("a", "b", "c", "d")), ("model_name", "mine"),
          ("default_prepend_bos", False)],
        *[("use_attn_result", True), ("use_split_qkv_input", True),
          ("use_attn_in", True), ("use_hook_tokens", True)],
        *[("use_hook_mlp_in", True), ("device", "cpu"), ("max_depth", 9)],
    ],
)  # fmt: skip
def test_every_option_is_honoured_and_nothing_else_changes(name, value, tmp_path):
    config = get_config("eq6", TASK, **{name: value})
    assert getattr(config, name) == value
    default = get_config("eq6", TASK)
    follow = {
        "d_model": {"d_head", "d_mlp", "initializer_range"},
        "n_heads": {"d_head"},
    }
    changed = {
        key for key in default.to_saved() if default.to_saved()[key] != config.to_saved()[key]
    }
    assert changed - {name} == follow.get(name, set())
    model = build_model(config)
    assert model("".join(config.language.alphabet[:2])).dtype == config.dtype
    loaded = load_model(save_model(model, tmp_path))
    assert loaded.cfg.to_saved() == config.to_saved()
    assert same(weights(loaded), weights(model))


@pytest.mark.parametrize(
    ("make", "kind", "message"),
    [
        (lambda: get_config("eqq6", TASK), UnknownNameError,
         r"unknown model 'eqq6'\. Did you mean 'eq6'\?"),
        (lambda: get_config("gpt", "dyck-2-x"), UnknownNameError,
         "unknown task 'dyck-2-x'. Did you mean 'dyck-2-"),
        (lambda: get_config("gpt", TASK, n_layer=1), UnknownNameError,
         r"option 'n_layer'\. Did you mean 'n_layers'\?"),
        (lambda: get_config("gpt", TASK, embedding="one-hot"), UnknownNameError,
         "Did you mean 'onehot'"),
        (lambda: get_config("gpt", TASK, block="eq7"), UnknownNameError,
         "unknown block 'eq7'. Did you mean 'eq6'"),
        (lambda: get_config("gpt", TASK, act_fn="rlu"), UnknownNameError,
         "unknown act_fn 'rlu'. Did you mean 'relu'"),
        (lambda: get_config("gpt", TASK, normalization_type="RMS"), UnknownNameError,
         "unknown normalization_type 'RMS'"),
        (lambda: get_config("gpt", TASK, d_vocab=7), UnknownNameError, "option 'd_vocab'"),
        (lambda: get_config("gpt", TASK, use_local_attn=True), UnknownNameError,
         "option 'use_local_attn'"),
        (lambda: get_config("gpt", TASK, seed=3), ValueError, r"build_model\(config, seed=…\)"),
        (lambda: get_config("gpt", TASK, n_heads=0), ValueError,
         "n_heads must be at least 1, got 0"),
        (lambda: get_config("gpt", TASK, n_layers=1.5), TypeError,
         "n_layers must be an integer, got 1.5"),
        (lambda: get_config("eq6", TASK, ln_c=0.0), ValueError,
         "ln_c must be above 0, got 0"),
        (lambda: get_config("gpt", TASK, eps=-1e-5), ValueError, "eps must be above 0"),
        (lambda: get_config("gpt", TASK, initializer_range=float("inf")), ValueError,
         "initializer_range"),
        (lambda: get_config("gpt", TASK, dtype=torch.int64), ValueError,
         "dtype must be one of torch.float64"),
        (lambda: get_config("gpt", TASK, n_types=3), ValueError, "3 bracket type"),
        (lambda: get_config("gpt", TASK, brackets=("[", "]")), ValueError, "2 bracket type"),
        (lambda: get_config("minimal-onehot", TASK, d_model=16), ValueError,
         "d_model=16 is too small"),
        *((lambda given=given: by_hand(**given), ValueError,
           "follow from `position` and `block`: leave them out")
          for given in ({"positional_embedding_type": "rotary"},
                        {"normalization_type": "LNPre"})),
        (lambda: by_hand(final_rms=True), ValueError,
         "final_rms=True is not supported in a Dyck model; leave it at False"),
        (lambda: by_hand(n_key_value_heads=1), ValueError, "n_key_value_heads=1 is not supported"),
        (lambda: build_model("gpt"), TypeError,
         r"config must be a DyckTransformerConfig, got 'gpt'"),
        (
            lambda: build_model(
                HookedTransformerConfig(
                    d_model=4, d_head=4, n_layers=1, n_ctx=4, d_vocab=5, attn_only=True
                )
            ),
            TypeError,
            "must be a DyckTransformerConfig, got HookedTransformerConfig",
        ),
    ],
)  # fmt: skip
@pytest.mark.global_rng
def test_bad_options(make, kind, message):
    before = torch.random.get_rng_state()
    with pytest.raises(kind) as caught:
        make()
    if (
        type(caught.value) is not jaxtyping.TypeCheckError
    ):  # which comes first in tests, and never for users
        assert re.search(message, str(caught.value))
    assert torch.equal(before, torch.random.get_rng_state())


def test_replacing_fields_of_a_config_derives_the_rest_again():
    config = dataclasses.replace(get_config("eq6", TASK), block="gpt", d_head=16, n_layers=3)
    assert config.to_saved() == {
        **get_config("eq6", TASK).to_saved(),
        "block": "gpt",
        "d_head": 16,
        "n_layers": 3,
    }
    assert (config.normalization_type, config.attn_scale) == ("LN", 4)
    assert build_model(config).blocks[2].ln1.w.shape == (50,)


# --- building -------------------------------------------------------------------------------------


@pytest.mark.parametrize("family", list_models())
@pytest.mark.global_rng
def test_the_seed_alone_decides_and_global_randomness_is_left_alone(family):
    config = get_config(family, TASK)
    first = weights(build_model(config, seed=7))
    torch.manual_seed(123)
    np.random.seed(5)  # noqa: NPY002 (what the model must not touch)
    states = torch.random.get_rng_state(), np.random.get_state()[1].tolist()  # noqa: NPY002
    assert same(weights(build_model(config, seed=7)), first)
    assert torch.equal(torch.random.get_rng_state(), states[0])
    assert np.random.get_state()[1].tolist() == states[1]  # noqa: NPY002
    other = weights(build_model(config, seed=8))
    drawn = [
        n
        for n in first
        if n.split(".")[-1].startswith("W_") and first[n].count_nonzero() and n != "pos_embed.W_pos"
    ]
    assert len(drawn) >= 3
    assert not any(torch.equal(first[name], other[name]) for name in drawn)


def test_initial_weights_are_as_gpt2_mode_has_them():
    model = build_model(get_config("gpt-learned", TASK, d_model=64, n_layers=3))
    for name, parameter in model.named_parameters():
        kind = name.split(".")[-1]
        if kind.startswith("W_"):
            assert parameter.std().item() == pytest.approx(0.8 / 64**0.5, rel=0.15), name
            assert abs(parameter.mean().item()) < 0.02
        else:
            assert torch.equal(
                parameter, torch.full_like(parameter, 1.0 if kind == "w" else 0.0)
            ), name
    wide = build_model(get_config("gpt", TASK, initializer_range=2.0))
    assert wide.W_in.std().item() == pytest.approx(2.0, rel=0.1)


@settings(max_examples=10)
@given(seed=st.integers(-(2**63), -1) | st.integers(0, 2**64 - 1))
def test_any_seed_of_64_bits(seed):
    config = get_config("minimal-yao", TASK, n_ctx=4)
    assert same(weights(build_model(config, seed)), weights(build_model(config, seed)))


def test_precision_changes_the_rounding_and_not_the_draw():
    single = weights(build_model(get_config("gpt", TASK), seed=1))
    double = weights(build_model(get_config("gpt", TASK, dtype=torch.float64), seed=1))
    for name in single:
        torch.testing.assert_close(single[name].double(), double[name], rtol=1e-6, atol=1e-7)


def test_models_do_not_share_a_config():
    config = get_config("gpt", TASK)
    first, second = build_model(config), build_model(config)
    first.set_use_attn_result(True)
    first.to(torch.float64)
    assert not second.cfg.use_attn_result
    assert not config.use_attn_result
    assert (second.cfg.dtype, config.dtype) == (torch.float32, torch.float32)
    assert first.cfg.dtype == torch.float64
    assert first.blocks[0].attn.cfg is first.cfg


def test_copies_and_pickles_are_models_too():
    model = build_model(get_config("minimal-split", TASK))
    for twin in (copy.deepcopy(model), pickle.loads(pickle.dumps(model))):
        assert isinstance(twin, DyckTransformer)
        assert torch.equal(twin("[()]"), model("[()]"))
        _, cache = twin.run_with_cache("[()]")
        assert "blocks.0.ln1_post.hook_normalized" in cache
