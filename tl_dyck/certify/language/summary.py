"""From a tally to a certificate: probabilities, and wrong prefixes that the model confirms."""

from __future__ import annotations

import math
import time

import numpy as np

from tl_dyck.certify.exact.balls import Array
from tl_dyck.certify.language.questions import Asked
from tl_dyck.certify.language.tally import PrefixFound, Tally, log_sum
from tl_dyck.certify.language.verdict import Bounds, LanguageCertificate, LengthResult
from tl_dyck.kit.verdicts import Verdict
from tl_dyck.tasks.closing_accuracy import closing_weights


def summarise(
    asked: Asked,
    tally: Tally,
    lengths: tuple[int, ...],
    *,
    gap: int | None,
    left: str,
    started: float,
) -> LanguageCertificate:
    """The certificate of what was decided.

    Args:
        asked: the claim and the models.
        tally: what was found.
        lengths: that were asked about.
        gap: the shortest that was left out, see `LanguageCertificate`.
        left: why some lengths have not been gone through; empty if time ran out.
        started: `time.perf_counter()` when the question was asked.
    """
    language, distribution = asked.task.language, asked.task.distribution
    rows = _by_length(asked, tally, lengths)
    best, nearest = tally.wrong.likeliest, tally.wrong.shortest
    likeliest, own = _run(asked, best)
    shortest, _ = _run(asked, nearest)
    tightest, least = _run(asked, tally.tightest)
    is_likeliest = tally.is_likeliest(asked.profiles, lengths)
    status: Verdict = "proved" if best is None else "refuted"
    reason = ""
    if likeliest is not None and not own < 0:  # so little that the model's rounding hides it
        reason = f"the model's rounding hides that it is wrong on {likeliest.text!r}"
        likeliest, is_likeliest = tightest, False
        status = "refuted" if least < 0 else "open"
    elif best is None and not all(row.decided for row in rows):
        status, reason = "open", _open(asked, tally, rows, left)
    method = f"prefixes run one by one, {asked.how}"
    if tally.walked:
        method += ", longer ones as paths of a graph"
    if asked.evaluator is not None:
        method = "boxes of profiles" if tally.boxes else "every profile"
    return LanguageCertificate(
        status=status,
        claim=asked.name,
        epsilon=asked.epsilon,
        threshold=getattr(asked.claim, "threshold", None),
        language=f"Dyck({language.n_types}, {language.max_depth})",
        q=distribution.q,
        lengths=lengths,
        gap=gap,
        margin=Bounds(
            tally.proved if tally.complete[[row.length for row in rows]].all() else -math.inf,
            math.inf if tally.tightest is None else tally.tightest.margin,
        ),
        likeliest=likeliest,
        is_likeliest=is_likeliest,
        shortest=shortest,
        is_shortest=tally.is_shortest(lengths),
        tightest=tightest,
        by_length=rows,
        accuracy=_accuracy(asked, tally, long=False),
        long_accuracy=_accuracy(asked, tally, long=True),
        method=method,
        seconds=time.perf_counter() - started,
        reason="; ".join(filter(None, (reason, asked.why and f"prefixes were run: {asked.why}"))),
        stats={"evaluations": tally.profiles, "boxes": tally.boxes},
    )


def _run(asked: Asked, found: PrefixFound | None) -> tuple[PrefixFound | None, float]:
    return (None, math.inf) if found is None else asked.run(found)


def _open(asked: Asked, tally: Tally, rows: tuple[LengthResult, ...], left: str) -> str:
    """Why nothing is wrong for certain, and not all is right."""
    doubt = tally.doubtful.likeliest
    if doubt is not None:
        return f"a tie, or nearly so, on {asked.run(doubt)[0].text}: rounding hides the answer"
    first = min(row.length for row in rows if not row.decided)
    return left or f"not all was decided in time: length {first} and others were not"


def _by_length(asked: Asked, tally: Tally, lengths: tuple[int, ...]) -> tuple[LengthResult, ...]:
    task, claim, complete = asked.task, asked.claim, tally.complete
    numbers = asked.spoken(lengths[-1])
    spoken = np.array([claim.speaks_of(depth) for depth in range(task.language.max_depth + 1)])
    weight = 1 - task.distribution.open_probability() if claim.closing else np.ones(len(spoken))
    with np.errstate(divide="ignore"):
        reach = np.log(task.distribution.depth_probability(lengths[-1]))
        log_weight = np.log(np.where(spoken, weight, 0.0))
    maybe = np.logaddexp(tally.wrong.log_mass, tally.doubtful.log_mass)
    rows = []
    for n in lengths:
        prefixes = numbers[n]
        if not prefixes:
            continue
        decided = bool(complete[n].all()) and not tally.doubtful.strings[n].any()
        # a prefix that was drawn and is wrong is not counted, but there is one
        wrong = max(int(tally.wrong.strings[n].sum()), int(n in tally.refuted))
        whole = log_sum(reach[n] + log_weight)
        low = _share(tally.wrong.log_mass[n] + log_weight, whole)
        high = _share(np.where(complete[n], maybe[n], reach[n]) + log_weight, whole)
        # not 0 where some prefix is wrong, however improbable
        high = 0.0 if decided and not wrong else max(high, _TINY)
        error = Bounds(min(low, high), high)
        wrong = min(wrong, prefixes)
        rows.append(
            LengthResult(length=n, prefixes=prefixes, decided=decided, wrong=wrong, error=error)
        )
    return tuple(rows)


def _share(nats: Array, whole: float) -> float:
    """Σ exp over exp(whole), at most 1; 1 of nothing."""
    return 1.0 if whole == -math.inf else math.exp(min(log_sum(nats) - whole, 0.0))


_TINY = math.ulp(0.0)
"""What is not 0 is at most this where it is below all other float64."""


def _accuracy(asked: Asked, tally: Tally, *, long: bool) -> Bounds | None:
    """One minus the error that a task measures; None if nothing is known of it."""
    if not asked.claim.closing:
        return None
    weights = closing_weights(*asked.task.closing_distribution(long=long))
    reach = asked.task.distribution.depth_probability(len(weights) - 1)
    n = min(len(weights), len(tally.complete))
    wrong, doubtful = (np.exp(each.log_mass)[:n] for each in (tally.wrong, tally.doubtful))
    least, most = np.zeros_like(weights), reach.copy()
    least[:n] = wrong
    most[:n] = np.where(tally.complete[:n], wrong + doubtful, reach[:n])
    # nothing was learned of any length and depth that the task asks about
    if not ((most - least < reach) & (weights * reach > 0)).any():
        return None
    low, high = (1 - float((weights * wrong).sum()) for wrong in (most, least))
    return Bounds(max(low, 0.0), high)
