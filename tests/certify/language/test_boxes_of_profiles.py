"""The search over boxes meets each profile once, and cuts boxes to what profiles there are."""

from __future__ import annotations

from collections import Counter
from typing import Any

import numpy as np
import pytest

from tests.certify.language.test_decide import random_model, task_of
from tl_dyck.certify.deadline import Deadline
from tl_dyck.certify.language import shells
from tl_dyck.certify.language.boxes import Boxes
from tl_dyck.certify.language.claims import Signs
from tl_dyck.certify.language.counted import NetworkSymbols
from tl_dyck.certify.language.evaluator import Evaluator
from tl_dyck.certify.language.profiles import Ending, Profiles, compositions
from tl_dyck.certify.language.shells import Shell
from tl_dyck.certify.language.tally import Tally
from tl_dyck.rnn import export_rnn

TASK = task_of(2, 2)
PROFILES = Profiles(TASK.distribution)
ENDINGS = [Ending((0,), None), Ending((1,), 0), Ending((1, 0), None)]


def search(ending: Ending, first: int, last: int) -> tuple[Any, Tally]:
    rnn = export_rnn(random_model("minimal-onehot", TASK, 0))
    claim = Signs("any_token", TASK.language)
    evaluator = Evaluator([NetworkSymbols(rnn, TASK.language)], claim, PROFILES)
    shell, tally = Shell(first, last, ending.depth, ending.closes), Tally(40, 2)
    return shells._Search(evaluator, ending, shell, tally, Deadline()), tally


@pytest.mark.parametrize("totals", [(0, 3), (7, 7), (6, 9)])
@pytest.mark.parametrize("ending", ENDINGS, ids=str)
def test_where_no_box_is_settled_every_profile_is_evaluated_once(
    ending: Ending, totals: tuple[int, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: Counter[tuple[int, ...]] = Counter()

    def judged(_: Evaluator, mine: Ending, rows: Any) -> None:
        assert mine == ending
        seen.update(map(tuple, rows.tolist()))

    def nothing(self: Boxes, low: Any, high: Any) -> tuple[Any, Any, Any]:
        bounds, longest, loose = lower(self, low, high)
        return bounds - np.inf, longest, loose

    lower = Boxes.lower
    monkeypatch.setattr(Boxes, "lower", nothing)
    monkeypatch.setattr(Evaluator, "judged", judged)
    monkeypatch.setattr(Tally, "take", lambda *_: None)
    monkeypatch.setattr(shells, "_SMALL", 8)
    run, tally = search(ending, *totals)
    run.run()
    wanted: Counter[tuple[int, ...]] = Counter()
    for total in range(totals[0], totals[1] + 1):
        rows = compositions(4, total)
        wanted.update(map(tuple, rows[PROFILES.occur(ending, rows)].tolist()))
    assert seen == wanted
    assert tally.boxes > 0
    assert tally.boxes <= len(wanted)  # none is empty, none is looked at without need


@pytest.mark.parametrize("ending", ENDINGS, ids=str)
def test_a_box_ends_where_its_profiles_end(ending: Ending) -> None:
    run, _ = search(ending, 6, 9)
    rng = np.random.default_rng(0)
    low = rng.integers(0, 4, (200, 4)).astype(float)
    high = low + rng.integers(0, 6, (200, 4))
    cut = [(*each,) for each in zip(*run._tightened(low.copy(), high.copy()), strict=True)]
    rows = np.concatenate([compositions(4, total) for total in range(6, 10)])
    rows = rows[PROFILES.occur(ending, rows)]
    kept = np.zeros(len(rows), dtype=int)
    for bottom, top in cut:
        kept += ((bottom <= rows) & (rows <= top)).all(1)
        for i in range(4):  # the numbers of pairs allow each end of each side
            assert bottom.sum() - bottom[i] + top[i] <= 9
            assert top.sum() - top[i] + bottom[i] >= 6
    before = ((low[:, None] <= rows) & (rows <= high[:, None])).all(2).sum(0)
    assert (kept == before).all()
    some = np.array([[1, 0, 2, 3]]), np.array([[1, 5, 7, 3]])
    halves = shells._split(*(each.astype(float) for each in some), np.array([[9.0, 1, 2, 9]]))
    assert halves[0].tolist() == [[1, 0, 2, 3], [1, 0, 5, 3]]
    assert halves[1].tolist() == [[1, 5, 4, 3], [1, 5, 7, 3]]
