"""What is known of a claim, length by length: margins, wrong prefixes, probabilities.

Probabilities are kept as logarithms, since those of long prefixes are below the least float64, and
numbers of prefixes as integers, so that none of them vanishes in a sum.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, final

import numpy as np
from numpy.typing import NDArray

from tl_dyck.certify.exact.balls import Array, IntArray
from tl_dyck.certify.language.profiles import Ending


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
class Part:
    """The prefixes that have one answer; arrays are ``[length + 1, D + 1]``.

    Attributes:
        log_mass: log of their probability; -inf where there are none.
        strings: how many they are: integers of any size, exact up to 10¹², beyond that to 12
            digits.
        likeliest: the likeliest one.
        shortest: the shortest one.
    """

    log_mass: Array
    strings: NDArray[Any]
    likeliest: Found | None = None
    shortest: Found | None = None

    @classmethod
    def empty(cls, length: int, deepest: int) -> Part:
        """None, of lengths up to one."""
        shape = length + 1, deepest + 1
        return cls(np.full(shape, -np.inf), np.zeros(shape, dtype=object))

    def see(self, found: Found) -> None:
        """Remember a profile, if it is of note."""
        if found.likelier(self.likeliest):
            self.likeliest = found
        if found.shorter(self.shortest):
            self.shortest = found

    def count(self, depth: int, lengths: IntArray, log_string: Array, log_count: Array) -> None:
        """Add profiles, given logs of how probable one prefix of each is, and how many it has."""
        for length in np.unique(lengths).tolist():
            mine = lengths == length
            place = length, depth
            mass = log_sum(log_string[mine] + log_count[mine])
            self.log_mass[place] = np.logaddexp(self.log_mass[place], mass)
            self.strings[place] += _whole_sum(log_count[mine])

    def add(self, other: Part) -> None:
        """Add what another has counted, of other profiles that are no longer."""
        n = len(other.log_mass)
        self.log_mass[:n] = np.logaddexp(self.log_mass[:n], other.log_mass)
        self.strings[:n] += other.strings
        for found in (other.likeliest, other.shortest):
            if found is not None:
                self.see(found)


@final
@dataclass
class Tally:
    """What became of all that was evaluated.

    Attributes:
        wrong: the prefixes on which the claim is refuted.
        doubtful: those on which rounding hides the answer.
        profiles: how many were evaluated.
        boxes: how many boxes of profiles were bounded.
        tightest: the prefix with the least margin.
        proved: no margin of those evaluated is less.
    """

    wrong: Part
    doubtful: Part
    profiles: int = 0
    boxes: int = 0
    tightest: Found | None = None
    proved: float = np.inf

    @classmethod
    def empty(cls, length: int, deepest: int) -> Tally:
        """Nothing known, of lengths up to one."""
        return cls(Part.empty(length, deepest), Part.empty(length, deepest))

    def take(
        self,
        depth: int,
        lengths: IntArray,
        margin: Array,
        error: Array,
        weigh: Callable[[IntArray], tuple[Array, Array]],
        found: Callable[[int], Found],
    ) -> None:
        """Add profiles of one depth that were evaluated, or prefixes that were run.

        Args:
            depth: of the prefixes.
            lengths: of each, ``[n]``.
            margin: of the claim, ``[n]``.
            error: a bound of its error, inf where nothing is known, ``[n]``.
            weigh: of some of them: the logs of how probable one prefix is, and how many there are.
            found: one of them.
        """
        self.profiles += len(margin)
        self.proved = min(self.proved, float((margin - error).min()))
        self.see(found(int(margin.argmin())))
        wrong, right = margin < -error, margin > error
        for part, which in ((self.wrong, wrong), (self.doubtful, ~(right | wrong))):
            at = np.flatnonzero(which)
            if not len(at):
                continue
            log_string, log_count = weigh(at)
            part.count(depth, lengths[at], log_string, log_count)
            short = lengths[at] == lengths[at].min()
            for nats in (log_string, np.where(short, log_string, -np.inf)):
                part.see(found(int(at[nats.argmax()])))

    def see(self, found: Found) -> None:
        """Remember a profile, if none has a smaller margin."""
        if found.tighter(self.tightest):
            self.tightest = found

    def see_wrong(self, found: Found) -> None:
        """Remember a wrong prefix that was drawn; it is not counted."""
        self.see(found)
        self.wrong.see(found)

    def add(self, other: Tally) -> None:
        """Add what another has counted, of other profiles that are no longer."""
        self.wrong.add(other.wrong)
        self.doubtful.add(other.doubtful)
        self.profiles += other.profiles
        self.boxes += other.boxes
        if other.tightest is not None:
            self.see(other.tightest)
        self.proved = min(self.proved, other.proved)


def log_sum(nats: Array) -> float:
    """Log of a sum of numbers, from their logs."""
    top = float(nats.max())
    return top if top == -math.inf else top + math.log(float(np.exp(nats - top).sum()))


def _whole_sum(nats: Array) -> int:
    """The sum of numbers, from their logs."""
    bits = max(0, int(float(nats.max()) / math.log(2)) - 52)
    return int(np.rint(np.exp(nats - bits * math.log(2))).sum()) << bits
