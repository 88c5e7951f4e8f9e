"""Profiles decided box by box: bound, split what is not settled, evaluate what is small.

A box is a range of pairs of each kind. All profiles of a shell start in one box per ending. A box
is settled if the lower bounds of its objectives (`boxes`) prove the claim on all of it; a small one
is evaluated profile by profile; another is split in two, at the kind that loosens its bound most.
So every profile is either evaluated or proved, and wrong ones are all evaluated.
"""

from __future__ import annotations

import numpy as np

from tl_dyck.certify.deadline import Deadline
from tl_dyck.certify.exact.balls import Array
from tl_dyck.certify.language.boxes import Boxes
from tl_dyck.certify.language.claims import Signs
from tl_dyck.certify.language.enumeration import BLOCK, Judge, Shell
from tl_dyck.certify.language.forms import Form, has_form
from tl_dyck.certify.language.profiles import Ending
from tl_dyck.certify.language.tally import Tally

_AT_ONCE = 1024
"""Boxes bounded at once."""

_MOST = 5_000_000
"""Numbers that a bound of all of them may take: with many kinds of pairs they are fewer boxes."""

_SMALL = 64
"""Profiles in a box that is evaluated instead of split."""

_FEW = 2000
"""Profiles of a shell, per ending, that are not worth a search."""

_Boxed = tuple[Array, Array]


def decide(judge: Judge, shell: Shell, tally: Tally, deadline: Deadline) -> None:
    """Decide all profiles of a shell, and add what they are to a tally.

    Raises:
        OutOfTime: the deadline has passed; what has been found is in the tally.
    """
    few = judge.cost(shell) <= _FEW * judge.profiles.k**shell.depth
    forms = all(has_form(each.network.config) for each in judge.symbols)
    if few or not forms or not isinstance(judge.claim, Signs):
        judge.enumerate(shell, tally, deadline)
        return
    for ending in judge.endings(shell):
        deadline.check()
        _search(judge, ending, shell, tally, deadline)


def _search(judge: Judge, ending: Ending, shell: Shell, tally: Tally, deadline: Deadline) -> None:
    """All profiles of an ending, depth first."""
    found = judge.evaluators(ending)
    assert found
    form = found[0]
    assert isinstance(form, Form)
    assert isinstance(judge.claim, Signs)
    boxes, kinds = Boxes(form), judge.profiles.kinds
    low, high = np.zeros((1, kinds)), np.full((1, kinds), float(shell.last))
    if ending.closes is not None:
        low[0, ending.depth * judge.profiles.k + ending.closes] = 1
    numbers = kinds * (form.n_hidden + form.n_objectives)
    at_once = max(1, min(_AT_ONCE, _MOST // numbers))
    waiting: list[_Boxed] = [(low, high)]
    while waiting:
        deadline.check()
        low, high = waiting.pop()
        if len(low) > at_once:
            waiting.append((low[at_once:], high[at_once:]))
            low, high = low[:at_once], high[:at_once]
        low, high = _tightened(judge, ending, shell, low, high)
        with np.errstate(over="ignore"):
            volume = (high - low + 1).prod(1)
        small = low[volume <= _SMALL], high[volume <= _SMALL]
        _evaluate(judge, ending, shell, tally, small, deadline)
        low, high = low[volume > _SMALL], high[volume > _SMALL]
        if not len(low):
            continue
        bounds, longest, loose = boxes.lower(low, high)
        least = judge.claim.least(ending, bounds)
        settled = least > 0
        tally.boxes += len(low)
        if settled.any():
            tally.proved = min(tally.proved, float((least[settled] / longest[settled]).min()))
        waiting.append(_split(low[~settled], high[~settled], loose[~settled]))


def _tightened(judge: Judge, ending: Ending, shell: Shell, low: Array, high: Array) -> _Boxed:
    """Boxes without pairs that no prefix of the shell has, and without those that have no other."""
    k, deepest = judge.profiles.k, judge.profiles.deepest
    first = ending.depth if ending.closes is None else ending.depth + 1
    for level in range(max(first, 1), deepest):  # pairs need a bracket to be in
        none = high[:, (level - 1) * k : level * k].sum(1) == 0
        high[none, level * k : (level + 1) * k] = 0
    room, need = shell.last - low.sum(1), high.sum(1) - shell.first
    high = np.minimum(high, low + room[:, None])
    low = np.maximum(low, high - need[:, None])
    fine = (room >= 0) & (need >= 0) & (low <= high).all(1)
    return low[fine], high[fine]


def _split(low: Array, high: Array, loose: Array) -> _Boxed:
    """Each box in two halves, along the kind that loosens its bound most."""
    rows = np.arange(len(low))
    at = np.where(high > low, loose + 1e-12 * (high - low), -1.0).argmax(1)
    middle = np.floor((low[rows, at] + high[rows, at]) / 2)
    below, above = high.copy(), low.copy()
    below[rows, at], above[rows, at] = middle, middle + 1
    return np.concatenate([low, above]), np.concatenate([below, high])


def _evaluate(
    judge: Judge, ending: Ending, shell: Shell, tally: Tally, boxes: _Boxed, deadline: Deadline
) -> None:
    """Evaluate every profile of small boxes."""
    low, high = (each.astype(np.int64) for each in boxes)
    if not len(low):
        return
    sizes = high - low + 1
    volume = sizes.prod(1)
    box = np.repeat(np.arange(len(low)), volume)
    index = np.arange(len(box)) - np.repeat(volume.cumsum() - volume, volume)
    rows = np.empty((len(box), low.shape[1]), dtype=np.int16)
    for kind in range(low.shape[1]):  # the digits of a number with mixed bases
        size = sizes[box, kind]
        rows[:, kind] = low[box, kind] + index % size
        index //= size
    total = rows.sum(1)
    rows = rows[(total >= shell.first) & (total <= shell.last)]
    rows = rows[judge.profiles.occur(ending, rows)]
    for start in range(0, len(rows), BLOCK):
        deadline.check()
        judge.rows(ending, rows[start : start + BLOCK], tally)
