"""What is recorded is limited by work: the clock is not looked at, and the same question stops at
the same place, however slow the machine is."""

from __future__ import annotations

import itertools
import math
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
import pytest
import torch

from tests.certify.oracles import LANGUAGE, random_rnn
from tl_dyck import construct
from tl_dyck.certify import (
    Asker,
    CertifyError,
    Delete,
    Duplicate,
    InsertMatchedPairs,
    PerturbationSpace,
    certify,
    conclude,
)
from tl_dyck.certify import deadline as clock
from tl_dyck.certify.deadline import Deadline, OutOfTime, by_work
from tl_dyck.certify.exact.layout import build_graph
from tl_dyck.certify.exact.network import Network
from tl_dyck.certify.exact.paths import emission_costs, enumerate_below, sweep
from tl_dyck.certify.language import certify_language
from tl_dyck.judge import make_case, methods
from tl_dyck.models import build_model, get_config
from tl_dyck.studies import measurement
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
    for limit in (0.002, 0.01, 0.05):
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
        assert repr(question(0.05)) == found[-1]


N = 4000  # tokens; a run of one head takes about 0.8 s
LONG = (0, 2, 3, 1) * (N // 4 - 1) + (0, 2)


@pytest.fixture
def long_model(monkeypatch):
    """A model that reads long strings; whoever runs it is noted."""
    model, runs = construct.uniform_attention(LANGUAGE, n_ctx=N + 2), []
    logits = [0.0, 1.0, 0.0, 0.0, 0.0, 0.0, 0.0]
    monkeypatch.setattr(Asker, "logits", lambda self, string: (runs.append(string), logits)[1])
    monkeypatch.setattr(clock, "now", lambda: 0.0)
    return model, runs


def test_a_run_for_which_there_is_no_time_is_not_begun(long_model, monkeypatch):
    model, runs = long_model
    monkeypatch.setattr(PerturbationSpace, "lattice", nobody_looks)  # nor is anything laid out
    with pytest.raises(CertifyError, match=r"too short for a string of 3,998 tokens, .* 0\.8 s"):
        certify(model, LONG, None, EDITS, time_limit=0.5)
    found = certify(model, LONG, 1, EDITS, time_limit=0.5)
    assert (found.status, found.lower, found.upper) == ("open", -math.inf, math.inf)
    assert not runs


def test_a_certifier_leaves_time_for_the_last_run(long_model):
    """Of the worst string that is found."""
    told = []

    def certifier(rnn, string, target, space, *, time_limit):
        told.append(time_limit)
        about = {"certifier": "x", "lower": -math.inf, "string": None, "started": 0.0}
        return conclude(rnn, string, target, space, **about)

    for limit in (1.0, 5.0, 1000.0):
        certify(long_model[0], LONG, 1, "dup:1", certifier, time_limit=limit)
    assert told == [pytest.approx(0.2, abs=0.01), pytest.approx(4.2, abs=0.01), 1000.0]


def test_strings_are_listed_until_the_clock_says_so(monkeypatch):
    rnn = random_rnn(3, n_ctx=2000)
    lattice = EDITS.lattice(STRING * 5)
    graph = build_graph(Network(rnn), lattice)
    costs = emission_costs(graph, np.zeros((len(graph.symbols.tokens), 1)), np.array([0]))
    swept, looks = sweep(graph, costs), itertools.count()
    monkeypatch.setattr(clock, "now", lambda: float(next(looks)))
    with pytest.raises(OutOfTime):
        enumerate_below(swept, 0, np.inf, 10**9, Deadline(3.0))
    assert next(looks) == 5  # in the fifth level


def test_by_the_clock_a_busy_machine_knows_less(monkeypatch):
    monkeypatch.setattr(clock, "now", slow(1e-4))
    quick = language(0.05)
    monkeypatch.setattr(clock, "now", slow(1.0))
    assert repr(language(0.05)) != repr(quick)


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
    few = partial(certify_language, most_run=1000)  # so that some prefixes are bounded
    monkeypatch.setattr(measurement, "certify_language", few)
    small = TrainConfig(steps=5, check_every=5, check_size=20)
    asked = Measurement(n_accuracy=20, n_long=2, n_strings=20, n_certified=2, decided_length=8)
    for family in ("minimal-onehot", "gpt"):
        (result,) = train_seeds(
            get_config(family, TASK), TASK, options=small, n_jobs=1, progress=False, seeds=[0]
        )
        (tmp_path / family).mkdir()
        assert asked.measure(result, tmp_path / family)["proved_to"] is not None
    assert torch.isfinite(result.model.W_U).all()


@pytest.mark.parametrize(("drift", "score"), [(0.0, 1.0), (0.1, -1.0)])
def test_a_judged_certificate_never_looks_at_the_clock(drift, score, monkeypatch):
    monkeypatch.setattr(clock, "now", nobody_looks)
    small = {"n_layers": 1, "n_heads": 1, "n_types": 2, "max_depth": 3, "reader": "linear"}
    case, facts = make_case("uniform", 0, drift=drift, **small)
    questions = [fact.question for fact in facts if fact.question.kind == "stack"]
    assert methods.resolve("certificate")(case, questions) == [score]
