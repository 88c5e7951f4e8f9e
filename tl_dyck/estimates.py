"""A number, how sure it is, and in which words that is said: pages and tables make theirs here."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any, NamedTuple, final

LEVEL = 0.95  # of all intervals that say no other


class IntervalKind(NamedTuple):
    """A kind of intervals: how one is called, what is said behind it, and over which units it is.

    Attributes:
        one: its name; that of many has an s behind.
        more: what follows the unit.
        over: the unit, where the kind has one of its own, "" if none is said; None where it is
            what the table or page says.
        of_shares: whether all are of shares, which have no prediction intervals.
    """

    one: str
    more: str = ""
    over: str | None = None
    of_shares: bool = False


#: Kinds of intervals.
KINDS = {
    "t": IntervalKind("t interval", ", corrected for skewness"),
    "bootstrap": IntervalKind("bootstrap interval"),
    "exact": IntervalKind("interval", " (exact: Clopper and Pearson)", of_shares=True),
    "simulated": IntervalKind("range", " of what was simulated", over=""),
    "": IntervalKind("interval"),
}

#: No interval covers the mean of every law. Of numbers as skewed as lognormal ones (σ = 1), 2 to 40
#: of them, so many of a hundred t intervals of 95 % hold the mean, and so many prediction intervals
#: that of as many others: from the number of seeds with the fewest to that with the most;
#: `docs/coverage.py` measures it.
SKEWED, SKEWED_AGAIN = (90, 93), (92, 94)


@final
@dataclass(frozen=True, kw_only=True)
class Estimate:
    """A number, its interval, and which kind of interval that is; NaN where there is none.

    Attributes:
        value: the estimate.
        low: lower end.
        high: upper end.
        n: number of independent units behind it: models (seeds), or cases.
        kind: of the interval, a key of `KINDS`.
        level: in how many of 100 repetitions it is to hold what is estimated, over 100.
        again_low: lower end of the prediction interval: where, at the same level, the same estimate
            will be of as many other units, for instance the same seeds on another machine. NaN
            where that is not known.
        again_high: its upper end.
    """

    value: float
    low: float
    high: float
    n: int
    kind: str = ""
    level: float = LEVEL
    again_low: float = math.nan
    again_high: float = math.nan

    @classmethod
    def of(cls, row: Mapping[str, Any], value: str = "mean", n: str = "n") -> Estimate:
        """That of a row of a table, or of facts, with the columns of `ends`.

        Args:
            row: what it is not said to have (kind, level, …) is as if it had not been said.
            value: name of the column of the estimate.
            n: of that of the number of units.
        """
        known = {_FIELDS.get(name, name): row[name] for name in ENDS if name in row}
        return cls(value=float(row[value]), n=int(row[n]), **known)

    def text(self, form: str | Callable[[float], str] = ".2f") -> str:
        """``0.12 [0.10, 0.15]``, or ``–`` where there is nothing; `form` as of `format`."""
        said = form if callable(form) else f"{{:{form}}}".format
        if self.value != self.value:
            return "–"
        if self.low != self.low:
            return said(self.value)
        return f"{said(self.value)} [{said(self.low)}, {said(self.high)}]"

    def words(self, over: str = "seeds") -> str:
        """What its interval is: "95 % t interval over seeds, corrected for skewness (…)".

        Of t intervals, how often they hold what is so skewed that a few numbers do not show it.
        """
        return _named(self.kind, self.level, over, many=False)

    def ends(self) -> dict[str, Any]:
        """As columns of a table: low, high, again_low, again_high, interval (its kind), level."""
        return {name: getattr(self, _FIELDS.get(name, name)) for name in ENDS}

    def of_metric(self, name: str) -> Estimate:
        """The same, of a metric of that name: no end lies where a share cannot be.

        Only of the shares that we measure: a metric of somebody else's may be called
        "accuracy_change" and lie below 0, or "accuracy" in percent.
        """
        if not _SHARES.fullmatch(name) or not 0 <= self.value <= 1:
            return self
        # a part that cannot be is cut off, and what is covered stays covered
        return replace(self, **{end: min(max(getattr(self, end), 0.0), 1.0) for end in NUMBERS})

    def times(self, factor: float) -> Estimate:
        """The same in another unit; the factor is above 0."""
        scaled = {name: factor * getattr(self, name) for name in ("value", *NUMBERS)}
        return replace(self, **scaled)


NUMBERS = ("low", "high", "again_low", "again_high")
#: What a table says of an interval.
ENDS = (*NUMBERS, "interval", "level")
_FIELDS = {"interval": "kind"}
#: Our metrics that are shares, between 0 and 1.
_SHARES = re.compile(
    "(long_)?accuracy(_(closing_only|after_open|after_close))?|(proved|refuted)_share|stack_likeness"
)


def interval_words(found: Any, over: str = "seeds") -> str:
    """What the intervals of a table or page are: "95 % t intervals over seeds, …".

    Args:
        found: estimates, or mappings or rows of a table with the columns of `Estimate.ends`;
            those without an interval do not count.
        over: what their units are.

    Returns:
        Without a full stop; the kinds in their order, if there are several, and "no intervals" if
        there are none.
    """
    rows = found.to_dict("records") if hasattr(found, "to_dict") else list(found)
    facts = [row.ends() if isinstance(row, Estimate) else row for row in rows]
    kinds = dict.fromkeys(
        (str(each.get("interval", "")), float(each.get("level", LEVEL)))
        for each in facts
        if each["low"] == each["low"]
    )
    said = [_named(kind, level, over, many=True) for kind, level in kinds]
    return ", or ".join(said) or "no intervals"


def again_words(found: Any, over: str = "seeds") -> str:
    """What the prediction intervals of a table are; arguments as of `interval_words`."""
    rows = found.to_dict("records") if hasattr(found, "to_dict") else list(found)
    levels = dict.fromkeys(row["level"] for row in rows if row["again_low"] == row["again_low"])
    if not levels:
        shares = rows and all(_of_shares(row) for row in rows)
        why = "of shares there are none" if shares else f"there are too few {over}"
        return f"no prediction intervals, since {why}"
    said = " or ".join(f"{100 * level:.6g}" for level in levels)
    skewed = _of_skewed(SKEWED_AGAIN if {*levels} == {LEVEL} else None)
    whose = f"the mean of as many other {over}, on any machine"
    return f"{said} % prediction intervals of {whose} ({skewed})"


def place_of(value: float, low: float, high: float) -> str:
    """Where a number is: "inside" or "outside" of the interval, "not known" if one is NaN."""
    if value != value or low != low or high != high:  # each comparison with NaN is False
        return "not known"
    return "inside" if low <= value <= high else "outside"


def _of_shares(row: Any) -> bool:
    return KINDS.get(str(row.get("interval", "")), KINDS[""]).of_shares


def ends_text(low: float, high: float, form: str = ".4g") -> str:
    """``[0.1, 0.15]``, or ``–`` where there is no interval."""
    return "–" if low != low else f"[{low:{form}}, {high:{form}}]"


def _named(kind: str, level: float, over: str, *, many: bool) -> str:
    one, more, own, _ = KINDS[kind]
    over = over if own is None else own
    above = f" over {over}" if over else ""
    if kind == "t":
        more += f" ({_of_skewed(SKEWED if level == LEVEL else None)})"
    return f"{100 * level:.6g} % {one}{'s' * many}{above}{more}"


def _of_skewed(shares: tuple[int, int] | None) -> str:
    said = "less" if shares is None else f"{shares[0]} to {shares[1]} %"
    return f"{said} where numbers are as skewed as lognormal ones"
