"""Spaces as texts."""

from __future__ import annotations

import pytest

from tests.certify.oracles import random_rnn
from tests.test_registry import Shelf, shelf  # noqa: F401  (a fixture)
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
    certify,
    parse_space,
    transformations,
)
from tl_dyck.language import DyckLanguage
from tl_dyck.registry import UnknownNameError

NAMES = ("exact", "exhaustive")


def test_every_name() -> None:
    language = DyckLanguage(2, 4)
    space = parse_space(
        "dup:2, del:1,sub:3,ins:1,swap:0,pairs:2",
        substitutes={1: [2]},
        deletable=[5],
        insertions=[(1, 2)],
        language=language,
        pairs_per_block=1,
    )
    assert space == PerturbationSpace(
        [
            (Duplicate(), 2),
            (Delete([5]), 1),
            (Substitute({1: [2]}), 3),
            (Insert([(1, 2)]), 1),
            (SwapAdjacent(), 0),
            (InsertMatchedPairs(language, 1), 2),
        ]
    )
    assert str(space) == "dup:2,del:1,sub:3,ins:1,swap:0,pairs:2"


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


REVERSE = '''
from dataclasses import dataclass

from tl_dyck.certify import Transformation


@dataclass(frozen=True)
class Reverse(Transformation):
    name = "rev"

    def rewrites(self, tokens, position):
        if position + 3 <= len(tokens):
            yield 3, tokens[position : position + 3][::-1]


def reverse(resources):
    """Reverse three words."""
    return Reverse()
'''


def test_a_new_space_takes_one_folder(shelf: Shelf) -> None:  # noqa: F811
    """Installed by entry point, it is parsed, listed and certified against.

    Nothing of the library is touched.
    """
    shelf.install(
        "toy-reverse", REVERSE, {"rev": "toy_reverse:reverse"}, group="tl_dyck.transformations"
    )
    try:
        assert "rev" in transformations.names()
        assert "toy_reverse" not in shelf.loaded()
        space = parse_space("rev:1, dup:1")
        assert transformations.summary("rev") == "Reverse three words."
        assert set(parse_space("rev:1").enumerate((0, 1, 2, 3))) == {
            (0, 1, 2, 3),
            (2, 1, 0, 3),
            (0, 3, 2, 1),
        }
        exact, listed = (
            certify(random_rnn(0), (0, 1, 2, 3), 0, space, name, tight=True) for name in NAMES
        )
        assert exact.status == listed.status
        assert exact.upper == pytest.approx(listed.upper)
    finally:
        transformations.unregister("rev")


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
