"""Every profile of a shell decided: listed one by one, or box by box.

For two types and depth 4 there are C(T + 7, 7) ways to choose T pairs, for each of 31 stacks and up
to 3 last brackets: 10⁷ profiles up to length 28, which stand for 10¹¹ prefixes. Few are listed, in
blocks. Where there are more, a *box* is a range of pairs of each kind, and all profiles of an
ending start in one. A box is settled if the lower bounds of its objectives (`boxes`) prove the
claim on all of it; a small one is evaluated profile by profile; another is split in two, at the
kind that loosens its bound most. So every profile is either evaluated or proved, and wrong ones are
all evaluated.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple, final

import numpy as np

from tl_dyck.certify.deadline import Deadline
from tl_dyck.certify.exact.balls import Array
from tl_dyck.certify.language.boxes import Boxes
from tl_dyck.certify.language.claims import Allowed, PrefixClaim, Signs
from tl_dyck.certify.language.evaluator import Evaluator
from tl_dyck.certify.language.forms import Form
from tl_dyck.certify.language.profiles import Ending, Profiles, in_blocks, n_profiles
from tl_dyck.certify.language.tally import Tally

_BLOCK = 4096
"""Profiles evaluated at a time: what they take stays in a core's cache."""

# Few profiles have so few pairs: bands would save nothing there, and short prefixes come first.
_ALONE = 6
"""Up to so many pairs each number of them is a shell of its own."""

_AT_ONCE = 2048
"""Boxes bounded at once."""

_MOST = 5_000_000
"""Numbers that a bound of all of them may take: with many kinds of pairs they are fewer boxes."""

_SMALL = 96
"""Profiles in a box that is evaluated instead of split."""

_FEW = 2000
"""Profiles of a shell, per ending, that are not worth a search."""

_Boxed = tuple[Array, Array]


class Shell(NamedTuple):
    """All profiles of some numbers of pairs, a depth and a last bracket, whatever the stack."""

    first: int
    last: int
    depth: int
    closes: int | None

    @property
    def lengths(self) -> range:
        """Of the prefixes, in brackets."""
        # two brackets a pair, one for each that is open
        return range(2 * self.first + self.depth, 2 * self.last + self.depth + 1, 2)

    def cost(self, profiles: Profiles) -> int:
        """How many profiles it has, at most."""
        totals = range(self.first, self.last + 1)
        # k^depth stacks share these rows
        rows = sum(n_profiles(profiles.kinds, total) for total in totals)
        return int(rows * profiles.k**self.depth)

    def endings(self, evaluator: Evaluator) -> Iterator[Ending]:
        """The endings of which the claim says anything: k to the power of the depth."""
        for ending in evaluator.profiles.endings((self.depth,)):
            if ending.closes == self.closes and evaluator.functions(ending) is not None:
                yield ending


def shells(profiles: Profiles, claim: PrefixClaim, lengths: Sequence[int]) -> list[Shell]:
    """All that must be gone through, short prefixes first."""
    asked, found = set(lengths), []
    for depth in filter(claim.speaks_of, range(profiles.deepest + 1)):
        # a prefix of 2 t + d brackets has t pairs
        totals = [t for t in range((max(asked) - depth) // 2 + 1) if 2 * t + depth in asked]
        for first, last in _bands(totals):
            # at depth 0 the last bracket closes, unless there is none at all
            closing: list[int | None] = [None] if depth or first == 0 else []
            # what is closed stood a level deeper, and is a pair
            if depth < profiles.deepest and last > 0:
                closing += range(profiles.k)
            found += [Shell(first, last, depth, closes) for closes in closing]
    return sorted(found, key=lambda shell: (shell.lengths[-1], shell.depth))


def _bands(totals: list[int]) -> list[tuple[int, int]]:
    """Runs of consecutive totals, each total alone while there are few profiles, then a third."""
    bands: list[tuple[int, int]] = []
    for total in totals:
        # -2: no total is its successor
        first, last = bands[-1] if bands else (0, -2)
        # a shell is what a verdict can stop behind; a third more pairs a band keeps their number
        # small
        if total == last + 1 and _ALONE < total <= first * 4 // 3:
            bands[-1] = (first, total)
        else:
            bands.append((total, total))
    return bands


def decide(evaluator: Evaluator, shell: Shell, tally: Tally, deadline: Deadline) -> None:
    """Decide all profiles of a shell, and add what they are to a tally.

    Raises:
        OutOfTime: the deadline has passed; what has been found is in the tally.
    """
    profiles = evaluator.profiles
    # both sides count all k^depth stacks
    few = shell.cost(profiles) <= _FEW * profiles.k**shell.depth
    if few or not evaluator.has_form or not isinstance(evaluator.claim, Signs | Allowed):
        enumerate_all(evaluator, shell, tally, deadline)
        return
    for ending in shell.endings(evaluator):
        deadline.check()
        _Search(evaluator, ending, shell, tally, deadline).run()


def enumerate_all(evaluator: Evaluator, shell: Shell, tally: Tally, deadline: Deadline) -> None:
    """The same by evaluating every profile."""
    first = next(shell.endings(evaluator), None)
    if first is None:
        return
    for total in range(shell.first, shell.last + 1):
        for block in in_blocks(evaluator.profiles.kinds, total, _BLOCK):
            deadline.check()
            # endings of a shell differ in the stack alone, on which it does not depend what occurs
            block = block[evaluator.profiles.occur(first, block)]
            for ending in shell.endings(evaluator) if len(block) else ():
                deadline.check()
                tally.take(evaluator.judged(ending, block))


@final
@dataclass(frozen=True)
class _Search:
    """All profiles of a shell's ending, by boxes, depth first."""

    evaluator: Evaluator
    ending: Ending
    shell: Shell
    tally: Tally
    deadline: Deadline

    def run(self) -> None:
        functions, claim = self.evaluator.functions(self.ending), self.evaluator.claim
        form = functions[0] if functions else None
        assert isinstance(form, Form)
        assert isinstance(claim, Signs | Allowed)
        boxes, kinds = Boxes(form), form.n_kinds
        low, high = np.zeros((1, kinds)), np.full((1, kinds), float(self.shell.last))
        if self.ending.closes is not None:
            # the pair that the last bracket closes is one of them, a level below the stack
            low[0, self.ending.depth * self.evaluator.profiles.k + self.ending.closes] = 1
        numbers = kinds * (form.n_hidden + form.n_objectives)
        at_once = max(1, min(_AT_ONCE, _MOST // numbers))
        waiting: list[_Boxed] = [(low, high)]
        while waiting:
            self.deadline.check()
            # depth first: what is split is on top, so that few boxes wait
            low, high = waiting.pop()
            while len(low) < at_once and waiting:
                low, high = map(np.concatenate, zip((low, high), waiting.pop(), strict=True))
            if len(low) > at_once:
                waiting.append((low[at_once:], high[at_once:]))
                low, high = low[:at_once], high[:at_once]
            low, high = self._tightened(low, high)
            with np.errstate(over="ignore"):
                # as float64: the volume of the first box may be beyond int64, or beyond all
                # ends are included
                small = (high - low + 1).prod(1) <= _SMALL
            self._evaluate(low[small].T, high[small].T)
            low, high = low[~small], high[~small]
            if not len(low):
                continue
            bounds, longest, loose = boxes.lower(low, high)
            least = claim.least(self.ending, bounds)
            settled = least > 0
            self.tally.boxes += len(low)
            # bounds are of ρ times the margin; the margin is at least that over the largest ρ
            proved = (least[settled] / longest[settled]).min(initial=np.inf)
            self.tally.proved = min(self.tally.proved, float(proved))
            waiting.append(_split(low[~settled], high[~settled], loose[~settled]))

    def _tightened(self, low: Array, high: Array) -> _Boxed:
        """Boxes without pairs that no prefix of the shell has; none of those that have no other."""
        k, ending, shell = self.evaluator.profiles.k, self.ending, self.shell
        first = ending.depth if ending.closes is None else ending.depth + 1
        for level in range(max(first, 1), self.evaluator.profiles.deepest):
            none = high[:, (level - 1) * k : level * k].sum(1) == 0  # pairs need a bracket around
            high[none, level * k : (level + 1) * k] = 0
        # how many pairs may still be added to `low`, and how many may be taken from `high`
        room, need = shell.last - low.sum(1), high.sum(1) - shell.first
        high = np.minimum(high, low + room[:, None])
        low = np.maximum(low, high - need[:, None])
        fine = (room >= 0) & (need >= 0) & (low <= high).all(1)
        return low[fine], high[fine]

    def _evaluate(self, low: Array, high: Array) -> None:
        """Evaluate every profile of small boxes, of which the ends, [kinds, n], are integers."""
        sizes = high - low + 1
        volume = sizes.prod(0).astype(np.int64)
        box = np.repeat(np.arange(len(volume)), volume)
        # number of a profile within its box, below `_SMALL`: float64 is divided sooner than int64
        index = np.arange(float(len(box))) - np.repeat(volume.cumsum() - volume, volume)
        columns, total = np.empty((len(low), len(box)), dtype=np.int16), np.zeros(len(box))
        for kind in range(len(low)):  # the digits of a number with mixed bases
            size = sizes[kind].take(box)
            rest = np.floor(index / size)
            found = low[kind].take(box) + (index - rest * size)
            columns[kind], total, index = found, total + found, rest
        rows = columns[:, (total >= self.shell.first) & (total <= self.shell.last)].T
        rows = rows[self.evaluator.profiles.occur(self.ending, rows)]
        for start in range(0, len(rows), _BLOCK):
            self.deadline.check()
            self.tally.take(self.evaluator.judged(self.ending, rows[start : start + _BLOCK]))


def _split(low: Array, high: Array, loose: Array) -> _Boxed:
    """Each box in two halves, along the kind that loosens its bound most."""
    rows = np.arange(len(low))
    # 1e-12: where no kind loosens anything, the longest; -1 keeps kinds of one value from being
    # split
    at = np.where(high > low, loose + 1e-12 * (high - low), -1.0).argmax(1)
    # both halves keep a value, for ends are integers that differ
    middle = np.floor((low[rows, at] + high[rows, at]) / 2)
    below, above = high.copy(), low.copy()
    below[rows, at], above[rows, at] = middle, middle + 1
    return np.concatenate([low, above]), np.concatenate([below, high])
