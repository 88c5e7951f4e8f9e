"""What edits look like as text: a string cut where it was edited, with marks."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from tl_dyck.certify.spaces import Edit, placed
from tl_dyck.kit.arguments import checked
from tl_dyck.language.alphabet import Symbols


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


@checked
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
