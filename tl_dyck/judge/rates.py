"""Rates of answers held against what is true, of all cases and of resampled ones.

Knows: what each rate is, and that a resample of cases is a weight for each of their questions, so
that all resamples are counted at once.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pandas as pd
from jaxtyping import Bool, Float
from numpy.typing import NDArray

Floats = NDArray[np.float64]

N_BOOTSTRAP = 1000  # resamples: ends of 95 % intervals rest on 25 on each side

#: The share of false alarms at which precision is told, beside that of the method's own threshold.
FALSE_ALARMS = 0.1


def auroc(answers: NDArray[np.bool_], scores: Floats) -> float:
    """The probability that a yes scores above a no, ties counted half (Mann and Whitney); or NaN.

    Args:
        answers: what is true.
        scores: one each.
    """
    return float(aurocs(answers, scores, np.ones((1, len(scores))))[0])


def aurocs(answers: NDArray[np.bool_], scores: Floats, weights: Floats) -> Floats:
    """The same for each row of weights, ``[resample, n]``."""
    return _ranked(answers, scores, weights)["auroc"]


def rates(
    answers: Bool[np.ndarray, " n"],
    scores: Float[np.ndarray, " n"],
    off: Float[np.ndarray, " n"],
    size: Float[np.ndarray, " n"],
    weights: Float[np.ndarray, "resample n"],
) -> dict[str, Floats]:
    """What a method's scores are worth, for each row of weights.

    Args:
        answers: what is true.
        scores: positive where the method says yes.
        off: how far what it says of a size is from that.
        size: of the effect; NaN where it says nothing of it.
        weights: how often each question counts.

    Returns:
        ``[resample]`` each, NaN where there is nothing to divide by. auroc. precision_at_10: the
        share of yes in what has the highest scores, as many as have 10 % of "no" among them (of
        equal scores a part, chosen at random: a point on the ROC curve). And at the method's own
        threshold: accuracy; precision, the share of yes where it says so; false_alarms, the share
        of "no" that it calls yes; misses, the share of "yes" that it calls no; off, Σ |said − size|
        / Σ size, where it says how large effects are.
    """
    # a method puts its own threshold at 0 (`score_heads(above=…)`)
    said, known = scores > 0, ~np.isnan(size)

    def share(these: NDArray[np.bool_], of: NDArray[np.bool_]) -> Floats:
        return _over(weights @ (these & of).astype(float), weights @ of.astype(float))

    lost = weights[:, known] @ off[known]
    return {
        **_ranked(answers, scores, weights),
        "accuracy": share(said == answers, np.ones_like(answers)),
        "precision": share(answers, said),
        "false_alarms": share(said, ~answers),
        "misses": share(~said, answers),
        "off": _over(lost, weights[:, known] @ size[known]),
    }


def _over(part: Floats, whole: Floats) -> Floats:
    found: Floats = np.divide(part, whole, out=np.full(len(part), np.nan), where=whole != 0)
    return found


def _ranked(answers: NDArray[np.bool_], scores: Floats, weights: Floats) -> dict[str, Floats]:
    """What hangs on the order of scores alone; of equal ones every order is as likely."""
    # highest first
    order = np.argsort(-scores, kind="stable")
    ordered = scores[order]
    # where a level of equal scores begins
    starts = np.flatnonzero(np.append(True, ordered[1:] != ordered[:-1]))
    yes, no = (
        np.add.reduceat(weights[:, order] * kind[order], starts, axis=1)
        for kind in (answers, ~answers)
    )
    hits, alarms = yes.cumsum(1), no.cumsum(1)
    # the last sum is that of all
    n_yes, n_no = hits[:, -1], alarms[:, -1]
    # below a score are the "no" that come later, and half of those beside it
    above = (yes * (n_no[:, None] - alarms + no / 2)).sum(1)
    both = n_yes * n_no
    most = FALSE_ALARMS * n_no
    # so many levels are within it, whole; weights are whole numbers, which rounding must not move
    whole = (alarms <= most[:, None] + 1e-9).sum(1)
    none, row = np.zeros((len(weights), 1)), np.arange(len(weights))
    before = [np.hstack([none, each])[row, whole] for each in (hits, alarms)]
    further = [np.hstack([each, none])[row, whole] for each in (yes, no)]
    # of the level that is only partly within: its yes in proportion to its no
    found = before[0] + _over((most - before[1]) * further[0], further[1])
    # all levels are within: no level is cut
    found = np.where(whole == yes.shape[1], n_yes, found)
    return {
        "auroc": _over(above, both),
        "precision_at_10": _over(np.where(both > 0, found, np.nan), found + most),
    }


def resample(
    groups: Sequence[pd.DataFrame], n_bootstrap: int
) -> tuple[list[dict[str, float]], list[dict[str, Floats]], int]:
    """Rates of rows of the same cases: of all, and of the same resampled cases; number of cases.

    What is drawn depends on how many cases there are, and not on their order or on other groups.
    """
    whole = [group.sort_values(["case", "target"], kind="stable") for group in groups]
    place, names = pd.factorize(whole[0]["case"])
    n = len(names)
    # the same cases in the same resamples, for every method: comparisons are paired
    # of one case every resample is itself: none is drawn
    drawn = np.random.default_rng(0).integers(n, size=(n_bootstrap if n > 1 else 0, n))
    counts = np.zeros((len(drawn), n))
    np.add.at(counts, (np.arange(len(drawn))[:, None], drawn), 1)
    once, several = [], []
    for group in whole:
        numbers = (
            group["answer"].to_numpy(dtype=bool),
            group["score"].to_numpy(dtype=float),
            (group["said"] - group["size"]).abs().to_numpy(dtype=float),
            group["size"].to_numpy(dtype=float),
        )
        of_all = rates(*numbers, np.ones((1, len(group))))
        once.append({name: float(value[0]) for name, value in of_all.items()})
        several.append(rates(*numbers, counts[:, place]))
    return once, several, n
