"""What our class promises by itself: refusals, and what TransformerLens 3's lacks."""

from __future__ import annotations

import copy
import dataclasses
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from tokenizers import Regex, Tokenizer, models, pre_tokenizers
from transformer_lens.config import TransformerLensConfig
from transformers import AutoTokenizer, PreTrainedTokenizerFast

from tests.models.hooked.twins import plain
from tl_dyck.kit.registry import UnknownNameError
from tl_dyck.language import DyckLanguage, build_tokenizer
from tl_dyck.models import hooked
from tl_dyck.models.hooked import installed, own
from tl_dyck.models.hooked.own import UnsupportedOptionError


@pytest.mark.parametrize(
    "option",
    [
        {"positional_embedding_type": "rotary"},
        {"n_key_value_heads": 1},
        {"gated_mlp": True},
        {"num_experts": 2},
        {"experts_per_token": 1},
        {"final_rms": True},
        {"uses_rms_norm": True},
        {"layer_norm_folding": True},
    ],
    ids=lambda option: next(iter(option)),
)
def test_what_transformer_lens_4_can_say_and_ours_cannot_compute_is_refused(
    option: dict[str, Any],
) -> None:
    (name,) = option
    with pytest.raises(UnsupportedOptionError, match=f"^{name}=.*a plain decoder") as refusal:
        plain(own, **option)
    assert "\n" not in str(refusal.value)


def test_every_option_of_transformer_lens_4_is_read_or_refused() -> None:
    """An option that a later release adds cannot pass in silence."""
    sizes = {"d_model": 12, "d_head": 4, "n_layers": 2, "n_ctx": 9, "d_vocab": 7}
    read = {*sizes, "n_heads", "d_mlp", "act_fn", "eps", "attn_only", "dtype", "device"}
    read |= {"default_prepend_bos", "use_attn_result", "use_split_qkv_input"}
    for field in dataclasses.fields(TransformerLensConfig):
        if field.name not in read:
            with pytest.raises(UnsupportedOptionError, match=field.name):
                own.HookedTransformerConfig(**{**sizes, "act_fn": "relu", field.name: "odd"})


def test_options_of_neither_are_no_keywords() -> None:
    with pytest.raises(TypeError, match="use_locale_attn"):
        plain(own, use_locale_attn=True)


def test_unknown_choices_are_refused() -> None:
    for option in ({"act_fn": "rel"}, {"attention_dir": "up"}):
        with pytest.raises(UnknownNameError, match=next(iter(option))):
            plain(own, **option)
    with pytest.raises(UnsupportedOptionError, match=r"normalization_type='RMS'.*plain decoder"):
        plain(own, normalization_type="RMS")
    with pytest.raises(UnsupportedOptionError, match="ln1_post"):
        plain(own, use_normalization_before_and_after=True)
    with pytest.raises(UnknownNameError, match="unknown return_type 'logit'"):
        plain(own)(torch.tensor([[0]]), return_type="logit")
    with pytest.raises(UnknownNameError, match="mode"):
        plain(own).all_composition_scores("q")


def test_folding_twice_is_folding_once() -> None:
    model = plain(own)
    model.process_weights_()
    assert model.cfg.normalization_type == "LNPre"
    assert not any(name.endswith((".w", ".b")) for name, _ in model.named_parameters())
    once = {name: value.clone() for name, value in model.named_parameters()}
    model.process_weights_()
    for name, value in model.named_parameters():
        torch.testing.assert_close(value, once[name], rtol=1e-6, atol=1e-6)


def test_the_package_hands_out_the_classes_of_the_installed_release() -> None:
    own_classes = [getattr(own, name) for name in own.__all__ if hasattr(hooked, name)]
    assert len(own_classes) == len(hooked.__all__)
    handed_out = [getattr(hooked, kind.__name__) for kind in own_classes]
    assert (handed_out == own_classes) == (installed.MAJOR >= 4)


# --- text and weights beyond what test_oracle compares ------------------------------------------


def bare_tokenizer(**special: str) -> PreTrainedTokenizerFast:
    """Letters a to d; has the special tokens that it is told to."""
    vocab = {letter: token for token, letter in enumerate("abcd")}
    vocab |= {text: len(vocab) + i for i, text in enumerate(sorted(set(special.values())))}
    backend = Tokenizer(models.WordLevel(vocab))
    backend.pre_tokenizer = pre_tokenizers.Split(Regex("."), "isolated")
    # or TransformerLens asks the network for one that has BOS put in front
    known: dict[str, Any] = {"add_bos_token": True, "name_or_path": "letters"}
    return PreTrainedTokenizerFast(tokenizer_object=backend, **special, **known)


def test_what_is_no_tokenizer_is_refused() -> None:
    for none in ("gpt2", object(), print, None):
        with pytest.raises(TypeError, match=f"PreTrainedTokenizerBase, not {type(none).__name__}"):
            plain(own).set_tokenizer(none)


def test_special_tokens_that_a_tokenizer_lacks_are_the_end_token() -> None:
    model = plain(own, d_vocab=9)
    model.set_tokenizer(bare_tokenizer(eos_token="<end>"))
    assert (model.tokenizer.pad_token, model.tokenizer.bos_token) == ("<end>", "<end>")
    named = {"eos_token": "<end>", "pad_token": "<pad>", "bos_token": "<start>"}
    model.set_tokenizer(bare_tokenizer(**named))
    for name, text in named.items():
        assert getattr(model.tokenizer, name) == text
    model.set_tokenizer(bare_tokenizer())
    assert model.tokenizer.eos_token == "<|endoftext|>"
    assert model.tokenizer.pad_token == model.tokenizer.bos_token == "<|endoftext|>"


def test_sizes_that_are_left_to_the_tokenizer() -> None:
    """One more than its largest id, for tokens and logits, unless the configuration says."""
    tokenizer = bare_tokenizer(eos_token="<end>")
    left = plain(own, tokenizer, d_vocab=-1)
    assert (left.cfg.d_vocab, left.cfg.d_vocab_out) == (5, 5)
    assert (left.W_E.shape[0], left.W_U.shape[1]) == (5, 5)
    told = plain(own, tokenizer, d_vocab=-1, d_vocab_out=2)
    assert (told.cfg.d_vocab, told.cfg.d_vocab_out, told.W_U.shape[1]) == (5, 2, 2)
    assert plain(own, tokenizer, d_vocab=7).cfg.d_vocab == 7


@given(text=st.text("abcd", min_size=1, max_size=8), by=st.booleans())
def test_bos_of_a_tokenizer_that_puts_none(text: str, by: bool) -> None:
    special = {"eos_token": "<end>", "bos_token": "<start>"}
    model = plain(own, bare_tokenizer(**special), d_vocab=9, default_prepend_bos=by)
    assert model.cfg.tokenizer_prepends_bos == (len(model.tokenizer.encode("")) > 0)
    bos = [model.tokenizer.bos_token_id] if by else []
    assert model.to_tokens(text).tolist() == [bos + ["abcd".index(letter) for letter in text]]


def test_a_tokenizer_without_bos_is_had_again_with_it(tmp_path: Path) -> None:
    """From where it came, as TransformerLens does, so that all strings begin alike."""
    special = {"eos_token": "<end>", "bos_token": "<start>"}
    bare_tokenizer(**special).save_pretrained(tmp_path)
    tokenizer = AutoTokenizer.from_pretrained(tmp_path, add_bos_token=False)
    model = plain(own, tokenizer, d_vocab=9)
    assert model.tokenizer.init_kwargs["add_bos_token"] is True
    assert tokenizer.init_kwargs["add_bos_token"] is False
    assert model.to_tokens("ab").tolist() == [[model.tokenizer.bos_token_id, 0, 1]]


def test_text_of_tokens_in_no_form() -> None:
    model = plain(own, build_tokenizer(DyckLanguage(2, 4)), d_vocab=5)
    with pytest.raises(ValueError, match=r"not \[1, 1, 1\]"):
        model.to_string(torch.zeros(1, 1, 1, dtype=torch.long))
    for many in (torch.zeros(2, 3, dtype=torch.long), torch.zeros(1, 1, 3, dtype=torch.long)):
        with pytest.raises(AssertionError, match="has shape"):
            model.to_str_tokens(many)
    with pytest.raises(ValueError, match="a string, tokens or a list of them"):
        model.to_str_tokens(5)
    with pytest.raises(AssertionError, match="is not a single token"):
        model.to_single_token("[]")
    for ask in (plain(own).to_tokens, plain(own).to_str_tokens, plain(own).to_string):
        with pytest.raises(AssertionError, match="without a tokenizer"):
            ask("[]")


@pytest.mark.parametrize("options", [{}, {"attn_only": True}], ids=str)
@pytest.mark.parametrize("include", [True, False])
def test_biases_are_what_is_added_if_nothing_else_is(
    options: dict[str, Any], include: bool
) -> None:
    """Run the model with all else made zero: the residual stream is then the biases alone."""
    model = plain(own, normalization_type=None, act_fn="relu", **options)
    silent = copy.deepcopy(model)
    with torch.no_grad():
        for name, parameter in silent.named_parameters():
            if not name.endswith("attn.b_O") and not (include and name.endswith("mlp.b_out")):
                parameter.zero_()
    _, cache = silent.run_with_cache(torch.tensor([[0, 1]]))
    asked = {"include_mlp_biases": include}
    for layer in range(2):
        torch.testing.assert_close(
            model.accumulated_bias(layer, **asked), cache["resid_pre", layer][0, 0]
        )
        middle = "resid_post" if options else "resid_mid"
        torch.testing.assert_close(
            model.accumulated_bias(layer, mlp_input=True, **asked), cache[middle, layer][0, 0]
        )
    torch.testing.assert_close(model.accumulated_bias(2, **asked), cache["resid_post", 1][0, 0])
    if include:
        assert torch.equal(model.accumulated_bias(2), model.accumulated_bias(2, **asked))
    with pytest.raises(AssertionError, match="no MLP after layer 1"):
        model.accumulated_bias(2, mlp_input=True)


def test_the_state_dict_that_is_given_is_left_alone() -> None:
    model = plain(own)
    state = model.state_dict()
    before = {name: value.clone() for name, value in state.items()}
    plain(own).load_and_process_state_dict(state)
    assert all(torch.equal(torch.nan_to_num(state[n]), torch.nan_to_num(before[n])) for n in state)
