"""When a claim counts as reproduced: declared before anything is measured.

It is declared for each claim, and decided by intervals.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, final

from tl_dyck.intervals import Estimate

__all__ = ["VERDICTS", "Claim", "Measured", "Rule", "judge"]

#: What can become of a claim, and what it means.
VERDICTS = {
    "reproduced": "the whole interval is where the claim says",
    "not reproduced": "the whole interval is elsewhere",
    "not reproduced (undecided)": "the interval holds both; more seeds are needed",
    "not testable from the text": "our copy of the paper does not say what would have to be "
    "measured",
}


@final
@dataclass(frozen=True, kw_only=True)
class Rule:
    """Condition that the measured value of a claim must meet.

    Attributes:
        kind: "above" or "below" a limit, "not below" (the interval is not below it as a whole, for
            claims that there is *no* effect), "exists" (the value, a count, is not zero), or
            "untestable".
        limit: of the first three.
        words: the rule as a sentence for readers.
    """

    kind: str
    limit: float = 0.0
    words: str


@final
@dataclass(frozen=True, kw_only=True)
class Measured:
    """Evidence found for a claim.

    Attributes:
        estimate: the number that the rule is about.
        reading: what it means, in a sentence or two, with other numbers that belong to it.
        form: format of the number.
        limit: the rule's limit, where it depends on what is measured.
        possible: for "exists": out of how many; with none, nothing is decided.
    """

    estimate: Estimate
    reading: str
    form: str = ".2f"
    limit: float | None = None
    possible: int | None = None


@final
@dataclass(frozen=True, kw_only=True)
class Claim:
    """One claim of the paper.

    Attributes:
        name: short and unique.
        about: which experiment it belongs to.
        where: section, figure, table or footnote.
        says: what the paper says, in our words.
        quantity: what is measured, with its unit.
        rule: when it counts as reproduced.
        measure: from the evidence to what was found; None if the evidence lacks the models.
        reported: the paper's number as remembered, or None: the numbers are lost in our copy of the
            text.
    """

    name: str
    about: str
    where: str
    says: str
    quantity: str
    rule: Rule
    measure: Callable[[Any], Measured]
    reported: str | None = None


def judge(rule: Rule, measured: Measured) -> str:
    """The verdict, a key of `VERDICTS`."""
    found, limit = measured.estimate, rule.limit if measured.limit is None else measured.limit
    if rule.kind == "untestable":
        return "not testable from the text"
    if rule.kind == "exists":
        if not measured.possible:
            return "not reproduced (undecided)"
        return "reproduced" if found.value > 0 else "not reproduced"
    if found.low != found.low:
        return "not reproduced (undecided)"
    if rule.kind == "not below":
        return "reproduced" if found.high > limit else "not reproduced"
    if rule.kind not in ("above", "below"):
        raise ValueError(f"unknown kind of rule {rule.kind!r}")
    sides = (found.low > limit, found.high < limit)
    if rule.kind == "below":
        sides = (sides[1], sides[0])
    if sides[0]:
        return "reproduced"
    return "not reproduced" if sides[1] else "not reproduced (undecided)"
