"""Do the heads that matter look interpretable, and do the two kinds of importance agree?

Wen et al. 2023, App. B.2.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import TYPE_CHECKING, Any, final

import numpy as np
import pandas as pd

from tl_dyck.ablation.figures import importance_dots
from tl_dyck.ablation.measure import FINETUNED, FROZEN, INTERPRETABILITY
from tl_dyck.intervals import mean
from tl_dyck.kit.arguments import checked
from tl_dyck.kit.check import WrongTypeError
from tl_dyck.plotting.plot_recipes import as_figure

if TYPE_CHECKING:
    import plotly.graph_objects as go

_MEASURES = (*FROZEN, *FINETUNED, *INTERPRETABILITY, "drift", "drift-control")


@final
@dataclass(frozen=True, kw_only=True)
class Answer:
    """Answer to one question about the heads of one group of models, with the numbers behind it.

    Attributes:
        question: as one would ask it.
        group: of models.
        verdict: "yes", "no" (the opposite is true), "mixed" (some measures of importance say yes
            and others no), "not clear" (the interval of the first measure has zero in it, or there
            are fewer than five models), or a number.
        text: the answer with its numbers and intervals.
    """

    question: str
    group: str
    verdict: str
    text: str


@final
@dataclass(frozen=True, kw_only=True)
class ImportanceComparison:
    """Agreement of the measures of head importance, within and across models.

    Attributes:
        heads: one row per head of every model: group, model, layer, head, and the measures.
        correlations: one row per group and pair of measures a, b: the mean over models of the rank
            correlation over the heads of a model, spearman and kendall (τ_b), each with low and
            high; interval (its kind) and level; n_models, and n_left_out, models in
            which it is not defined because a measure is the same for all heads.
    """

    heads: pd.DataFrame
    correlations: pd.DataFrame

    @checked
    def correlation(self, group: str, a: str, b: str) -> pd.Series[Any]:
        """One row of `correlations`; the order of a and b does not matter.

        Raises:
            ValueError: there is none for these measures.
        """
        table = self.correlations
        pair = (table["a"].eq(a) & table["b"].eq(b)) | (table["a"].eq(b) & table["b"].eq(a))
        found = table[pair & table["group"].eq(group)]
        if found.empty:
            raise ValueError(
                f"{a!r} and {b!r} were not compared for {group!r}; see the columns a, b and group"
            )
        return found.iloc[0]

    @property
    def answers(self) -> list[Answer]:
        """The questions of App. B.2, answered group by group from `correlations` and `heads`."""
        return [
            answer
            for group in self.heads["group"].unique()
            for answer in _answers(self, str(group))
            if answer is not None
        ]

    def plot(self) -> go.Figure:
        """Every head: frozen against fine-tuned importance, coloured by stack-likeness.

        Importance is a rank within its model.
        """
        x, y = _first(self.heads, FROZEN), _first(self.heads, FINETUNED)
        color = _first(self.heads, INTERPRETABILITY)
        if x is None or y is None:
            raise ValueError(
                f"the figure needs a frozen {FROZEN} and a fine-tuned {FINETUNED} importance in "
                "the table"
            )
        ranked = self.heads.copy()
        for column in (x, y):
            grouped = ranked.groupby(["group", "model"], sort=False)[column]
            ranked[column] = (grouped.rank() - 1) / (grouped.transform("size") - 1).clip(lower=1)
        plots = [
            importance_dots(
                part,
                x,
                y,
                title=str(group),
                x_title=f"frozen ({x}): rank in its model",
                y_title=f"fine-tuned ({y}): rank in its model",
                color=color or "",
                brightest=float(ranked[color].max()) if color else 1.0,
            )
            for group, part in ranked.groupby("group", sort=False)
        ]
        return as_figure(
            plots,
            "Heads that matter: frozen against fine-tuned (1: the most important of its model)",
        )

    def __repr__(self) -> str:
        sizes = self.heads.groupby("group", sort=False)["model"].nunique()
        return (
            "ImportanceComparison("
            f"{', '.join(f'{group}: {n} models' for group, n in sizes.items())})"
        )


@checked
def compare_importance(
    heads: pd.DataFrame | Sequence[pd.DataFrame],
) -> ImportanceComparison:
    """Rank correlations between all measures of heads, over models.

    A correlation is taken over the heads of one model and averaged over models, so that differences
    between models do not count as agreement. Intervals are over models (seeds), since the heads of
    one model are not independent.

    Args:
        heads: one table per model, as `measure_heads` returns it, with layer and head; or one table
            of all, with a column "model", and "group" if there are groups.

    Raises:
        ValueError: no tables, fewer than two measures, or columns that are not there.
    """
    table = _one_table(heads)
    known = [name for name in _MEASURES if name in table]
    missing = [name for name in ("model", "layer", "head") if name not in table]
    if missing:
        raise ValueError(
            f"the table of heads has no column {missing[0]!r}; it has "
            f"{', '.join(map(str, table.columns))}"
        )
    if len(known) < 2:
        raise ValueError(f"to compare takes two measures, but there are {known or 'none'}")
    rows = []
    for group, part in table.groupby("group", sort=False):
        models = [model for _, model in part.groupby("model", sort=False)]
        for a, b in combinations(known, 2):
            each = np.array(
                [
                    _correlations(model[a].to_numpy(float), model[b].to_numpy(float))
                    for model in models
                ]
            )
            defined = each[np.isfinite(each).all(1)]
            row: dict[str, Any] = {"group": group, "a": a, "b": b}
            for index, name in enumerate(("spearman", "kendall")):
                found = mean(defined[:, index])
                row |= {name: found.value, f"{name}_low": found.low, f"{name}_high": found.high}
                row |= {"interval": found.kind, "level": found.level}
            rows.append({**row, "n_models": len(models), "n_left_out": len(models) - len(defined)})
    return ImportanceComparison(heads=table, correlations=pd.DataFrame(rows))


def _one_table(heads: pd.DataFrame | Sequence[pd.DataFrame]) -> pd.DataFrame:
    if isinstance(heads, pd.DataFrame):
        table = heads.copy()
    else:
        if not isinstance(heads, (list, tuple)) or not all(
            isinstance(part, pd.DataFrame) for part in heads
        ):
            raise WrongTypeError(
                f"heads must be a table, or a list of tables, not {type(heads).__name__}"
            )
        tables = [
            part if "model" in part else part.assign(model=index)
            for index, part in enumerate(heads)
        ]
        if not tables:
            raise ValueError("there is nothing to compare: give at least one table of heads")
        table = pd.concat(tables, ignore_index=True)
    if "group" not in table:
        table.insert(0, "group", "all")
    if table.empty:
        raise ValueError("there is nothing to compare: the table of heads is empty")
    return table


def _correlations(a: np.ndarray, b: np.ndarray) -> tuple[float, float]:
    """Spearman's ρ and Kendall's τ_b over the heads that have both; NaN if not defined."""
    both = np.isfinite(a) & np.isfinite(b)
    a, b = a[both], b[both]
    # of two heads a rank correlation is 1 or -1 whatever they are; of equal numbers it is 0/0
    if len(a) < 3 or np.ptp(a) == 0 or np.ptp(b) == 0:
        return math.nan, math.nan
    from scipy import stats  # takes a second, and most importance is compared with none

    return float(stats.spearmanr(a, b).statistic), float(stats.kendalltau(a, b).statistic)


# --- in words -------------------------------------------------------------------------------------


def _answers(found: ImportanceComparison, group: str) -> list[Answer | None]:
    compared = {*found.correlations["a"], *found.correlations["b"]}
    frozen, tuned = ([name for name in names if name in compared] for names in (FROZEN, FINETUNED))
    answers: list[Answer | None] = []
    looks = {"stack-likeness": "stack-like heads", "entropy": "heads with spread-out attention"}
    for look in (look for look in looks if look in compared):
        for names, when in ((frozen, "the model is frozen"), (tuned, "the model may adapt")):
            question = f"Are {looks[look]} more important when {when}?"
            answers.append(_tied(found, group, question, look, names))
    if frozen:
        question = (
            "Are the heads that matter when frozen those that matter when the rest may adapt?"
        )
        answers.append(_tied(found, group, question, frozen[0], tuned))
    if frozen and "leave-one-out" in tuned:
        answers.append(_recovered(found, group, frozen[0]))
    answers.append(_moved(found, group))
    if {"stack-likeness", "drift"} <= compared:
        question = "Did stack-like heads move more than others while the model was pruned?"
        answers.append(_tied(found, group, question, "stack-likeness", ["drift"]))
    return answers


def _tied(
    found: ImportanceComparison, group: str, question: str, a: str, names: Sequence[str]
) -> Answer | None:
    """An answer from rank correlations: the first of `names` decides unless others disagree."""
    rows = [found.correlation(group, a, name) for name in names]
    rows = [row for row in rows if math.isfinite(row["spearman"])]
    if not rows:
        return None
    first = rows[0]
    name = first["b"] if first["a"] == a else first["a"]
    signs = [
        1 if row["spearman_low"] > 0 else -1 if row["spearman_high"] < 0 else 0 for row in rows
    ]
    verdict = "mixed" if {1, -1} <= set(signs) else {1: "yes", -1: "no", 0: "not clear"}[signs[0]]
    left = int(first["n_models"] - first["n_left_out"])
    few = left < _ENOUGH
    if few:  # an interval of so few says little
        verdict = "not clear"
    told = f"{_VERDICTS[verdict]}{', with so few models' if few else ''}"
    text = (
        f"{told}: Spearman {_interval(first)} between {a} and {name}, "
        f"mean of {left} model{'s' * (left != 1)}"
    )
    others = [f"{row['b'] if row['a'] == a else row['a']} {_interval(row)}" for row in rows[1:]]
    text += f"; with {', '.join(others)}." if others else "."
    return Answer(question=question, group=group, verdict=verdict, text=text)


_ENOUGH = 5  # models, for a verdict
_VERDICTS = {
    "yes": "Yes",
    "no": "No, the other way round",
    "mixed": "It depends on how importance is measured",
    "not clear": "Not clear",
}


def _interval(row: pd.Series[Any]) -> str:
    interval = (
        f" [{row['spearman_low']:+.2f}, {row['spearman_high']:+.2f}]"
        if row["spearman_low"] <= row["spearman_high"]
        else ""
    )
    return f"{row['spearman']:+.2f}{interval}"


def _recovered(found: ImportanceComparison, group: str, frozen: str) -> Answer:
    """Importance of a head to a frozen model, and to one that had time to do without it."""
    part = found.heads[found.heads["group"] == group]
    said, means = [], []
    for name in (frozen, "leave-one-out"):
        per_model = part.groupby("model", sort=False)[name].mean().dropna().to_numpy(float)
        cost = mean(per_model)
        means.append(cost.value)
        said.append(cost.text(".4f"))
    share = means[1] / means[0] if means[0] > 0 else math.nan
    text = (
        f"Doing without one head costs {said[0]} of the metric while all else stays ({frozen}, "
        f"mean over heads and models), and {said[1]} after the others were fine-tuned without it"
    )
    text += f": {share:.0%} of it." if share == share else "."
    question = "Is what a frozen model loses without a head still lost after it adapted?"
    return Answer(
        question=question,
        group=group,
        verdict=f"{share:.0%}" if share == share else "not clear",
        text=text,
    )


def _moved(found: ImportanceComparison, group: str) -> Answer | None:
    """Distance that the patterns of surviving heads moved."""
    if "drift" not in found.heads:
        return None
    part = found.heads[found.heads["group"] == group]
    per_model = part.groupby("model", sort=False)["drift"].mean().dropna().to_numpy(float)
    if not len(per_model):
        return None
    moved = mean(per_model)
    text = f"While heads were removed, the patterns of those still open moved by {moved.text()}"
    text += (
        f" (squared Frobenius norm, mean of {len(per_model)} model{'s' * (len(per_model) != 1)})"
    )
    if "drift-random" in part:
        chance = float(part["drift-random"].mean())
        text += (
            f", {moved.value / chance:.0%} of what patterns drawn at random differ by "
            f"({chance:.2f})"
        )
    if "drift-control" in part:
        text += f"; by fine-tuning alone, with no head removed, {part['drift-control'].mean():.2f}"
    question = "How far did the heads move meanwhile?"
    return Answer(question=question, group=group, verdict=f"{moved.value:.2f}", text=text + ".")


def _first(table: pd.DataFrame, names: Sequence[str]) -> str | None:
    return next((name for name in names if name in table), None)
