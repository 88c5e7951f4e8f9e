"""The certificate of a model that can only be run: every string, as far as there are few.

The shortest strings come first, and all are run of each length within the limit. Of longer ones
walks that change rarely are run, for uniform draws hardly ever have a run of equal symbols; then
strings that are drawn alike, and they alone enter an interval. From the least margin of each length
below the shortest error a descent goes on, and a wrong string is cut as long as that gives a
shorter one.

Knows: in which order strings are run, and what is said of lengths that are too many to run.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Sequence
from functools import partial
from typing import final

import numpy as np

from tl_dyck.certify.deadline import RUN_A_LOOK, Deadline, OutOfTime
from tl_dyck.certify.exact.balls import BoolArray
from tl_dyck.certify.language.attempts import STAYS, cut, walks
from tl_dyck.certify.language.automata import Least
from tl_dyck.certify.language.automaton_certificate import shown
from tl_dyck.certify.language.lengths import first_gap
from tl_dyck.certify.language.runner import Tokens
from tl_dyck.certify.language.running import Says, Strings, judge_run, reaching
from tl_dyck.certify.language.sample import draw_errors
from tl_dyck.certify.language.tally import PrefixFound
from tl_dyck.certify.language.verdict import Bounds, LanguageCertificate, LengthResult, SampledError
from tl_dyck.kit.verdicts import Verdict
from tl_dyck.tasks import AutomatonTask

_WALKS = 64  # of each probability that a symbol is repeated, at each length
_DRAWN = 2000  # strings of each length that are too many to run
_MOST_CUT = 200  # times that a wrong string is cut
_STEPS = 10  # of a descent


@final
class Seen:
    """What was seen of one length.

    Attributes:
        worst: the least margin, and its string.
        wrong, ties: how many of those that were run; of all, if `whole`.
        whole: whether every string was run.
        drawn: from draws alone.
    """

    def __init__(self) -> None:
        self.worst, self.whole = Least(), False
        self.wrong = self.ties = 0
        self.drawn: SampledError | None = None


@final
class Ran:
    """Strings that are run, length by length.

    Args:
        strings: the automaton's, and what the model says of them.
        lengths: of which something is to be known, ascending.
        until: see `certify_language`; "refuted" ends at the first error.
        deadline: when to stop.
    """

    def __init__(
        self, strings: Strings, lengths: Sequence[int], until: str | None, deadline: Deadline
    ) -> None:
        self.strings, self.deadline, self.until = strings, deadline, until
        self.lengths = [length for length in lengths if strings.numbers[length]]
        self.seen = {length: Seen() for length in self.lengths}
        self.number, self.walked = 0, 0

    @property
    def rest(self) -> list[int]:
        """Lengths of which not every string was run."""
        return [length for length in self.lengths if not self.seen[length].whole]

    @property
    def wrong(self) -> Least | None:
        """The shortest wrong string; of these the one with the least margin."""
        for length in self.lengths:
            if self.seen[length].worst.high < 0:
                return self.seen[length].worst
        return None

    @property
    def enough(self) -> bool:
        """Whether what was asked for is known."""
        return self.until == "refuted" and self.wrong is not None

    def every(self, most: int, tell: Callable[[float], None]) -> None:
        """Every string, the shortest first, as long as they are not more than a limit in all."""
        left = most
        for length in self.lengths:
            left -= self.strings.numbers[length]
            if left < 0 or self.enough:
                return
            for some in self.strings.every(length):
                self.run(some)
            self.seen[length].whole = True
            tell(1 - left / max(most, 1))

    def walk(self) -> None:
        """Walks that change rarely, of lengths that are too many to run; what is wrong is cut."""
        generator = np.random.default_rng(0)
        for stays in STAYS:
            for length in self.rest:
                if self.enough:
                    return
                found = self._walks(length, stays, generator)
                self.walked += len(found)
                self.run(found)

    def descend(self) -> None:
        """From the least margin of each length that is shorter than the shortest error."""
        for length in self.rest:
            seen = self.seen[length].worst
            for _ in range(_STEPS):
                if self.enough or seen.string is None or seen.high < 0:
                    break
                known = seen.string
                near = _near(known, len(self.strings.task.symbols))
                self.run(near[self._are_strings(near)])
                if seen.string == known:
                    break
            if seen.high < 0:
                return

    def shorten(self) -> None:
        """Cut the shortest wrong string as long as that gives a shorter one."""
        if self.strings.task.places is not None:
            return
        known = None
        for _ in range(_MOST_CUT):
            wrong = self.wrong
            if wrong is None or wrong.string is None or wrong.string == known:
                return
            known = wrong.string
            rows = cut(known)
            for length in np.unique((rows >= 0).sum(1)).tolist():
                if length in self.seen and not self.seen[length].whole:
                    some = rows[(rows >= 0).sum(1) == length, :length]
                    self.run(some[self._are_strings(some)])

    def draw(self) -> None:
        """Strings that are drawn alike, of lengths that are too many to run."""
        for length in self.rest:
            judge = judge_run(self.strings, length, self.note)
            self.seen[length].drawn = draw_errors(judge, length, _DRAWN, self.deadline)

    def run(self, strings: Tokens) -> None:
        """Run strings of one length, which are asked something, and note what is wrong."""
        if len(strings):
            self.deadline.check(len(strings) / RUN_A_LOOK)
            margin, _, answer = self.strings.margins(strings)
            self.note(strings, margin, answer)

    def note(self, strings: Tokens, margin: np.ndarray, answer: np.ndarray) -> None:
        """Note margins of strings of one length."""
        seen, at = self.seen[strings.shape[1]], int(margin.argmin())
        seen.worst.see(float(margin[at]), tuple(strings[at].tolist()), int(answer[at]))
        seen.wrong += int((margin < 0).sum())
        seen.ties += int((margin == 0).sum())
        self.number += len(strings)

    def _walks(self, length: int, stays: float, generator: np.random.Generator) -> Tokens:
        answers = self.strings.answers(length)
        alive = reaching(answers.after, answers.answer >= 0, length)
        ends = np.full(_WALKS, length)
        return self.strings.written(walks(answers.after, alive, ends, stays, generator))

    def _are_strings(self, strings: Tokens) -> BoolArray:
        """Whether each is a string of the task that is asked something."""
        answers = self.strings.answers(strings.shape[1])
        state = np.zeros(len(strings), dtype=np.int64)
        for symbols in strings[:, self.strings.order(strings.shape[1])].T:
            state = np.where(state < 0, -1, answers.after[state, symbols])
        asked: BoolArray = (state >= 0) & (answers.answer[state] >= 0)
        return asked


def run_automaton(
    says: Says,
    task: AutomatonTask,
    lengths: tuple[int, ...],
    threshold: float | None,
    *,
    most_run: int,
    until: str | None,
    deadline: Deadline,
    tell: Callable[[float], None],
) -> LanguageCertificate:
    """What running a model says about its answers to an automaton's strings.

    Args:
        says: the model.
        task: the automaton.
        lengths: in symbols, ascending.
        threshold: of the claim "allowed"; None for "any_token".
        most_run: how many strings are run of lengths all of whose strings are.
        until: see `certify_language`.
        deadline: when to stop.
        tell: is told the share of the work done.

    Raises:
        CertifyError: the task asks for nothing, or the model lacks an answer.
    """
    started = time.perf_counter()
    strings = Strings(task, lengths[-1], threshold, says)
    gap = first_gap(strings.numbers, lengths, "any_token", task.name)
    ran = Ran(strings, lengths, until, deadline)
    with contextlib.suppress(OutOfTime):
        ran.every(most_run, tell)
        if not ran.enough:
            ran.walk()
        if not ran.enough:
            ran.draw()
        ran.descend()
        ran.shorten()
    tell(1.0)
    worst = min((ran.seen[length].worst for length in ran.lengths), key=lambda each: each.high)
    show = partial(_shown, strings)
    error = None if ran.wrong is None else show(ran.wrong)
    rows = [_row(ran, length) for length in ran.lengths]
    shorter = [row for row in rows if error is not None and row.length < error.length]
    status, reason = _verdict(ran)
    drawn = (ran.seen[length].drawn for length in ran.lengths)
    return LanguageCertificate(
        status=status,
        claim="any_token" if threshold is None else "allowed",
        threshold=threshold,
        language=str(task.language),
        lengths=lengths,
        gap=gap,
        margin=Bounds(min(row.margin.low for row in rows if row.margin), worst.high),
        likeliest=error,
        shortest=error,
        is_shortest=error is not None and all(row.decided for row in shorter),
        tightest=None if worst.string is None else show(worst),
        errors=tuple(show(s.worst) for s in ran.seen.values() if s.worst.high < 0),
        by_length=tuple(rows),
        method="strings run",
        seconds=time.perf_counter() - started,
        reason=reason,
        drawn=tuple(each for each in drawn if each is not None and each.n),
        stats={"strings": ran.number} | ({"of them walks": ran.walked} if ran.walked else {}),
    )


def _verdict(ran: Ran) -> tuple[Verdict, str]:
    rest, reason = ran.rest, ""
    if rest and ran.deadline.passed:
        reason = f"not all was run in time: those of length {rest[0]} and others were not"
    elif rest and not ran.enough:
        reason = f"too many strings to run: those of length {rest[0]} and others were not"
    if ran.wrong is not None:
        return "refuted", reason
    ties = [length for length in ran.lengths if ran.seen[length].ties]
    if ties:
        return "open", f"a tie, at length {ties[0]}"
    return ("open" if rest else "proved"), reason


def _row(ran: Ran, length: int) -> LengthResult:
    seen, number = ran.seen[length], ran.strings.numbers[length]
    # of other lengths the same string may have been drawn twice
    wrong = seen.wrong if seen.whole else int(seen.wrong > 0)
    most = wrong + seen.ties if seen.whole else number
    low = seen.worst.high if seen.whole else -np.inf
    worst = None if seen.worst.string is None else _shown(ran.strings, seen.worst)
    return LengthResult(
        length=length,
        prefixes=number,
        decided=seen.whole and not seen.ties,
        wrong=wrong,
        error=Bounds(wrong / number, most / number),
        margin=Bounds(low, seen.worst.high),
        worst=worst,
    )


def _shown(strings: Strings, least: Least) -> PrefixFound:
    logits = strings.says.run(np.array([least.string], dtype=np.int64))[0]
    return shown(strings, strings.says.model, strings.threshold, least, logits)


def _near(string: tuple[int, ...], n_symbols: int) -> Tokens:
    """A string with one symbol changed, or two exchanged."""
    given = np.array(string, dtype=np.int64)
    length = len(string)
    at, to = np.nonzero(given[:, None] != np.arange(n_symbols))
    first, second = np.nonzero(np.triu(given[:, None] != given))
    found = np.tile(given, (len(at) + len(first), 1))
    found[np.arange(len(at)), at] = to
    rows = np.arange(len(at), len(found))
    found[rows, first], found[rows, second] = given[second], given[first]
    return found.reshape(-1, length)
