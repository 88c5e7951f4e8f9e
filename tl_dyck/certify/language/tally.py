"""What is known of a claim, length by length: margins, wrong strings, probabilities."""

from __future__ import annotations

from dataclasses import dataclass
from typing import final

import numpy as np
from numpy.typing import NDArray

from tl_dyck.certify.exact.balls import Array
from tl_dyck.certify.language.profiles import Ending

__all__ = ["Found", "Tally"]


@final
@dataclass(frozen=True)
class Found:
    """A profile that was evaluated.

    Attributes:
        ending: how its prefixes end.
        row: its pairs.
        log_string: log-probability of each of its prefixes.
        margin: of the claim.
        tokens: the prefix itself, if it was run and not its profile evaluated.
    """

    ending: Ending
    row: tuple[int, ...]
    log_string: float
    margin: float
    tokens: tuple[int, ...] | None = None

    @property
    def length(self) -> int:
        """Length of its prefixes, in brackets."""
        if self.tokens is not None:
            return len(self.tokens)
        return 2 * sum(self.row) + self.ending.depth

    @property
    def _identity(self) -> tuple[tuple[int, ...], ...]:
        closes = () if self.ending.closes is None else (self.ending.closes,)
        return self.ending.stack, closes, self.row, self.tokens or ()

    def likelier(self, other: Found | None) -> bool:
        """Whether its prefixes are likelier (or as likely and shorter, then first)."""
        if other is None:
            return True
        mine = (-self.log_string, self.length, self._identity)
        return mine < (-other.log_string, other.length, other._identity)

    def shorter(self, other: Found | None) -> bool:
        """Whether its prefixes are shorter (or as short and likelier)."""
        if other is None or self.length != other.length:
            return other is None or self.length < other.length
        return self.likelier(other)

    def tighter(self, other: Found | None) -> bool:
        """Whether its margin is smaller."""
        return other is None or (self.margin, self._identity) < (other.margin, other._identity)


@final
@dataclass
class Tally:
    """Sums over prefixes, by length and depth: arrays ``[length + 1, D + 1]``.

    Attributes:
        wrong: probability of the prefixes on which the claim is refuted.
        doubtful: of those on which it is neither proved nor refuted.
        wrong_strings: number of prefixes on which it is refuted.
        profiles: how many were evaluated.
        boxes: how many boxes of profiles were bounded.
        likeliest: the likeliest wrong prefix.
        shortest: the shortest one.
        tightest: the prefix with the least margin.
        doubt: a prefix on which rounding hides the answer.
        proved: no margin of those evaluated is less.
    """

    wrong: Array
    doubtful: Array
    wrong_strings: Array
    profiles: int = 0
    boxes: int = 0
    likeliest: Found | None = None
    shortest: Found | None = None
    tightest: Found | None = None
    doubt: Found | None = None
    proved: float = np.inf

    @classmethod
    def empty(cls, length: int, deepest: int) -> Tally:
        """Nothing known, of lengths up to one."""
        wrong, doubtful, strings = np.zeros((3, length + 1, deepest + 1))
        return cls(wrong, doubtful, strings)

    def count(self, what: str, depth: int, rows: NDArray[np.int16], values: Array) -> None:
        """Add numbers that belong to rows of pairs, to "wrong", "doubtful" or "wrong_strings"."""
        lengths = 2 * rows.sum(1, dtype=np.int64) + depth
        table = getattr(self, what)
        table[:, depth] += np.bincount(lengths, values, len(table))

    def see(self, found: Found, *, wrong: bool) -> None:
        """Remember a profile, if it is of note."""
        if found.tighter(self.tightest):
            self.tightest = found
        if wrong and found.likelier(self.likeliest):
            self.likeliest = found
        if wrong and found.shorter(self.shortest):
            self.shortest = found

    def add(self, other: Tally) -> None:
        """Add what another has counted, of other profiles that are no longer."""
        for name in ("wrong", "doubtful", "wrong_strings"):
            getattr(self, name)[: len(other.wrong)] += getattr(other, name)
        self.profiles += other.profiles
        self.boxes += other.boxes
        for found in (other.likeliest, other.shortest):
            if found is not None:
                self.see(found, wrong=True)
        if other.tightest is not None:
            self.see(other.tightest, wrong=False)
        self.doubt, self.proved = self.doubt or other.doubt, min(self.proved, other.proved)
