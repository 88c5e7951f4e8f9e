"""From tallies to a certificate: probabilities, and wrong prefixes that the model confirms."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence

import numpy as np
import torch

from tl_dyck.certify.exact.balls import Array, BoolArray
from tl_dyck.certify.language.asked import Asked
from tl_dyck.certify.language.claims import plain_margins, valid_tokens
from tl_dyck.certify.language.profiles import Profiles
from tl_dyck.certify.language.tally import Found, Tally, log_sum
from tl_dyck.certify.language.verdict import (
    Bounds,
    LanguageCertificate,
    LengthResult,
    PrefixFound,
    Verdict,
)
from tl_dyck.tasks.closing import closing_weights


def summarise(
    asked: Asked,
    tally: Tally,
    complete: BoolArray,
    lengths: tuple[int, ...],
    *,
    method: str,
    left: str,
) -> LanguageCertificate:
    """The certificate of what was decided; seconds and epsilon are left to the caller.

    Args:
        asked: the claim and the models.
        tally: what was found.
        complete: which lengths and depths have been gone through, ``[longest + 1, D + 1]``.
        lengths: that were asked about.
        method: in words.
        left: why some lengths have not been gone through; empty if time ran out.
    """
    task, profiles = asked.task, asked.profiles
    rows = _by_length(asked, tally, complete, lengths)
    every = all(row.decided for row in rows)
    best, nearest = tally.wrong.likeliest, tally.wrong.shortest
    likeliest, own = _shown(asked, best)
    shortest, _ = _shown(asked, nearest)
    tightest, least = _shown(asked, tally.tightest)
    is_likeliest = best is not None and is_proved_likeliest(profiles, tally, complete, lengths)
    status: Verdict = "proved" if every and best is None else "open"
    reason = ""
    if best is not None:
        status = "refuted"
        if not own < 0:  # so little that the model's rounding hides it
            reason = f"the model's rounding hides that it is wrong on {_text(likeliest)}"
            likeliest, own = tightest, least
            is_likeliest, status = False, "refuted" if own < 0 else "open"
    elif not every and tally.doubtful.likeliest is not None:
        tokens = _tokens(profiles, tally.doubtful.likeliest)
        text = profiles.language.to_string(torch.tensor(tokens, dtype=torch.int64))
        reason = f"a tie, or nearly so, on {text}: rounding hides the answer"
    elif not every:
        first = min(row.length for row in rows if not row.decided)
        reason = left or f"not all was decided in time: length {first} and others were not"
    measured = asked.claim.closing
    weights = [closing_weights(*task.asked(long=long)) for long in (False, True)]
    return LanguageCertificate(
        status=status,
        claim=asked.name,
        epsilon=None,
        language=f"Dyck({task.language.n_types}, {task.language.max_depth})",
        q=task.distribution.q,
        lengths=lengths,
        proved_to=_proved_to(rows, lengths),
        margin=Bounds(
            tally.proved if bool(complete[list(lengths)].all()) else -math.inf,
            math.inf if tally.tightest is None else tally.tightest.margin,
        ),
        likeliest=likeliest,
        is_likeliest=is_likeliest,
        shortest=shortest,
        is_shortest=nearest is not None and _is_shortest(tally, complete, lengths),
        tightest=tightest,
        by_length=rows,
        accuracy=_accuracy(profiles, tally, complete, weights[0]) if measured else None,
        long_accuracy=_accuracy(profiles, tally, complete, weights[1]) if measured else None,
        method=method,
        seconds=0.0,
        reason="; ".join(filter(None, (reason, asked.why and f"prefixes were run: {asked.why}"))),
        stats={"evaluations": tally.profiles, "boxes": tally.boxes},
    )


def is_proved_likeliest(
    profiles: Profiles, tally: Tally, complete: BoolArray, lengths: Iterable[int]
) -> bool:
    """Whether no prefix that may be wrong is likelier than the likeliest that is.

    Those are the doubtful ones, and all at lengths that have not been gone through.
    """
    best, doubt = tally.wrong.likeliest, tally.doubtful.likeliest
    if best is None:
        return False
    left = [length for length in lengths if not complete[length].all()]
    rivals = profiles.best_log_string(left), -math.inf if doubt is None else doubt.log_string
    return max(rivals) <= best.log_string + 1e-9


def _is_shortest(tally: Tally, complete: BoolArray, lengths: Iterable[int]) -> bool:
    """The same of the shortest one."""
    best, doubt = tally.wrong.shortest, tally.doubtful.shortest
    if best is None or (doubt is not None and doubt.length < best.length):
        return False
    return all(complete[length].all() for length in lengths if length < best.length)


def _by_length(
    asked: Asked, tally: Tally, complete: BoolArray, lengths: tuple[int, ...]
) -> tuple[LengthResult, ...]:
    task, claim = asked.task, asked.claim
    bare = asked.judge is not None and not asked.judge.symbols[0].has_bos
    numbers = list(task.language.prefixes_by_depth(lengths[-1]))
    spoken = np.array([claim.speaks_of(depth) for depth in range(task.language.max_depth + 1)])
    weight = 1 - task.distribution.open_probability() if claim.closing else np.ones(len(spoken))
    with np.errstate(divide="ignore"):
        reach = np.log(task.distribution.depth_probability(lengths[-1]))
        log_weight = np.log(np.where(spoken, weight, 0.0))
    drawn = {each.length for each in (tally.wrong.likeliest, tally.wrong.shortest) if each}
    maybe = np.logaddexp(tally.wrong.log_mass, tally.doubtful.log_mass)
    rows = []
    for n in lengths:
        # a string without BOS has nothing after which its first bracket could follow
        prefixes = sum(number for number, said in zip(numbers[n], spoken, strict=False) if said)
        if not prefixes or (n == 0 and bare):
            continue
        decided = bool(complete[n].all()) and not tally.doubtful.strings[n].any()
        wrong = max(int(tally.wrong.strings[n].sum()), int(n in drawn))
        whole = log_sum(reach[n] + log_weight)
        low = _share(tally.wrong.log_mass[n] + log_weight, whole)
        high = _share(np.where(complete[n], maybe[n], reach[n]) + log_weight, whole)
        high = 0.0 if decided and not wrong else max(high, _TINY)
        error = Bounds(min(low, high), high)
        rows.append(
            LengthResult(
                length=n,
                prefixes=prefixes,
                decided=decided,
                wrong=min(wrong, prefixes),
                error=error,
            )
        )
    return tuple(rows)


def _share(nats: Array, whole: float) -> float:
    """Σ exp over exp(whole), at most 1; 1 of nothing."""
    return 1.0 if whole == -math.inf else math.exp(min(log_sum(nats) - whole, 0.0))


_TINY = math.ulp(0.0)
"""What is not 0 is at most this where it is below all other float64."""


def _accuracy(
    profiles: Profiles, tally: Tally, complete: BoolArray, weights: Array
) -> Bounds | None:
    """One minus the error that a task measures; None if nothing is known of it."""
    reach = profiles.distribution.depth_probability(len(weights) - 1)
    n = min(len(weights), len(complete))
    wrong, doubtful = (np.exp(each.log_mass)[:n] for each in (tally.wrong, tally.doubtful))
    least, most = np.zeros_like(weights), reach.copy()
    least[:n] = wrong
    most[:n] = np.where(complete[:n], wrong + doubtful, reach[:n])
    if not ((most - least < reach) & (weights * reach > 0)).any():
        return None
    low, high = (1 - float((weights * wrong).sum()) for wrong in (most, least))
    return Bounds(max(low, 0.0), high)


def _proved_to(rows: Sequence[LengthResult], lengths: tuple[int, ...]) -> int:
    fails = [row.length for row in rows if not row.decided or row.wrong]
    return max((n for n in lengths if not fails or n < min(fails)), default=-1)


def _shown(asked: Asked, found: Found | None) -> tuple[PrefixFound | None, float]:
    """A profile as one of its prefixes, and the margin that the models themselves give it."""
    if found is None:
        return None, math.inf
    profiles = asked.profiles
    language, tokens = profiles.language, _tokens(profiles, found)
    logits = [np.array(reader.logits(tokens)) for reader in asked.readers]
    margins = plain_margins(asked.claim, found.ending, [each[None] for each in logits])
    assert margins is not None
    own = float(margins[0][0])
    names = (*language.alphabet, "BOS")
    best = int(logits[0].argmax())
    shown = PrefixFound(
        text=language.to_string(torch.tensor(tokens, dtype=torch.int64)),
        tokens=tokens,
        probability=math.exp(found.log_string),
        log_probability=found.log_string,
        margin=found.margin,
        logits=tuple(logits[0].tolist()),
        may_follow=tuple(names[token] for token in valid_tokens(language, found.ending)),
        predicted=names[best] if best < len(names) else f"token {best}",
    )
    return shown, own


def _tokens(profiles: Profiles, found: Found) -> tuple[int, ...]:
    """The prefix that was run, or one of the profile that was evaluated."""
    return profiles.string(found.ending, found.row) if found.tokens is None else found.tokens


def _text(found: PrefixFound | None) -> str:
    return "a prefix" if found is None else repr(found.text)
