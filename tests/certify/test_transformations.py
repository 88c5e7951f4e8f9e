"""Each transformation alone, against hand-written answers."""

from __future__ import annotations

import pytest
import torch

from tl_dyck.certify import (
    Delete,
    Duplicate,
    Insert,
    InsertMatchedPairs,
    PerturbationSpace,
    Substitute,
    SwapAdjacent,
    Transformation,
    substitution_table,
)
from tl_dyck.language import DyckLanguage

# (transformation, string, strings with at most one edit besides the string itself)
TABLE: list[tuple[str, Transformation, tuple[int, ...], set[tuple[int, ...]]]] = [
    ("dup", Duplicate(), (4, 7), {(4, 4, 7), (4, 7, 7)}),
    ("sub", Substitute({4: [5, 6], 9: [1]}), (4, 7), {(5, 7), (6, 7)}),
    ("sub by itself", Substitute({4: [4]}), (4, 7), set()),
    ("del", Delete([7]), (4, 7, 7), {(4, 7)}),
    ("del anything", Delete(None), (4, 7), {(4,), (7,)}),
    ("del nothing", Delete([]), (4, 7), set()),
    ("ins", Insert([(1, 2)]), (4,), {(1, 2, 4), (4, 1, 2)}),
    ("swap", SwapAdjacent(), (4, 7, 9), {(7, 4, 9), (4, 9, 7)}),
    ("swap of equals", SwapAdjacent(), (4, 4), set()),
    # depth 2 of at most 2 after the second bracket: nothing fits there
    (
        "pairs",
        InsertMatchedPairs(DyckLanguage(1, 2)),
        (0, 0),
        {(0, 1, 0, 0), (0, 0, 1, 1, 0, 0), (0, 0, 1, 0)},
    ),
    ("pairs not at the end", InsertMatchedPairs(DyckLanguage(1, 1)), (0, 1), {(0, 1, 0, 1)}),
    ("pairs of two types", InsertMatchedPairs(DyckLanguage(2, 1)), (0,), {(0, 1, 0), (2, 3, 0)}),
    (
        "pairs below the ground",
        InsertMatchedPairs(DyckLanguage(1, 2)),
        (1, 1),
        {(0, 1, 1, 1), (0, 0, 1, 1, 1, 1)},
    ),
]


@pytest.mark.parametrize(
    ("transformation", "string", "others"), [row[1:] for row in TABLE], ids=[r[0] for r in TABLE]
)
def test_what_one_edit_does(
    transformation: Transformation, string: tuple[int, ...], others: set[tuple[int, ...]]
) -> None:
    assert set(PerturbationSpace([(transformation, 1)]).enumerate(string)) == others | {string}


def test_inserted_pairs_stay_in_the_language() -> None:
    language = DyckLanguage(2, 3)
    space = PerturbationSpace([(InsertMatchedPairs(language), 2)])
    for prefix in language.enumerate(3, "prefix"):
        for string in space.enumerate(prefix):
            assert bool(language.is_prefix(torch.tensor(string)))


def test_blocks_are_nested_pairs_of_one_type_up_to_the_depth() -> None:
    rewrites = InsertMatchedPairs(DyckLanguage(2, 3)).rewrites((0, 2), 1)
    assert sorted(rewrites) == [(0, (0, 0, 1, 1)), (0, (0, 1)), (0, (2, 2, 3, 3)), (0, (2, 3))]


def test_a_thesaurus_becomes_a_table() -> None:
    words = {"good": ["fine", "unknown", "great", "good"], "bad": ["poor"], "odd": ["strange"]}
    alphabet = ["bad", "fine", "good", "great", "poor"]
    assert substitution_table(words, alphabet) == {2: (1, 3), 0: (4,)}
    assert substitution_table(words, alphabet, k=1) == {2: (1,), 0: (4,)}


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: Substitute({-1: [1]}), "negative"),
        (lambda: Delete([-3]), "negative"),
        (lambda: Insert([()]), "empty string"),
    ],
)
def test_nonsense_is_refused(make: object, message: str) -> None:
    assert callable(make)
    with pytest.raises(ValueError, match=message):
        make()
