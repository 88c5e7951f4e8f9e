"""A study's figures of accuracy: where it takes a stack, by depth, and on all closing brackets."""

from __future__ import annotations

import numpy as np

from tl_dyck.plots import COLORS, SYMBOLS, Line, Series, dots_by_row, for_plotly, scatter
from tl_dyck.report.commands import report_command
from tl_dyck.report.markup import percent
from tl_dyck.report.page import Figure
from tl_dyck.report.shown import between, long_lengths, means, model_names, rows_of
from tl_dyck.studies import Study


def _after_close(study: Study) -> Figure | None:
    """The accuracy that takes a stack, beside what a model without one gets."""
    if study.models["accuracy_after_close"].isna().all():
        return None  # depth 1: nothing closes after a close
    near, far = study.task.closing_chance(), study.task.closing_chance(long=True)
    return _accuracies(
        study,
        "after-close",
        "Accuracy where it takes a stack, in distribution and at length",
        ("accuracy_after_close", "long_accuracy_after_close"),
        unit="accuracy after a closing bracket (%)",
        guess=Line(100 * far.constant, f"guess: {percent(far.constant, 0)}"),
        note="Only closing brackets that come after a closing one: there the answer cannot be "
        "copied from the last token. A guess among the closing brackets is right once in "
        f"{study.task.n_types}; a model that counts how many brackets of each type are open, but "
        f"keeps no order, can get {percent(near.counter_after_close)} in distribution and "
        f"{percent(far.counter_after_close)} at length (exact).",
    )


def _all(study: Study) -> Figure:
    near, far = study.task.closing_chance(), study.task.closing_chance(long=True)
    return _accuracies(
        study,
        "accuracy",
        "Accuracy on all closing brackets, which flatters",
        ("accuracy", "long_accuracy"),
        unit="closing-bracket accuracy (%)",
        guess=Line(100 * far.copier, f"copier at length: {percent(far.copier, 0)}"),
        target=study.config.training.target,
        note="Each model predicts every closing bracket of strings of its own: "
        f"{study.config.measurement.n_accuracy:,} from the training distribution, "
        f"{study.config.measurement.n_long:,} at lengths {long_lengths(study)}. It is right if the "
        "right bracket has the largest logit of all tokens. Most closing brackets come after an "
        "opening one, whose partner is right: a copier that knows only the last token gets "
        f"{percent(near.copier)} in distribution and {percent(far.copier)} at length (exact).",
    )


def _accuracies(
    study: Study,
    name: str,
    title: str,
    columns: tuple[str, str],
    *,
    unit: str,
    guess: Line,
    note: str,
    target: float | None = None,
) -> Figure:
    """A row per family, a mark per model: one measure in distribution, and one at length."""
    families, models, lengths = list(study.config.families), study.models, long_lengths(study)
    marks, averages = [], []
    looks = (
        ("in distribution", 0.17, "@c0", "circle"),
        (f"lengths {lengths}", -0.17, "@c1", "diamond-open"),
    )
    for column, (label, shift, color, symbol) in zip(columns, looks, strict=True):
        marks.append(
            Series(
                name=f"one model, {label}",
                x=100 * models[column],
                y=rows_of(models, families) + shift,
                said=model_names(models),
                hover=f"{label}: %{{x:.1f}}%",
                color=color,
                symbol=symbol,
            )
        )
        averages.append(
            means(study, column, 100.0, shift=shift, unit="%", label=label, legend=shift > 0)
        )
    marked = [guess]
    if target is not None:
        marked.append(Line(100 * target, f"target: {100 * target:g}%", "right"))
    near, far = (between(study, column, percent) for column in columns)
    reading = (
        f"In distribution the families are {near} accurate on average; "
        f"at lengths {lengths} it is {far}."
    )
    lowest = np.nanmin([guess.at, *(100 * models[column].min() for column in columns)])
    kept = [
        column for column in models if column.startswith(columns) and "_error" not in str(column)
    ]
    return Figure(
        name=name,
        title=title,
        reading=reading,
        data=models[["family", "seed", *kept]],
        command=report_command(study),
        plots=[
            dots_by_row(
                families,
                unit,
                [*marks, *averages],
                alt=f"Dot plot, a row per family, a dot per seed. {reading}",
                marked=marked,
                limits=[lowest - 4, 102.0],
            )
        ],
        note=f"{note} Intervals: bootstrap over seeds, each of which has test strings of its own.",
    )


def _by_depth(study: Study) -> Figure | None:
    """Accuracy after a closing bracket by the number of open brackets."""
    table = study.closings.dropna(subset=["accuracy"])
    if table.empty:
        return None
    values = table.groupby(["lengths", "family", "depth"])["accuracy"].mean()
    plots = []
    for lengths, words in (("training", "in distribution"), ("long", long_lengths(study))):
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
        alt = f"Accuracy after a closing bracket by depth, {words}, a line per family."
        plot = scatter("open brackets", title, series, alt=alt, from_zero="")
        plot.layout["xaxis"]["dtick"] = 1
        plots.append(plot)
    where, family, depth = values.idxmin()
    return Figure(
        name="depth",
        title="Accuracy where it takes a stack, by depth",
        reading=f"Lowest: {family} with {depth} open bracket{'s' if depth > 1 else ''} "
        f"({'at length' if where == 'long' else 'in distribution'}), "
        f"{percent(float(values.min()))} on average over seeds.",
        data=table,
        command=report_command(study),
        plots=plots,
        note="Means over seeds. With one open bracket there is one type to choose from, "
        "whatever the order.",
    )


#: In the order of the report.
ACCURACY_FIGURES = (_after_close, _by_depth, _all)
