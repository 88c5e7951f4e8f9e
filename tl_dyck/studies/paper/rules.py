"""When a claim counts as reproduced: a limit, an interval, and a correction for many looks.

A rule is declared for each claim. It is decided by the interval of what was measured and, since
dozens of rows are looked at, by Holm's step-down procedure over all of them (`judge_all`). Every
row also says how far from its limit a value would have had to be to be seen (`detectable`).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, final

import numpy as np
import pandas as pd

from tl_dyck.files import write_json
from tl_dyck.intervals import Estimate
from tl_dyck.records import finite_rows, write_tables

__all__ = [
    "KINDS",
    "VERDICTS",
    "Claim",
    "Judged",
    "Measured",
    "Rule",
    "claims_table",
    "holm",
    "judge",
    "judge_all",
    "save_claims",
]

#: What can become of a claim, and what it means.
VERDICTS = {
    "reproduced": "the whole interval is where the claim says, also after the correction",
    "weak": "that holds, but the rule could hardly have failed: the row says why",
    "not reproduced": "the whole interval is elsewhere, also after the correction",
    "undecided": "the interval, or the correction for many looks, leaves both open",
}

#: Of rules: where the measured value must be.
KINDS = ("above", "below", "between", "holds")

_FAMILY_LEVEL = 0.05  # of all rows together
_POWER = 0.8
_Z95 = 1.959963984540054  # of the intervals
_TOP = 1 - 1e-9  # the strongest correlation


@final
@dataclass(frozen=True, kw_only=True)
class Rule:
    """Condition that the measured value of a claim must meet.

    Attributes:
        kind: "above" or "below" `limit`, "between" `limit` and `upper`, or "holds": the interval
            has to hold the number `limit` (which is not corrected for many looks, since it is not
            a difference that is claimed).
        limit: see `kind`; `Measured.limit` replaces it where it depends on what is measured.
        upper: of "between".
        words: the rule as a sentence for readers.
        weak: why it could hardly fail, or "".
    """

    kind: str
    limit: float = 0.0
    upper: float = math.inf
    words: str
    weak: str = ""

    def __post_init__(self) -> None:
        if self.kind not in KINDS:
            raise ValueError(f"unknown kind of rule {self.kind!r}; known: {', '.join(KINDS)}")


@final
@dataclass(frozen=True, kw_only=True)
class Measured:
    """Evidence found for a claim.

    Attributes:
        estimate: the number that the rule is about; NaN ends if there are too few seeds.
        reading: what it means, in a sentence or two, with other numbers that belong to it.
        form: format of the number.
        limit: the rule's limit, where it depends on what is measured.
        upper: likewise.
        correlation: whether it is one, whose spread is the less the stronger it is.
    """

    estimate: Estimate
    reading: str
    form: str = ".2f"
    limit: float | None = None
    upper: float | None = None
    correlation: bool = False


@final
@dataclass(frozen=True, kw_only=True)
class Claim:
    """One claim of a paper, or a check of ours beside one.

    Attributes:
        name: short and unique.
        about: which experiment it belongs to.
        where: section, figure, table or footnote.
        says: what the paper says, in our words.
        quantity: what is measured, with its unit.
        rule: when it counts as reproduced.
        measure: from the evidence to what was found.
        reported: the paper's number as remembered, or None: the numbers are lost in our copy of the
            text.
        ours: whether it is a check of ours, which the paper does not claim.
        assumed: how the text is read where it leaves several ways, or "".
    """

    name: str
    about: str
    where: str
    says: str
    quantity: str
    rule: Rule
    measure: Callable[[Any], Measured]
    reported: str | None = None
    ours: bool = False
    assumed: str = ""


@final
@dataclass(frozen=True, kw_only=True)
class Judged:
    """What became of a claim among others.

    Attributes:
        verdict: a key of `VERDICTS`.
        p: two-sided p-value of the value against the limit, by the normal law with the standard
            error of the interval's side that looks at the limit; NaN where nothing is tested.
        p_holm: corrected for all rows that were judged together.
        detectable: the smallest distance from the limit that would be seen in 80 % of repetitions
            with as many seeds, at the corrected level; in the unit of the value. By the normal
            law with the spread that was measured; for a correlation, with that of Fisher's z (NaN
            if none would be seen).
    """

    verdict: str
    p: float
    p_holm: float
    detectable: float


def judge(rule: Rule, measured: Measured) -> str:
    """The verdict on one claim that is looked at alone, a key of `VERDICTS`."""
    return judge_all([rule], [measured])[0].verdict


def judge_all(rules: Sequence[Rule], measured: Sequence[Measured]) -> list[Judged]:
    """The verdicts on claims that are looked at together, at a level of 5 % for all of them."""
    margins = [_margin(rule, found) for rule, found in zip(rules, measured, strict=True)]
    p = np.array([_p_value(distance, error) for distance, error in margins])
    corrected = holm(p)
    tested = int(np.isfinite(p).sum())
    seen = _normal_quantile(1 - _FAMILY_LEVEL / 2 / max(1, tested))
    return [
        Judged(
            verdict=_verdict(rule, found, margin[0], corrected[i]),
            p=float(p[i]),
            p_holm=float(corrected[i]),
            detectable=_detectable(rule, found, margin[1], seen),
        )
        for i, (rule, found, margin) in enumerate(zip(rules, measured, margins, strict=True))
    ]


def claims_table(claims: Sequence[Claim], evidence: Any) -> pd.DataFrame:
    """One row per claim, see `Reproduction`; all are corrected for being looked at together."""
    found = [claim.measure(evidence) for claim in claims]
    judged = judge_all([claim.rule for claim in claims], found)
    return pd.DataFrame([_row(*row) for row in zip(claims, found, judged, strict=True)])


def _row(claim: Claim, found: Measured, judged: Judged) -> dict[str, Any]:
    return {
        "name": claim.name,
        "about": claim.about,
        "where": claim.where,
        "says": claim.says,
        "quantity": claim.quantity,
        "reported": claim.reported or "",
        "measured": found.estimate.text(found.form),
        "value": found.estimate.value,
        "low": found.estimate.low,
        "high": found.estimate.high,
        "n_seeds": found.estimate.n,
        "rule": claim.rule.words,
        "weak": claim.rule.weak,
        "verdict": judged.verdict,
        "p": judged.p,
        "p_holm": judged.p_holm,
        "detectable": judged.detectable,
        "ours": claim.ours,
        "assumed": claim.assumed,
        "reading": found.reading,
    }


def save_claims(
    folder: Path,
    form: str,
    scale: dict[str, Any],
    tables: Mapping[str, pd.DataFrame],
    environment: dict[str, Any],
) -> None:
    """Write ``claims.json``, and tables ("claims" among them) as Parquet files."""
    write_tables(folder, tables)
    claims = finite_rows(tables["claims"].to_dict("records"))
    saved = {"format": form, "scale": scale, "claims": claims, "environment": environment}
    write_json(folder / "claims.json", saved)


def holm(p: np.ndarray) -> np.ndarray:
    """p-values corrected by Holm's step-down procedure; NaN stays, and does not count."""
    corrected = np.full(len(p), np.nan)
    known = np.flatnonzero(np.isfinite(p))
    order = known[np.argsort(p[known])]
    steps = p[order] * np.arange(len(order), 0, -1)
    corrected[order] = np.minimum(1, np.maximum.accumulate(steps))
    return corrected


def _margin(rule: Rule, measured: Measured) -> tuple[float, float]:
    """How far the value is inside (> 0) of where it must be, and the standard error of that."""
    found = measured.estimate
    if rule.kind == "holds" or math.isnan(found.low):
        return math.nan, math.nan
    limit, upper = _limits(rule, measured)
    to_low, to_high = (found.value - found.low) / _Z95, (found.high - found.value) / _Z95
    above = (found.value - limit, to_low if found.value >= limit else to_high)
    ceiling = limit if rule.kind == "below" else upper
    below = (ceiling - found.value, to_high if found.value <= ceiling else to_low)
    if rule.kind == "above":
        return above
    if rule.kind == "below":
        return below
    return min(above, below)


def _limits(rule: Rule, measured: Measured) -> tuple[float, float]:
    return (
        rule.limit if measured.limit is None else measured.limit,
        rule.upper if measured.upper is None else measured.upper,
    )


def _detectable(rule: Rule, measured: Measured, error: float, seen: float) -> float:
    """See `Judged`; `seen` is how many standard errors from its limit a value is seen to be."""
    more = _normal_quantile(_POWER)
    if not measured.correlation or not error > 0:
        return (seen + more) * error
    from scipy import optimize

    low, high = measured.estimate.low, measured.estimate.high
    limit = _limits(rule, measured)[0] * (-1 if rule.kind == "below" else 1)
    if max(-low, high) > _TOP:  # few seeds, or a perfect tie: its spread is not known
        return math.nan
    spread = (math.atanh(high) - math.atanh(low)) / 2 / _Z95

    def excess(r: float) -> float:
        """By how much a correlation is farther above the limit than it has to be."""
        return (r - limit) - seen * (r - math.tanh(math.atanh(r) - _Z95 * spread)) / _Z95

    if excess(_TOP) <= 0:
        return math.nan
    least = optimize.brentq(excess, limit, _TOP)
    return math.tanh(math.atanh(least) + more * spread) - limit


def _p_value(distance: float, error: float) -> float:
    if math.isnan(distance):
        return math.nan
    if error <= 0:
        return 0.0 if distance else 1.0
    return math.erfc(abs(distance) / error / math.sqrt(2))


def _verdict(rule: Rule, measured: Measured, distance: float, corrected: float) -> str:
    found = measured.estimate
    if math.isnan(found.low):
        return "undecided"
    if rule.kind == "holds":
        inside = found.low <= _limits(rule, measured)[0] <= found.high
    elif corrected < _FAMILY_LEVEL:
        inside = distance > 0
    else:
        return "undecided"
    if not inside:
        return "not reproduced"
    return "weak" if rule.weak else "reproduced"


def _normal_quantile(p: float) -> float:
    from scipy import special

    return float(special.ndtri(p))
