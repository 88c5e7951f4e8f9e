"""When a claim counts as reproduced: a limit, an interval, and a correction for many looks.

A rule is said once, in numbers; the words that readers see are made from it. It is decided by the
interval of what was measured and, since dozens of rows are looked at, by Holm's step-down procedure
over all of them (`judge_all`). Every row also says how far from its limit a value would have had to
be to be seen (`detectable`).
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any, final

import numpy as np

from tl_dyck.estimates import Estimate, place_of
from tl_dyck.kit.errors import DyckError

#: What can become of a claim, and what it means.
VERDICTS = {
    "reproduced": "the whole interval is where the claim says, also after the correction",
    "weak": "that holds, but the rule could hardly have failed, or says little: the row says why",
    "not reproduced": "the whole interval is elsewhere, also after the correction",
    "post hoc": "the interval decides, but by a rule that was written or mended after its numbers "
    "had been seen: the row says why, and which way it goes",
    "undecided": "the interval, or the correction for many looks, leaves both open",
}

#: Of rules: where the measured value must be, and how that is said.
KINDS = {"above": "is above", "below": "is below", "between": "is between", "holds": "holds"}

_FAMILY_LEVEL = 0.05  # of all rows together
# Cohen's usual share of repetitions in which an effect is to be seen
_POWER = 0.8
_Z95 = 1.959963984540054  # of the intervals
_TOP = 1 - 1e-9  # the strongest correlation


class ClaimError(DyckError, ValueError):
    """A file of claims says something that no claim can mean."""


@final
@dataclass(frozen=True, kw_only=True)
class Rule:
    """Condition that the measured value of a claim must meet.

    Attributes:
        kind: "above" or "below" `limit`, "between" `limit` and `upper`, or "holds": the interval
            has to hold the number `limit` (which is not corrected for many looks, since it is not
            a difference that is claimed).
        limit: see `kind`.
        upper: of "between".
        what: is judged: "mean", "share of models", …
        times: what the limits are multiples of, or "" if they are numbers; how large that is comes
            with what is measured (`Measured.unit`).
        absent: whether the claim is that something is *not* there, so that the limit is what would
            matter. It is "weak" that it is smaller if the interval shows that it is there.
        weak: why it could hardly fail, or "".
        post_hoc: how it came to be written, or mended, after its numbers had been seen, or "".
    """

    kind: str
    limit: float = 0.0
    upper: float = math.inf
    what: str = "mean"
    times: str = ""
    absent: bool = False
    weak: str = ""
    post_hoc: str = ""

    def __post_init__(self) -> None:
        if self.kind not in KINDS:
            raise ClaimError(f"unknown kind of rule {self.kind!r}; known: {', '.join(KINDS)}")
        known = (self.limit, self.upper) if self.kind == "between" else (self.limit,)
        if not all(map(_is_number, known)):
            raise ClaimError(f"the limits of a rule are finite numbers, not {known}")
        if not self.limit < self.upper:
            raise ClaimError(f"a rule's limits {self.limit} and {self.upper} leave nothing between")

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> Rule:
        """A rule as a file has it: ``{above: 0.5}``, ``{between: [1, 2], what: mean}``, …."""
        if not isinstance(values, Mapping):
            raise ClaimError(f"a rule is a mapping, not {values!r}")
        given = [kind for kind in KINDS if kind in values]
        if len(given) != 1:
            raise ClaimError(f"a rule has one of {', '.join(KINDS)}, not {given or 'none of them'}")
        rest = {name: value for name, value in values.items() if name not in KINDS}
        known = {each.name for each in fields(cls)} - {"kind", "limit", "upper"}
        if unknown := sorted(rest.keys() - known):
            raise ClaimError(f"a rule has no {', '.join(map(repr, unknown))}")
        limit = values[given[0]]
        pair = given[0] == "between"
        if isinstance(limit, list) != pair or (pair and len(limit) != 2):
            wanted = "a list of two numbers" if pair else "a number"
            raise ClaimError(f"{given[0]!r} takes {wanted}, not {limit!r}")
        ends = {"limit": limit[0], "upper": limit[1]} if pair else {"limit": limit}
        return cls(kind=given[0], **ends, **rest)

    def limits(self, unit: float | None = None) -> tuple[float, float]:
        """The numbers that decide; NaN if they are multiples of what is not known."""
        size = 1.0 if not self.times else math.nan if unit is None else unit
        return self.limit * size, self.upper * size

    def words(self, form: str = ".2f", unit: float | None = None) -> str:
        """The rule as a sentence without a full stop, with the numbers that decide.

        Args:
            form: format of what is measured: limits are in the same unit.
            unit: see `Measured.unit`.
        """
        # a limit is not written with a plus
        form = form.lstrip("+")
        share = "%" in form
        pair = self.kind == "between"
        given = (self.limit, self.upper) if pair else (self.limit,)
        said = " and ".join(_number(limit, share or bool(self.times)) for limit in given)
        if self.times:
            said = self.times if given == (1,) else f"{said} of {self.times}"
            if unit is not None and math.isfinite(unit):
                deciding = self.limits(unit)[: len(given)]
                said += f" ({' and '.join(f'{n:{form}}' for n in deciding)})"
        small = ": smaller than would matter" if self.absent else ""
        return f"the {self.what} {KINDS[self.kind]} {said}{small}"


def _is_number(value: Any) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool) and math.isfinite(value)


def _number(value: float, share: bool) -> str:
    return f"{100 * value:.6g}%".replace("-", "−") if share else f"{value:.6g}".replace("-", "−")


@final
@dataclass(frozen=True, kw_only=True)
class Measured:
    """Evidence found for a claim.

    Attributes:
        estimate: the number that the rule is about; NaN ends if there are too few seeds.
        reading: what it means, in a sentence or two, with other numbers that belong to it.
        unit: what the rule's limits are multiples of (`Rule.times`).
        correlation: whether it is one, whose spread is the less the stronger it is.
        beside: another number that belongs beside the measured one, or "".
        positive: the same quantity on a construction that ought to pass the rule, or "".
        negative: on one that ought not to.
    """

    estimate: Estimate
    reading: str = ""
    unit: float | None = None
    correlation: bool = False
    beside: str = ""
    positive: str = ""
    negative: str = ""


# --- verdicts -------------------------------------------------------------------------------------


@final
@dataclass(frozen=True, kw_only=True)
class ClaimVerdict:
    """What became of a claim among others.

    Attributes:
        verdict: a key of `VERDICTS`.
        outcome: what the interval says by itself: "reproduced", "not reproduced" or "undecided".
        why: the verdict is "weak" or "post hoc"; else "".
        p: two-sided p-value of the value against the limit, by the normal law with the standard
            error of the interval's side that looks at the limit; NaN where nothing is tested.
        p_holm: corrected for all rows that were judged together.
        detectable: the smallest distance from the limit that would be seen in 80 % of repetitions
            with as many seeds, at the corrected level; in the unit of the value. By the normal
            law with the spread that was measured; for a correlation, with that of Fisher's z (NaN
            if none would be seen).
    """

    verdict: str
    outcome: str
    why: str
    p: float
    p_holm: float
    detectable: float


def judge(rule: Rule, measured: Measured) -> str:
    """The verdict on one claim that is looked at alone, a key of `VERDICTS`."""
    return judge_all([rule], [measured])[0].verdict


def judge_all(rules: Sequence[Rule], measured: Sequence[Measured]) -> list[ClaimVerdict]:
    """The verdicts on claims that are looked at together, at a level of 5 % for all of them."""
    margins = [_margin(rule, found) for rule, found in zip(rules, measured, strict=True)]
    p = np.array(
        [_p_value(*margin, found) for margin, found in zip(margins, measured, strict=True)]
    )
    corrected = holm(p)
    tested = int(np.isfinite(p).sum())
    # Bonferroni's level, Holm's first step: two-sided, and divided by all rows that are tested
    seen = _normal_quantile(1 - _FAMILY_LEVEL / 2 / max(1, tested))
    judged = []
    for i, (rule, found, margin) in enumerate(zip(rules, measured, margins, strict=True)):
        outcome = _outcome(rule, found, margin[0], corrected[i])
        verdict, why = _verdict(rule, found, outcome)
        judged.append(
            ClaimVerdict(
                verdict=verdict,
                outcome=outcome,
                why=why,
                p=float(p[i]),
                p_holm=float(corrected[i]),
                detectable=_detectable(rule, found, margin[1], seen),
            )
        )
    return judged


def holm(p: np.ndarray) -> np.ndarray:
    """p-values corrected by Holm's step-down procedure; NaN stays, and does not count."""
    corrected = np.full(len(p), np.nan)
    known = np.flatnonzero(np.isfinite(p))
    order = known[np.argsort(p[known])]
    # the smallest times n, the next times n - 1, …, never smaller than the one before
    steps = p[order] * np.arange(len(order), 0, -1)
    corrected[order] = np.minimum(1, np.maximum.accumulate(steps))
    return corrected


def _margin(rule: Rule, measured: Measured) -> tuple[float, float]:
    """How far the value is inside (> 0) of where it must be, and the standard error of that."""
    found = measured.estimate
    if rule.kind == "holds" or math.isnan(found.low):
        return math.nan, math.nan
    limit, upper = rule.limits(measured.unit)
    # an interval of level 0.95 ends at the quantiles 0.025 and 0.975: so many standard errors
    width = _quantile(found, (1 + found.level) / 2)
    to_low, to_high = (found.value - found.low) / width, (found.high - found.value) / width
    # the side of the interval that looks at the limit says how sure the value is
    above = (found.value - limit, to_low if found.value >= limit else to_high)
    ceiling = limit if rule.kind == "below" else upper
    below = (ceiling - found.value, to_high if found.value <= ceiling else to_low)
    if rule.kind == "above":
        return above
    if rule.kind == "below":
        return below
    return min(above, below)


def _detectable(rule: Rule, measured: Measured, error: float, seen: float) -> float:
    """See `ClaimVerdict`; `seen`: how many standard errors from its limit a value is seen to be."""
    more = _normal_quantile(_POWER)
    if not measured.correlation or not error > 0:
        return (seen + more) * error
    from scipy import optimize

    low, high = measured.estimate.low, measured.estimate.high
    # "below" is "above" of the mirrored correlation
    limit = rule.limits(measured.unit)[0] * (-1 if rule.kind == "below" else 1)
    if max(-low, high) > _TOP:  # few seeds, or a perfect tie: its spread is not known
        return math.nan
    # standard error of Fisher's z = atanh r, in which intervals of correlations are even
    spread = (math.atanh(high) - math.atanh(low)) / 2 / _Z95

    def excess(r: float) -> float:
        """By how much a correlation is farther above the limit than it has to be."""
        return (r - limit) - seen * (r - math.tanh(math.atanh(r) - _Z95 * spread)) / _Z95

    if excess(_TOP) <= 0:
        return math.nan
    # `excess` is negative at the limit and positive at the top: it has a root between
    least = optimize.brentq(excess, limit, _TOP)
    # farther by so much that a value is beyond `least` in 80 % of repetitions
    return math.tanh(math.atanh(least) + more * spread) - limit


def _p_value(distance: float, error: float, measured: Measured) -> float:
    if math.isnan(distance):
        return math.nan
    # all seeds alike: any distance is certain, and none is none
    if error <= 0:
        return 0.0 if distance else 1.0
    if measured.estimate.kind != "t":
        # 2 (1 - Φ(x)) = erfc(x / √2)
        return math.erfc(abs(distance) / error / math.sqrt(2))
    from scipy import special

    # t of n - 1 degrees of freedom, both tails
    return 2 * float(special.stdtr(measured.estimate.n - 1, -abs(distance) / error))


def _quantile(found: Estimate, share: float) -> float:
    """Of the law that an interval is made by: the normal one, or t for a t interval."""
    if found.kind != "t":
        return _normal_quantile(share)
    from scipy import special

    return float(special.stdtrit(found.n - 1, share))


def _outcome(rule: Rule, measured: Measured, distance: float, corrected: float) -> str:
    found = measured.estimate
    if math.isnan(found.low):
        return "undecided"
    if rule.kind == "holds":
        inside = place_of(rule.limits(measured.unit)[0], found.low, found.high) == "inside"
    elif corrected < _FAMILY_LEVEL:
        inside = distance > 0
    else:
        return "undecided"
    return "reproduced" if inside else "not reproduced"


def _verdict(rule: Rule, measured: Measured, outcome: str) -> tuple[str, str]:
    """What is said of an outcome, and why it is not the outcome itself."""
    found = measured.estimate
    if outcome != "undecided" and rule.post_hoc:
        return "post hoc", rule.post_hoc
    if outcome == "reproduced" and rule.weak:
        return "weak", rule.weak
    if outcome == "reproduced" and rule.absent and place_of(0, found.low, found.high) == "outside":
        return "weak", "it is there, since the interval is without 0, if smaller than would matter"
    return outcome, ""


def _normal_quantile(p: float) -> float:
    from scipy import special

    return float(special.ndtri(p))
