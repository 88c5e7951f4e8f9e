"""What a language refuses: modes, numbers, brackets that look alike, strings that are not of it."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence, Set
from functools import lru_cache
from itertools import islice, pairwise
from typing import Any

from tl_dyck.kit.check import WrongTypeError, check_length
from tl_dyck.kit.errors import DyckError
from tl_dyck.kit.registry import unknown_name

BOS_STRING = "<bos>"
MODES = ("complete", "prefix")

_DEFAULT_PAIRS = "[](){}<>⟦⟧⟨⟩⟪⟫⌈⌉⌊⌋«»「」『』【】〔〕《》〈〉⦃⦄⦅⦆⦗⦘⧼⧽"


class DyckStringError(DyckError, ValueError):
    """A text or token string that is not of the language; the message says where and why."""


def separator_of(symbols: Sequence[str]) -> str:
    """What stands between two symbols of a text: a space, if one is the beginning of another."""
    # BOS is written as a word of its own, whatever the symbols are
    return _separator(tuple(symbol for symbol in symbols if symbol != BOS_STRING))


@lru_cache(maxsize=64)
def _separator(symbols: tuple[str, ...]) -> str:
    begins = any(longer.startswith(shorter) for shorter, longer in pairwise(sorted(symbols)))
    return " " if begins else ""


def cut(text: str, symbols: Sequence[str], kind: str = "bracket") -> Iterator[str]:
    """A text from left to right, symbol by symbol; words, if one is the beginning of another.

    Raises:
        DyckStringError: some part of it is no symbol.
    """
    if separator_of(symbols):
        for place, word in enumerate(text.split(), 1):
            if word not in symbols:
                raise DyckStringError(
                    f"unknown {kind} {word!r}, word {place} of {shorten(text)!r}; the {kind}s are "
                    f"{shorten(' '.join(s for s in symbols if s != BOS_STRING))}"
                )
            yield word
        return
    known, position = re.compile("|".join(map(re.escape, symbols))), 0
    while position < len(text):
        match = known.match(text, position)
        if match is None:
            hint = "; accuracy_on and read_strings read lines with spaces and an END"
            raise DyckStringError(
                f"unknown {kind} {text[position]!r} at character {position} of {shorten(text)!r}; "
                f"the {kind}s are {' '.join(s for s in symbols if s != BOS_STRING)}"
                f"{hint if text[position].isspace() else ''}"
            )
        yield match.group()
        position = match.end()


def check_mode(mode: str) -> None:
    """Raise `UnknownNameError`, which names the nearest mode, unless `mode` is one of `MODES`."""
    if mode not in MODES:
        raise unknown_name("mode", mode, MODES)


def default_brackets(n_types: int) -> tuple[str, ...]:
    """Brackets for that many types."""
    if 2 * n_types <= len(_DEFAULT_PAIRS):
        return tuple(_DEFAULT_PAIRS[: 2 * n_types])
    # Beyond the table brackets are numbered; the colon ends the number, so that none begins
    # another.
    extra = (
        name for t in range(len(_DEFAULT_PAIRS) // 2, n_types) for name in (f"‹{t}:", f":{t}›")
    )
    return (*_DEFAULT_PAIRS, *extra)


def in_order(name: str, values: object, most: int) -> tuple[Any, ...]:
    """Values as a tuple, of what has an order, and of no more than one beyond `most`.

    A WrongTypeError refuses sets, texts, and what holds no values.
    """
    if isinstance(values, Set | str | bytes) or not isinstance(values, Iterable):
        raise WrongTypeError(
            f"{name} must be given one after the other, as in a list, not as {values!r:.80} "
            f"({type(values).__name__})"
        )
    return tuple(islice(values, most + 1))


def check_brackets(brackets: tuple[str, ...], n_types: int) -> None:
    """Raise TypeError or ValueError unless they are 2k distinct strings that can be told apart."""
    _check_texts(brackets, "bracket")
    if len(brackets) != 2 * n_types:
        found = len(brackets) if len(brackets) < 2 * n_types else "more"
        raise ValueError(
            f"{n_types} bracket type(s) need {2 * n_types} brackets (open 0, close 0, open 1, …), "
            f"got {found}: {shorten(repr(brackets), 200)}"
        )
    check_symbols(brackets, "bracket")
    for shorter, longer in pairwise(sorted(brackets)):
        if longer.startswith(shorter):
            raise ValueError(
                f"ambiguous brackets: {shorter!r} is the beginning of {longer!r}; choose brackets "
                f"of which none begins another"
            )


def check_symbols(symbols: tuple[str, ...], kind: str) -> None:
    """Raise TypeError or ValueError unless they are distinct strings that can be told apart.

    Symbols of which one begins another, such as numbers, are told apart by spaces.
    """
    _check_texts(symbols, kind)
    if len(set(symbols)) < len(symbols):
        twice = next(symbol for symbol in symbols if symbols.count(symbol) > 1)
        raise ValueError(f"{kind} {twice!r} is given twice in {symbols!r}; all must be distinct")
    if separator_of(symbols):
        spaced = next((symbol for symbol in symbols if symbol.split() != [symbol]), None)
        if spaced is not None or BOS_STRING in symbols:
            raise ValueError(
                f"ambiguous {kind}s: one begins another, so that texts have spaces between them, "
                f"and {spaced or BOS_STRING!r} is no word of its own; choose others"
            )
    elif _spells(BOS_STRING, symbols):
        raise ValueError(
            f"{kind}s {symbols!r} can spell {BOS_STRING!r}, which is the start token; choose others"
        )


def _check_texts(symbols: tuple[str, ...], kind: str) -> None:
    for symbol in symbols:
        if not isinstance(symbol, str):
            raise TypeError(f"{kind}s must be strings, got {symbol!r} ({type(symbol).__name__})")
        if not symbol:
            raise ValueError(
                f"a {kind} is the empty string in {symbols!r}; give each at least one character"
            )


def _spells(target: str, brackets: tuple[str, ...]) -> bool:
    """Whether `target` occurs in some concatenation of brackets."""

    def goes_on(rest: str) -> bool:
        return any(
            b.startswith(rest) or (rest.startswith(b) and goes_on(rest[len(b) :])) for b in brackets
        )

    return any(
        target in bracket
        or any(bracket.endswith(target[:i]) and goes_on(target[i:]) for i in range(1, len(target)))
        for bracket in brackets
    )


def shorten(text: str, limit: int = 80) -> str:
    """The beginning of a text, for a message."""
    return text if len(text) <= limit else text[: limit - 1] + "…"


def check_length_of(length: object, mode: str, least: int) -> int:
    """A length as a plain int; raise TypeError or ValueError unless a mode's strings can be so."""
    length = check_length(length, least=least)
    if mode == "complete" and length % 2:
        raise ValueError(
            f"complete strings have an even length, got {length}; choose {max(length - 1, 2)} or "
            f"{length + 1}, or mode='prefix'"
        )
    return length
