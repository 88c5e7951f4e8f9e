"""What is known of a claim, length by length: margins, wrong prefixes, probabilities.

Probabilities are kept as logarithms, since those of long prefixes are below the least float64, and
numbers of prefixes as integers, so that none of them vanishes in a sum.

Knows: which prefix is the likeliest, the shortest, the tightest of those seen.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple, final

import numpy as np
from numpy.typing import NDArray

from tl_dyck.certify.display import Plain
from tl_dyck.certify.exact.balls import Array, BoolArray, IntArray
from tl_dyck.certify.language.profiles import Ending, Profiles


@final
@dataclass(frozen=True, kw_only=True)
class PrefixFound(Plain):
    """A prefix of the language; the model is run on it only for the certificate.

    Attributes:
        tokens: without BOS; empty, of a profile, until the model has been run on it.
        log_probability: under D(q, k, D), among the prefixes of its length, in nats.
        margin: of the claim, for the weights as real numbers; negative where it is wrong.
        ending: how it ends, as far as the claim asks.
        pairs: its matched pairs of each kind; empty if it was run and not its profile evaluated.
        text: its brackets; empty, as all below, until then.
        logits: what the model itself computes after it.
        may_follow: the brackets that may come next.
        predicted: the bracket, or BOS, with the largest of `logits`.
    """

    _unsaid = ("ending", "pairs")
    _derived = ("probability",)

    tokens: tuple[int, ...] = ()
    log_probability: float
    margin: float
    ending: Ending
    pairs: tuple[int, ...] = ()
    text: str = ""
    logits: tuple[float, ...] = ()
    may_follow: tuple[str, ...] = ()
    predicted: str = ""

    @property
    def length(self) -> int:
        """In brackets."""
        # two brackets a pair, one for each that is open
        return len(self.tokens) or 2 * sum(self.pairs) + self.ending.depth

    @property
    def probability(self) -> float:
        """Under D(q, k, D); 0 if it is below the least float64."""
        return math.exp(self.log_probability)


Order = tuple[Any, ...]


def _identity(found: PrefixFound) -> Order:
    closes = () if found.ending.closes is None else (found.ending.closes,)
    return found.ending.stack, closes, found.pairs, found.tokens


def _by_chance(found: PrefixFound) -> Order:
    """The likeliest first; of those as likely the shortest."""
    return -found.log_probability, found.length, _identity(found)


def _by_length(found: PrefixFound) -> Order:
    return found.length, _by_chance(found)


def _by_margin(found: PrefixFound) -> Order:
    return found.margin, _identity(found)


def _first(order: Callable[[PrefixFound], Order], *found: PrefixFound | None) -> PrefixFound | None:
    return min((each for each in found if each is not None), key=order, default=None)


class JudgedPrefixes(NamedTuple):
    """Prefixes, or profiles, that end alike, and what became of the claim on each.

    Attributes:
        ending: of all of them, as far as the claim asks.
        margin: of the claim, ``[n]``.
        error: a bound of its error, inf where nothing is known, ``[n]``.
        rows: their tokens, or their pairs, ``[n, …]``.
        kind: "tokens" or "pairs".
        weigh: of some of them: the length, and the logs of how probable one prefix is and of how
            many there are.
    """

    ending: Ending
    margin: Array
    error: Array
    rows: NDArray[Any]
    kind: Literal["tokens", "pairs"]
    weigh: Callable[[IntArray], tuple[IntArray, Array, Array]]

    def found(self, index: int, log_string: float | None = None) -> PrefixFound:
        """One of them, and the log of how probable it is, if that is known."""
        if log_string is None:
            log_string = float(self.weigh(np.array([index]))[1][0])
        what: dict[str, Any] = {self.kind: tuple(self.rows[index].tolist())}
        return PrefixFound(
            log_probability=log_string,
            margin=float(self.margin[index]),
            ending=self.ending,
            **what,
        )

    @property
    def wrong(self) -> BoolArray:
        """On which of them the claim is wrong for certain."""
        return self.margin < -self.error

    @property
    def doubtful(self) -> BoolArray:
        """On which of them rounding hides the answer."""
        doubtful: BoolArray = abs(self.margin) <= self.error
        return doubtful


@final
@dataclass
class Gathered:
    """The prefixes that have one answer; arrays are ``[length + 1, D + 1]``.

    Attributes:
        log_mass: log of their probability; -inf where there are none.
        strings: how many they are: integers of any size, exact up to 10¹², beyond that to 12
            digits.
        likeliest: the likeliest one.
        shortest: the shortest one.
    """

    log_mass: Array
    strings: NDArray[Any]
    likeliest: PrefixFound | None = None
    shortest: PrefixFound | None = None

    @classmethod
    def empty(cls, shape: tuple[int, int]) -> Gathered:
        """None yet."""
        return cls(np.full(shape, -np.inf), np.zeros(shape, dtype=object))

    def see(self, *found: PrefixFound | None) -> None:
        """Remember prefixes, if they are of note."""
        self.likeliest = _first(_by_chance, self.likeliest, *found)
        self.shortest = _first(_by_length, self.shortest, *found)

    def take(self, judged: JudgedPrefixes, which: BoolArray) -> None:
        """Add some of those that were judged."""
        at = np.flatnonzero(which)
        if not len(at):
            return
        lengths, log_string, log_count = judged.weigh(at)
        mass, strings = log_sums(lengths, log_string + log_count), _whole_sums(lengths, log_count)
        for length in np.flatnonzero(np.bincount(lengths)).tolist():
            place = (length, judged.ending.depth)
            self.log_mass[place] = np.logaddexp(self.log_mass[place], mass[length])
            self.strings[place] += strings[length]
        # of the shortest the likeliest; −∞ is chosen by none
        short = np.where(lengths == lengths.min(), log_string, -np.inf)
        noted = dict.fromkeys(int(nats.argmax()) for nats in (log_string, short))
        self.see(*(judged.found(int(at[one]), float(log_string[one])) for one in noted))

    def add(self, other: Gathered) -> None:
        """Add what another has gathered, of other prefixes that are no longer."""
        n = len(other.log_mass)
        self.log_mass[:n] = np.logaddexp(self.log_mass[:n], other.log_mass)
        self.strings[:n] += other.strings
        self.see(other.likeliest, other.shortest)


@final
class Tally:
    """What became of all that was evaluated.

    Args:
        longest: length in brackets of the longest prefixes.
        deepest: D.

    Attributes:
        wrong: the prefixes on which the claim is refuted.
        doubtful: those on which rounding hides the answer.
        complete: which lengths and depths have been gone through, ``[longest + 1, D + 1]``.
        profiles: how many were evaluated.
        boxes: how many boxes of profiles were bounded.
        walked: how many lengths were decided along the paths of a graph.
        refuted: lengths of wrong prefixes that were found and not counted.
        tightest: the prefix with the least margin.
        proved: no margin of those evaluated is less.
    """

    def __init__(self, longest: int, deepest: int) -> None:
        shape = longest + 1, deepest + 1
        self.wrong, self.doubtful = Gathered.empty(shape), Gathered.empty(shape)
        self.complete = np.zeros(shape, dtype=bool)
        self.profiles = self.boxes = self.walked = 0
        self.refuted: set[int] = set()
        self.tightest: PrefixFound | None = None
        self.proved = math.inf

    def take(self, judged: JudgedPrefixes) -> None:
        """Add profiles that were evaluated, or prefixes that were run."""
        self.profiles += len(judged.margin)
        # rounded to nearest, so that its last digit is not proved; `wrong` and `doubtful` decide
        self.proved = min(self.proved, float((judged.margin - judged.error).min()))
        least = int(judged.margin.argmin())
        if self.tightest is None or judged.margin[least] <= self.tightest.margin:
            self.see(judged.found(least))
        self.wrong.take(judged, judged.wrong)
        self.doubtful.take(judged, judged.doubtful)

    def see(self, found: PrefixFound | None) -> None:
        """Remember a prefix, if none has a smaller margin."""
        self.tightest = _first(_by_margin, self.tightest, found)

    def see_wrong(self, judged: JudgedPrefixes) -> None:
        """Remember wrong prefixes that were drawn; they are not counted."""
        for index in np.flatnonzero(judged.wrong).tolist():
            found = judged.found(index)
            self.see(found)
            self.wrong.see(found)
            self.refuted.add(found.length)

    def take_number(self, alike: PrefixFound, low: int, high: int) -> None:
        """Add how many prefixes are wrong, at least and at most, of those as probable as one."""
        place = alike.length, alike.ending.depth
        for gathered, number in ((self.wrong, low), (self.doubtful, high - low)):
            if number:
                mass = alike.log_probability + math.log(number)
                gathered.log_mass[place] = np.logaddexp(gathered.log_mass[place], mass)
                gathered.strings[place] += number
        if high > low:
            self.doubtful.see(alike)

    def knows_as_likely(self, alike: PrefixFound) -> bool:
        """Whether a prefix is known to be wrong that is as likely."""
        best = self.wrong.likeliest
        # nats that are equal but for the order of their sums
        return best is not None and best.log_probability >= alike.log_probability - 1e-9

    def add(self, other: Tally) -> None:
        """Add what another has counted, of other profiles that are no longer."""
        self.wrong.add(other.wrong)
        self.doubtful.add(other.doubtful)
        self.profiles += other.profiles
        self.boxes += other.boxes
        self.see(other.tightest)
        self.proved = min(self.proved, other.proved)

    def is_likeliest(self, profiles: Profiles, lengths: Iterable[int]) -> bool:
        """Whether no prefix that may be wrong is likelier than the likeliest that is.

        Those are the doubtful ones, and all at lengths that have not been gone through.
        """
        best, doubt = self.wrong.likeliest, self.doubtful.likeliest
        if best is None:
            return False
        left = [length for length in lengths if not self.complete[length].all()]
        rivals = (
            profiles.best_log_string(left),
            -math.inf if doubt is None else doubt.log_probability,
        )
        # as above: nats that are equal but for the order of their sums
        return max(rivals) <= best.log_probability + 1e-9

    def is_shortest(self, lengths: Iterable[int]) -> bool:
        """The same of the shortest one."""
        best, doubt = self.wrong.shortest, self.doubtful.shortest
        if best is None or (doubt is not None and doubt.length < best.length):
            return False
        return all(self.complete[n].all() for n in lengths if n < best.length)


def log_sum(nats: Array) -> float:
    """Log of a sum of numbers, from their logs."""
    return float(log_sums(np.zeros(len(nats), dtype=np.int64), nats)[0])


def log_sums(at: IntArray, nats: Array) -> Array:
    """Log of the sum of the numbers at each index, from their logs; -inf where there is none."""
    top = _largest(at, nats)
    # the largest is taken out, so that no exponential overflows; of nothing the log is −∞
    base = np.where(top == -np.inf, 0.0, top)
    with np.errstate(divide="ignore"):
        found: Array = base + np.log(np.bincount(at, np.exp(nats - base[at])))
    return found


def _whole_sums(at: IntArray, nats: Array) -> list[int]:
    """The sum of the numbers at each index, from their logs."""
    # so that the largest fits a float64's integers; what is shifted out is beyond 12 digits
    # 52: the largest is then below 2^53, up to where float64 holds every integer
    bits = np.maximum(0, np.trunc(_largest(at, nats) / math.log(2)) - 52)
    sums = np.bincount(at, np.rint(np.exp(nats - math.log(2) * bits[at])))
    return [int(each) << int(shift) for each, shift in zip(sums, bits, strict=True)]


def _largest(at: IntArray, numbers: Array) -> Array:
    """The largest number at each index."""
    found = np.full(int(at.max()) + 1, -np.inf)
    np.maximum.at(found, at, numbers)
    return found
