"""Symbols of which one begins another, such as numbers: texts have spaces between them."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from tl_dyck.language import DyckLanguage, DyckStringError, SymbolLanguage
from tl_dyck.language.tokenizer import build_tokenizer
from tl_dyck.language.vocabulary import Vocabulary

TEXTS = st.lists(
    st.text("01<b+é", min_size=1, max_size=3), min_size=1, max_size=6, unique=True
).filter(lambda texts: "<bos>" not in texts)


@given(TEXTS, st.data())
def test_texts_and_tokens_go_round(symbols: list[str], data: st.DataObject) -> None:
    try:
        language = SymbolLanguage("words", symbols)
    except ValueError as error:
        assert "can spell '<bos>'" in str(error)  # noqa: PT017
        return
    begins = any(a != b and b.startswith(a) for a in symbols for b in symbols)
    assert language.separator == (" " if begins else "")
    tokens = data.draw(st.lists(st.integers(0, len(symbols) - 1), max_size=5))
    text = language.to_string(torch.tensor(tokens, dtype=torch.int64))
    assert text == language.separator.join(symbols[token] for token in tokens)
    assert language.tokenize(text).tolist() == tokens
    tokenizer = build_tokenizer(language)
    assert tokenizer(text)["input_ids"] == [language.bos_token, *tokens]
    assert tokenizer.decode(tokens) == text


def test_a_word_that_is_none_is_named() -> None:
    language = SymbolLanguage("numbers", [*map(str, range(113)), "="])
    with pytest.raises(DyckStringError, match="'500', word 2 of '1 500 ='"):
        language.parse("1 500 =")
    with pytest.raises(DyckStringError, match="unknown symbol '11='"):
        language.parse("11=")


def test_words_with_spaces_begin_no_other() -> None:
    with pytest.raises(ValueError, match="ambiguous symbols: one begins another"):
        SymbolLanguage("odd", ["a", "a b"])
    assert SymbolLanguage("even", ["a b", "c"]).separator == ""


def test_brackets_begin_no_other() -> None:
    with pytest.raises(ValueError, match="ambiguous brackets"):
        DyckLanguage(1, 1, brackets=("(", "(("))
    # BOS is written as a word of its own, though "<" begins it
    assert DyckLanguage(1, 1, brackets=("<", ">")).separator == ""
    assert Vocabulary(DyckLanguage(1, 1, brackets=("<", ">")), {"<": 0, ">": 1}, bos=2)
