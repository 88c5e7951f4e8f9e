"""Perturbation spaces as short texts, for the command line: ``dup:2,del:2,sub:2``.

A name in a text stands for a registered function that makes a transformation from `Resources`.
Others are plugged in like the built-in ones below, by decorator, or by entry point::

    @transformations.register("rev", "Reverse three words.")
    def reverse(resources):
        return Reverse()

    [project.entry-points."tl_dyck.transformations"]
    rev = "my_package:reverse"
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any, final

from tl_dyck.certify.spaces import PerturbationSpace
from tl_dyck.certify.transformations import (
    Delete,
    Duplicate,
    Insert,
    InsertMatchedPairs,
    SpaceError,
    Substitute,
    SwapAdjacent,
    Transformation,
)
from tl_dyck.kit.arguments import checked
from tl_dyck.kit.files import CorruptFileError, read_json
from tl_dyck.kit.registry import Registry, unknown_name
from tl_dyck.language import Language
from tl_dyck.language.symbols import needs_stack


@final
@checked
@dataclass(frozen=True, kw_only=True)
class Resources:
    """Data that transformations need and a text cannot spell out.

    Attributes:
        substitutes: token -> substitutes, for "sub".
        deletable: tokens that "del" may drop; None with "del" is an error, an empty collection
            means none.
        insertions: strings of tokens, for "ins".
        language: for "pairs" and others that read brackets.
        protected: tokens that "dup" never repeats.
        others: anything that third-party transformations ask for by name.
    """

    substitutes: Mapping[int, Sequence[int]] | None = None
    deletable: Sequence[int] | None = None
    insertions: Sequence[Sequence[int]] | None = None
    language: Language | None = None
    protected: Sequence[int] = ()
    others: Mapping[str, Any] | None = None

    @checked
    def need(self, field: str, name: str) -> Any:
        """The value of a field.

        Raises:
            SpaceError: it is missing, and transformation `name` needs it.
        """
        if field not in (known := [each.name for each in fields(self)]):
            raise unknown_name("field", field, known)
        value = getattr(self, field)
        if value is None:
            error = SpaceError(
                f"transformation {name!r} needs {field}; pass {field}=… along with the text."
            )
            error.missing = name, field
            raise error
        return value


TransformationFactory = Callable[[Resources], Transformation]

transformations: Registry[TransformationFactory] = Registry(
    "transformation", "tl_dyck.transformations"
)
"""Name in texts -> function that makes the transformation from `Resources`."""
register_transformation = transformations.register
"""Decorator that registers a transformation of your own: see `Registry.register`."""


def _pairs(resources: Resources) -> Transformation:
    language = needs_stack(resources.need("language", "pairs"), "the space 'pairs' is")
    return InsertMatchedPairs(language)


_BUILT_IN: dict[str, tuple[str, TransformationFactory]] = {
    "dup": ("Repeat a word.", lambda given: Duplicate(but=given.protected)),
    "sub": ("Replace a word by a synonym.", lambda g: Substitute(g.need("substitutes", "sub"))),
    "del": ("Drop a stop word.", lambda given: Delete(given.need("deletable", "del"))),
    "ins": ("Insert a string at a gap.", lambda given: Insert(given.need("insertions", "ins"))),
    "swap": ("Exchange two neighbours.", lambda given: SwapAdjacent()),
    "pairs": ("Insert nested matched brackets at a gap.", _pairs),
}
for _name, (_summary, _make) in _BUILT_IN.items():
    transformations.register(_name, _summary)(_make)


@checked
def load_synonyms(file: str | Path) -> dict[str, tuple[str, ...]]:
    """Read a JSON object from each word to its synonyms, best first; see `substitution_table`.

    Raises:
        CorruptFileError: it is missing, or something else.
        OSError: it cannot be read.
    """
    found = read_json(file)
    lists = isinstance(found, dict) and all(
        isinstance(words, list) and all(isinstance(word, str) for word in words)
        for words in found.values()
    )
    if not lists:
        raise CorruptFileError(
            f"{str(file)!r} must be a JSON object from each word to its list of synonyms"
        )
    return {word: tuple(words) for word, words in found.items()}


@checked
def parse_space(text: str, **resources: Any) -> PerturbationSpace:
    """Read a space from its text form: names with budgets, separated by commas.

    Args:
        text: ``name:budget,name:budget,…`` with names of `transformations`.
        resources: see `Resources`.

    Raises:
        UnknownNameError: no such transformation; the message names the nearest.
        SpaceError: no or a bad budget, a name twice, or a transformation whose data is missing.
    """
    given = Resources(**resources)
    pairs: list[tuple[Transformation, int]] = []
    seen: set[str] = set()
    for part in text.split(","):
        name, colon, budget = (piece.strip() for piece in part.partition(":"))
        if not name:
            raise SpaceError(f"{text!r} has an empty part; write a space as 'dup:2,sub:2'.")
        factory = transformations.get(name)
        if not colon or not (budget.isascii() and budget.isdigit()):
            raise SpaceError(
                f"{part.strip()!r} needs a budget, a number of at least 0: {name + ':2'!r}."
            )
        if name in seen:
            raise SpaceError(f"{name!r} is listed twice in {text!r}; give it one budget.")
        seen.add(name)
        pairs.append((factory(given), int(budget)))
    return PerturbationSpace(pairs)
