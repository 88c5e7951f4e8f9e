"""Strings from files as people publish them: a line each, spaces, an END, brackets of two letters.

Knows: how such lines are cut into symbols, and how strings of many lengths are kept.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, SupportsIndex, final

import numpy as np
import torch
from jaxtyping import Int
from numpy.typing import NDArray
from torch import Tensor

from tl_dyck.kit.arguments import checked
from tl_dyck.kit.check import MOST_GIVEN, WrongTypeError, check_integer, check_several, shown
from tl_dyck.kit.files import CorruptFileError, one_line, read_each_line
from tl_dyck.language.checks import BOS_STRING, DyckStringError, cut, shorten
from tl_dyck.language.dyck import DyckLanguage
from tl_dyck.language.symbols import Language

MOST_SYMBOLS = 2**28
"""Of all strings of a file together: half a gigabyte, as they are kept."""


@final
@dataclass(frozen=True)
class StringList:
    """Strings of a language, without BOS and END.

    Attributes:
        language: of its symbols.
        symbols: ``[total]`` the tokens of all strings, one after the other.
        ends: ``[n]`` where each string ends in `symbols`.
    """

    language: Any
    symbols: NDArray[np.uint16] = field(repr=False)
    ends: NDArray[np.int64] = field(repr=False)

    def __len__(self) -> int:
        return len(self.ends)

    def __iter__(self) -> Iterator[Int[Tensor, " pos"]]:
        return (self[index] for index in range(len(self)))

    @property
    def lengths(self) -> NDArray[np.int64]:
        """``[n]`` in symbols."""
        found: NDArray[np.int64] = np.diff(self.ends, prepend=0)
        return found

    def __getitem__(self, index: SupportsIndex) -> Int[Tensor, " pos"]:
        """The tokens of one string; as text it is ``language.to_string``'s."""
        at = check_integer("index", index, -len(self), len(self) - 1) % max(len(self), 1)
        start = 0 if at == 0 else int(self.ends[at - 1])
        return torch.from_numpy(self.symbols[start : int(self.ends[at])].astype(np.int64))

    def batches(
        self, tokens: SupportsIndex = 2**14
    ) -> Iterator[tuple[NDArray[np.int64], Int[Tensor, "batch pos"]]]:
        """The strings by length, so many tokens at a time, or one string.

        Yields:
            Indices of some strings, and their tokens: BOS first, filled up with BOS.
        """
        bos, most = self.language.bos_token, check_integer("tokens", tokens, least=1)
        lengths = self.lengths
        order = np.argsort(lengths, kind="stable")
        start = 0
        while start < len(order):
            # the last of a batch is the longest
            several = lengths[order[start : start + most]] + 1
            several *= np.arange(1, len(several) + 1)
            number = max(1, int(np.searchsorted(several, most, side="right")))
            rows = order[start : start + number]
            found = torch.full((len(rows), 1 + int(lengths[rows[-1]])), bos, device="cpu")
            for row, index in zip(found, rows.tolist(), strict=True):
                row[1 : 1 + int(lengths[index])] = self[index]
            yield rows, found
            start += number


def joined(language: Language, strings: Iterable[Iterable[int]]) -> StringList:
    """A list of the tokens of each string."""
    found, ends, total = [], [], 0
    for string in strings:
        tokens = np.fromiter(string, dtype=np.uint16)
        total += len(tokens)
        if total > MOST_SYMBOLS:
            raise CorruptFileError(f"there are more than {MOST_SYMBOLS:,} symbols")
        found.append(tokens)
        ends.append(total)
    symbols = np.concatenate(found) if found else np.zeros(0, dtype=np.uint16)
    return StringList(language, symbols, np.array(ends, dtype=np.int64))


@checked
def read_strings(file: str | Path, language: Any, *, end: str = "END") -> StringList:
    r"""Read strings from a file of text, one a line, as Hewitt et al. and Yao et al. publish them.

    Symbols may stand side by side or with spaces between, and may have several letters. An `end` at
    a line's end is left out, unless it is a symbol of the language. So are ``<bos>`` at a line's
    start, a byte-order mark, carriage returns, and lines with nothing on them. The file may be
    packed by gzip. It is read line by line.

    Examples:
        >>> import pathlib, tempfile
        >>> from tl_dyck.language import DyckLanguage
        >>> file = pathlib.Path(tempfile.mkdtemp(), "dev.txt")
        >>> _ = file.write_text("(a (b b) a) END\n(b b) END\n")
        >>> language = DyckLanguage(2, 3, brackets=("(a", "a)", "(b", "b)"))
        >>> strings = read_strings(file, language)
        >>> len(strings), strings[0].tolist()
        (2, [0, 2, 3, 1])

    Args:
        file: its path.
        language: whose symbols they are, or a task of it. Of a `DyckLanguage` every line must be a
            prefix.
        end: the word behind the last symbol.

    Raises:
        TypeError: no language, or no path.
        CorruptFileError: there is no such file, or nothing in it, or a line is not of the language;
            which, and why. A file of more than a gigabyte, unpacked, a line of more than 64 MB, and
            more than 2^28 symbols are refused.
    """
    known = getattr(language, "language", language)
    if not isinstance(known, Language):
        raise WrongTypeError(f"language must be a language or a task, got {shown(language)}")
    reader = _LineReader(known, end)

    def rows() -> Iterator[list[int]]:
        for number, text in enumerate(read_each_line(file), start=1):
            for line in filter(str.strip, text.split("\r")):  # which ended lines on old computers
                try:
                    yield reader.read(line)
                except DyckStringError as error:
                    table = "," in line or "\t" in line
                    hint = "; of a table, write the column of strings into a file" if table else ""
                    raise CorruptFileError(
                        f"line {number} of {str(file)!r}: {one_line(error)}{hint}"
                    ) from error

    found = joined(known, rows())
    if not len(found):
        raise CorruptFileError(f"{str(file)!r} has no string: no line has anything on it")
    return found


def as_strings(strings: Any, language: Any) -> StringList:
    """Strings as they are, or of texts, which are read as the lines of a file are.

    Raises:
        TypeError: neither.
        DyckStringError: a text is not of the language.
        ValueError: of another language.
    """
    if isinstance(strings, StringList):
        if strings.language.alphabet != language.alphabet:
            raise DyckStringError(
                f"these strings are of {strings.language}, whose symbols are not those of "
                f"{language}: {' '.join(language.alphabet)}"
            )
        return strings
    if isinstance(strings, str | bytes | Tensor) or not isinstance(strings, Iterable):
        raise WrongTypeError(
            f"strings must be what read_strings returns, or a list of texts, got {shown(strings)}"
        )
    reader = _LineReader(language, "END")
    texts = check_several("strings", strings, MOST_GIVEN)
    odd = next((each for each in texts if not isinstance(each, str)), None)
    if odd is not None:
        raise WrongTypeError(f"strings must be texts, got {shown(odd)}")
    return joined(language, map(reader.read, texts))


class _LineReader:
    """Reads lines."""

    def __init__(self, language: Any, end: str) -> None:
        self.language = language
        self.ids = {symbol: token for token, symbol in enumerate(language.alphabet)}
        self.end = None if end in self.ids else end
        self.spaced = any(symbol.split() != [symbol] for symbol in language.alphabet)

    def read(self, line: str) -> list[int]:
        """The tokens of a line; a DyckStringError says why there are none."""
        words = [line] if self.spaced else line.split()
        if words and words[-1] == self.end:
            words = words[:-1]
        if words and words[0] == BOS_STRING:
            words = words[1:]
        if self.end in words:
            raise DyckStringError(f"{self.end} stands before its end; a line has one string")
        found: list[int] = []
        for word in words:
            token = self.ids.get(word)
            if token is not None:
                found.append(token)
                continue
            several = cut(word, self.language.alphabet, self.language.symbol_kind)
            found += map(self.ids.__getitem__, several)
        if isinstance(self.language, DyckLanguage):
            self._check(found, line)
        return found

    def _check(self, tokens: list[int], line: str) -> None:
        """As `DyckLanguage.parse` does, which has the words for it."""
        stack: list[int] = []
        for token in tokens:
            if not token % 2 and len(stack) < self.language.max_depth:
                stack.append(token)
            elif not token % 2 or not stack or stack.pop() != token - 1:
                self.language.parse("".join(self.language.alphabet[each] for each in tokens))
                raise DyckStringError(f"no prefix of {self.language}: {shorten(line)!r}")
