"""Errors first, then signs, margins, counts; what was found before a limit stays."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch

from tests.cases import thinned
from tests.certify.language.test_automata import (
    SHAPES,
    brute,
    cumulative_sum,
    every,
    mean_to_class,
    random_model,
    right_but_at,
    says,
)
from tl_dyck.certify.deadline import Deadline, by_work
from tl_dyck.certify.exact.search import Search
from tl_dyck.certify.language import anytime, automata, certify_language
from tl_dyck.certify.language.anytime import UNTIL, Anytime
from tl_dyck.certify.language.asking import Asking
from tl_dyck.certify.language.attempts import Attempts
from tl_dyck.certify.language.automaton_certificate import read_automaton
from tl_dyck.tasks import AutomatonTask

pytestmark = pytest.mark.filterwarnings("ignore:HookedTransformer is deprecated")


def long_runs(longest: int) -> tuple[Any, AutomatonTask]:
    """Uniform attention counts b, and five b more than a are too many: bbbbb, and no shorter."""
    task = AutomatonTask(
        name="runs", symbols=["a", "b"], start=0, moves=lambda state: {"a": 0, "b": 0},
        answer=lambda state: 1, train_lengths=[4], long_lengths=[1, 9],
    )  # fmt: skip
    model = random_model(cumulative_sum(), 0, 0.0, d_vocab=2, d_vocab_out=3, n_ctx=longest)
    mean_to_class(model, cumulative_sum(values=[-1, 1]))
    with torch.no_grad():  # the margin of class 1: what the last position adds, less the mean
        model.unembed.b_U.copy_(torch.tensor([-9.0, 0.9, 0.0]))
        model.pos_embed.W_pos[:4, 4] = 1.0
        model.unembed.W_U[4, 1] = 1.0
    return model, task


@pytest.mark.parametrize("until", [None, *UNTIL])
def test_the_shortest_error_is_found_before_anything_is_proved(until: str | None) -> None:
    model, task = long_runs(12)
    found = certify_language(model, task, range(1, 13), until=until)
    assert found.status == "refuted"
    assert found.shortest is not None
    assert found.shortest.text == "bbbbb"
    assert found.shortest.margin == pytest.approx(-0.1)
    assert found.margin.low > -np.inf
    assert found.is_shortest == (until != "refuted")


def test_a_length_between_is_asked_for_errors() -> None:
    found = certify_language(
        right_but_at(cumulative_sum(), 20, 25), cumulative_sum(), range(1, 26), until="refuted"
    )
    assert found.status == "refuted"
    assert found.shortest is not None
    assert found.shortest.length == 20


def test_a_wrong_string_is_cut_and_stretched() -> None:
    model, task = long_runs(40)
    network, runner = read_automaton(model, task, 40)
    tried = Attempts(Asking.of(network, task, 40, None), runner, range(1, 41), Deadline())
    tried.see(0, -1.0, (0, 0, *(1,) * 38))
    tried.shorten()
    assert tried.wrong == (1,) * 5
    tried.worst = {(5, 0): (-1.0, (1,) * 5)}
    tried.shorten()
    wrong = {length for (length, _), (margin, _) in tried.worst.items() if margin < 0}
    assert wrong >= {5, 6, 7, 9, 13, 21, 37}


@pytest.mark.parametrize("shape", thinned(SHAPES), ids=str)
def test_signs_and_worst_strings_are_those_of_brute_force(shape: dict[str, Any]) -> None:
    task = cumulative_sum()
    model = random_model(task, 0, 0.5, d_vocab_out=3, **shape)
    signs = certify_language(model, task, range(1, 5), until="signs")
    whole = certify_language(model, task, range(1, 5), until="likeliest")
    for row, exact in zip(signs.by_length, whole.by_length, strict=True):
        margin = brute(model, task, row.length)
        assert row.margin is not None
        assert row.margin.low <= margin.min() <= row.margin.high + 1e-9
        assert (row.margin.low > 0) == (margin.min() > 0)
        assert (row.margin.high < 0) == (margin.min() < 0)
        assert exact.worst is not None
        strings = [string for string, _ in every(task, row.length)]
        assert margin[strings.index(exact.worst.tokens)] == pytest.approx(margin.min(), abs=1e-9)
        assert exact.worst.margin == pytest.approx(margin.min(), abs=1e-9)


@pytest.mark.parametrize("shape", thinned(SHAPES, first=1), ids=str)
def test_by_default_signs_are_told_and_what_is_wrong_but_no_least_margins(
    shape: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    task, wrong = cumulative_sum(), 0
    model = random_model(task, 0, 0.5, d_vocab_out=3, **shape)
    monkeypatch.setattr(Anytime, "_margins", None)
    found = certify_language(model, task, range(1, 5))
    for row in found.by_length:
        margin = brute(model, task, row.length)
        assert row.margin is not None
        assert row.margin.low <= margin.min() <= row.margin.high + 1e-9
        assert (row.decided, row.wrong) == (True, int((margin < 0).sum()))
        wrong += row.wrong
    assert (found.status == "refuted") == (wrong > 0)


def test_by_default_what_takes_longer_to_count_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    """Counts may take as long as signs took, and here a second, of which there is none."""
    task = cumulative_sum()
    model = random_model(task, 0, 1.0, d_vocab_out=3)
    network, runner = read_automaton(model, task, 4)
    asked = Anytime(Asking.of(network, task, 4, None), runner, [4], Deadline(), lambda share: None)
    monkeypatch.setattr(anytime, "_EACH", -1.0)
    asked.begun = Deadline.after(math.inf)
    asked.decide(None)
    wrong = int((brute(model, task, 4) < 0).sum())
    assert 0 < asked.wrong(4).low < wrong <= asked.wrong(4).high
    assert not asked.counts


@pytest.mark.parametrize("room", [True, False])
def test_a_question_that_waited_is_gone_on_with(
    room: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Errors are known at once; the least margins of three answers are searched for in slices.

    Without room for what waits each begins anew, so that slices must grow.
    """
    task, shape = cumulative_sum(), {"act_fn": "gelu", "d_mlp": 8, "normalization_type": "LN"}
    model = random_model(task, 0, 0.5, d_vocab_out=3, n_ctx=12, **shape)
    whole = certify_language(model, task, [8], until="likeliest")
    calls = {"_begin": 0, "run": 0}
    for name in calls:
        own = getattr(Search, name)

        def called(self: Search, name: str = name, own: Any = own) -> None:
            calls[name] += 1
            own(self)

        monkeypatch.setattr(Search, name, called)
    monkeypatch.setattr(anytime, "_SLICES", (0.01,) * 200 if room else (0.01, 0.02, math.inf))
    monkeypatch.setattr(anytime, "_MOST_KEPT", anytime._MOST_KEPT if room else 0)
    with by_work():
        found = certify_language(model, task, [8], until="likeliest")
    assert (calls["_begin"] == 3) == room
    assert calls["run"] > 3
    assert found.margin.low == pytest.approx(whole.margin.low, abs=1e-8)
    assert found.margin.high == pytest.approx(whole.margin.high, abs=1e-8)


def test_least_margins_leave_half_the_time_to_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    task = cumulative_sum()
    network, runner = read_automaton(random_model(task, 0, 1.0, d_vocab_out=3), task, 4)
    with by_work():
        asking = Asking.of(network, task, 4, None)
        asked = Anytime(asking, runner, [4], Deadline.after(100), lambda share: None)
        left: list[float] = []
        monkeypatch.setattr(asked, "_ask_all", lambda until, **how: left.append(until.left))
        for high in (1.0, -1.0):  # first nothing is refuted
            asked.known[4][0].see(high, (0,) * 4, 0)
            asked._margins(first=False)
        asked._count(first=False)
        asked._margins(first=False)
    assert left == pytest.approx([100, 50, 100], abs=2)


@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_what_bounds_all_that_there_was_no_time_for_is_no_margin_above(
    shape: dict[str, Any],
) -> None:
    task = cumulative_sum()
    for seed in range(3):
        model = random_model(task, seed, 1.0, d_vocab_out=3, **shape)
        network, _ = read_automaton(model, task, 4)
        margins = Asking.of(network, task, 4, None).margins(4)
        floor = min(margins.floor(answer, 4) for answer in range(3))
        assert says(task, 4)
        assert -np.inf < floor <= min(brute(model, task, n).min() for n in range(1, 5))


def test_a_floor_is_of_the_longest_strings_that_are_asked_about() -> None:
    """At the last position there is a large embedding, which shorter strings do not have."""
    task = cumulative_sum()
    model = random_model(task, 0, 1.0, d_vocab_out=3)
    with torch.no_grad():
        model.pos_embed.W_pos[3] *= 1e4
    network, runner = read_automaton(model, task, 4)
    no_time = Deadline.after(-1.0)
    asking = Asking.of(network, task, 4, None)
    asked = Anytime(asking, runner, [1, 4], no_time, lambda share: None)
    asked.decide("signs")
    least = min(each.low for each in asked.known[4].values())
    assert -np.inf < least <= brute(model, task, 4).min()


def test_answers_that_are_not_known_to_be_right_are_counted() -> None:
    """One answer is wrong somewhere; of the others it was not found out, within rounding."""
    task = cumulative_sum()
    model = random_model(task, 0, 1.0, d_vocab_out=3)
    network, runner = read_automaton(model, task, 4)
    asking = Asking.of(network, task, 4, None)
    asked = Anytime(asking, runner, [4], Deadline(), lambda share: None)
    for known in asked.known[4].values():
        known.low, known.high = -1e-9, 1e-9
    asked.known[4][0].see(-1.0, (0, 0, 0, 0), 0)
    asked._count(first=False)
    found = asked.counts[4]
    wrong = int((brute(model, task, 4) < 0).sum())
    assert tuple(found) == (wrong, wrong)


def test_what_was_decided_before_a_limit_is_kept() -> None:
    """No time for most lengths: some are proved, and nothing is said to lie at -inf."""
    task = cumulative_sum()
    model = random_model(task, 0, 0.0, d_vocab_out=3, n_ctx=30)
    mean_to_class(model, task, threshold=1 / 121)
    with by_work():
        found = certify_language(model, task, range(1, 31), time_limit=0.1)
    assert found.status == "open"
    assert "in time" in found.reason
    assert 0 < sum(row.decided for row in found.by_length) < 30
    for row in found.by_length:
        assert row.margin is not None
        assert row.margin.low > -np.inf
        assert row.worst is not None


def test_a_number_of_parts_ends_it_only_where_time_does_not(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    task = cumulative_sum()
    model = random_model(task, 0, 0.5, d_vocab_out=3, n_ctx=14, act_fn="gelu", d_mlp=8)
    with torch.no_grad():
        model.unembed.b_U.copy_(torch.tensor([60.0, 0.0, 0.0]))
    task = replace(task, answer=lambda state: 0)
    monkeypatch.setattr(automata, "_MOST_PARTS", 1)
    monkeypatch.setattr(automata, "_PARTS_OF_GROUP", 0)
    ended = certify_language(model, task, 12, until="likeliest")
    assert ended.status == "open"
    assert "too many parts" in ended.reason
    found = certify_language(model, task, 12, until="likeliest", time_limit=100)
    assert found.status == "proved"
    assert found.margin.low == pytest.approx(found.margin.high, abs=1e-6)
