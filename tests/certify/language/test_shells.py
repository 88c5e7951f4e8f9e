"""Boxes of profiles: their bounds against the profiles in them, and the search against all."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tests.certify.language.test_forms import FORMS, LANGUAGE, PROFILES, network
from tl_dyck.certify.deadline import Deadline
from tl_dyck.certify.language import shells
from tl_dyck.certify.language.boxes import Boxes, _apart
from tl_dyck.certify.language.claims import Signs
from tl_dyck.certify.language.counted import NetworkSymbols
from tl_dyck.certify.language.evaluator import Evaluator
from tl_dyck.certify.language.forms import Form
from tl_dyck.certify.language.profiles import Profiles
from tl_dyck.certify.language.shells import Shell
from tl_dyck.certify.language.tally import Tally
from tl_dyck.certify.objectives import Objectives
from tl_dyck.models import construct
from tl_dyck.rnn import export_rnn
from tl_dyck.tasks import load_task


@pytest.mark.parametrize("readout", FORMS, ids=str)
def test_a_bound_is_below_every_profile_of_its_box_and_meets_it_at_a_point(
    readout: dict[str, Any],
) -> None:
    symbols, rng = NetworkSymbols(network(readout), LANGUAGE), np.random.default_rng(0)
    for ending in list(PROFILES.endings())[5:40:7]:
        form = Form(symbols, ending, Objectives.margins(3, 7))
        low = rng.integers(0, 5, (40, 9)).astype(float)
        high = low + rng.integers(0, 4, (40, 9)) * (np.arange(40)[:, None] > 9)
        bounds, longest, _ = Boxes(form).lower(low, high)
        for _ in range(30):
            inside = np.concatenate([np.ones((40, 1)), rng.integers(low, high + 1)], axis=1)
            values, error, factor = form.values(inside)
            assert np.all(bounds <= values + error)
            assert np.all((factor[:, 0] <= longest) | np.isinf(bounds[:, 0]))
        points = bounds[:10]  # boxes of one profile each
        known = np.isfinite(points)
        assert np.all((values[:10] - points < 1e-6)[known])
        if readout.get("ln_c", 0) < 1 and readout.get("ln_mid") is None:
            assert known.mean() > 0.5  # unless the floor of the norm may matter


def test_a_balanced_model_is_proved_in_one_box_per_ending() -> None:
    """Theorem 1: matched pairs change nothing, however many there are."""
    task = load_task("dyck-2-4")
    rnn = export_rnn(construct.uniform_attention(task.language))
    evaluator = Evaluator(
        [NetworkSymbols(rnn, task.language)],
        Signs("any_token", task.language),
        Profiles(task.distribution),
    )
    tally = Tally(504, 4)
    shells.decide(evaluator, Shell(200, 250, 4, None), tally, Deadline())
    assert tally.boxes == 16
    assert tally.profiles == 0
    assert tally.proved > 0.69


def test_what_no_pairs_can_take_from_the_stack() -> None:
    symbols, rng = NetworkSymbols(network(FORMS[2]), LANGUAGE), np.random.default_rng(2)
    form = Form(symbols, list(PROFILES.endings())[30], Objectives.margins(3, 7))
    for root in (rng.normal(size=(4, 6)), rng.normal(size=(5, 5)), form.root):
        coefficients = _apart(root)
        rows = rng.integers(0, 9, (500, len(root))) * 1.0
        rows[:, 0] = 1
        nearest = np.linalg.lstsq(root[1:].T, -root[0], rcond=None)[0]  # as if pairs were real
        rows[0, 1:] = np.maximum(nearest, 0)
        assert np.all(np.linalg.norm(rows @ root, axis=1) >= rows @ coefficients)
        assert np.all(coefficients[1:] <= 0)
        rest = np.linalg.norm(root[0] + root[1:].T @ nearest)
        assert coefficients[0] == pytest.approx(rest, abs=1e-9)
