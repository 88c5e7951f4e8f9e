"""What is decided first: errors, then the sign of each answer, then least margins, then counts.

Every length and answer is a question by itself. Each is first asked for a short time, so that a
hard one keeps no easy one waiting; what is open is then gone on with, for longer. What was found
before a limit stays.

Knows: the order in which an automaton's strings are decided.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import final

import numpy as np

from tl_dyck.certify.deadline import Deadline
from tl_dyck.certify.exact.loss_counts import Losing
from tl_dyck.certify.language.asking import Asking
from tl_dyck.certify.language.attempts import Attempts
from tl_dyck.certify.language.automata import NOTHING, TOLERANCE, Least, Margins
from tl_dyck.certify.language.runner import Runner

_EACH = 1.0
"""Seconds for which strings of a state are counted before those of others."""

UNTIL = ("refuted", "signs", "likeliest", "counted")
"""What may be asked for, in the order in which it becomes known. If nothing is: of an automaton the
signs, and how many strings are wrong if that takes no longer; of brackets, "counted"."""

_PROBED = 5
"""Lengths that are asked before all others: the shortest, the longest, and some between."""

_SLICES = (1.0, 8.0, 64.0, 512.0, math.inf)
"""Seconds after which an open question waits for the others."""

_MOST_KEPT = 1e9
"""Bytes that all those may hold which wait: any other begins anew when its turn comes (1 GB)."""


@final
class Anytime:
    """What is known of each length and answer.

    Args:
        asking: what must be positive.
        runner: the model.
        lengths: of which that is to be known, ascending; none but those that ask.
        deadline: when to stop.
        tell: is told the share of the work done.

    Attributes:
        known: of each length, of each answer that is asked for there.
        counts: of each length that was counted, how many are wrong.
        attempts: what was run first.
    """

    def __init__(
        self,
        asking: Asking,
        runner: Runner,
        lengths: Sequence[int],
        deadline: Deadline,
        tell: Callable[[float], None],
    ) -> None:
        self.asking, self.deadline, self.tell = asking, deadline, tell
        self.numbers = {length: self._numbers(length) for length in lengths}
        self.known = {
            length: {each: Least(-math.inf, answer=each, ended=False) for each in numbers}
            for length, numbers in self.numbers.items()
        }
        self.counts: dict[int, Losing] = {}
        self.begun = Deadline.after(0.0)  # so many seconds ago as less than none are left of it
        self.attempts = Attempts(asking, runner, lengths, deadline)

    def decide(self, until: str | None) -> None:
        """Find out what is asked for, in time."""
        # "refuted" needs the pass of signs as well: what no try finds, bounds may
        passes = [self._try, self._signs]
        if until is None:
            passes += [self._count_soon]
        if until in ("likeliest", "counted"):
            passes += [self._margins]
        if until == "counted":
            # margins again, for counts may leave some of the time that margins leave to them
            passes += [self._count, self._margins]
        for done, each in enumerate(passes):
            if self.deadline.passed or (until == "refuted" and self.is_refuted):
                break
            each(first=until == "refuted")
            # one more than the passes: what is bounded at the end counts as one
            self.tell((done + 1) / (len(passes) + 1))
        self._bound()
        self.tell(1.0)

    @property
    def is_refuted(self) -> bool:
        """Whether an error is known."""
        return any(each.high < 0 for of in self.known.values() for each in of.values())

    def least(self, length: int) -> Least:
        """Of all answers of a length."""
        found = Least()
        for each in self.known[length].values():
            found.low = min(found.low, each.low)
            found.see(each.high, each.string, each.answer)
        return found

    def wrong(self, length: int) -> Losing:
        """At least and at most so many strings of a length are wrong."""
        if length in self.counts:
            return self.counts[length]
        of = self.known[length].values()
        # at least one string is wrong of each answer that is refuted; at
        # most all of those not proved
        doubtful = sum(self.numbers[length][each.answer] for each in of if not each.low > 0)
        return Losing(sum(each.high < 0 for each in of), doubtful)

    # ------------------------------------------------------------------ the passes

    def _try(self, *, first: bool) -> None:
        """Look for errors: among strings that are run, and at some lengths by bounds."""
        self.attempts.draw()
        self._see_attempts()
        # of one length the next pass asks no other question first
        if self.is_refuted or len(self.known) < 2:
            return
        lengths = list(self.known)
        places = np.linspace(0, len(lengths) - 1, _PROBED).round().astype(int)
        # a second in all
        seconds = 1.0 / _PROBED
        for length in sorted({lengths[place] for place in places.tolist()}):
            self._ask(length, seconds, decide=True)
            lost = self.least(length)
            if lost.high < 0 and lost.string is not None:
                self.attempts.see(lost.answer, lost.high, lost.string)
                self.attempts.shorten()
                self._see_attempts()
                return

    def _see_attempts(self) -> None:
        """Of the worst strings that were run, the margins of the weights as real numbers."""
        by_answer: dict[int, list[tuple[int, ...]]] = {}
        least: dict[int, float] = {}
        for (length, _), (margin, _) in self.attempts.worst.items():
            least[length] = min(margin, least.get(length, math.inf))
        for (length, answer), (margin, string) in self.attempts.worst.items():
            if margin < 0 or margin == least[length]:  # others say little
                by_answer.setdefault(answer, []).append(string)
        for answer, strings in by_answer.items():
            for lengths in self.asking.alike(list(self.known)):
                here = [string for string in strings if len(string) in lengths]
                read = self.asking.margins(lengths[0]).of(here, answer) if here else None
                for string, high in zip(here, read.upper.tolist() if read else (), strict=True):
                    self.known[len(string)][answer].see(high, string, answer)

    def _signs(self, *, first: bool) -> None:
        self._ask_all(self.deadline, decide=True, first=first)
        for of in self.known.values():
            for each in of.values():
                # a least margin is another question
                each.ended, each.search = False, None

    def _margins(self, *, first: bool) -> None:
        # half the time is for what is to be counted
        halves = 2 if self.is_refuted and not self.counts else 1
        self._ask_all(_share(self.deadline, halves), decide=False, first=first)

    def _ask_all(self, deadline: Deadline, *, decide: bool, first: bool) -> None:
        """Every length, for longer and longer; until there is an error, if the first will do."""
        for seconds in _SLICES:
            for length in self.known:
                self._ask(length, min(seconds, deadline.left), decide=decide)
                if deadline.passed or (first and self.is_refuted):
                    return

    def _ask(self, length: int, seconds: float, *, decide: bool) -> None:
        """Ask what is open of a length, each answer for some seconds."""
        for answer, known in self.known[length].items():
            high = self.least(length).high
            # of answers that are right only what is less than the least of all is looked for
            below = max(high, 0.0) if known.high >= 0 else math.inf
            settled = known.low > 0 if decide else known.low >= min(below, known.high) - _off(high)
            if decide and high < 0:
                return  # the length is refuted
            if known.ended or settled:
                continue
            if self.deadline.passed:
                return
            limit = Deadline.after(min(seconds, self.deadline.left))
            found = self.asking.margins(length).least_of(
                answer,
                length,
                limit,
                decide=decide,
                below=below,
                string=known.string,
                in_time=self.deadline.at < math.inf,
                search=known.search,
            )
            known.low, known.ended = max(known.low, found.low), found.ended
            known.search = found.search
            if known.search is not None and self._kept > _MOST_KEPT:
                known.search = None
            known.see(found.high, found.string, answer)

    @property
    def _kept(self) -> float:
        """Bytes that all searches hold which wait."""
        waiting = (each.search for of in self.known.values() for each in of.values())
        return sum(search.kept for search in waiting if search is not None)

    def _count_soon(self, *, first: bool) -> None:
        """Count what is wrong, if that takes no longer than all before."""
        seconds = min(max(_EACH, -self.begun.left), self.deadline.left)
        self._count_by(Deadline.after(seconds), on=False)

    def _count(self, *, first: bool) -> None:
        self._count_by(self.deadline)

    def _count_by(self, deadline: Deadline, *, on: bool = True) -> None:
        refuted = [length for length in self.known if self.least(length).high < 0]
        for done, length in enumerate(refuted):
            if deadline.passed:
                return
            doubtful = [each.answer for each in self.known[length].values() if not each.low > 0]
            limit = _share(deadline, len(refuted) - done)
            margins = self.asking.margins(length)
            self.counts[length] = counted(margins, length, doubtful, limit, on=on)

    def _numbers(self, length: int) -> dict[int, int]:
        """How many strings of a length ask for each answer."""
        answers = self.asking.margins(length).answers
        numbers = answers.numbers(length)
        asked = np.flatnonzero((answers.answer != NOTHING) & (numbers > 0))
        found: dict[int, int] = {}
        for state in asked.tolist():
            answer = int(answers.answer[state])
            found[answer] = found.get(answer, 0) + int(numbers[state])
        return dict(sorted(found.items()))

    def _bound(self) -> None:
        """Of what there was no time for: what the sizes of all that occurs come to."""
        for lengths in self.asking.alike(list(self.known)):
            margins = self.asking.margins(lengths[0])
            for answer, known in [
                each for length in lengths for each in self.known[length].items()
            ]:
                if known.low == -math.inf:
                    known.low = margins.floor(answer, lengths[-1])


def counted(
    margins: Margins, length: int, answers: Sequence[int], deadline: Deadline, *, on: bool = True
) -> Losing:
    """How many strings of a length that ask for some answers are wrong, state by state.

    See `count_wrong` for `on`.
    """
    asking = np.flatnonzero(np.isin(margins.answers.answer, answers)).tolist()
    found: dict[int, Losing] = {}
    for most in (_EACH, math.inf) if deadline.at < math.inf else (math.inf,):
        # what is not counted exactly at once shares the rest of the time
        hard = [s for s in asking if s not in found or found[s].low < found[s].high]
        for done, state in enumerate(hard):
            limit = _share(deadline, len(hard) - done, most)
            found[state] = margins.wrong(length, state, limit, on=on)
    every = found.values()
    return Losing(sum(each.low for each in every), sum(each.high for each in every))


def _share(deadline: Deadline, among: int, most: float = math.inf) -> Deadline:
    """Of the next of so many that have the rest of the time, some seconds each at most."""
    if deadline.at == math.inf:
        return deadline
    return Deadline.after(min(deadline.left / among, most))


def _off(value: float) -> float:
    """How far apart two bounds may be and still be one."""
    return TOLERANCE * max(1.0, abs(value)) if math.isfinite(value) else 0.0
