"""Strings of bounded Dyck languages, against a stack machine that reads one token at a time."""

from __future__ import annotations

import itertools
import math
import pickle

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

import tl_dyck.language
from tl_dyck.language import DyckLanguage, DyckStringError


def stack_machine(language, tokens):
    """Depths, partners (by depth alone), tops of stack, and how far a string is a prefix."""
    stack, depth, well = [], 0, True
    depths, partners, tops, valid = [], [-1] * len(tokens), [], []
    for position, token in enumerate(tokens):
        if token == 2 * language.n_types:
            pass
        elif token % 2 == 0:
            stack.append(position)
            depth += 1
            well = well and len(stack) <= language.max_depth
        else:
            depth -= 1
            if stack:
                opened = stack.pop()
                partners[position], partners[opened] = opened, position
                well = well and tokens[opened] + 1 == token
            else:
                well = False
        depths.append(depth)
        tops.append(stack[-1] if stack else -1)
        valid.append(well)
    return depths, partners, tops, valid, well and not stack


# Built beforehand: the shape checks draw from `random`, which Hypothesis forbids inside a strategy.
languages = st.sampled_from([DyckLanguage(k, depth) for k in range(1, 5) for depth in range(1, 7)])


@st.composite
def language_and_batch(draw):
    """A language and a batch of strings: noise, or well nested (maybe too deep) with some BOS."""
    language = draw(languages)
    length, rows = draw(st.integers(0, 24)), draw(st.integers(0, 3))
    batch = []
    for _ in range(rows):
        row, stack = [], []
        style = draw(st.sampled_from(["proper", "deep", "noise"]))
        for _ in range(length):
            choices = [2 * language.n_types]
            if len(stack) < language.max_depth or style != "proper":
                choices += [2 * t for t in range(language.n_types)]
            if stack:
                choices += [stack[-1] + 1] * language.n_types
            if style == "noise":
                choices += [2 * t + 1 for t in range(language.n_types)]
            token = draw(st.sampled_from(choices))
            if token % 2 == 0 and token < 2 * language.n_types:
                stack.append(token)
            elif token % 2 and stack:
                stack.pop()
            row.append(token)
        batch.append(row)
    return language, torch.tensor(batch, dtype=torch.int64).reshape(rows, length)


@given(language_and_batch())
def test_structure_agrees_with_stack_machine(case):
    language, tokens = case
    depth, partner, top = (
        language.depth(tokens),
        language.matching(tokens),
        language.top_of_stack(tokens),
    )
    valid, prefix, complete = (
        language.valid_up_to(tokens),
        language.is_prefix(tokens),
        language.is_complete(tokens),
    )
    assert depth.shape == partner.shape == top.shape == valid.shape == tokens.shape
    for row, string in enumerate(tokens.tolist()):
        depths, partners, tops, well, whole = stack_machine(language, string)
        assert depth[row].tolist() == depths
        assert partner[row].tolist() == partners
        assert top[row].tolist() == tops
        assert valid[row].tolist() == well
        assert bool(prefix[row]) == (all(well))
        assert bool(complete[row]) == whole
        # A single string, and any integer type, give the same.
        assert language.matching(tokens[row].int()).tolist() == partners


def test_batch_dimensions_are_kept():
    language = DyckLanguage(2, 3)
    tokens = torch.randint(5, (2, 3, 11), generator=torch.Generator().manual_seed(0))
    flat = tokens.reshape(6, 11)
    for name in (
        "depth",
        "matching",
        "top_of_stack",
        "is_prefix",
        "is_complete",
        "bracket_type",
        "is_open",
    ):
        whole, rows = getattr(language, name)(tokens), getattr(language, name)(flat)
        assert torch.equal(whole.reshape(rows.shape), rows), name
        assert whole.shape[:2] == (2, 3)


def test_token_properties():
    language = DyckLanguage(3, 2)
    tokens = torch.arange(7)
    assert (language.n_brackets, language.bos_token, language.d_vocab) == (6, 6, 7)
    assert language.is_open(tokens).tolist() == [True, False, True, False, True, False, False]
    assert language.is_close(tokens).tolist() == [False, True, False, True, False, True, False]
    assert language.bracket_type(tokens).tolist() == [0, 0, 1, 1, 2, 2, -1]


# --- counting and enumeration ---------------------------------------------------------------------


@pytest.mark.parametrize("n_types", [1, 2])
@pytest.mark.parametrize("max_depth", [1, 2, 3, 7])
@pytest.mark.parametrize("mode", ["complete", "prefix"])
def test_count_and_enumerate_against_all_strings(n_types, max_depth, mode):
    language = DyckLanguage(n_types, max_depth)
    for length in range(7):
        expected = []
        for string in itertools.product(range(2 * n_types), repeat=length):
            *_, well, whole = stack_machine(language, string)
            if whole if mode == "complete" else all(well):
                expected.append(list(string))
        assert language.count(length, mode) == len(expected)
        listed = language.enumerate(length, mode)
        assert listed.shape == (len(expected), length)
        assert listed.dtype == torch.int64
        assert listed.tolist() == expected  # itertools.product is in lexicographic order


def test_count_against_closed_forms():
    pairs = 15
    catalan = math.comb(2 * pairs, pairs) // (pairs + 1)
    assert DyckLanguage(3, 15).count(30) == 3**pairs * catalan
    assert DyckLanguage(3, 14).count(30) == 3**pairs * (
        catalan - 1
    )  # all but the one path to depth 15
    assert DyckLanguage(5, 1).count(10_000) == 5**5000
    assert DyckLanguage(1, 2).count(10_000) == 2**4999
    assert DyckLanguage(2, 4).count(7) == 0
    assert DyckLanguage(1, 30).count(30, "prefix") == math.comb(30, 15)


# --- text -----------------------------------------------------------------------------------------


@given(language_and_batch())
def test_text_round_trip(case):
    language, tokens = case
    for string in tokens:
        kept = string[string != language.bos_token]
        text = language.to_string(string)
        assert language.tokenize(text).tolist() == kept.tolist()
        *_, valid, whole = stack_machine(language, kept.tolist())
        for prefix, well in ((True, all(valid)), (False, whole)):
            if well:
                assert language.parse(text, prefix=prefix).tolist() == kept.tolist()
            else:
                with pytest.raises(DyckStringError):
                    language.parse(text, prefix=prefix)


def test_empty_text_is_the_empty_string():
    language = DyckLanguage(2, 2)
    assert language.parse("", prefix=False).shape == (0,)
    assert language.to_string(torch.empty(0, dtype=torch.int64)) == ""
    assert bool(language.is_complete(torch.empty(0, dtype=torch.int64)))
    assert language.count(0) == language.count(0, "prefix") == 1


# --- construction ---------------------------------------------------------------------------------


def test_custom_brackets_may_be_words():
    language = DyckLanguage(2, 3, ("<script>", "</script>", "begin", "end"))
    tokens = language.parse("<script>beginend</script>")
    assert tokens.tolist() == [0, 2, 3, 1]
    assert language.to_string(tokens) == "<script>beginend</script>"


def test_default_brackets():
    assert DyckLanguage(4, 2).alphabet == tuple("[](){}<>")
    for n_types in (1, 17, 18, 40):
        language = DyckLanguage(n_types, 2)
        assert len(set(language.alphabet)) == 2 * n_types
        tokens = torch.arange(2 * n_types)
        assert language.tokenize(language.to_string(tokens)).tolist() == tokens.tolist()


def test_equal_languages_are_equal_and_hashable():
    assert (
        DyckLanguage(2, 4)
        == DyckLanguage(2, 4, ("[", "]", "(", ")"))
        == DyckLanguage(2, 4, list("[]()"))
    )
    assert len({DyckLanguage(2, 4), DyckLanguage(2, 4), DyckLanguage(2, 5)}) == 2
    language = DyckLanguage(2, 4)
    language.parse("[]")
    assert pickle.loads(pickle.dumps(language)) == language


def test_brackets_that_share_letters_with_bos_are_fine():
    assert DyckLanguage(2, 4, ("<body>", "</body>", "<s>", "</s>")).n_brackets == 4


def test_an_unknown_name():
    assert callable(tl_dyck.language.build_tokenizer)  # loaded when it is asked for
    with pytest.raises(AttributeError, match="has no attribute 'nothing'"):
        _ = tl_dyck.language.nothing
