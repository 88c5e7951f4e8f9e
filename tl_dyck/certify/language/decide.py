"""`certify_language`: a claim about every prefix of a language, proved, refuted or left open.

With positions or several layers a prediction does not follow from how often each symbol occurs.
What is left is to run the model itself, as far as that is feasible. A claim that holds on every
prefix that was run is proved for the logits as this machine computes them, not for the weights as
real numbers. Longer prefixes of one layer with positions or two without, and all strings of other
automata, are paths of a graph (`automata`).
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, SupportsIndex

import numpy as np
import torch

from tl_dyck.certify.deadline import RUN_A_LOOK, Deadline, OutOfTime, counts_work
from tl_dyck.certify.exact.linear import is_linear
from tl_dyck.certify.language.anytime import UNTIL
from tl_dyck.certify.language.asking import along
from tl_dyck.certify.language.automata import NOTHING, Answers, Least, Margins
from tl_dyck.certify.language.automaton_certificate import decide_automaton, read_automaton_claim
from tl_dyck.certify.language.evaluator import Evaluator
from tl_dyck.certify.language.lengths import first_gap, lengths_unsaid, lengths_up_to
from tl_dyck.certify.language.profiles import Profiles
from tl_dyck.certify.language.questions import Asked, Head, ask
from tl_dyck.certify.language.ran_certificate import run_automaton
from tl_dyck.certify.language.runner import Tokens
from tl_dyck.certify.language.running import says_of
from tl_dyck.certify.language.shells import Shell, decide, shells
from tl_dyck.certify.language.summary import summarise
from tl_dyck.certify.language.tally import Tally
from tl_dyck.certify.language.verdict import LanguageCertificate
from tl_dyck.kit.arguments import checked
from tl_dyck.kit.check import check_integer, check_time_limit
from tl_dyck.kit.environment import made_with, one_thread
from tl_dyck.kit.registry import unknown_name
from tl_dyck.kit.workers import check_jobs, spread
from tl_dyck.language.dyck import MAX_ENUMERATED_TOKENS
from tl_dyck.reading.inputs import looks_ahead, unwrapped
from tl_dyck.tasks import AutomatonTask, DyckTask, load_task

_SOUGHT = 28
"""Length beyond which errors are soon found among drawn prefixes."""

_START = 10.0
"""Seconds below which no processes are started: that alone takes some."""

_AT_ONCE = 1024
"""Prefixes run at once."""

_DRAWN = 2048
"""Prefixes drawn where not all can be run, or decided soon."""


@checked
@one_thread()
def certify_language(
    model_or_rnn: Any,
    task: DyckTask | AutomatonTask | str,
    lengths: SupportsIndex | Iterable[SupportsIndex] | None = None,
    property: str = "any_token",
    *,
    epsilon: float | None = None,
    other: Any = None,
    head: Head | None = None,
    threshold: float | None = None,
    until: str | None = None,
    most_run: SupportsIndex = 100_000,
    time_limit: float | None = None,
    n_jobs: SupportsIndex = 1,
    progress: Callable[[float], None] | None = None,
) -> LanguageCertificate:
    """Decide a claim about a model on *every* prefix of a language.

    Of one layer without positions, by profiles: that is exact, and feasible for long prefixes. Any
    other model is run on every prefix while there are few, see `most_run`, and on some of the rest;
    of one layer with positions or two without, longer ones are decided as paths of a graph, length
    by length as far as that comes to something, for all claims but "total_variation" and "kl".
    Where the last layer is one head with a linear readout, "any_token" and "closing_only" count the
    wrong ones, too.

    Of an `AutomatonTask`, such a model is decided as paths of a graph at every length. What
    is claimed is that the largest logit is the task's `answer` to the state that a string leaves,
    or the one symbol that `counted` asks for; of "allowed", that each symbol's logit is above the
    threshold exactly if it may follow, where any may. The model starts with BOS if it has a token
    more than there are symbols. One layer may look ahead: then it reads each string to its end, or,
    with `places`, answers at the one that is asked. Any other model, or a function, is run: on
    every string while there are few, then on walks that change rarely, on strings that are drawn
    alike, and down from the least margins. Of the drawn ones `drawn` says an interval.

    Examples:
        >>> from tl_dyck import construct, load_task
        >>> task = load_task("dyck-2-4")
        >>> certificate = certify_language(construct.uniform_attention(task.language), task, 12)
        >>> certificate.status, certificate.prefixes
        ('proved', 102326)

    Args:
        model_or_rnn: a `TwoLayerRNN`, or a HookedTransformer whose tokens are the language's; of an
            automaton also a function of symbols ``[n, length]``, without BOS, to logits
            ``[n, outputs]``, what is said of each whole string, whichever way it reads.
        task: a task or its name; it gives language, distribution and metric, or an automaton.
        lengths: every length up to this one, in brackets; or the lengths themselves. None for 28;
            of a task with places, for the prefixes up to each place that it asks about.
        property: name of the claim, see `tl_dyck.certify.language.CLAIMS`.
        epsilon: for "total_variation" and "kl": the largest distance that is allowed.
        other: for "agree": the other model.
        head: for "head": index of the head whose attention is made uniform, or (layer, index).
        threshold: for "allowed": a symbol may follow, says the model, if its logit is above it; 0
            if not given. Of a probability p it is ln(p / (1 - p)).
        until: when to stop: "counted", when every length is decided and so the probability of
            error exact; "likeliest", when the likeliest error is known, or of an automaton, when
            the least margin of every length is; "signs", when it is known of every length whether
            there is an error; "refuted", at any error. None for "counted" of brackets, where
            counts come with the verdict; of an automaton for "signs", and for counts of what is
            wrong if they take no longer than the signs: the least margin is then between what was
            proved and what was seen.
        most_run: how many prefixes to run a model on that has positions or several layers; the
            empty one always. Of an automaton, of models that are run.
        time_limit: seconds, after which what is known is returned; None for no limit.
        n_jobs: worker processes; no more are started than there are cores, and none if less than
            ten seconds are left.
        progress: called with the share of the work done, now and then.

    Returns:
        The certificate. What is proved holds for the weights as real numbers, or, of models that
        are run, for the logits as they are computed; a refuting prefix has been run through the
        model itself.

    Raises:
        CertifyError: lengths that the model cannot read, other tokens than the language's, another
            claim of an automaton than "any_token" and "allowed", or arguments that do not go
            together.
        ValueError: a number is out of range: lengths above 1,000, a time limit that is not finite.
        UnsupportedModelError: "head" of a model that is no plain decoder; no model, or one that
            does not compute in float32 or float64.
        UnknownNameError: no such property or task.
    """
    started = time.perf_counter()
    deadline = Deadline.after(check_time_limit(time_limit))
    if until is not None and until not in UNTIL:
        raise unknown_name("until", until, UNTIL)
    workers = check_jobs(n_jobs)
    most_run = check_integer("most_run", most_run, least=0)
    tell = progress or (lambda share: None)
    task = load_task(task) if isinstance(task, str) else task
    if lengths is None:
        lengths = lengths_unsaid(task, ahead=looks_ahead(model_or_rnn))
    wanted = lengths_up_to(lengths)
    if isinstance(task, AutomatonTask):
        above = read_automaton_claim(task, property, (epsilon, other, head), threshold)
        how: dict[str, Any] = {"until": until, "deadline": deadline, "tell": tell}
        says = says_of(model_or_rnn, task, wanted[-1], allowed=above is not None)
        if says is None:
            found = decide_automaton(model_or_rnn, task, wanted, above, **how)
        else:
            found = run_automaton(says, task, wanted, above, most_run=most_run, **how)
        return replace(found, made_with=made_with(unwrapped(model_or_rnn)))
    until = until or "counted"
    about: dict[str, Any] = {"epsilon": epsilon, "other": other, "head": head}
    asked = ask(model_or_rnn, task, property, wanted[-1], **about, threshold=threshold)
    gap = first_gap(asked.spoken(wanted[-1]), wanted, property, asked.task.language)
    tally = Tally(wanted[-1], asked.profiles.deepest)
    left = ""
    if asked.evaluator is None:
        left = run_all(asked, wanted, most_run, tally, deadline, until, tell)
    else:
        count_all(asked, wanted, tally, deadline, until, workers, tell)
    found = summarise(asked, tally, wanted, gap=gap, left=left, started=started)
    return replace(found, made_with=made_with(unwrapped(model_or_rnn)))


def count_all(
    asked: Asked,
    lengths: Sequence[int],
    tally: Tally,
    deadline: Deadline,
    until: str,
    n_jobs: int,
    tell: Callable[[float], None],
) -> None:
    """Decide one shell after the other, short prefixes first, `n_jobs` at a time, in time."""
    profiles, waiting = asked.profiles, shells(asked.profiles, asked.claim, lengths)
    enough = partial(_is_enough, asked, lengths, tally, until)
    left = np.zeros(tally.complete.shape, dtype=int)
    for shell in waiting:
        # a length and depth is complete when none of its shells is left
        left[list(shell.lengths), shell.depth] += 1
    tally.complete[list(lengths)] = left[list(lengths)] == 0

    # shells are sorted by their longest prefix: the last one has the longest of all
    if waiting and max(waiting[-1].lengths) > _SOUGHT:
        with contextlib.suppress(OutOfTime):
            seek(asked, sorted({n for each in waiting for n in each.lengths}), tally, deadline)
        if enough():
            return
    # what is told is the share of the work, not of the shells
    costs = np.cumsum([shell.cost(profiles) for shell in waiting], dtype=float)
    # a generator: a shell is begun when an answer is asked for, so that the loop below can stop it
    answers = _answers(asked, waiting, n_jobs, deadline)
    for shell, done, (part, whole) in zip(waiting, costs.tolist(), answers, strict=False):
        tally.add(part)
        place = list(shell.lengths), shell.depth
        left[place] -= whole
        tally.complete[place] = left[place] == 0
        tell(done / costs[-1])
        if deadline.passed or enough():
            break
    answers.close()


def _is_enough(asked: Asked, lengths: Sequence[int], tally: Tally, until: str) -> bool:
    """Whether what was asked for is known."""
    if until in ("signs", "counted") or tally.wrong.likeliest is None:
        return False
    return until == "refuted" or tally.is_likeliest(asked.profiles, lengths)


def _answers(
    asked: Asked, waiting: Sequence[Shell], n_jobs: int, deadline: Deadline
) -> Generator[tuple[Tally, bool], None, None]:
    assert asked.evaluator is not None
    n_jobs = min(n_jobs, max(1, len(waiting)))
    calls = ((shell, deadline.left) for shell in waiting)
    work = partial(_decided, asked.evaluator)
    # work that is counted is counted in this process
    if n_jobs == 1 or counts_work() or deadline.left < _START:
        return (work(*call) for call in calls)
    return spread(work, calls, n_jobs)


def _decided(evaluator: Evaluator, shell: Shell, seconds: float) -> tuple[Tally, bool]:
    """What a shell comes to, and whether all of it was decided."""
    tally = Tally(shell.lengths[-1], evaluator.profiles.deepest)
    try:
        decide(evaluator, shell, tally, Deadline.after(seconds))
    except OutOfTime:
        return tally, False
    return tally, True


def run_all(
    asked: Asked,
    lengths: Sequence[int],
    most: int,
    tally: Tally,
    deadline: Deadline,
    until: str,
    tell: Callable[[float], None],
) -> str:
    """Run the models on all prefixes, the shortest first, while they are few; then on drawn ones.

    Args:
        asked: of models that are run.
        lengths: of the prefixes, ascending.
        most: how many prefixes may be run in all; of the lengths beyond that some are drawn.
        tally: of what is found.
        deadline: when to stop.
        until: what is asked for; with that known, it stops.
        tell: is told the share of the work done.

    Returns:
        Why not all were run; empty if they were, or if time ran out.
    """
    language, left, reason = asked.profiles.language, most, ""
    enough = partial(_is_enough, asked, lengths, tally, until)
    with contextlib.suppress(OutOfTime):
        for length in lengths:
            if not length and asked.is_bare:  # which has nothing to read
                tally.complete[0] = True
                continue
            number = language.count(length, "prefix")
            left -= number
            # the empty prefix is one, and is run whatever `most` says
            if length and (left < 0 or number * length > MAX_ENUMERATED_TOKENS):
                reason = "too many prefixes to run"
                break
            strings = language.enumerate(length, "prefix").numpy()
            for start in range(0, len(strings), _AT_ONCE):
                deadline.check(_AT_ONCE / RUN_A_LOOK)
                for judged in asked.judged(strings[start : start + _AT_ONCE]):
                    tally.take(judged)
            tally.complete[length] = True
            tell(1 - left / max(most, 1))
            if enough():
                break
        rest = [n for n in lengths if not tally.complete[n].all()]
        if not enough():
            seek(asked, rest, tally, deadline)
        for length in rest if asked.paths is not None else []:
            if enough() or not walk(asked, length, tally, deadline):
                break
        for length in sorted(tally.refuted) if until == "counted" else []:
            if not tally.complete[length].all() and not count(asked, length, tally, deadline):
                break
        rest = [n for n in lengths if not tally.complete[n].all()]
        if reason:
            reason = f"{reason}: those of length {rest[0]} and others were not" if rest else ""
    tell(1.0)
    return reason


def walk(asked: Asked, length: int, tally: Tally, deadline: Deadline) -> bool:
    """Decide all prefixes of a length at once, along paths.

    Returns:
        Whether it came to something: proved, or a wrong one found.

    Raises:
        OutOfTime: the deadline has passed.
    """
    assert asked.paths is not None
    deadline.check()
    found = asked.paths.least(length, deadline, decide=True)
    tally.walked += 1
    _see(asked, found, tally)
    if found.low > 0:
        tally.complete[length] = True
        tally.proved = min(tally.proved, found.low)
    return found.low > 0 or found.high < 0


def _see(asked: Asked, found: Least, tally: Tally) -> None:
    """Run the prefix on which a margin is the least, and note it."""
    if found.string is not None:
        for judged in asked.judged(np.array([found.string], dtype=np.int64)):
            tally.see_wrong(judged)
            tally.see(judged.found(0))


def count(asked: Asked, length: int, tally: Tally, deadline: Deadline) -> bool:
    """Count the wrong prefixes of a length along paths, those that are as probable together.

    That is quick where margins are sums along a path, and done there alone: with norms, an MLP or
    several heads in the last layer it takes longer than to run the prefixes.

    Returns:
        Whether their number is exact.

    Raises:
        OutOfTime: the deadline has passed.
    """
    if not isinstance(asked.paths, Margins) or not is_linear(asked.paths.network):
        return False
    least = asked.paths.least(length, deadline, decide=False)
    _see(asked, least, tally)
    answers = Answers.of_brackets(asked.profiles.language, length, alike=True)
    alike = along(asked.paths.network, asked.claim, answers)
    answers = alike.answers
    exact = True
    for state, string in zip(*answers.examples(length), strict=True):
        for judged in asked.judged(string[None]):
            deadline.check()
            low, high = alike.wrong(length, int(state), deadline)
            tally.take_number(judged.found(0), low, high)
            exact &= low == high
            if low and not tally.knows_as_likely(judged.found(0)):
                own = np.where(np.arange(len(answers.answer)) == state, answers.answer, NOTHING)
                alone = replace(alike, answers=replace(answers, answer=own))
                _see(asked, alone.least(length, deadline, decide=False), tally)
                if not tally.knows_as_likely(judged.found(0)):
                    tally.doubtful.see(judged.found(0))
    tally.complete[length] = True
    tally.proved = min(tally.proved, least.low)
    return exact


def seek(asked: Asked, lengths: Sequence[int], tally: Tally, deadline: Deadline) -> None:
    """Look for wrong prefixes among drawn ones; nothing is counted.

    Raises:
        OutOfTime: the deadline has passed; what has been found is in the tally.
    """
    for strings in _draws(asked.profiles, [n for n in lengths if n > 0]):
        for judged in asked.judged(strings):
            tally.see_wrong(judged)
            deadline.check(len(strings) / RUN_A_LOOK)


def _draws(profiles: Profiles, lengths: Sequence[int]) -> Iterator[Tokens]:
    """Prefixes of some of the lengths, always the same ones."""
    generator = torch.Generator().manual_seed(0)
    places = np.linspace(0, len(lengths) - 1, 16).astype(int).tolist() if lengths else []
    chosen = sorted({lengths[place] for place in places})
    for length in chosen:
        n = _DRAWN // len(chosen)
        drawn = profiles.distribution.sample(n, length, mode="prefix", generator=generator)
        yield drawn.numpy()
