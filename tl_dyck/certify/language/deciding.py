"""`certify_language`: a claim about every prefix of a language, proved, refuted or left open."""

from __future__ import annotations

import contextlib
import dataclasses
import math
import time
from collections.abc import Callable, Generator, Iterable, Sequence
from functools import partial
from typing import Any, SupportsIndex, final

import numpy as np

from tl_dyck.certify.deadline import Deadline, OutOfTime
from tl_dyck.certify.exact.balls import BoolArray
from tl_dyck.certify.exact.network import Network
from tl_dyck.certify.language.asked import Asked, ask, lengths_up_to
from tl_dyck.certify.language.claims import Claim
from tl_dyck.certify.language.counting import Symbols
from tl_dyck.certify.language.enumeration import Judge, Shell
from tl_dyck.certify.language.profiles import Profiles
from tl_dyck.certify.language.search import decide
from tl_dyck.certify.language.summary import is_proved_likeliest, summarise
from tl_dyck.certify.language.tally import Tally
from tl_dyck.certify.language.verdict import LanguageCertificate
from tl_dyck.certify.language.walking import seek, walk
from tl_dyck.check import check_integer, check_time_limit
from tl_dyck.environment import one_thread
from tl_dyck.registry import unknown_name
from tl_dyck.rnn import TwoLayerRNN
from tl_dyck.tasks import DyckTask
from tl_dyck.workers import check_jobs, spread

Progress = Callable[[float], None]

_SOUGHT = 28
_START = 10.0
"""Seconds below which no processes are started: that alone takes some."""

_UNTIL = ("counted", "likeliest", "refuted")


@one_thread()
def certify_language(
    model_or_rnn: Any,
    task: DyckTask | str,
    lengths: SupportsIndex | Iterable[SupportsIndex] = 28,
    property: str = "any_token",
    *,
    epsilon: float | None = None,
    other: Any = None,
    head: SupportsIndex | None = None,
    until: str = "counted",
    most_run: SupportsIndex = 100_000,
    time_limit: float | None = None,
    n_jobs: SupportsIndex = 1,
    progress: Progress | None = None,
) -> LanguageCertificate:
    """Decide a claim about a model on *every* prefix of a language.

    Of one layer without positions, by profiles: that is exact, and feasible for long prefixes. Any
    other model is run on every prefix while there are few, see `most_run`, and on some of the rest.

    >>> from tl_dyck import construct, load_task
    >>> task = load_task("dyck-2-4")
    >>> certificate = certify_language(construct.uniform_attention(task.language), task, 12)
    >>> certificate.status, certificate.prefixes
    ('proved', 102326)

    Args:
        model_or_rnn: a `TwoLayerRNN`, or a HookedTransformer whose tokens are the language's.
        task: a task or its name; it gives language, distribution and metric.
        lengths: every length up to this one, in brackets; or the lengths themselves.
        property: name of the claim, see `tl_dyck.certify.language.CLAIMS`.
        epsilon: for "total_variation" and "kl": the largest distance that is allowed.
        other: for "agree": the other model.
        head: for "head": index of the head whose attention is made uniform.
        until: when to stop: "counted", when every length is decided and so the probability of
            error exact; "likeliest", when the likeliest error is known; "refuted", at any error.
        most_run: how many prefixes to run a model on that has positions or several layers.
        time_limit: seconds, after which what is known is returned; None for no limit.
        n_jobs: worker processes; no more are started than there are cores, and none if less than
            ten seconds are left.
        progress: called with the share of the work done, now and then.

    Returns:
        The certificate. What is proved holds for the weights as real numbers, or, of models that
        are run, for the logits as they are computed; a refuting prefix has been run through the
        model itself.

    Raises:
        CertifyError: lengths that the model cannot read, other tokens than the language's, or
            arguments that do not go together.
        ValueError: a number is out of range: lengths above 1,000, a time limit that is not finite.
        UnsupportedModelError: "head" of a model that cannot be exported; no model, or one that does
            not compute in float32 or float64.
        UnknownNameError: no such property or task.
    """
    started = time.perf_counter()
    deadline = Deadline.after(check_time_limit(time_limit))
    wanted = lengths_up_to(lengths)
    if until not in _UNTIL:
        raise unknown_name("until", until, _UNTIL)
    workers = check_jobs(n_jobs)
    most_run = check_integer("most_run", most_run, least=0)
    asked = ask(model_or_rnn, task, property, wanted[-1], epsilon=epsilon, other=other, head=head)
    tell = progress or (lambda share: None)
    if asked.judge is None:
        tally, done, left = walk(asked, wanted, most_run, deadline, tell)
        complete = np.zeros(tally.wrong.log_mass.shape, dtype=bool)
        complete[sorted(done)] = True
        method = f"prefixes run one by one, {asked.how}"
    else:
        work = _Work(asked, asked.judge, wanted, deadline)
        work.run(workers, until, tell)
        tally, complete, left = work.tally, work.complete(), ""
        method = "boxes of profiles" if tally.boxes else "every profile"
    found = summarise(asked, tally, complete, wanted, method=method, left=left)
    seconds = time.perf_counter() - started
    return dataclasses.replace(found, epsilon=epsilon, seconds=seconds)


@final
class _Work:
    """The shells of some lengths, short prefixes first, done as far as time allows."""

    def __init__(
        self, asked: Asked, judge: Judge, lengths: Sequence[int], deadline: Deadline
    ) -> None:
        self.asked, self.judge, self.lengths, self.deadline = asked, judge, lengths, deadline
        self.shells = judge.shells(lengths)
        self.tally = Tally.empty(max(lengths), judge.profiles.deepest)
        self.done: set[Shell] = set()

    def complete(self) -> BoolArray:
        """Which lengths and depths have been gone through, ``[longest + 1, D + 1]``."""
        complete = np.zeros(self.tally.wrong.log_mass.shape, dtype=bool)
        complete[list(self.lengths)] = True
        for shell in self.shells:
            if shell not in self.done:
                complete[list(shell.lengths), shell.depth] = False
        return complete

    def run(self, n_jobs: int, until: str, progress: Progress) -> None:
        """Decide one shell after the other, `n_jobs` at a time."""
        if self.shells and max(self.shells[-1].lengths) > _SOUGHT:  # errors are soon found there
            lengths = sorted({n for each in self.shells for n in each.lengths})
            with contextlib.suppress(OutOfTime):
                seek(self.asked, lengths, self.tally, self.deadline)
            if self._enough(until):
                return
        costs = {shell: self.judge.cost(shell) for shell in self.shells}
        total, finished = max(1, sum(costs.values())), 0
        answers = self._answers(n_jobs)
        for shell, (tally, whole) in zip(self.shells, answers, strict=False):
            self.tally.add(tally)
            if whole:
                self.done.add(shell)
            finished += costs[shell]
            progress(finished / total)
            if self.deadline.passed or self._enough(until):
                break
        answers.close()

    def _answers(self, n_jobs: int) -> Generator[tuple[Tally, bool], None, None]:
        judge = self.judge
        n_jobs = min(n_jobs, max(1, len(self.shells)))
        if n_jobs == 1 or self.deadline.left < _START:
            return (_decide(judge, shell, self.deadline.left) for shell in self.shells)
        # networks and tables are made anew in each process: they take less time than to send them
        parts = ([each.network.rnn for each in judge.symbols], judge.claim, judge.profiles)
        calls = ((shell, self.deadline.left) for shell in self.shells)
        return spread(partial(_decide_alone, *parts), calls, n_jobs)

    def _enough(self, until: str) -> bool:
        if until == "counted" or self.tally.wrong.likeliest is None:
            return False
        profiles = self.judge.profiles
        return until == "refuted" or is_proved_likeliest(
            profiles, self.tally, self.complete(), self.lengths
        )


def _decide(judge: Judge, shell: Shell, seconds: float) -> tuple[Tally, bool]:
    """What a shell comes to, and whether all of it was decided."""
    tally = Tally.empty(shell.lengths[-1], judge.profiles.deepest)
    try:
        decide(judge, shell, tally, Deadline.after(None if seconds == math.inf else seconds))
    except OutOfTime:
        return tally, False
    return tally, True


def _decide_alone(
    rnns: Sequence[TwoLayerRNN], claim: Claim, profiles: Profiles, shell: Shell, seconds: float
) -> tuple[Tally, bool]:
    """The same, in a process of its own."""
    symbols = [Symbols(Network(rnn), profiles.language) for rnn in rnns]
    return _decide(Judge(symbols, claim, profiles), shell, seconds)
