"""What `certify_language` returns."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any, NamedTuple, final

from tl_dyck.certify.display import Shown
from tl_dyck.certify.language.tally import PrefixFound
from tl_dyck.kit.environment import said_with
from tl_dyck.kit.verdicts import Verdict


class Bounds(NamedTuple):
    """A number that lies in [low, high]; both are equal where it is known exactly."""

    low: float
    high: float

    @property
    def exact(self) -> bool:
        """Whether the bounds meet."""
        return self.low == self.high

    def __str__(self) -> str:
        low, high = f"{self.low:.6g}", f"{self.high:.6g}"
        return low if low == high else f"[{low}, {high}]"


@final
@dataclass(frozen=True, kw_only=True)
class LengthResult:
    """The prefixes of one length.

    Attributes:
        length: in brackets.
        prefixes: how many the claim speaks of.
        decided: whether every one of them was decided.
        wrong: on how many of them it is wrong, at least; exactly if `decided`, to 12 digits.
        error: probability under D(q, k, D) that it is wrong on a prefix of this length that it
            speaks of; for claims about closing brackets, given that the next bracket closes. One
            below the least float64 is not exactly 0: its bounds are 0 and that number. Of an
            automaton: the share of its strings of this length.
        margin: bounds of the least margin on these prefixes, where that is known by length.
        worst: of an automaton, the string with the least margin of those seen.
    """

    length: int
    prefixes: int
    decided: bool
    wrong: int
    error: Bounds
    margin: Bounds | None = None
    worst: PrefixFound | None = None

    def to_dict(self) -> dict[str, Any]:
        """One flat row."""
        known = {name: getattr(self, name) for name in ("length", "prefixes", "decided", "wrong")}
        known |= {"error_low": self.error.low, "error_high": self.error.high}
        if self.margin is not None:
            known |= {"margin_low": self.margin.low, "margin_high": self.margin.high}
        return known


@final
@dataclass(frozen=True, kw_only=True)
class SampledError:
    """How probable an error is at a length, from prefixes that were drawn.

    Attributes:
        length: in brackets.
        n: how many prefixes were drawn.
        wrong: on how many of them the claim is wrong.
        doubtful: on how many rounding hides the answer; they count as either in `error`.
        error: exact interval (Clopper and Pearson 1934) of the probability that
            `LengthResult.error` is.
        level: the probability that such an interval holds it.
        seed: of the draw.
    """

    length: int
    n: int
    wrong: int
    doubtful: int
    error: Bounds
    level: float
    seed: int

    def __str__(self) -> str:
        """For example ``0.039, in [0.028, 0.0527]: sampled, 10,000 prefixes, level 1 - 1e-09``."""
        said = f"{self.wrong / self.n:.3g}, in " if self.n and not self.doubtful else ""
        return (
            f"{said}[{self.error.low:.3g}, {self.error.high:.3g}]: sampled, {self.n:,} prefixes, "
            f"level 1 - {1 - self.level:.3g}"
        )

    def to_dict(self) -> dict[str, Any]:
        """Plain JSON types."""
        plain = {name: getattr(self, name) for name in self.__dataclass_fields__ if name != "error"}
        return plain | {"error_low": self.error.low, "error_high": self.error.high}


@final
@dataclass(frozen=True, kw_only=True, repr=False)
class LanguageCertificate(Shown):
    """A verdict on every prefix of a language, of some lengths.

    Attributes:
        status: "proved" (the claim holds on every prefix), "refuted" (it fails on `likeliest`, as
            the model itself confirms) or "open" (see `reason`).
        claim: its name.
        epsilon: of claims that have one.
        threshold: of "allowed", above which a logit says that its symbol may follow.
        language: Dyck(k, D), or what an automaton is called, as text.
        q: of the distribution; NaN of an automaton, all of whose strings of a length count alike.
        lengths: the lengths asked about.
        gap: the shortest length below the longest of these that was not asked about, though the
            claim says something there; None if there is none.
        margin: bounds of the least margin over all prefixes.
        likeliest: the likeliest wrong prefix that was found.
        is_likeliest: whether it is proved that none of `lengths` is likelier.
        shortest: the shortest wrong prefix that was found.
        is_shortest: whether it is proved that none of `lengths` is shorter.
        tightest: the prefix with the least margin of those evaluated.
        errors: of an automaton: for each length and answer that some string is refused, the string
            with the least margin.
        by_length: results for each length.
        accuracy: bounds of the task's own metric (`DyckTask.closing_accuracy`), over all of the
            training lengths, for "any_token" and "closing_only".
        long_accuracy: the same over the task's long lengths.
        method: how it was decided.
        seconds: wall-clock time.
        reason: why it is open; or a remark.
        drawn: of a model that can only be run, what drawn strings say of lengths that are too many
            to run, with an interval at its level.
        stats: what was counted.
        made_with: dtype of the model's weights, versions of torch and TransformerLens, by name.
    """

    _derived = ("proved_to", "prefixes", "prefixes_decided", "wrong", "complete")

    status: Verdict
    claim: str
    epsilon: float | None = None
    threshold: float | None = None
    language: str
    q: float = math.nan
    lengths: tuple[int, ...]
    gap: int | None = None
    margin: Bounds
    likeliest: PrefixFound | None
    is_likeliest: bool = False
    shortest: PrefixFound | None
    is_shortest: bool
    tightest: PrefixFound | None
    by_length: tuple[LengthResult, ...]
    accuracy: Bounds | None = None
    long_accuracy: Bounds | None = None
    method: str
    seconds: float
    errors: tuple[PrefixFound, ...] = ()
    reason: str = ""
    drawn: tuple[SampledError, ...] = ()
    stats: Mapping[str, int] = field(default_factory=dict)
    made_with: Mapping[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if self.status == "proved" and not self.margin.low > 0:
            raise ValueError(f"proved with a margin of {self.margin}: it must be positive")
        if self.status == "refuted" and self.likeliest is None:
            raise ValueError("refuted without a wrong prefix")
        for name in ("stats", "made_with"):
            object.__setattr__(self, name, MappingProxyType(dict(getattr(self, name))))

    @property
    def low(self) -> float:
        """No prefix has a smaller margin."""
        return self.margin.low

    @property
    def high(self) -> float:
        """The least margin seen, which is that of `worst`."""
        return self.margin.high

    @property
    def worst(self) -> PrefixFound | None:
        """`tightest`, by the name that it has in every verdict."""
        return self.tightest

    @property
    def proved_to(self) -> int:
        """The claim holds on all prefixes of at most this length; -1 if that is known of none.

        Nothing is known of lengths that were left out: it counts up to the first of them.
        """
        fails = [row.length for row in self.by_length if not row.decided or row.wrong]
        first = min([*fails, *([] if self.gap is None else [self.gap])], default=math.inf)
        return max((n for n in self.lengths if n < first), default=-1)

    @property
    def prefixes(self) -> int:
        """Number of prefixes that the claim speaks of."""
        return sum(row.prefixes for row in self.by_length)

    @property
    def prefixes_decided(self) -> int:
        """Number of them at the lengths at which every one was decided."""
        return sum(row.prefixes for row in self.by_length if row.decided)

    @property
    def complete(self) -> bool:
        """Whether every prefix was decided, so that `wrong` and errors are exact."""
        return all(row.decided for row in self.by_length)

    @property
    def wrong(self) -> int:
        """Number of prefixes on which it is wrong: at least, unless all is `complete`."""
        return sum(row.wrong for row in self.by_length)

    def to_rows(self) -> list[dict[str, Any]]:
        """`by_length` as flat rows, ready for `pandas.DataFrame`."""
        return [row.to_dict() for row in self.by_length]

    def summary(self) -> list[tuple[str, str]]:
        """What there is to say, as names and texts; the first is the status."""
        claim = self.claim if self.epsilon is None else f"{self.claim} ≤ {self.epsilon:g}"
        claim += "" if self.threshold is None else f" (logits above {self.threshold:g})"
        rows = [
            ("status", self.status),
            ("claim", f"{claim}, {self.language}, {_span(self.lengths)}"),
            ("prefixes", self._prefixes()),
            ("proved", self._proved()),
            ("least margin", str(self.margin)),
        ]
        if self.likeliest is not None:
            known = "likeliest error" if self.is_likeliest else "an error"
            rows.append((known, _line(self.likeliest)))
            if self.shortest is not None and self.shortest != self.likeliest:
                whole = self.gap is None or self.gap > self.shortest.length
                known = "shortest error" if self.is_shortest and whole else "a shorter error"
                rows.append((known, _line(self.shortest)))
            least = "" if self.complete else "at least "
            rows.append(("wrong", f"{least}{_number(self.wrong)} prefixes"))
        for name, bounds in (("accuracy", self.accuracy), ("long accuracy", self.long_accuracy)):
            if bounds is not None:
                rows.append((name, str(bounds)))
        rows += [(f"length {each.length}", str(each)) for each in self.drawn[-1:]]
        if self.reason:
            rows.append(("reason", self.reason))
        counts = "".join(f", {value:,} {name}" for name, value in self.stats.items())
        rows.append(("effort", f"{self.method}, {self.seconds:.3g} s{counts}"))
        if self.made_with:
            rows.append(("computed", said_with(self.made_with)))
        return rows

    def _proved(self) -> str:
        """Up to which length; or at which, where not every shorter one was asked about."""
        right = tuple(row.length for row in self.by_length if row.decided and not row.wrong)
        if not right or self.proved_to >= right[-1] or self.gap is None:
            return f"up to length {self.proved_to}" if self.proved_to >= 0 else "no length"
        return _span(right)

    def _prefixes(self) -> str:
        """How many prefixes there are; of how many it is known what the claim comes to."""
        if self.complete:
            return _number(self.prefixes)
        left = [row for row in self.by_length if not row.decided]
        lengths = sorted({*self.lengths} - {row.length for row in left})
        nothing = all(not row.wrong and row.error == (0, 1) for row in left)
        done = "none decided"
        if self.prefixes_decided:
            done = f"every one of {_span(tuple(lengths))}, {_number(self.prefixes_decided)}"
        others = _number(self.prefixes - self.prefixes_decided)
        return f"{done}; of {others} others " + (
            "nothing is known" if nothing else "not all is known"
        )


def _line(found: PrefixFound) -> str:
    chance = f"{found.probability:.3g}"
    if not found.probability:
        chance = f"10^{found.log_probability / math.log(10):.1f}"
    return (
        f"{found.text or 'the empty prefix'}  probability {chance}, margin {found.margin:.3g}, "
        f"predicted {found.predicted}, may follow {' '.join(found.may_follow)}"
    )


def _number(n: int) -> str:
    """All digits of a number, or the first three and how many there are."""
    if n < 10**15:
        return f"{n:,}"
    power = len(str(n)) - 1
    return f"{n // 10 ** (power - 2) / 100:g}e{power}"


def _span(lengths: tuple[int, ...]) -> str:
    """The lengths, runs of them by their ends."""
    runs: list[list[int]] = []
    for length in lengths:
        if runs and length == runs[-1][-1] + 1:
            runs[-1].append(length)
        else:
            runs.append([length])
    *said, last = [str(run[0]) if len(run) == 1 else f"{run[0]} to {run[-1]}" for run in runs]
    said = [", ".join(said), last] if said else [last]
    return f"length{'s' * (len(lengths) > 1)} {' and '.join(said)}"
