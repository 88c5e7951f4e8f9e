"""From texts to tokens and back, where the text of each token is known.

Knows: how a text is cut at white space or into the symbols that fit, and how tokens are written.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property
from typing import final

from tl_dyck.kit.arguments import checked
from tl_dyck.kit.check import check_several
from tl_dyck.kit.registry import unknown_name
from tl_dyck.language.checks import DyckStringError


@final
@checked
@dataclass(frozen=True)
class Symbols:
    """The text of each token, and what stands between two of them.

    By default tokens are written as numbers.

    Attributes:
        alphabet: the text of token 0, 1, …; tokens beyond it are written as numbers.
        separator: "" between characters, " " between words.
        silent: the token that is not written, BOS; None if all are.
        logits: so many of the first logits are of these tokens, so that a target can be written.
        unknown: the token of what is not in the alphabet; None if that is an error.
    """

    alphabet: tuple[str, ...] = ()
    separator: str = " "
    silent: int | None = None
    logits: int = 0
    unknown: int | None = None

    @cached_property
    def _tokens(self) -> dict[str, int]:
        return {symbol: token for token, symbol in enumerate(self.alphabet)}

    @checked
    def read(self, text: str) -> list[int]:
        """Tokens of a text.

        With separator "" the longest symbol that fits is read, again and again, white space between
        symbols being ignored; with " " the text is split at white space.

        Raises:
            DyckStringError: a symbol or word is not in the alphabet, and there is no unknown token.
        """
        words = text.split()
        if not self.separator:
            symbols = sorted(filter(None, self.alphabet), key=len, reverse=True)
            words = re.findall("|".join([*map(re.escape, symbols), r"\S"]), text)
        ids = []
        for place, word in enumerate(words, start=1):
            token = self._tokens.get(word, self.unknown)
            if token is None:
                where = f"{word!r}, symbol {place} of the text"
                raise DyckStringError(f"{where}, is not in the alphabet.")
            ids.append(token)
        return ids

    @checked
    def words(self, tokens: Iterable[int]) -> list[str]:
        """The text of each token that is written."""
        known = len(self.alphabet)
        given = check_several("tokens", tokens)
        return [self.alphabet[t] if t < known else str(t) for t in given if t != self.silent]

    @checked
    def text(self, tokens: Iterable[int]) -> str:
        """A string of tokens as one text."""
        return self.separator.join(self.words(tokens))

    @checked
    def logit(self, target: int) -> str:
        """The text of a logit: its token's, or its number."""
        names = self.alphabet[: self.logits]
        return names[target] if target < len(names) else str(target)

    @checked
    def index(self, text: str) -> int:
        """The logit of a token's text.

        Raises:
            UnknownNameError: no logit is called so.
        """
        names = self.alphabet[: self.logits]
        if text not in names:
            raise unknown_name("target", text, names)
        return names.index(text)
