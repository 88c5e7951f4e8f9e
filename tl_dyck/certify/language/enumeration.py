"""Every profile of a length, evaluated one by one, in blocks.

For two types and depth 4 there are C(T + 7, 7) ways to choose T pairs, for each of 31 stacks and up
to 3 last brackets: 10⁷ profiles up to length 28, which stand for 10¹¹ prefixes.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple, final

import numpy as np

from tl_dyck.certify.deadline import Deadline
from tl_dyck.certify.exact.balls import Array, IntArray
from tl_dyck.certify.language.claims import Answer, Claim, known
from tl_dyck.certify.language.counting import Counted, Symbols
from tl_dyck.certify.language.forms import Form, has_form
from tl_dyck.certify.language.profiles import Counts, Ending, Profiles, n_profiles, pair_blocks
from tl_dyck.certify.language.tally import Found, Tally

BLOCK = 4096
"""Rows at a time: what they take stays in a core's cache."""

_KEPT = 4096
"""Endings whose evaluators are kept: languages of many types have more than memory can hold."""

_ALONE = 6
"""Up to so many pairs each number of them is a shell of its own."""


class Shell(NamedTuple):
    """All profiles of some numbers of pairs, a depth and a last bracket, whatever the stack."""

    first: int
    last: int
    depth: int
    closes: int | None

    @property
    def lengths(self) -> range:
        """Of the prefixes, in brackets."""
        return range(2 * self.first + self.depth, 2 * self.last + self.depth + 1, 2)


@final
class Judge:
    """A claim about one model or two, profile by profile.

    Args:
        symbols: what each model makes of the symbols.
        claim: what is asked.
        profiles: of the language.
    """

    def __init__(self, symbols: Sequence[Symbols], claim: Claim, profiles: Profiles) -> None:
        self.symbols, self.claim, self.profiles = list(symbols), claim, profiles
        self._evaluators: dict[Ending, list[Counted | Form] | None] = {}

    def evaluators(self, ending: Ending) -> list[Counted | Form] | None:
        """One per model; None where the claim says nothing."""
        if ending not in self._evaluators:
            if len(self._evaluators) >= _KEPT:
                self._evaluators.clear()
            made: list[Counted | Form] | None = []
            for symbols in self.symbols:
                asked = self.claim.objectives(ending, symbols.network.config.d_vocab_out)
                if asked is None or (not symbols.has_bos and ending == Ending((), None)):
                    made = None
                    break
                make = Form if has_form(symbols.network.config) else Counted
                assert made is not None
                made.append(make(symbols, ending, asked))
            self._evaluators[ending] = made
        return self._evaluators[ending]

    def shells(self, lengths: Sequence[int]) -> list[Shell]:
        """All that must be gone through, short prefixes first."""
        k, deepest, asked = self.profiles.k, self.profiles.deepest, set(lengths)
        found = []
        for depth in range(deepest + 1):
            if not self.claim.speaks_of(depth):
                continue
            totals = [t for t in range((max(asked) - depth) // 2 + 1) if 2 * t + depth in asked]
            for first, last in _bands(totals):
                closing: list[int | None] = [None] if depth or first == 0 else []
                if depth < deepest and last > 0:
                    closing += range(k)
                found += [Shell(first, last, depth, closes) for closes in closing]
        return sorted(found, key=lambda shell: (shell.lengths[-1], shell.depth))

    def cost(self, shell: Shell) -> int:
        """How many profiles a shell has, at most."""
        totals = range(shell.first, shell.last + 1)
        rows = sum(n_profiles(self.profiles.kinds, total) for total in totals)
        return int(rows * self.profiles.k**shell.depth)

    def endings(self, shell: Shell) -> Iterator[Ending]:
        """The endings of a shell of which the claim says anything: k to the power of the depth."""
        for ending in self.profiles.endings(range(shell.depth, shell.depth + 1)):
            if ending.closes == shell.closes and self.evaluators(ending) is not None:
                yield ending

    def enumerate(self, shell: Shell, tally: Tally, deadline: Deadline) -> None:
        """Evaluate all profiles of a shell.

        Raises:
            OutOfTime: the deadline has passed; what has been evaluated is in the tally.
        """
        first = next(self.endings(shell), None)
        if first is None:
            return
        for total in range(shell.first, shell.last + 1):
            for block in pair_blocks(self.profiles.kinds, total, BLOCK):
                deadline.check()
                block = block[self.profiles.occur(first, block)]
                for ending in self.endings(shell) if len(block) else ():
                    deadline.check()
                    self.rows(ending, block, tally)

    def rows(self, ending: Ending, block: Counts, tally: Tally) -> None:
        """Evaluate some profiles that occur, and add what they are to a tally."""
        margin, error = self.margins(ending, block)
        lengths = 2 * block.sum(1, dtype=np.int64) + ending.depth

        def weigh(at: IntArray) -> tuple[Array, Array]:
            mine = block[at]
            return self.profiles.log_string(ending, mine), self.profiles.log_count(ending, mine)

        def found(index: int) -> Found:
            return self.found(ending, block, index, margin)

        tally.take(ending.depth, lengths, margin, error, weigh, found)

    def margins(self, ending: Ending, block: Counts) -> tuple[Array, Array]:
        """The claim's margins of profiles, and bounds of their errors."""
        extended = np.concatenate([np.ones((len(block), 1)), block], axis=1)
        evaluators = self.evaluators(ending)
        assert evaluators is not None
        answers: list[Answer] = [evaluator.values(extended) for evaluator in evaluators]
        with np.errstate(divide="ignore", invalid="ignore"):
            return known(*self.claim.margins(ending, answers))

    def found(self, ending: Ending, block: Counts, index: int, margin: Array) -> Found:
        """A row of a block, with its margin."""
        row = block[index]
        nats = float(self.profiles.log_string(ending, row[None])[0])
        return Found(ending, tuple(row.tolist()), nats, float(margin[index]))


def _bands(totals: list[int]) -> list[tuple[int, int]]:
    """Runs of consecutive totals, each total alone while there are few profiles, then a third."""
    bands: list[tuple[int, int]] = []
    for total in totals:
        first, last = bands[-1] if bands else (0, -2)
        if total == last + 1 and _ALONE < total <= first * 4 // 3:
            bands[-1] = (first, total)
        else:
            bands.append((total, total))
    return bands
