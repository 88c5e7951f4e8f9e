"""Perturbation spaces over words of text, for a tokenizer that cuts words into several tokens.

Knows: which tokens of a text are a word, and what another word in its place is in tokens.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, final

from tl_dyck.certify.certificate import Certificate
from tl_dyck.certify.spaces import PerturbationSpace
from tl_dyck.certify.transformations import Rewrite, SpaceError, Transformation
from tl_dyck.kit.arguments import checked
from tl_dyck.kit.check import WrongTypeError, check_integer, shown
from tl_dyck.language.alphabet import Symbols

_MOST_READ = 50_000_000  # characters that are tokenized: some seconds

_PIECE = re.compile(r"\s*(?:\w+(?:['’]\w+)*|[^\w\s]+)|\s+$")
"""A word or a run of punctuation, with the white space before it."""


@final
@dataclass(frozen=True)
class OfWords(Transformation):
    """Rewritings of words of one text, written out place by place."""

    name: str
    tokens: tuple[int, ...]
    at: tuple[tuple[Rewrite, ...], ...]

    def rewrites(self, tokens: tuple[int, ...], position: int) -> Iterator[Rewrite]:
        """Yield what was listed for a position."""
        if tokens != self.tokens:
            raise SpaceError(
                "this space is of the words of another text; make one for each with word_space."
            )
        if position < len(self.at):
            yield from self.at[position]


class WordSpace(NamedTuple):
    """A text as tokens, and the texts around it.

    Attributes:
        tokens: the text's tokens, what was asked to stand before it included.
        space: the perturbation space, of this text alone.
        symbols: how tokens are written.
        left_out: texts with one edit that the tokenizer cuts otherwise than word by word, as where
            two marks meet once the word between them is dropped; they are not in the space.
    """

    tokens: tuple[int, ...]
    space: PerturbationSpace
    symbols: Symbols
    left_out: tuple[str, ...]

    @checked
    def translate(self, certificate: Certificate) -> Certificate:
        """A certificate that shows text, not numbers."""
        return certificate.with_symbols(self.symbols)


@checked
def word_space(
    tokenizer: Any,
    text: str,
    *,
    words: Mapping[str, Sequence[str]] | None = None,
    k: int | None = None,
    sub: int = 0,
    dup: int = 0,
    drop: int = 0,
    typo: int = 0,
    before: Sequence[int] = (),
) -> WordSpace:
    """The texts that come about when words of a text are replaced, doubled, dropped or mistyped.

    A word is a run of letters and digits, such as ``don't``, with the white space before it. It may
    be several tokens, and is edited as a unit. Each budget is the most words to which that may
    happen. Every text with one edit is tokenized as a whole and compared, so that the strings of
    the space are what the tokenizer makes of the edited texts; where they are not, the edit is left
    out, and told.

    Args:
        tokenizer: of Hugging Face: ``tokenizer.encode(text, add_special_tokens=False)`` and
            ``tokenizer.decode(ids)`` are used.
        text: the text.
        words: word -> words that may stand in its place, best first, as `load_synonyms` reads them.
            A word with a capital is also looked up without, and its substitutes get one.
        k: use only the first k.
        sub: most words replaced.
        dup: most words doubled.
        drop: most words dropped.
        typo: most words in which two neighbouring letters are exchanged.
        before: tokens that stand before the text and are never edited, such as BOS where the model
            does not add it.

    Raises:
        SpaceError: the tokens of the text are not those of its words side by side; or the text has
            so many edits that to tokenize it with each of them takes too long.
    """
    if k is not None:
        check_integer("k", k, least=1)
    if not hasattr(tokenizer, "encode") or isinstance(tokenizer, (type, str)):
        raise WrongTypeError(f"tokenizer must be one of transformers, got {shown(tokenizer)}")

    def encode(piece: str) -> tuple[int, ...]:
        return tuple(tokenizer.encode(piece, add_special_tokens=False))

    pieces = _PIECE.findall(text)
    cut = [encode(piece) for piece in pieces]
    tokens = (*before, *_joined(cut))
    if "".join(pieces) != text or tokens[len(before) :] != encode(text):
        raise SpaceError(f"the tokenizer does not cut {text!r:.60} between its words.")
    kinds: dict[str, tuple[int, Callable[[str], list[str]]]] = {
        "sub": (sub, lambda piece: _substitutes(piece, words or {}, k)),
        "dup": (dup, lambda piece: [piece + (piece if piece[0].isspace() else f" {piece}")]),
        "del": (drop, lambda piece: [""]),
        "typo": (typo, _mistyped),
    }
    every = {
        name: [edits(piece) if piece.strip()[:1].isalnum() else [] for piece in pieces]
        for name, (budget, edits) in kinds.items()
        if budget
    }
    reads = len(text) * sum(len(others) for at in every.values() for others in at)
    if reads > _MOST_READ:
        raise SpaceError(
            f"the text has {len(text):,} characters, and to tokenize it with each of its edits is "
            f"to read {reads:,} (at most {_MOST_READ:,}); shorten it, lower k, or edit fewer ways."
        )
    pairs: list[tuple[Transformation, int]] = []
    left_out: list[str] = []
    for name, all_others in every.items():
        at: list[tuple[Rewrite, ...]] = [()] * len(tokens)
        place = len(before)
        for i, others in enumerate(all_others):
            at[place], odd = _rewrites(encode, pieces, cut, i, others)
            left_out += odd
            place += len(cut[i])
        pairs.append((OfWords(name, tokens, tuple(at)), kinds[name][0]))
    # one token before the text is a BOS, which is not shown
    silent = before[0] if len(before) == 1 else None
    alphabet = _alphabet(tokenizer, len(tokenizer))
    symbols = Symbols(alphabet, "", silent, logits=len(alphabet))
    return WordSpace(tokens, PerturbationSpace(pairs), symbols, tuple(left_out))


@functools.lru_cache(maxsize=2)
def _alphabet(tokenizer: Any, size: int) -> tuple[str, ...]:
    """The text of each token; it is the same for every text."""
    return tuple(tokenizer.decode([token]) for token in range(size))


def _rewrites(
    encode: Callable[[str], tuple[int, ...]],
    pieces: Sequence[str],
    cut: Sequence[tuple[int, ...]],
    i: int,
    others: Sequence[str],
) -> tuple[tuple[Rewrite, ...], list[str]]:
    """Piece i replaced by each of some others: rewritings, and texts that are cut otherwise."""
    found, odd = [], []
    for other in others:
        emits, edited = encode(other), "".join((*pieces[:i], other, *pieces[i + 1 :]))
        if encode(edited) == _joined((*cut[:i], emits, *cut[i + 1 :])):
            found.append((len(cut[i]), emits))
        else:
            odd.append(edited)
    return tuple(found), odd


def _joined(parts: Sequence[tuple[int, ...]]) -> tuple[int, ...]:
    return tuple(token for part in parts for token in part)


def _substitutes(piece: str, words: Mapping[str, Sequence[str]], k: int | None) -> list[str]:
    word = piece.strip()
    space, lower = piece[: len(piece) - len(piece.lstrip())], word[:1].lower() + word[1:]
    if word in words:
        return [space + other for other in words[word][:k]]
    return [space + other[:1].upper() + other[1:] for other in words.get(lower, ())[:k]]


def _mistyped(piece: str) -> list[str]:
    start = len(piece) - len(piece.lstrip())
    swapped = (
        piece[:i] + piece[i + 1] + piece[i] + piece[i + 2 :]
        for i in range(start, len(piece) - 1)
        if piece[i : i + 2].isalpha()
    )
    return [other for other in dict.fromkeys(swapped) if other != piece]
