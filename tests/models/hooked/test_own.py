"""What our class for TransformerLens 4 promises by itself: refusals, and what the old one lacks."""

from __future__ import annotations

import pytest
import torch
from transformer_lens import TransformerLensKeyValueCache

from tests.models.hooked.twins import plain
from tl_dyck.errors import DyckError
from tl_dyck.models import hooked
from tl_dyck.models.hooked import installed, own
from tl_dyck.models.hooked.own.refused import (
    FOREIGN_OPTIONS,
    MissingMethodError,
    UnsupportedOptionError,
)
from tl_dyck.registry import UnknownNameError

OTHER = {None: "other", False: True, True: False}


@pytest.mark.parametrize("name", FOREIGN_OPTIONS)
def test_a_foreign_option_is_refused_by_name_with_what_has_it(name: str) -> None:
    only = FOREIGN_OPTIONS[name]
    with pytest.raises(UnsupportedOptionError, match=rf"{name}=.* or use .") as refusal:
        plain(own, **{name: OTHER.get(only, 12345)})
    assert "\n" not in str(refusal.value)
    assert getattr(plain(own, **{name: only}).cfg, name) == only


@pytest.mark.parametrize("name", ["from_pretrained", "generate", "fold_layer_norm", "W_gate"])
def test_a_foreign_method_is_refused_by_name_with_what_has_it(name: str) -> None:
    for owner in (own.HookedTransformer, plain(own)):
        with pytest.raises(MissingMethodError, match=f"has no '{name}' on TransformerLens 4; use"):
            getattr(owner, name)
        assert not hasattr(owner, name)
    with pytest.raises(AttributeError, match="has no attribute 'no_such_thing'"):
        plain(own).no_such_thing  # noqa: B018


def test_unknown_choices_are_refused() -> None:
    for option in ({"act_fn": "rel"}, {"attention_dir": "up"}):
        with pytest.raises(UnknownNameError, match=next(iter(option))):
            plain(own, **option)
    with pytest.raises(UnsupportedOptionError, match=r"normalization_type='RMS'.*boot_native"):
        plain(own, normalization_type="RMS")
    with pytest.raises(UnsupportedOptionError, match="ln1_post"):
        plain(own, use_normalization_before_and_after=True)
    with pytest.raises(UnsupportedOptionError, match="attn_type='local'"):
        own.Attention(plain(own).cfg, "local", 0)
    with pytest.raises(UnknownNameError, match="unknown return_type 'logit'"):
        plain(own)(torch.tensor([[0]]), return_type="logit")
    with pytest.raises(TypeError, match="boot_transformers"):
        own.HookedTransformer("gpt2")


def test_refusals_are_ours() -> None:
    assert issubclass(UnsupportedOptionError, DyckError)
    assert issubclass(MissingMethodError, DyckError)


def test_biases_of_an_attention_only_model_by_hand() -> None:
    model = plain(own, attn_only=True)
    first, second = (block.attn.b_O for block in model.blocks)
    assert model.accumulated_bias(0).count_nonzero() == 0
    assert torch.equal(model.accumulated_bias(1), first)
    assert torch.equal(model.accumulated_bias(2), first + second)
    assert torch.equal(model.accumulated_bias(1, mlp_input=True), first + second)
    with pytest.raises(AssertionError, match="no MLP after layer 1"):
        model.accumulated_bias(2, mlp_input=True)


def test_the_number_of_weights_by_hand() -> None:
    tokens, places, logits = 7 * 12, 9 * 12, 12 * 7 + 7
    layer = 3 * (4 * 12 * 4 + 3 * 4) + 12
    assert plain(own, attn_only=True, normalization_type=None).n_params_total == (
        tokens + places + logits + 2 * layer
    )


def test_folding_twice_is_folding_once() -> None:
    model = plain(own)
    model.process_weights_()
    assert model.cfg.normalization_type == "LNPre"
    assert not any(name.endswith((".w", ".b")) for name, _ in model.named_parameters())
    once = {name: value.clone() for name, value in model.named_parameters()}
    model.process_weights_()
    for name, value in model.named_parameters():
        torch.testing.assert_close(value, once[name], rtol=1e-6, atol=1e-6)


def test_a_cache_without_a_tokenizer_needs_a_mask() -> None:
    model = plain(own)
    tokens = torch.tensor([[0, 1, 2]])
    cache = TransformerLensKeyValueCache.init_cache(model.cfg, "cpu", 1)
    with pytest.raises(ValueError, match="together with attention_mask"):
        model(tokens, past_kv_cache=cache)
    ones = torch.ones_like(tokens)
    torch.testing.assert_close(
        model(tokens, past_kv_cache=cache, attention_mask=ones), model(tokens)
    )


def test_the_package_hands_out_the_classes_of_the_installed_release() -> None:
    own_classes = [getattr(own, name) for name in own.__all__ if hasattr(hooked, name)]
    assert len(own_classes) >= 6
    handed_out = [getattr(hooked, kind.__name__) for kind in own_classes]
    assert (handed_out == own_classes) == (installed.MAJOR >= 4)
