"""The tokenizer, by itself and inside TransformerLens."""

from __future__ import annotations

import copy
import pickle

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from transformers import PreTrainedTokenizerFast

from tl_dyck.language import DyckLanguage, DyckStringError, build_tokenizer
from tl_dyck.models.hooked import HookedTransformer, HookedTransformerConfig

LANGUAGES = {
    "default": DyckLanguage(2, 4),
    "words": DyckLanguage(2, 4, ("<script>", "</script>", "begin", "end")),
    "awkward": DyckLanguage(2, 4, ("a b", " ", "$^", "\\d|")),
    "many": DyckLanguage(30, 4),
}


@pytest.fixture(params=list(LANGUAGES))
def language(request):
    return LANGUAGES[request.param]


@pytest.fixture
def model(language):
    config = HookedTransformerConfig(
        n_layers=1,
        d_model=8,
        n_ctx=12,
        d_head=8,
        act_fn="relu",
        d_vocab=-1,
        seed=None,
        init_weights=False,
        device="cpu",
    )
    return HookedTransformer(config, tokenizer=build_tokenizer(language))


def texts(language):
    """Two texts of different length, and the brackets of the second."""
    o, c, p, q = language.alphabet[:4]
    return o + c, o + p + q + c, [o, p, q, c]


def test_ids_are_the_tokens_of_the_language(language):
    tokenizer = build_tokenizer(language)
    assert isinstance(tokenizer, PreTrainedTokenizerFast)
    names = tokenizer.convert_ids_to_tokens(range(language.d_vocab))
    assert tuple(names) == (*language.alphabet, "<bos>")
    assert len(tokenizer) == language.d_vocab
    bos = language.bos_token
    assert (tokenizer.bos_token_id, tokenizer.eos_token_id, tokenizer.pad_token_id) == (
        bos,
        bos,
        bos,
    )
    assert tokenizer.padding_side == "right"


def test_tokenizer_by_itself(language):
    short, long, brackets = texts(language)
    tokenizer, bos = build_tokenizer(language), language.bos_token
    assert tokenizer(long)["input_ids"] == [bos, 0, 2, 3, 1]
    assert tokenizer.encode(short) == [bos, 0, 1]
    assert tokenizer.encode(long, add_special_tokens=False) == [0, 2, 3, 1]
    assert tokenizer.tokenize(long) == brackets
    batch = tokenizer([short, long], padding=True)
    assert batch["input_ids"] == [[bos, 0, 1, bos, bos], [bos, 0, 2, 3, 1]]
    assert batch["attention_mask"] == [[1, 1, 1, 0, 0], [1, 1, 1, 1, 1]]
    assert tokenizer.decode([0, 2, 3, 1]) == long
    assert tokenizer.decode([bos, 0, 1, bos], skip_special_tokens=True) == short


def test_in_transformer_lens(language, model):
    short, long, brackets = texts(language)
    bos = language.bos_token
    assert model.cfg.d_vocab == model.cfg.d_vocab_out == language.d_vocab
    assert model.to_tokens(long).tolist() == [[bos, 0, 2, 3, 1]]
    assert model.to_tokens(long, prepend_bos=False).tolist() == [[0, 2, 3, 1]]
    assert model.to_tokens([short, long]).tolist() == [[bos, 0, 1, bos, bos], [bos, 0, 2, 3, 1]]
    assert model.to_tokens([short, long], padding_side="left").tolist() == [
        [bos, bos, bos, 0, 1],
        [bos, 0, 2, 3, 1],
    ]
    assert model.to_tokens("").tolist() == [[bos]]
    assert model.to_tokens(short * 20).shape == (1, 12)  # cut at n_ctx, as TransformerLens does
    assert model.to_str_tokens(long) == ["<bos>", *brackets]
    assert model.to_str_tokens(torch.tensor([0, 2, 3, 1])) == brackets
    assert model.to_string(torch.tensor([0, 2, 3, 1])) == long
    assert model.to_string(model.to_tokens(long)) == ["<bos>" + long]
    assert model.to_single_token(brackets[1]) == 2


@pytest.mark.parametrize(
    "twin", [copy.copy, copy.deepcopy, lambda t: pickle.loads(pickle.dumps(t))]
)
def test_copies_work(language, twin):
    tokenizer = twin(build_tokenizer(language))
    _, long, _ = texts(language)
    assert tokenizer.encode(long) == [language.bos_token, 0, 2, 3, 1]
    with pytest.raises(DyckStringError, match="unknown bracket 'é'"):
        tokenizer.encode(long + "é")


def test_saved_tokenizer_is_read_by_the_plain_class(language, tmp_path):
    tokenizer = build_tokenizer(language)
    tokenizer.save_pretrained(tmp_path)
    again = PreTrainedTokenizerFast.from_pretrained(tmp_path)
    short, long, _ = texts(language)
    for text in (short, long):
        assert again.encode(text) == tokenizer.encode(text)


@pytest.mark.parametrize(
    "call", ["to_tokens", "to_str_tokens", "__call__", "encode", "tokenize", "batch", "forward"]
)
def test_unknown_brackets_are_named_wherever_text_comes_in(language, model, call):
    _, long, _ = texts(language)
    functions = {
        "to_tokens": model.to_tokens,
        "to_str_tokens": model.to_str_tokens,
        "__call__": model.tokenizer,
        "encode": model.tokenizer.encode,
        "tokenize": model.tokenizer.tokenize,
        "batch": lambda text: model.to_tokens([long, text]),
        "forward": model,
    }
    with pytest.raises(
        DyckStringError,
        match=rf"unknown bracket 'é' at character {len(long)} of '.*'; the brackets are",
    ):
        functions[call](long + "é" + long)


def test_start_token_may_be_written_out():
    """What `model.to_string` gives can be read again."""
    tokenizer = build_tokenizer(DyckLanguage(2, 4))
    assert tokenizer.encode("<bos>[()]<bos>", add_special_tokens=False) == [4, 0, 2, 3, 1, 4]


@given(
    st.lists(st.text(min_size=1, max_size=4), min_size=4, max_size=4, unique=True),
    st.lists(st.integers(0, 3)),
)
@settings(max_examples=12, suppress_health_check=[HealthCheck.filter_too_much])
def test_any_brackets_that_the_language_takes(brackets, tokens):
    try:
        language = DyckLanguage(2, 4, tuple(brackets))
    except ValueError:
        return
    tokenizer = build_tokenizer(language)
    text = language.to_string(torch.tensor(tokens, dtype=torch.int64))
    assert tokenizer.encode(text) == [4, *tokens] == [4, *language.tokenize(text).tolist()]
    assert tokenizer.decode(tokens) == text
