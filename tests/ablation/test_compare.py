"""Rank correlations counted by hand, intervals, and answers that fit the numbers."""

from __future__ import annotations

import math
from itertools import combinations

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tl_dyck.ablation import compare_importance
from tl_dyck.intervals import mean

GROUP = "all"


def table(
    *columns: list[float], names: tuple[str, ...] = ("zero", "gates", "stack-likeness")
) -> pd.DataFrame:
    """One model, a head per row."""
    n = len(columns[0])
    values = dict(zip(names, columns, strict=False))
    return pd.DataFrame(
        {"layer": [i // 2 for i in range(n)], "head": [i % 2 for i in range(n)], **values}
    )


def spearman(a: list[float], b: list[float]) -> float:
    """Pearson's correlation of ranks; ties share their mean rank and are counted one by one."""

    def ranks(values: list[float]) -> list[float]:
        return [sum(y < x for y in values) + (sum(y == x for y in values) + 1) / 2 for x in values]

    x, y = ranks(a), ranks(b)
    mx, my = sum(x) / len(x), sum(y) / len(y)
    cov = sum((p - mx) * (q - my) for p, q in zip(x, y, strict=True))
    return cov / math.sqrt(sum((p - mx) ** 2 for p in x) * sum((q - my) ** 2 for q in y))


def kendall(a: list[float], b: list[float]) -> float:
    """τ_b: concordant minus discordant pairs, over the pairs that are tied in neither."""
    signs = [
        (np.sign(a[i] - a[j]), np.sign(b[i] - b[j])) for i, j in combinations(range(len(a)), 2)
    ]
    untied = [sum(s[k] != 0 for s in signs) for k in (0, 1)]
    return sum(s * t for s, t in signs) / math.sqrt(untied[0] * untied[1])


few_values = st.lists(st.integers(0, 4), min_size=3, max_size=7)


@settings(max_examples=9)
@given(st.data())
def test_correlations_are_those_of_definition(data):
    models = []
    for _ in range(data.draw(st.integers(1, 3))):
        a = data.draw(few_values.filter(lambda x: len(set(x)) > 1))
        size = len(a)
        b = data.draw(
            st.lists(st.integers(0, 4), min_size=size, max_size=size).filter(
                lambda x: len(set(x)) > 1
            )
        )
        models.append((a, b))
    found = compare_importance([table(*model) for model in models]).correlations.iloc[0]
    assert found["spearman"] == pytest.approx(
        sum(spearman(*model) for model in models) / len(models)
    )
    assert found["kendall"] == pytest.approx(sum(kendall(*model) for model in models) / len(models))
    assert (found["n_models"], found["n_left_out"]) == (len(models), 0)


def test_intervals_are_those_of_the_models_correlations():
    """Of each pair of measures, whatever other measures there are, and in whatever order."""
    generator = np.random.default_rng(0)
    names = ["zero", "gates", "entropy", "stack-likeness"]
    models = [
        pd.DataFrame({"layer": 0, "head": range(9), **dict(zip(names, drawn, strict=True))})
        for drawn in generator.random((7, 4, 9))
    ]
    found = compare_importance(models)
    for a, b in combinations(names, 2):
        each = [spearman(model[a].tolist(), model[b].tolist()) for model in models]
        row = found.correlation("all", a, b)
        assert (row["spearman_low"], row["spearman_high"]) == pytest.approx(
            (mean(each).low, mean(each).high)
        )
        few = [model[["layer", "head", b, a]] for model in models]
        alone = compare_importance(few).correlation("all", a, b)
        assert alone["spearman_low"] == row["spearman_low"]
        assert (row["interval"], row["level"]) == ("t", 0.95)


def test_heads_without_a_value_and_models_without_an_order_are_left_out():
    part = table([1, 2, 3, 4, 5], [1, 2, 3, 5, math.nan])
    flat = table([1, 2, 3, 4, 5], [7, 7, 7, 7, 7])
    short = table([1, 2, 3, 4, 5], [1, 2, math.nan, math.nan, math.nan])
    found = compare_importance([part, flat, short]).correlations.iloc[0]
    assert found["spearman"] == pytest.approx(1)
    assert found["n_left_out"] == 2
    assert math.isnan(found["spearman_low"])  # one model has no interval
    nothing = compare_importance([flat, short])
    assert math.isnan(nothing.correlations.iloc[0]["kendall"])
    assert nothing.answers == []


def test_models_and_groups_are_kept_apart():
    """Within each model the order is perfect, and pooled it would be the opposite."""
    models = [
        table([i + 0.1 * j for j in range(4)], [-i + 0.1 * j for j in range(4)]) for i in range(6)
    ]
    assert compare_importance(models).correlations.iloc[0]["spearman"] == pytest.approx(1)
    heads = pd.concat(models, ignore_index=True).assign(
        model=np.repeat(range(6), 4), group=np.repeat(["a", "b"], 12)
    )
    heads.loc[heads["group"] == "b", "gates"] *= -1
    found = compare_importance(heads)
    assert found.correlation("a", "gates", "zero")["spearman"] == pytest.approx(1)
    assert found.correlation("b", "zero", "gates")["spearman"] == pytest.approx(-1)
    assert found.heads["group"].tolist() == heads["group"].tolist()
    assert repr(found) == "ImportanceComparison(a: 3 models, b: 3 models)"


def models_with(sign: float, n: int = 8, noise: float = 0.3) -> list[pd.DataFrame]:
    """Importance follows stack-likeness, or the reverse, or nothing; drift is 0.5 of 2."""
    generator = np.random.default_rng(0)
    found = []
    for _ in range(n):
        stack = generator.random(8)
        zero = sign * stack + noise * generator.random(8)
        both = table(list(zero), list(zero + 0.01 * generator.random(8)), list(stack))
        extra = {
            "entropy": -stack,
            "drift": np.tile([0.4, 0.6], 4),
            "drift-random": 2.0,
            "drift-control": 0.25,
        }
        found.append(both.assign(**extra))
    return found


@pytest.mark.parametrize(
    ("sign", "verdict", "word"),
    [(1, "yes", "Yes"), (-1, "no", "No"), (0, "not clear", "Not clear")],
)
def test_verdicts(sign, verdict, word):
    found = compare_importance(models_with(sign))
    for when, name in (("is frozen", "zero"), ("may adapt", "gates")):
        (answer,) = [
            a
            for a in found.answers
            if a.question == f"Are stack-like heads more important when the model {when}?"
        ]
        assert answer.verdict == verdict
        row = found.correlation(GROUP, "stack-likeness", name)
        assert answer.text.startswith(f"{word}")
        assert (
            f"{row['spearman']:+.2f} [{row['spearman_low']:+.2f}, {row['spearman_high']:+.2f}]"
            in answer.text
        )
    (spread,) = [a for a in found.answers if "spread-out" in a.question and "frozen" in a.question]
    assert spread.verdict == {"yes": "no", "no": "yes"}.get(verdict, verdict)


def test_measures_that_contradict_each_other():
    models = [model.assign(mean=-model["zero"]) for model in models_with(1, noise=0)]
    answers = {a.question: a for a in compare_importance(models).answers}
    assert (
        answers["Are stack-like heads more important when the model is frozen?"].verdict == "mixed"
    )
    assert answers["Are stack-like heads more important when the model may adapt?"].verdict == "yes"


def test_what_is_lost_after_adapting():
    models = [
        m.assign(zero=[0.2 * k] * 8, **{"leave-one-out": [0.05 * k] * 8})
        for k, m in enumerate(models_with(1), 1)
    ]
    (answer,) = [
        a for a in compare_importance(models).answers if a.question.startswith("Is what a frozen")
    ]
    assert answer.verdict == "25%"
    assert "costs 0.9000 [" in answer.text  # 0.2 times the mean of 1 to 8
    assert "and 0.2250 [" in answer.text


def test_how_far_they_moved():
    (moved,) = [
        a for a in compare_importance(models_with(1)).answers if a.question.startswith("How far")
    ]
    assert moved.verdict == "0.50"
    assert "25% of what patterns drawn at random differ by (2.00)" in moved.text
    assert "no head removed, 0.25" in moved.text


def test_few_models_give_no_verdict():
    found = compare_importance(models_with(1, n=4, noise=0))
    assert {a.verdict for a in found.answers if a.question.startswith(("Are", "Did"))} == {
        "not clear"
    }
    assert all("so few models" in a.text for a in found.answers if a.verdict == "not clear")
    assert {a.verdict for a in compare_importance(models_with(1, n=5, noise=0)).answers} > {"yes"}


def test_figure():
    figure = compare_importance(models_with(1, n=2)).plot()
    (marks,) = figure.data
    assert len(marks.x) == 16
    assert (min(marks.x), max(marks.x)) == (0, 1)  # ranks within a model
    with pytest.raises(ValueError, match="needs a frozen"):
        compare_importance([models_with(1)[0].drop(columns="gates")]).plot()
