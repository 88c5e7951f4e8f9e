"""What our class promises by itself: refusals, and what TransformerLens 3's lacks."""

from __future__ import annotations

import copy
import dataclasses
from functools import partial
from itertools import product
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from tokenizers import Regex, Tokenizer, models, pre_tokenizers
from transformer_lens import TransformerLensKeyValueCache
from transformer_lens.config import TransformerLensConfig
from transformers import AutoTokenizer, PreTrainedTokenizerFast

from tests.models.hooked.twins import plain
from tl_dyck.errors import DyckError
from tl_dyck.language import DyckLanguage, build_tokenizer
from tl_dyck.models import hooked
from tl_dyck.models.hooked import installed, own
from tl_dyck.models.hooked.own import UnsupportedOptionError
from tl_dyck.registry import UnknownNameError


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
    with pytest.raises(TypeError, match="use_local_attn"):
        plain(own, use_local_attn=True)


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


def test_refusals_are_ours() -> None:
    assert issubclass(UnsupportedOptionError, DyckError)


def test_biases_of_an_attention_only_model_by_hand() -> None:
    model = plain(own, attn_only=True)
    first, second = (block.attn.b_O for block in model.blocks)
    assert model.accumulated_bias(0).count_nonzero() == 0
    assert torch.equal(model.accumulated_bias(1), first)
    assert torch.equal(model.accumulated_bias(2), first + second)
    assert torch.equal(model.accumulated_bias(1, mlp_input=True), first + second)
    with pytest.raises(AssertionError, match="no MLP after layer 1"):
        model.accumulated_bias(2, mlp_input=True)


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
    assert len(own_classes) == len(hooked.__all__)
    handed_out = [getattr(hooked, kind.__name__) for kind in own_classes]
    assert (handed_out == own_classes) == (installed.MAJOR >= 4)


# --- text and weights, without TransformerLens 3 to compare with -------------------------------

LANGUAGE = DyckLanguage(2, 4)


def reader(**fields: Any) -> Any:
    """A model that reads brackets, ids ``[ ] ( ) <bos>`` 0 to 4."""
    return plain(own, build_tokenizer(LANGUAGE), **{"d_vocab": 5, **fields})


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


@pytest.mark.parametrize("side", ["left", "right"])
def test_the_padding_side_is_the_tokenizers(side: str) -> None:
    tokenizer = build_tokenizer(LANGUAGE)
    tokenizer.padding_side = side
    model = plain(own, d_vocab=5)
    model.set_tokenizer(tokenizer)
    short, long = model.to_tokens(["[]", "[()]"]).tolist()
    assert long == [4, 0, 2, 3, 1]
    assert short == ([4, 0, 1, 4, 4] if side == "right" else [4, 4, 4, 0, 1])


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


BRACKETS = st.text("[]()", max_size=8)


@given(text=BRACKETS, prepend=st.sampled_from([True, False, None]), by=st.booleans())
def test_bos_is_there_once_or_not_at_all(text: str, prepend: bool | None, by: bool) -> None:
    """Whoever puts it there, the tokenizer or we; None leaves it to the configuration."""
    model = reader(default_prepend_bos=by, n_ctx=12)
    ids = [LANGUAGE.alphabet.index(bracket) for bracket in text]
    wanted = ([4] if (by if prepend is None else prepend) else []) + ids
    told: dict[str, Any] = {} if prepend is None else {"prepend_bos": prepend}
    assert model.to_tokens(text, **told).tolist() == [wanted]
    if wanted:
        assert model.to_str_tokens(text, **told) == [
            [*LANGUAGE.alphabet, "<bos>"][t] for t in wanted
        ]
    assert (model.cfg.default_prepend_bos, model.cfg.tokenizer_prepends_bos) == (by, True)


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


def test_long_texts_are_cut_only_where_that_is_asked_for() -> None:
    model = reader(n_ctx=4)
    assert model.to_tokens("[()]").tolist() == [[4, 0, 2, 3]]
    assert model.to_tokens("[()]", truncate=False).tolist() == [[4, 0, 2, 3, 1]]


@given(rows=st.lists(st.lists(st.integers(0, 3), min_size=3, max_size=3), min_size=1, max_size=4))
def test_text_of_tokens_in_every_form(rows: list[list[int]]) -> None:
    model = reader()
    texts = ["".join(LANGUAGE.alphabet[token] for token in row) for row in rows]
    tokens = torch.tensor(rows)
    assert model.to_string(tokens) == model.to_string(rows) == texts
    for row, text in zip(rows, texts, strict=True):
        one = torch.tensor(row)
        assert model.to_string(one) == model.to_string(row) == text
        assert model.to_str_tokens(one) == model.to_str_tokens(one[None]) == list(text)
        assert model.to_str_tokens(one.numpy()) == list(text)
        assert model.to_str_tokens(text, prepend_bos=False) == list(text)
        assert [model.to_single_token(bracket) for bracket in text] == row
    assert model.to_str_tokens(list(tokens)) == [list(text) for text in texts]
    assert model.to_str_tokens(torch.tensor(2)) == ["("]


def test_text_of_tokens_in_no_form() -> None:
    model = reader()
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


@pytest.mark.parametrize("token", range(5))
def test_the_direction_of_a_token_is_its_column(token: int) -> None:
    model, text = reader(), (*LANGUAGE.alphabet, "<bos>")[token]
    column = model.unembed.W_U[:, token]
    for one in (text, token, torch.tensor(token), torch.tensor([token]), torch.tensor([[token]])):
        assert torch.equal(model.tokens_to_residual_directions(one), column)
    several = torch.tensor([[token, 0], [1, token]])
    found = model.tokens_to_residual_directions(several)
    assert found.shape == (2, 2, 12)
    for i, j in product(range(2), range(2)):
        assert torch.equal(found[i, j], model.unembed.W_U[:, several[i, j]])


def test_weights_of_all_layers_are_the_layers_weights() -> None:
    model = plain(own)
    for name in ("W_Q", "W_K", "W_V", "W_O", "b_Q", "b_K", "b_V", "b_O"):
        for layer in range(2):
            mine = getattr(model.blocks[layer].attn, name)
            assert torch.equal(getattr(model, name)[layer], mine)
    for name, layer in product(("W_in", "b_in", "W_out", "b_out"), range(2)):
        assert torch.equal(getattr(model, name)[layer], getattr(model.blocks[layer].mlp, name))
    assert torch.equal(model.W_E, model.embed.W_E)
    assert torch.equal(model.W_pos, model.pos_embed.W_pos)
    assert torch.equal(model.W_U, model.unembed.W_U)
    assert torch.equal(model.b_U, model.unembed.b_U)


def test_circuits_are_products_of_weights() -> None:
    """Entry by entry, from sums over the inner dimension."""
    model = plain(own)
    a, b = model.W_V, model.W_O
    torch.testing.assert_close(model.OV.AB, torch.einsum("lhme,lhen->lhmn", a, b))
    q, k = model.W_Q, model.W_K
    torch.testing.assert_close(model.QK.AB, torch.einsum("lhme,lhne->lhmn", q, k))


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


@pytest.mark.parametrize("mode", ["Q", "K", "V"])
def test_composition_by_its_formula(mode: str) -> None:
    """Of heads a before b: |W_OV(a) M| / (|W_OV(a)| |M|) in Frobenius norm, M what b reads with."""
    model = plain(own, n_layers=3)
    scores = model.all_composition_scores(mode)
    assert scores.shape == (3, 3, 3, 3)
    w = {name: getattr(model, f"W_{name}").double() for name in "QKVO"}
    for (i, a), (j, b) in product(product(range(3), range(3)), repeat=2):
        if i >= j:
            assert scores[i, a, j, b] == 0
            continue
        writes = w["V"][i, a] @ w["O"][i, a]
        reads = {
            "Q": w["Q"][j, b] @ w["K"][j, b].T,
            "K": w["K"][j, b] @ w["Q"][j, b].T,
            "V": w["V"][j, b] @ w["O"][j, b],
        }[mode]
        expected = ((writes @ reads).norm() / writes.norm() / reads.norm()).detach()
        assert float(scores[i, a, j, b].detach()) == pytest.approx(float(expected), rel=1e-6)
    with pytest.raises(UnknownNameError, match="mode"):
        model.all_composition_scores("q")


@pytest.mark.parametrize("norm", ["LN", "LNPre", None])
@pytest.mark.parametrize("name", ["fold_ln", "center_writing_weights", "center_unembed"])
def test_processing_keeps_what_is_predicted(norm: str | None, name: str) -> None:
    """Each step alone: log-probabilities stay, and weights are as the step's name says."""
    others = ("fold_ln", "center_writing_weights", "center_unembed", "fold_value_biases")
    model = plain(own, normalization_type=norm)
    with torch.no_grad():  # TransformerLens folds shifts wrongly if tokens differ in them
        for part, parameter in model.named_parameters():
            if norm == "LN" and ".ln" in f".{part}":
                parameter.fill_(1.0 if part.endswith(".w") else 0.0)
    tokens = torch.tensor([[0, 3, 1, 6, 2]])
    before = model(tokens).log_softmax(-1)
    model.load_and_process_state_dict(
        model.state_dict(), **{other: other == name for other in others}
    )
    if name != "center_writing_weights" or norm is not None:
        torch.testing.assert_close(model(tokens).log_softmax(-1), before, rtol=1e-5, atol=1e-6)
    folds = name == "fold_ln" and norm == "LN"
    assert model.cfg.normalization_type == ("LNPre" if folds else norm)
    kind = {"LN": own.LayerNorm, "LNPre": own.LayerNormPre}.get(model.cfg.normalization_type or "")
    if kind is not None:
        norms = [model.ln_final, *(getattr(b, ln) for b in model.blocks for ln in ("ln1", "ln2"))]
        assert all(type(each) is kind for each in norms)
    if name == "center_unembed":
        assert model.W_U.mean(-1).abs().max() < 1e-6
    if name == "center_writing_weights" and norm is not None:
        assert max(w.detach().mean(-1).abs().max().item() for w in (model.W_E, model.W_O)) < 1e-6


def test_folded_values_and_even_matrices() -> None:
    model = plain(own)
    expected = model.b_O + torch.einsum("lhe,lhem->lm", model.b_V, model.W_O)
    tokens = torch.tensor([[0, 3, 1]])
    before, circuits = model(tokens), model.OV.AB
    off = {"fold_ln": False, "center_writing_weights": False, "center_unembed": False}
    model.load_and_process_state_dict(model.state_dict(), **off)
    torch.testing.assert_close(model.b_O, expected)
    assert not model.b_V.any()
    model.process_weights_(**off, refactor_factored_attn_matrices=True)
    close = partial(torch.testing.assert_close, rtol=1e-4, atol=1e-5)  # it computes in float32
    close(model(tokens), before)
    close(model.OV.AB, circuits)
    gram = model.W_O @ model.W_O.transpose(-1, -2)  # rows of W_O are singular vectors, so apart
    close(gram, torch.diag_embed(gram.diagonal(dim1=-2, dim2=-1)))


def test_the_state_dict_that_is_given_is_left_alone() -> None:
    model = plain(own)
    state = model.state_dict()
    before = {name: value.clone() for name, value in state.items()}
    plain(own).load_and_process_state_dict(state)
    assert all(torch.equal(torch.nan_to_num(state[n]), torch.nan_to_num(before[n])) for n in state)
