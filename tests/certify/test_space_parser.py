"""Spaces as texts."""

from __future__ import annotations

import pytest

from tests.certify.oracles import MAKERS
from tl_dyck import register_transformation
from tl_dyck.certify import (
    Delete,
    Duplicate,
    Insert,
    InsertMatchedPairs,
    PerturbationSpace,
    Resources,
    SpaceError,
    Substitute,
    SwapAdjacent,
    Transformation,
    parse_space,
    transformations,
)
from tl_dyck.kit.registry import UnknownNameError
from tl_dyck.language import DyckLanguage


def test_every_name() -> None:
    language = DyckLanguage(2, 4)
    space = parse_space(
        "dup:2, del:1,sub:3,ins:1,swap:0,pairs:2",
        substitutes={1: [2]},
        deletable=[5],
        insertions=[(1, 2)],
        language=language,
    )
    assert space == PerturbationSpace(
        [
            (Duplicate(), 2),
            (Delete([5]), 1),
            (Substitute({1: [2]}), 3),
            (Insert([(1, 2)]), 1),
            (SwapAdjacent(), 0),
            (InsertMatchedPairs(language), 2),
        ]
    )
    assert str(space) == "dup:2,del:1,sub:3,ins:1,swap:0,pairs:2"
    assert set(transformations.names()) == MAKERS.keys(), "add it in tests/certify/oracles.py"


def test_an_unknown_name_is_answered_with_the_nearest() -> None:
    with pytest.raises(UnknownNameError, match=r"'dupl'.*Did you mean 'dup'"):
        parse_space("dupl:2")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("dup", "needs a budget"),
        ("dup:", "needs a budget"),
        ("dup:-1", "needs a budget"),
        ("dup:two", "needs a budget"),
        ("dup:1.5", "needs a budget"),
        ("dup:²", "needs a budget"),
        ("", "empty part"),
        ("dup:1,,swap:1", "empty part"),
        ("dup:1,dup:2", "listed twice"),
        ("sub:1", "needs substitutes"),
        ("del:1", "needs deletable"),
        ("ins:1", "needs insertions"),
        ("pairs:1", "needs language"),
    ],
)
def test_bad_texts_say_what_is_wrong(text: str, message: str) -> None:
    with pytest.raises(SpaceError, match=message):
        parse_space(text)


def test_a_name_of_ones_own() -> None:
    @register_transformation("drop-all", "Drop any word.")
    def make(resources: Resources) -> Transformation:
        assert resources.others == {"verbose": True}
        return Delete(None)

    try:
        assert parse_space("drop-all:1", others={"verbose": True}) == PerturbationSpace(
            [(Delete(None), 1)]
        )
    finally:
        transformations.unregister("drop-all")
