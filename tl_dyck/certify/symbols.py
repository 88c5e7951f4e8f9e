"""How tokens are written: what certificates, edits and their marks look like as text."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import NamedTuple, final

from tl_dyck.certify.spaces import Edit, placed
from tl_dyck.registry import unknown_name
from tl_dyck.rnn import RNNConfig


@final
@dataclass(frozen=True)
class Symbols:
    """The text of each token, and what stands between two of them.

    By default tokens are written as numbers.

    Attributes:
        alphabet: the text of token 0, 1, …; tokens beyond it are written as numbers.
        separator: "" between characters, " " between words.
        silent: the token that is not written, BOS; None if all are.
        names_logits: whether logits are of tokens too, so that a target can be written.
    """

    alphabet: tuple[str, ...] = ()
    separator: str = " "
    silent: int | None = None
    names_logits: bool = False

    @classmethod
    def of(cls, config: RNNConfig) -> Symbols:
        """As an RNN's own alphabet has it; numbers, if it has none."""
        if config.alphabet is None:
            return cls(silent=config.bos_token)
        named = config.d_vocab_out == config.d_vocab
        return cls(config.alphabet, config.separator or "", config.bos_token, named)

    def logit(self, target: int) -> str:
        """The text of a logit: its token's, or its number."""
        known = self.names_logits and target < len(self.alphabet)
        return self.alphabet[target] if known else str(target)

    def index(self, text: str) -> int:
        """The logit of a token's text.

        Raises:
            UnknownNameError: no logit is called so.
        """
        names = self.alphabet if self.names_logits else ()
        if text not in names:
            raise unknown_name("target", text, names)
        return names.index(text)

    def words(self, tokens: Iterable[int]) -> list[str]:
        """The text of each token that is written."""
        known = len(self.alphabet)
        return [self.alphabet[t] if t < known else str(t) for t in tokens if t != self.silent]

    def text(self, tokens: Iterable[int]) -> str:
        """A string of tokens as one text."""
        return self.separator.join(self.words(tokens))


class Passage(NamedTuple):
    """A stretch of a string that edits left alone, or what one edit made of another, as text.

    Attributes:
        before: in the original string.
        after: in the edited one.
        edit: the edit; None for what was left alone.
    """

    before: str
    after: str
    edit: Edit | None

    @property
    def sign(self) -> str:
        """Between before and after: "+" for an insertion, "→" for a replacement or a deletion."""
        return "+" if self.edit is not None and not self.edit.removed else "→"

    def __str__(self) -> str:
        return self.before if self.edit is None else f"‹{self.before}{self.sign}{self.after}›"


def passages(tokens: Sequence[int], edits: Iterable[Edit], symbols: Symbols) -> tuple[Passage, ...]:
    """A string from left to right, cut where it was edited.

    Args:
        tokens: the original string.
        edits: what was done to it.
        symbols: how tokens are written. A stretch of which nothing is written is left out.
    """
    found: list[Passage] = []
    done = 0

    def keep(end: int) -> None:
        kept = symbols.text(tokens[done:end])
        if kept:
            found.append(Passage(kept, kept, None))

    for edit, _ in placed(edits):
        keep(edit.start)
        found.append(Passage(symbols.text(edit.removed), symbols.text(edit.inserted), edit))
        done = edit.start + len(edit.removed)
    keep(len(tokens))
    return tuple(found)
