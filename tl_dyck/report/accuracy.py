"""A study's figures of accuracy: where it takes a stack, by depth, and on all closing brackets."""

from __future__ import annotations

from collections.abc import Callable

import pandas as pd

from tl_dyck.estimates import again_words, interval_words
from tl_dyck.plotting.plot_recipes import dots
from tl_dyck.plotting.plots import COLORS, SYMBOLS, Line, Plot, Series, for_plotly, scatter
from tl_dyck.report.markup import percent
from tl_dyck.report.page import Figure
from tl_dyck.studies import Study

#: What a mark is that stands for a model.
NAME = "{family} seed {seed} ({status})"


def between(study: Study, measure: str, text: Callable[[float], str]) -> str:
    """The range of the family means in words."""
    facts = study.summary["families"]
    known = [family for family in study.config.families if measure in facts[family]]
    means = sorted((facts[family][measure]["mean"], family) for family in known)
    if not means:
        return "not measurably"
    (low, lowest), (high, highest) = means[0], means[-1]
    if text(low) == text(high):
        return text(low)
    return f"{text(low)} ({lowest}) to {text(high)} ({highest})"


def intervals_of(study: Study) -> str:
    """What the intervals of the means over seeds are."""
    return interval_words(study.means)


def again_of(study: Study) -> str:
    """What the prediction intervals beside them are."""
    return again_words(study.means)


def _own_strings(study: Study) -> str:
    return f"{intervals_of(study)}; each seed has test strings of its own."


def _after_close(study: Study) -> Figure | None:
    """The accuracy that takes a stack, beside what a model without one gets."""
    if study.models["accuracy_after_close"].isna().all():
        return None  # depth 1: nothing closes after a close
    near, far = study.task.closing_chance(), study.task.closing_chance(long=True)
    guess = Line(100 * far.constant, f"guess: {percent(far.constant, 0)}")
    return Figure(
        name="after-close",
        title="Accuracy where a stack is needed, in distribution and at length",
        data=_accuracies(study, "accuracy_after_close"),
        plots=[
            _near_and_far(
                study, "accuracy_after_close", "accuracy after a closing bracket (%)", guess
            )
        ],
        note="Only closing brackets that come after a closing one: there the answer cannot be "
        "copied from the last token. A guess among the closing brackets is right once in "
        f"{study.task.n_types}; a model that counts how many brackets of each type are open, but "
        f"keeps no order, can get {percent(near.counter_after_close)} in distribution and "
        f"{percent(far.counter_after_close)} at length (exact). Means with {_own_strings(study)}",
    )


def _all(study: Study) -> Figure:
    near, far = study.task.closing_chance(), study.task.closing_chance(long=True)
    marked = [Line(100 * far.copier, f"copier at length: {percent(far.copier, 0)}")]
    if (target := study.config.training.target) is not None:
        marked.append(Line(100 * target, f"target: {100 * target:g}%", "right"))
    means = [between(study, column, percent) for column in ("accuracy", "long_accuracy")]
    return Figure(
        name="accuracy",
        title="Accuracy on all closing brackets, which flatters",
        reading=f"In distribution the families are {means[0]} accurate on average; at lengths "
        f"{study.long_lengths} it is {means[1]}.",
        data=_accuracies(study, "accuracy"),
        plots=[_near_and_far(study, "accuracy", "accuracy on closing brackets (%)", *marked)],
        note="Each model predicts every closing bracket of strings of its own: "
        f"{study.config.measurement.n_accuracy:,} from the training distribution, "
        f"{study.config.measurement.n_long:,} at lengths {study.long_lengths}. It is right if the "
        "right bracket has the largest logit of all tokens. Most closing brackets come after an "
        "opening one, whose partner is right: a copier that knows only the last token gets "
        f"{percent(near.copier)} in distribution and {percent(far.copier)} at length (exact). "
        f"Means with {_own_strings(study)}",
    )


def _accuracies(study: Study, measure: str) -> pd.DataFrame:
    """Accuracies of that name, in distribution and at length."""
    kept = [name for name in study.models if measure in str(name) and "_error" not in str(name)]
    return study.models[["family", "seed", *kept]]


def _near_and_far(study: Study, measure: str, unit: str, *marked: Line) -> Plot:
    """A row per family, a mark per model: one measure in distribution, and one at length."""
    at_length = f"lengths {study.long_lengths}"
    return dots(
        study.models,
        {"in distribution": measure, at_length: f"long_{measure}"},
        rows="{family}",
        said=NAME,
        hover="%{x:.1f}%",
        unit=unit,
        means=study.summary["families"],
        scale=100,
        marked=marked,
        include=(100,),
    )


def _by_depth(study: Study) -> Figure | None:
    """Accuracy after a closing bracket by the number of open brackets."""
    table = study.closings.dropna(subset=["accuracy"])
    if table.empty:
        return None
    values = table.groupby(["lengths", "family", "depth"])["accuracy"].mean()
    plots = []
    for lengths, words in (("training", "in distribution"), ("long", study.long_lengths)):
        series = [
            Series(
                name=family,
                x=(curve := values[lengths, family]).index.astype(str),
                y=100 * curve.to_numpy(),
                color=COLORS[place % len(COLORS)],
                symbol=SYMBOLS[place % len(SYMBOLS)],
                hover=f"{for_plotly(family)}: %{{y:.1f}}%",
                line={},
            )
            for place, family in enumerate(study.config.families)
            if (lengths, family) in values.index.droplevel("depth")
        ]
        title = f"accuracy after a close (%), {words}"
        plot = scatter("open brackets", title, series, from_zero="")
        plot.layout["xaxis"]["dtick"] = 1
        plots.append(plot)
    where, family, depth = values.idxmin()
    return Figure(
        name="depth",
        title="Accuracy where a stack is needed, by depth",
        reading=f"Lowest: {family} with {depth} open bracket{'s' if depth > 1 else ''} "
        f"({'at length' if where == 'long' else 'in distribution'}), "
        f"{percent(float(values.min()))} on average over seeds.",
        data=table,
        plots=plots,
        note="Means over seeds. With one open bracket there is one type to choose from, "
        "whatever the order.",
    )


#: In the order of the report.
ACCURACY_FIGURES = (_after_close, _by_depth, _all)
