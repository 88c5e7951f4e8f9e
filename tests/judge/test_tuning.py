"""Parameters are chosen on development cases only, with as many trials for each method."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
import torch

from tl_dyck.judge import (
    SUITES,
    Case,
    JudgeError,
    Method,
    Question,
    judge_method,
    score_heads,
    score_table,
    tune_methods,
)
from tl_dyck.judge.cases import sealed_case, with_key
from tl_dyck.judge.scores import ask
from tl_dyck.judge.suites import DEVELOPMENT, HELD_OUT
from tl_dyck.kit.check import WrongTypeError, WrongValueError

CASES = [(kind, seed) for kind in ("uniform", "balanced") for seed in range(2)]


def drawn(number: int, skips: str = "") -> Method:
    """Numbers that hang on the question and the setting alone; none of a kind, or of half."""

    def method(case: Case, questions: Sequence[Question]) -> list[float | None]:
        random = np.random.default_rng([number, int(case.name, 16), len(questions)])
        told = random.normal(size=len(questions)).tolist()
        return [
            None if question.kind == skips or (skips == "half" and x > 0) else x
            for question, x in zip(questions, told, strict=True)
        ]

    return method


def worth(method: Method, kinds: Sequence[str]) -> float:
    """The mean AUROC over kinds of question by its definition, of pairs; unanswered: guessed."""
    found = []
    told: dict[Any, float] = {}
    for sealed in map(sealed_case, *zip(*CASES, strict=True)):
        for row in ask("m", method, sealed):
            told[row["case"], row["question"], row["target"]] = row["score"]
    for kind in kinds:
        scored: dict[bool, list[float]] = {True: [], False: []}
        n = 0
        for kind_of, seed in CASES:
            sealed = sealed_case(kind_of, seed)
            for fact in (f for f in sealed.facts if f.question.kind == kind):
                n += 1
                key = (sealed.name, kind, " ".join(map(str, fact.question.target)))
                if key in told:
                    scored[fact.answer].append(told[key])
        pairs = [
            (a > b) + 0.5 * (a == b) for a, b in itertools.product(scored[True], scored[False])
        ]
        share = sum(map(len, scored.values())) / n
        found.append((np.mean(pairs) if pairs else 0.5) * share + 0.5 * (1 - share))
    return float(np.mean(found))


def kinds_asked() -> list[str]:
    answers: dict[str, set[bool]] = {}
    for sealed in map(sealed_case, *zip(*CASES, strict=True)):
        for fact in sealed.facts:
            answers.setdefault(fact.question.kind, set()).add(fact.answer)
    return [kind for kind, two in answers.items() if len(two) == 2]


def test_the_best_trial_is_that_by_counting_pairs() -> None:
    tuned = tune_methods({"drawn": (drawn, {"number": range(40)})}, CASES, trials=6)
    assert len(tuned.trials) == 6
    by_hand = [worth(drawn(**setting), kinds_asked()) for setting in tuned.trials["parameters"]]
    np.testing.assert_allclose(tuned.trials["auroc"], by_hand)
    assert tuned.parameters["drawn"] == tuned.trials["parameters"][int(np.argmax(by_hand))]
    assert tuned.trials["chosen"].tolist() == [x == max(by_hand) for x in by_hand]


def test_each_has_as_many_trials_the_default_among_them_and_none_twice() -> None:
    makers = {
        "a": (drawn, {"number": [7, *range(6)], "skips": ["", "pattern"]}),
        "b": (drawn, {"number": range(5)}),
        "none": (lambda: drawn(0), {}),
    }
    table = tune_methods(makers, CASES[:2], trials=5).trials
    assert table.groupby("method").size().to_dict() == {"a": 5, "b": 5, "none": 1}
    first = table.groupby("method").head(1)["parameters"].tolist()
    assert first == [{"number": 7, "skips": ""}, {"number": 0}, {}]
    for _, group in table.groupby("method"):
        assert len({str(each) for each in group["parameters"]}) == len(group)
    assert table.groupby("method")["chosen"].sum().eq(1).all()
    with pytest.raises(WrongValueError, match=r"'b' has 5 settings, and each is to have 6"):
        tune_methods(makers, CASES[:2], trials=6)


@pytest.mark.parametrize(
    "judged",
    [
        [*SUITES["quick"].cases()][:1],
        [*SUITES["tasks"].cases()][-1:],
        [*SUITES["quick"].with_salt("9f3c61d07be8a4523c0d95e7f18b6a24").cases()][:1],
        [("uniform", HELD_OUT)],
        [("uniform", with_key(0, 1))],  # a small seed of a private suite
        [("uniform", np.int64(HELD_OUT + 3))],
    ],
    ids=["public", "tasks", "salted", "first", "key", "numpy"],
)
def test_judged_cases_cannot_be_tuned_on(judged: list[tuple[str, int]]) -> None:
    # a seed with a key is not even one of 64 bits
    with pytest.raises((JudgeError, WrongValueError), match=r"is held out|at most 64 bits"):
        tune_methods({"m": (drawn, {"number": range(3)})}, [*CASES, *judged], trials=2)


def test_what_is_looked_at_is_said_and_may_be_the_development_suite() -> None:
    assert all(seed < HELD_OUT for _, seed in DEVELOPMENT.cases())
    tuned = tune_methods({"m": (drawn, {"number": [1, 2]})}, [*CASES[:2], CASES[0]], trials=2)
    assert tuned.cases == tuple(CASES[:2])


def test_the_best_of_many_guesses_is_a_guess_again_on_other_cases() -> None:
    """Who could tune on what he is judged by would keep what luck gave him; so nobody can."""
    tuned = tune_methods({"m": (drawn, {"number": range(16)})}, CASES[:2], trials=16)
    best = float(tuned.trials["auroc"].max())
    others = [(kind, seed) for kind in ("uniform", "balanced") for seed in (3, 4)]
    again = judge_method(tuned.methods["m"], others)["auroc"].mean()
    assert best > 0.7 > again + 0.1


def test_what_is_above_the_budget_is_tried_and_not_chosen() -> None:
    def costly(good: bool) -> Method:
        @score_heads(above=0.5)
        def method(case: Case) -> Any:
            for _ in range(5 if good else 1):
                case.model(case.tokens)
            with torch.enable_grad():
                case.model(case.tokens).sum().backward() if good else None
            return (
                torch.zeros(case.model.cfg.n_layers, case.model.cfg.n_heads)
                if not good
                else (
                    torch.stack(
                        [block.attn.W_O.flatten(1).norm(dim=1) for block in case.model.blocks]
                    )
                )
            )

        return method

    makers = {"m": (costly, {"good": [True, False]})}
    free = tune_methods(makers, CASES, trials=2)
    at = free.trials.set_index(free.trials["parameters"].map(lambda each: each["good"]))
    assert at.loc[False, ["passes", "backward"]].tolist() == pytest.approx([1, 0])
    assert at.loc[True, "passes"] == pytest.approx(6)  # one to go back through
    within = tune_methods(makers, CASES, trials=2, budget=1)
    assert within.parameters == {"m": {"good": False}}
    assert sorted(within.trials["allowed"]) == [False, True]
    assert free.trials["allowed"].all()
    with pytest.raises(JudgeError, match=r"within 0\.5 passes of a case; the cheapest takes 1\.0"):
        tune_methods(makers, CASES, trials=2, budget=0.5)


def test_what_goes_back_is_paid_for() -> None:
    def back(times: int) -> Method:
        def method(case: Case, questions: Sequence[Question]) -> list[float]:
            with torch.enable_grad():
                x = case.model.embed(case.tokens).detach().requires_grad_()
                total = case.forward(x).sum()
                for _ in range(times):
                    total.backward(retain_graph=True)
            return [1.0] * len(questions)

        return method

    only = {"m": (back, {"times": [3, 0]})}
    table = tune_methods(only, [("uniform", 0)], trials=2).trials
    kinds = len({fact.question.kind for fact in sealed_case("uniform", 0).facts})
    assert table["backward"].tolist() == pytest.approx([3 * kinds, 0])
    limit = float(table["passes"][1])
    assert table["chosen"].tolist() == [True, False]  # the first of equals
    assert tune_methods(only, [("uniform", 0)], trials=2, budget=limit).parameters["m"] == {
        "times": 0
    }


def test_leaving_out_a_kind_is_no_better_than_to_guess_it() -> None:
    plan = {"number": [3], "skips": ["", "pattern", "half"]}
    tuned = tune_methods({"m": (drawn, plan)}, CASES, trials=3)
    by_hand = [worth(drawn(**each), kinds_asked()) for each in tuned.trials["parameters"]]
    np.testing.assert_allclose(tuned.trials["auroc"], by_hand)


@pytest.mark.parametrize("cases", [[], ["uniform"], [("uniform", 0, 1)], [("uniform", "0")]])
def test_cases_are_kinds_and_seeds(cases: Any) -> None:
    with pytest.raises((JudgeError, WrongTypeError)):
        tune_methods({"m": (drawn, {"number": [1, 2]})}, cases, trials=2)


def test_a_table_of_scores_needs_no_costs() -> None:
    from pandas import DataFrame

    rows = DataFrame(ask("m", drawn(1), sealed_case("uniform", 0))).assign(method="m")
    whole = score_table(rows)
    for left_out in (["backward"], ["seconds", "passes", "backward"]):
        table = score_table(rows.drop(columns=left_out))
        assert not {*left_out} & {*table}
        assert table.equals(whole.drop(columns=left_out))
