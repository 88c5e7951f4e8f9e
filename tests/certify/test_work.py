"""What is recorded is limited by work: the clock is not looked at, and the same question stops at
the same place, however slow the machine is."""

from __future__ import annotations

import itertools
from dataclasses import replace
from typing import Any

import pytest
import torch

from tests.certify.oracles import LANGUAGE, random_rnn
from tl_dyck.certify import Delete, Duplicate, InsertMatchedPairs, PerturbationSpace, certify
from tl_dyck.certify import deadline as clock
from tl_dyck.certify.deadline import Deadline, OutOfTime, by_work
from tl_dyck.certify.language import certify_language
from tl_dyck.judge import make_case, methods
from tl_dyck.models import build_model, get_config
from tl_dyck.studies.measurement import Measurement
from tl_dyck.tasks import load_task
from tl_dyck.training import TrainConfig, train_seeds

TASK = load_task("dyck-2-4")
EDITS = PerturbationSpace(
    [(Duplicate(), 2), (Delete([0, 2]), 1), (InsertMatchedPairs(LANGUAGE), 2)]
)
STRING = (0, 2, 3, 1) * 3


def nobody_looks() -> float:
    raise AssertionError("the clock was looked at")


def slow(seconds: float):
    """A clock on which every look takes as long."""
    ticks = itertools.count()
    return lambda: next(ticks) * seconds


def edits(limit: float) -> Any:
    found = certify(random_rnn(3, n_ctx=200), STRING, None, EDITS, time_limit=limit)
    stats = {name: value for name, value in found.stats.items() if "seconds" not in name}
    return found.status, found.lower, found.upper, found.worst, stats


def language(limit: float) -> Any:
    model = build_model(get_config("minimal-onehot", TASK), seed=4)
    found = certify_language(model, TASK, 24, time_limit=limit)
    return replace(found, seconds=0.0)


def two_layers(limit: float) -> Any:
    model = build_model(get_config("gpt", TASK, d_model=8, n_heads=2), seed=4)
    return replace(certify_language(model, TASK, 24, most_run=2000, time_limit=limit), seconds=0.0)


@pytest.mark.parametrize("question", [edits, language, two_layers])
def test_the_same_question_stops_at_the_same_place(question, monkeypatch):
    """At limits that cut it off anywhere; the most is reached and the least is not all of it."""
    found = []
    for limit in (0.002, 0.01, 0.05, 0.2):
        same = []
        for seconds in (0.0, 1e9):
            monkeypatch.setattr(clock, "now", slow(seconds))
            with by_work():
                same.append(repr(question(limit)))
        assert same[0] == same[1]
        found.append(same[0])
    assert len(set(found)) > 1, "no limit was reached"
    monkeypatch.setattr(clock, "now", nobody_looks)
    with by_work():
        assert repr(question(0.2)) == found[-1]


def test_by_the_clock_a_busy_machine_knows_less(monkeypatch):
    monkeypatch.setattr(clock, "now", slow(1e-4))
    quick = language(0.2)
    monkeypatch.setattr(clock, "now", slow(1.0))
    assert repr(language(0.2)) != repr(quick)


def test_work_is_counted_from_where_it_begins():
    with by_work():
        first = Deadline.after(0.01)
        looks = next(looks for looks in itertools.count(1) if first.passed)
        second = Deadline.after(0.01)
        assert not second.passed
        assert second.left == pytest.approx(0.01, abs=0.002)
        with pytest.raises(OutOfTime):
            second.check(looks)
    assert not clock.counts_work()
    assert Deadline.after(100.0).left > 0


def test_a_measurement_never_looks_at_the_clock(tmp_path, monkeypatch):
    """Accuracy bounds, certificates, proofs of a study: the same on a busy machine."""
    monkeypatch.setattr(clock, "now", nobody_looks)
    small = TrainConfig(steps=30, check_every=30, check_size=20)
    asked = Measurement(n_accuracy=20, n_long=2, n_strings=20, n_certified=2, decided_length=14)
    for family in ("minimal-onehot", "gpt"):
        (result,) = train_seeds(
            get_config(family, TASK), TASK, options=small, n_jobs=1, progress=False, seeds=[0]
        )
        (tmp_path / family).mkdir()
        assert asked.measure(result, tmp_path / family)["proved_to"] is not None
    assert torch.isfinite(result.model.W_U).all()


def test_a_judged_certificate_never_looks_at_the_clock(monkeypatch):
    monkeypatch.setattr(clock, "now", nobody_looks)
    case, facts = make_case("uniform", 1)
    questions = [fact.question for fact in facts if fact.question.kind == "stack"]
    assert methods.resolve("certificate")(case, questions) is not None
