"""Rates by their definitions, on resamples that are spelt out; and tests of differences."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

from tests.judge.test_scores import paired_rows, rows_of
from tl_dyck.judge import compare_methods
from tl_dyck.judge.compare import holm
from tl_dyck.judge.rates import FALSE_ALARMS, rates, resample


def hits_at(answers: np.ndarray, scores: np.ndarray, share: float) -> float:
    """The largest share of yes at so many false alarms, on the line through all thresholds."""
    points = [(0.0, 0.0)]
    for least in sorted({*scores.tolist()}, reverse=True):
        called = scores >= least
        points.append((float(called[~answers].mean()), float(called[answers].mean())))
    best = 0.0
    for (x, y), (further, higher) in itertools.pairwise(points):
        if further <= share + 1e-12:
            best = max(best, higher)
        elif x <= share:
            best = max(best, y + (share - x) / (further - x) * (higher - y))
    return best


def by_definition(
    answers: np.ndarray, scores: np.ndarray, off: np.ndarray, size: np.ndarray
) -> dict[str, float]:
    n_yes, n_no, said = int(answers.sum()), int((~answers).sum()), scores > 0
    found = dict.fromkeys(
        ["auroc", "precision_at_10", "precision", "false_alarms", "misses", "off"], math.nan
    )
    if n_yes and n_no:
        pairs = itertools.product(scores[answers], scores[~answers])
        found["auroc"] = np.mean([1.0 if y > n else 0.5 * (y == n) for y, n in pairs])
        hits = hits_at(answers, scores, FALSE_ALARMS) * n_yes
        found["precision_at_10"] = hits / (hits + FALSE_ALARMS * n_no)
    if said.any():
        found["precision"] = answers[said].mean()
    if n_no:
        found["false_alarms"] = said[~answers].mean()
    if n_yes:
        found["misses"] = (~said)[answers].mean()
    if (known := ~np.isnan(size)).any() and size[known].sum():
        found["off"] = off[known].sum() / size[known].sum()
    return {**found, "accuracy": (said == answers).mean()}


@given(st.data(), st.integers(1, 25))
@settings(max_examples=60, deadline=None)
def test_a_weight_is_so_many_copies_of_a_question(data: st.DataObject, n: int) -> None:
    def draw(kind: type, elements: st.SearchStrategy, *shape: int) -> np.ndarray:
        found: np.ndarray = data.draw(arrays.arrays(kind, (*shape, n), elements=elements))
        return found

    answers = draw(bool, st.booleans())
    scores = draw(float, st.sampled_from([-math.inf, -2.0, -1e-9, 0.0, 1e-9, 0.5, 3.0, math.inf]))
    size, off = draw(float, st.sampled_from([math.nan, 0.0, 0.25, 2.0])), draw(float, st.just(0.5))
    weights = draw(float, st.integers(0, 3).map(float), 3)
    found = rates(answers, scores, off, size, weights)
    for row, weight in enumerate(weights):
        copies = np.repeat(np.arange(n), weight.astype(int))
        if not len(copies):
            assert all(math.isnan(each[row]) for each in found.values())
            continue
        wanted = by_definition(*(each[copies] for each in (answers, scores, off, size)))
        assert {name: each[row] for name, each in found.items()} == pytest.approx(
            wanted, abs=1e-12, nan_ok=True
        )


def test_resamples_are_of_whole_cases() -> None:
    """One by one, as whoever draws them would: the same cases for every method."""
    random = np.random.default_rng(3)
    cases = random.permutation(np.repeat(np.arange(7), random.integers(1, 5, 7))).astype(str)
    answers, scores = random.random(len(cases)) < 0.5, random.normal(size=len(cases))
    rows = rows_of("m", [*cases], answers.tolist(), scores.tolist())
    _, (drawn, again), n = resample([rows, rows.sample(frac=1, random_state=0)], 20)
    assert n == 7
    names, generator = sorted({*cases}), np.random.default_rng(0)
    for at in range(20):
        chosen = [names[place] for place in generator.integers(7, size=7)]
        copies = pd.concat([rows[rows["case"] == name] for name in chosen])
        one, _, _ = resample([copies], 0)
        for name, value in one[0].items():
            assert drawn[name][at] == pytest.approx(value, nan_ok=True)
            assert again[name][at] == pytest.approx(value, nan_ok=True)


@given(st.lists(st.sampled_from([0.0, 0.001, 0.02, 0.2, 0.5, 1.0, math.nan]), max_size=7))
def test_holm_is_the_closed_test_of_bonferroni(p: list[float]) -> None:
    """Rejected is what every intersection that it belongs to rejects (Marcus et al. 1976)."""
    known = [at for at, value in enumerate(p) if not math.isnan(value)]
    subsets = [each for n in range(1, len(known) + 1) for each in itertools.combinations(known, n)]
    wanted = [math.nan] * len(p)
    for at in known:
        wanted[at] = max(
            min(1.0, len(each) * min(p[other] for other in each)) for each in subsets if at in each
        )
    assert holm(np.array(p)) == pytest.approx(np.array(wanted), nan_ok=True)


def test_one_method_beside_all_others() -> None:
    rows = paired_rows(60, 0.3, np.random.default_rng(4))
    third = rows[rows["method"] == "a"].assign(method="c")
    every = compare_methods(pd.concat([rows, third]), "a").set_index("other")
    assert every.index.tolist() == ["b", "c"]
    alone = compare_methods(rows, "a", "b").iloc[0]
    assert alone["p"] == every.loc["b", "p"] == alone["p_holm"] == every.loc["b", "p_holm"] / 2
    assert every.loc["c", "p"] == 1  # it is the same
    assert every.loc["b", "p_holm"] < 0.05
    # whoever is right of three cases where another is wrong has shown little
    few = paired_rows(3, 0.0, np.random.default_rng(0))
    right = few["answer"].where(few["method"] == "a", ~few["answer"].astype(bool)).astype(bool)
    few = few.assign(score=right.map({True: 1.0, False: -1.0}), answer=few["answer"])
    assert not compare_methods(few, "a", "b")["p"].lt(0.25).any()


def test_trained_models_are_compared_apart() -> None:
    rows = paired_rows(20, 0.2, np.random.default_rng(1))
    rows = rows.assign(model=np.where(rows["case"].astype(int) % 2 == 0, "trained", "uniform"))
    found = compare_methods(rows, "a", "b")
    assert found["question"].tolist() == ["needed", "needed, trained"]
    assert found["cases"].tolist() == [10, 10]


@pytest.mark.parametrize("n", [25, pytest.param(300, marks=pytest.mark.slow)])
def test_of_differences_that_are_none_few_are_found(n: int) -> None:
    """Of three methods like "a", at 5 %: p finds too many of the three, Holm's p does not."""
    generator = np.random.default_rng(8)
    found, any_found, any_holm = 0, 0, 0
    for _ in range(n):
        base = paired_rows(40, 0.0, generator).drop(columns="method").iloc[:40]
        hard = generator.random(40)
        methods = []
        for name in "abcd":
            noise = generator.normal(size=40) + hard
            score = np.where(base["answer"], 1.0, -1.0) + 1.5 * noise
            methods.append(base.assign(method=name, score=score))
        table = compare_methods(pd.concat(methods), "a", n_bootstrap=60)
        found += int((table["p"] < 0.05).sum())
        any_found += int((table["p"] < 0.05).any())
        any_holm += int((table["p_holm"] < 0.05).any())
    spread = math.sqrt(0.05 * 0.95 / n)
    assert found / (3 * n) == pytest.approx(0.05, abs=3 * spread)
    assert any_holm / n <= 0.05 + 2 * spread
    assert any_found >= any_holm
