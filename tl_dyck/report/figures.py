"""The plotly figures of a study."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pandas as pd

from tl_dyck.plots import Line, Series, curves, dots_by_row, for_plotly, jitter, scatter
from tl_dyck.report.accuracy import ACCURACY_FIGURES
from tl_dyck.report.commands import probe_command, report_command
from tl_dyck.report.markup import percent
from tl_dyck.report.page import Figure
from tl_dyck.report.shown import (
    between,
    by_family,
    curve_of,
    good_statuses,
    is_one_layer,
    long_lengths,
    means,
    model_names,
    rows_of,
    tie,
)
from tl_dyck.studies import Study
from tl_dyck.studies.findings import MORE_THAN_RANDOM, is_clear


def figures(study: Study) -> list[Figure]:
    """The plotly figures of a study, in the report's order, except those without data."""
    made = [draw(study) for draw in FIGURES]
    return [figure for figure in made if figure is not None]


_PAIRS = (
    "Mean over pairs of seeds of the squared Frobenius norm of the difference of their "
    "attention patterns on the probe string; 0 means the same pattern. Intervals: bootstrap "
    "over seeds, since pairs are not independent. Random: rows drawn uniformly from all "
    "distributions over the allowed positions."
)


def _variation(study: Study) -> Figure | None:
    table = study.variation[study.variation["variation"].notna()]
    if table.empty:
        return None
    labels = [f"{row.family}, layer {row.layer}" for row in table.itertuples()]
    baseline = float(table["random_baseline"].iloc[0])
    recalled = table["recalled"].astype(float).where(is_one_layer(table))
    rows = list(range(len(table)))
    values = zip(labels, table.itertuples(), strict=True)
    said = [f"{for_plotly(x)}<br>{r.variation:.2f} [{r.low:.2f}, {r.high:.2f}]" for x, r in values]
    series = [
        Series(
            name="measured, 95% interval",
            x=table["variation"],
            y=rows,
            size=11,
            said=said,
            low=table["low"],
            high=table["high"],
            caps=5,
        )
    ]
    if recalled.notna().any():
        series.append(_recalled(recalled, rows))
    most, reading = _most_varied(table, baseline)
    marked = [Line(baseline, f"random patterns: {baseline:.2f}")]
    furthest = float(np.nanmax([baseline, table["high"].max(), recalled.max()]))
    unit = "attention variation ‖A₁ − A₂‖² (squared Frobenius norm)"
    return Figure(
        name="variation",
        title="Attention variation between seeds",
        reading=f"{reading}.",
        data=table.assign(recalled=recalled),
        command=probe_command(study, str(most["family"]), "attention_variation"),
        plots=[
            dots_by_row(
                labels,
                unit,
                series,
                alt="Dot plot with intervals, a row per family and layer; "
                f"a line marks random patterns. {reading}.",
                marked=marked,
                limits=[-0.02 * furthest, 1.08 * furthest],
            )
        ],
        note=_PAIRS + _of_unnamed_layers(table),
    )


def _of_unnamed_layers(table: pd.DataFrame) -> str:
    """What the paper reports of families with several layers, which no row can be held beside."""
    known = table[table["recalled"].notna() & ~is_one_layer(table)].drop_duplicates("family")
    if known.empty:
        return ""
    said = " and ".join(f"{row.recalled:.2f} for {row.family}" for row in known.itertuples())
    return f" The paper reports {said} (recalled); of which layer, it does not say."


def _recalled(values: pd.Series, rows: list[int]) -> Series:
    """The marks of what the paper reports of models with one layer."""
    return Series(
        name="reported for 40 seeds (recalled)",
        x=values,
        y=rows,
        color="@c1",
        symbol="diamond-open",
        size=11,
        hover="reported (recalled): %{x:.2f}",
    )


def _most_varied(table: pd.DataFrame, baseline: float) -> tuple[pd.Series, str]:
    """The row that varies most, and what is said of it."""
    values = table["variation"]
    most, least = table.loc[values.idxmax()], table.loc[values.idxmin()]
    reading = (
        f"Seeds of {most['family']} differ by {most['variation']:.2f} in layer {most['layer']}, "
        f"two random patterns by {baseline:.2f}"
    )
    if most["variation"] > baseline:
        reading += f" ({MORE_THAN_RANDOM})"
    if len(table) > 1:
        reading += (
            f"; least varied is {least['family']}, layer {least['layer']}, "
            f"with {least['variation']:.2f}"
        )
    return most, reading


def _stack(study: Study) -> Figure | None:
    heads = study.heads[study.heads["mass_at_closing"].notna()]
    if heads.empty:
        return None
    values = heads["mass_at_closing"]
    keys = list(zip(heads["family"], heads["layer"], strict=True))
    groups = list(dict.fromkeys(keys))
    rows = np.array([groups.index(key) for key in keys]) + jitter(heads["seed"])
    chance = float(study.summary["stack_chance"]["chance_at_closing"])
    said = [
        f"{for_plotly(row.family)} seed {row.seed}, layer {row.layer}, head {row.head}<br>largest "
        f"weight there: {percent(row.argmax_at_closing)} of closing brackets"
        for row in heads.itertuples()
    ]
    hover = "weight on the top of the stack: %{x:.3f}"
    marks = Series(name="one head", x=values, y=rows, color="@c2", said=said, hover=hover)
    often = int((heads["argmax_at_closing"] > 0.9).sum())
    reading = (
        f"{often} of {len(heads)} heads look first at the top of the stack at nine closing "
        f"brackets in ten; the weight they put there is between {values.min():.2f} and "
        f"{values.max():.2f}, where chance is {chance:.2f}."
    )
    labels = [f"{family}, layer {layer}" for family, layer in groups]
    ceiling = float(study.summary["stack_chance"]["ceiling_at_closing"])
    marked = [
        Line(chance, f"chance: {chance:.2f}"),
        Line(ceiling, f"without positions at most: {ceiling:.2f}", "right"),
        Line(1.0, "a parser: 1", "right"),
    ]
    unit = "attention weight on the top of the stack (share, 0 to 1)"
    return Figure(
        name="stack",
        title="Is attention stack-like?",
        reading=reading,
        data=heads,
        command=probe_command(study, str(heads.loc[values.idxmax(), "family"]), "stack_likeness"),
        plots=[
            dots_by_row(
                labels,
                unit,
                [marks],
                alt="Dot plot, a row per family and layer, a dot per head, "
                f"and a line at chance. {reading}",
                marked=marked,
                limits=[-0.03, 1.03],
            )
        ],
        note="A parser would look at the last bracket that is still open. Mean weight there over "
        "queries that are closing brackets, "
        f"on {min(study.config.measurement.n_strings, 500):,} training strings. A head without "
        "positions behind a minimal first layer gives equal brackets of equal depth equal weight, "
        "so that it cannot single out the top of the stack where several have been read: that is "
        "no evidence against a stack.",
    )


def _balance(study: Study) -> Figure | None:
    table = study.models.dropna(subset=["balance_violation"])
    if table.empty:
        return None
    lengths = long_lengths(study)
    y = "long_accuracy_after_close"
    hover = f"balance violation %{{x:.3f}}<br>after a close, {lengths}: %{{y:.1f}}%"
    said = []
    for family in study.config.families:
        facts = study.summary["balance_and_length"].get(family)
        if facts:
            said.append((tie(facts, "more accurate", "less accurate", sign=-1), family, facts))
    if clear := [each for each in said if is_clear(each[2])]:
        reading = "Where balance is violated more, accuracy at length: " + "; ".join(
            f"{words} over {facts['n']} seeds of {family} ({number})"
            for (words, number), family, facts in clear
        )
    else:
        reading = (
            "These seeds do not tell whether balance violation and accuracy at length are tied"
        )
    others = "".join(
        f" Over {facts['n']} seeds of {family}: {words} ({number})."
        for (words, number), family, facts in said
        if not is_clear(facts)
    )
    return Figure(
        name="balance",
        title="Balance violation and accuracy at length",
        reading=f"{reading}.",
        data=table[["family", "seed", "balance_violation", y]],
        command=probe_command(study, str(table["family"].iloc[0]), "balance_violation"),
        plots=[
            scatter(
                "balance violation β (mean of S/P, no unit)",
                f"accuracy after a closing bracket, lengths {lengths} (%)",
                by_family(study, table, "balance_violation", y, hover, scale=100.0),
                alt=f"Scatter plot of accuracy after a close at lengths {lengths} against balance "
                f"violation, by seed. {reading}.{others}",
            )
        ],
        note="β is 0 for a model on whose output a matched pair of brackets, wherever it stands, "
        "has no influence: a condition for generalising to any length. It is defined for families "
        f"with a minimal first layer.{others}",
    )


def _entropy_gap(study: Study) -> Figure:
    families, models = list(study.config.families), study.models
    floor = float(models["entropy_floor"].iloc[0])
    gap, spread = models["entropy_gap"], 2 * models["loss_error"]
    marks = Series(
        name="one model, ± 2 standard errors",
        x=gap,
        y=rows_of(models, families) + 0.1,
        color="@c3",
        said=model_names(models),
        hover="%{x:.4f} nats per token above the floor",
        low=gap - spread,
        high=gap + spread,
        thickness=1.0,
    )
    average = means(
        study, "entropy_gap", scale=1.0, shift=-0.2, unit=" nats per token", label="entropy gap"
    )
    gaps = between(study, "entropy_gap", lambda value: f"{value:.3f}")
    reading = f"On average the families end {gaps} nats per token above the floor of {floor:.3f}."
    return Figure(
        name="entropy-gap",
        title="Distance from the entropy floor",
        reading=reading,
        data=models[["family", "seed", "loss", "loss_error", "entropy_floor", "entropy_gap"]],
        command=report_command(study),
        plots=[
            dots_by_row(
                families,
                "cross-entropy above the floor (nats per token)",
                [marks, average],
                alt="Dot plot, a row per family, a dot per seed, "
                f"and a line at the floor. {reading}",
                marked=[Line(0.0, "floor")],
            )
        ],
        note="The floor is exact: the least cross-entropy that any model can reach which is not "
        "told how long a string will be. "
        f"Loss on {study.config.measurement.n_strings:,} fresh training strings.",
    )


def _training(study: Study) -> Figure:
    history, models = study.history, study.models
    losses = history["loss"].astype(float)
    floor = float(history["floor"].iloc[0])
    top = float(losses.max()) if losses.notna().any() else floor + 1
    pad = 0.12 * (top - floor)
    status = {(row.family, row.seed): row.status for row in models.itertuples()}
    good = good_statuses(study)
    runs = {family: history[history["family"] == family] for family in study.config.families}
    plots = [
        curves(
            family,
            "step",
            "loss (nats per token)",
            [
                curve_of(seed, curve, status[family, seed], good)
                for seed, curve in rows.groupby("seed")
            ],
            alt=f"Line plot: training loss of {family}, a line per seed, "
            "and a line at the entropy floor.",
            height=300,
            limits={"x": [0.0, 1.05 * int(rows["step"].max())], "y": [floor - pad, top + pad / 2]},
            marked=[Line(floor, f"floor: {floor:.3f}")],
        )
        for family, rows in runs.items()
    ]
    reached, steps = int((models["status"] == "reached").sum()), models["steps"]
    span = f"{steps.min():,} to {steps.max():,} steps"
    reading = f"All runs made {steps.max():,} steps."
    if study.config.training.target is not None:
        reading = (
            f"{reached} of {len(models)} runs reached the target accuracy; training took {span}."
        )
    return Figure(
        name="training",
        title="Training curves",
        reading=reading,
        data=history[["family", "seed", "step", "loss", "floor", "accuracy", "learning_rate"]],
        command=report_command(study),
        plots=plots,
        note="Mean training loss since the measurement before. A cross at the end, and another "
        "colour, mark a run that did not learn.",
    )


#: The figures of a study in the order of the report: functions of a study, which return None if
#: there is no data.
FIGURES: list[Callable[[Study], Figure | None]] = [
    *ACCURACY_FIGURES,
    _variation,
    _stack,
    _balance,
    _entropy_gap,
    _training,
]
