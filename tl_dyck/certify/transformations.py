"""What an attacker may do to a string: transformations, and the built-in ones.

A transformation says, for a string and a position, which spans that start there it can rewrite, and
into what (ARC's "match" and "replace", Zhang et al., arXiv 2102.07818). Adding one takes a few
lines::

    @dataclass(frozen=True)
    class Reverse(Transformation):
        name = "rev"

        def rewrites(self, tokens, position):
            if position + 3 <= len(tokens):
                yield 3, tokens[position : position + 3][::-1]

It is then used like any other: ``PerturbationSpace([(Reverse(), 1)])``. Texts such as ``rev:1``
know it once a function that makes it is registered, by ``@register_transformation("rev")`` or by
entry point (see `tl_dyck.certify.space_parser`).
"""

from __future__ import annotations

import abc
import operator
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import TypeAlias, final

import torch
from jaxtyping import Int
from torch import Tensor

from tl_dyck.kit.arguments import checked
from tl_dyck.kit.check import check_integer, shown
from tl_dyck.kit.errors import DyckError
from tl_dyck.language import DyckLanguage

STOP_WORDS = ("a", "and", "the", "of", "to")
"""What ARC's T_DelStop deletes (Zhang et al., arXiv 2102.07818)."""

_MOST_TOKENS = 100_000  # of a string that is certified

Tokens: TypeAlias = "Iterable[int] | Int[Tensor, ' _pos']"

Rewrite = tuple[int, tuple[int, ...]]
"""(number of tokens replaced, the tokens put in their place)."""


class SpaceError(DyckError, ValueError):
    """A perturbation space that makes no sense: a bad budget, a rewriting past the string's end.

    Attributes:
        missing: where data is missing, the name of the transformation and of the field of
            `Resources` that it needs.
    """

    missing: tuple[str, str] | None = None


class Transformation(abc.ABC):
    """Base class of all transformations; subclasses are frozen dataclasses with a `name`.

    Attributes:
        name: short name, used in texts, edits and error messages.
    """

    name: str

    @abc.abstractmethod
    def rewrites(self, tokens: tuple[int, ...], position: int) -> Iterable[Rewrite]:
        """Yield what may be done at one position of the original string.

        Args:
            tokens: the whole original string, x_0 … x_{n-1}, without BOS.
            position: where the rewritten span starts, 0 … n. A span of length 0 is the gap *before*
                x_position (for position n: the end of the string).

        Yields:
            (span length, replacement). A rewriting that changes nothing is ignored. Any token of
            the model may be put in, BOS too: it is read where it then stands.
        """


@final
@checked
@dataclass(frozen=True)
class Duplicate(Transformation):
    """Repeat a word: x_i becomes x_i x_i (ARC's T_Dup).

    Args:
        but: tokens that are never repeated, such as a mark at the end of every string.
    """

    name = "dup"
    but: Iterable[int] = ()

    def __post_init__(self) -> None:
        object.__setattr__(self, "but", frozenset(as_tokens(self.but)))

    def rewrites(self, tokens: tuple[int, ...], position: int) -> Iterator[Rewrite]:
        """Yield the doubled token."""
        if position < len(tokens) and tokens[position] not in frozenset(self.but):
            yield 1, (tokens[position],) * 2


@final
@checked
@dataclass(frozen=True)
class Substitute(Transformation):
    """Replace a word by one of its substitutes (ARC's T_SubSyn).

    Args:
        table: token -> tokens that may stand in its place, best first. Tokens that are not in it
            stay.
    """

    name = "sub"
    table: Mapping[int, Sequence[int]]

    def __post_init__(self) -> None:
        keys = as_tokens(self.table)
        values = map(as_tokens, self.table.values())
        object.__setattr__(self, "table", _FrozenTable(zip(keys, values, strict=True)))

    def rewrites(self, tokens: tuple[int, ...], position: int) -> Iterator[Rewrite]:
        """Yield one rewriting per substitute."""
        if position < len(tokens):
            for substitute in self.table.get(tokens[position], ()):
                yield 1, (substitute,)


@final
@checked
@dataclass(frozen=True)
class Delete(Transformation):
    """Drop a word (ARC's T_DelStop, where the words are a, and, the, of, to).

    Args:
        words: the tokens that may be dropped; None for every token.
    """

    name = "del"
    words: Iterable[int] | None

    def __post_init__(self) -> None:
        if self.words is not None:
            object.__setattr__(self, "words", frozenset(as_tokens(self.words)))

    def rewrites(self, tokens: tuple[int, ...], position: int) -> Iterator[Rewrite]:
        """Yield the empty replacement."""
        if position < len(tokens) and (
            self.words is None or tokens[position] in frozenset(self.words)
        ):
            yield 1, ()


@final
@checked
@dataclass(frozen=True)
class Insert(Transformation):
    """Insert one of some strings at a gap.

    Args:
        strings: what may be inserted; each a non-empty sequence of tokens.
    """

    name = "ins"
    strings: Iterable[Sequence[int]]

    def __post_init__(self) -> None:
        strings = tuple(dict.fromkeys(as_tokens(string) for string in self.strings))
        if () in strings:
            raise ValueError(
                "Insert was given an empty string, which would change nothing; leave it out."
            )
        object.__setattr__(self, "strings", strings)

    def rewrites(self, tokens: tuple[int, ...], position: int) -> Iterator[Rewrite]:
        """Yield one rewriting per string."""
        for string in self.strings:
            yield 0, tuple(string)


@final
@dataclass(frozen=True)
class SwapAdjacent(Transformation):
    """Exchange two neighbours: x_i x_{i+1} becomes x_{i+1} x_i."""

    name = "swap"

    def rewrites(self, tokens: tuple[int, ...], position: int) -> Iterator[Rewrite]:
        """Yield the exchanged pair."""
        if position + 2 <= len(tokens):
            yield 2, (tokens[position + 1], tokens[position])


@final
@checked
@dataclass(frozen=True)
class InsertMatchedPairs(Transformation):
    """Insert nested pairs of one type at a gap: the pumping of Wen et al. 2023, Theorem 1.

    A block of m pairs of type t is (open t)^m (close t)^m. It is allowed at a gap of depth d if
    d + m ≤ D and d ≥ 0, where d is the depth of the *original* string at that gap; blocks are
    balanced, so inserting several changes no other gap's depth, and the strings stay in Dyck(k, D).
    The last token, whose successor is predicted, stays last.

    Args:
        language: the bracket language.
    """

    name = "pairs"
    language: DyckLanguage

    def rewrites(self, tokens: tuple[int, ...], position: int) -> Iterator[Rewrite]:
        """Yield one rewriting per type and number of pairs."""
        depth = _gap_depths(self.language, tokens)[position]
        if position == len(tokens) or depth < 0:
            return
        for opening in range(0, self.language.n_brackets, 2):
            for pairs in range(1, self.language.max_depth - depth + 1):
                yield 0, (opening,) * pairs + (opening + 1,) * pairs


@checked
def substitution_table(
    words: Mapping[str, Sequence[str]], alphabet: Sequence[str], k: int | None = None
) -> dict[int, tuple[int, ...]]:
    """Turn a thesaurus of words into a table of tokens for `Substitute`.

    Args:
        words: word -> synonyms, best first. Words outside the alphabet are left out.
        alphabet: the text of each token.
        k: keep only the first k synonyms *that are in the alphabet*.
    """
    token = {text: index for index, text in enumerate(alphabet)}
    table = {}
    if k is not None:
        k = check_integer("k", k, least=1)
    for word, synonyms in words.items():
        known = tuple(
            token[synonym] for synonym in synonyms if synonym in token and synonym != word
        )[:k]
        if word in token and known:
            table[token[word]] = known
    return table


_last: list[tuple[DyckLanguage, tuple[int, ...], tuple[int, ...]]] = []


def _gap_depths(language: DyckLanguage, tokens: tuple[int, ...]) -> tuple[int, ...]:
    """Depth of the string at each of its gaps, 0 … n; of the last string they are kept.

    It is known by being the same object: its places are asked for one after the other, and to hash
    or to compare all of it at each would take time that grows with its square.
    """
    for of, string, depths in _last:
        if of is language and string is tokens:
            return depths
    found = (0, *language.depth(torch.tensor(tokens, dtype=torch.int64)).tolist())
    _last[:] = [(language, tokens, found)]
    return found


class _FrozenTable(Mapping[int, tuple[int, ...]]):
    """A mapping that nobody writes to, so that it can be hashed."""

    def __init__(self, items: Iterable[tuple[int, tuple[int, ...]]]) -> None:
        self._items = dict(items)

    def __getitem__(self, token: int) -> tuple[int, ...]:
        return self._items[token]

    def __iter__(self) -> Iterator[int]:
        return iter(self._items)

    def __len__(self) -> int:
        return len(self._items)

    def __hash__(self) -> int:
        return hash(frozenset(self._items.items()))

    def __repr__(self) -> str:
        return repr(self._items)


def as_tokens(tokens: Tokens) -> tuple[int, ...]:
    """A string as a tuple of plain integers.

    Raises:
        TypeError: not a 1-dimensional sequence of integers.
        SpaceError: a negative token.
    """
    if isinstance(tokens, (str, bytes)):
        raise TypeError(f"expected token ids, not the text {tokens!r}; tokenize it first.")
    given = tokens
    try:
        if isinstance(tokens, Tensor):
            tokens = tokens.tolist()
        plain = tuple(map(operator.index, islice(tokens, _MOST_TOKENS + 1)))
    except (TypeError, NotImplementedError) as error:  # the latter: a tensor on meta
        raise TypeError(
            f"a string is a 1-dimensional sequence of token ids, not {shown(given)}."
        ) from error
    if len(plain) > _MOST_TOKENS:
        raise SpaceError(f"tokens are more than {_MOST_TOKENS:,}, which no string has.")
    if any(token < 0 for token in plain):
        raise SpaceError(f"a token cannot be negative: {min(plain)}.")
    return plain
