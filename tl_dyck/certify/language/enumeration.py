"""Every profile of a length, evaluated one by one, in blocks.

For two types and depth 4 there are C(T + 7, 7) ways to choose T pairs, for each of 31 stacks and up
to 3 last brackets: 10⁷ profiles up to length 28, which stand for 10¹¹ prefixes.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple, final

import numpy as np

from tl_dyck.certify.deadline import Deadline
from tl_dyck.certify.exact.balls import Array, BoolArray
from tl_dyck.certify.language.claims import Answer, Claim
from tl_dyck.certify.language.counting import Counted, Symbols
from tl_dyck.certify.language.forms import Form, has_form
from tl_dyck.certify.language.profiles import Counts, Ending, Profiles, n_profiles, pair_counts
from tl_dyck.certify.language.tally import Found, Tally

__all__ = ["Judge", "Shell"]

_BLOCK = 4096
"""Rows at a time: what they take stays in a core's cache."""


class Shell(NamedTuple):
    """All profiles of a number of pairs, a depth and a last bracket, whatever the stack's types."""

    total: int
    depth: int
    closes: int | None

    @property
    def length(self) -> int:
        """Of the prefixes, in brackets."""
        return 2 * self.total + self.depth


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
            made: list[Counted | Form] | None = []
            for symbols in self.symbols:
                asked = self.claim.objectives(ending, symbols.network.config.d_vocab_out)
                if asked is None or (not symbols.has_bos and not ending.stack and self._bare(ending)):
                    made = None
                    break
                make = Form if has_form(symbols.network.config) else Counted
                assert made is not None
                made.append(make(symbols, ending, asked))
            self._evaluators[ending] = made
        return self._evaluators[ending]

    @staticmethod
    def _bare(ending: Ending) -> bool:
        """Whether it is that of the empty prefix, which a model without BOS cannot read."""
        return ending.closes is None and not ending.stack

    def shells(self, lengths: Sequence[int]) -> list[Shell]:
        """All that must be gone through, the shortest first."""
        k, deepest = self.profiles.k, self.profiles.deepest
        found = []
        for length in sorted(lengths):
            for depth in range(length % 2, min(deepest, length) + 1, 2):
                closing: list[int | None] = [None] if depth or length == 0 else []
                if depth < deepest and length > depth:
                    closing += range(k)
                found += [Shell((length - depth) // 2, depth, closes) for closes in closing]
        return [shell for shell in found if self.speaks_of(shell.depth)]

    def speaks_of(self, depth: int) -> bool:
        """Whether the claim says anything on prefixes of a depth."""
        ending = Ending((0,) * depth, None)
        return self.claim.objectives(ending, self.symbols[0].network.config.d_vocab_out) is not None

    def cost(self, shell: Shell) -> int:
        """How many evaluations a shell takes, at most."""
        return n_profiles(self.profiles.kinds, shell.total) * self.profiles.k**shell.depth

    def decide(self, shell: Shell, deadline: Deadline) -> Tally:
        """Evaluate all profiles of a shell.

        Raises:
            OutOfTime: the deadline has passed.
        """
        tally = Tally.empty(shell.length, self.profiles.deepest)
        rows = pair_counts(self.profiles.kinds, shell.total)
        model_ending = Ending((0,) * shell.depth, shell.closes)
        for start in range(0, len(rows), _BLOCK):
            deadline.check()
            block = rows[start : start + _BLOCK]
            block = block[self.profiles.occur(model_ending, block)]
            if len(block):
                self._block(shell, block, tally)
        return tally

    def _block(self, shell: Shell, block: Counts, tally: Tally) -> None:
        extended = np.concatenate([np.ones((len(block), 1)), block], axis=1)
        for ending in self.profiles.endings(range(shell.depth, shell.depth + 1)):
            if ending.closes == shell.closes and self.evaluators(ending) is not None:
                self.rows(ending, block, extended, tally)

    def rows(self, ending: Ending, block: Counts, extended: Array, tally: Tally) -> None:
        """Evaluate some profiles, all of one length, and add what they are to a tally."""
        margin, error = self.margins(ending, extended)
        right, wrong = margin > error, margin < -error
        length, depth = len(tally.wrong) - 1, ending.depth
        tally.profiles += len(block)
        doubtful = ~(right | wrong)
        least = int(margin.argmin())
        tally.see(self._found(ending, block, least, margin), wrong=False)
        tally.proved = min(tally.proved, float((margin - error).min()))
        if wrong.any():
            mine, at = block[wrong], margin[wrong]
            count, nats = (
                of(ending, mine) for of in (self.profiles.log_count, self.profiles.log_string)
            )
            tally.wrong[length, depth] += np.exp(count + nats).sum()
            tally.wrong_strings[length, depth] += np.rint(np.exp(count)).sum()
            tally.see(self._found(ending, mine, int(nats.argmax()), at), wrong=True)
        if doubtful.any():
            mine, at = block[doubtful], margin[doubtful]
            tally.doubtful[length, depth] += np.exp(self.profiles.log_mass(ending, mine)).sum()
            tally.doubt = self._found(ending, mine, 0, at)

    def margins(self, ending: Ending, extended: Array) -> tuple[Array, Array]:
        """The claim's margins of profiles (1, m), and bounds of their errors."""
        evaluators = self.evaluators(ending)
        assert evaluators is not None
        answers: list[Answer] = [evaluator.values(extended) for evaluator in evaluators]
        with np.errstate(divide="ignore", invalid="ignore"):
            margin, error = self.claim.margins(ending, answers)
        known: BoolArray = np.isfinite(margin) & np.isfinite(error)
        return np.where(known, margin, 0.0), np.where(known, error, np.inf)

    def _found(self, ending: Ending, block: Counts, index: int, margin: Array) -> Found:
        row = block[index]
        nats = float(self.profiles.log_string(ending, row[None])[0])
        return Found(ending, tuple(row.tolist()), nats, float(margin[index]))
