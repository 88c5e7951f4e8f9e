"""The page of a sweep: how it stands, means over seeds by point, figures by metric, and errors."""

from __future__ import annotations

import shlex

import pandas as pd

from tl_dyck.recipes import dots
from tl_dyck.report.markup import Html, csv_link, element, table
from tl_dyck.report.page import Figure, Page, Section, again
from tl_dyck.runs import SweepStatus, aggregate, load_results, sweep_status

_MOST_ROWS = 40  # of a figure; the table has all
_MOST_METRICS = 12
_MOST_ERRORS = 30
_MOST_MEANS = 1000  # rows of the table; the CSV file has all


def sweep_page(sweep: SweepStatus) -> Html:
    """The page of a sweep, as its folder is now."""
    status = sweep_status(sweep.folder)
    results = load_results(sweep.folder)
    means = aggregate(results) if len(results) else pd.DataFrame()
    groups = (
        []
        if means.empty
        else [str(name) for name in means.columns[: list(means.columns).index("metric")]]
    )
    metrics = [] if means.empty else list(dict.fromkeys(means["metric"]))
    lead = (
        f"{status.total:,} runs of a sweep, {status.counts.get('done', 0):,} of them done, "
        f"in {sweep.folder.name}."
    )
    if status.others:
        lead += (
            f" The folder holds {status.others:,} more, of other sweeps; all {len(results):,} runs "
            "that have ended are in the tables and figures below."
        )
    folder = sweep.folder.as_posix()
    report = shlex.join(["tl-dyck", "sweep", "report", folder])
    runs = shlex.join(["tl-dyck", "sweep", "results", folder, "--out", "runs.csv"])
    return Page(
        title=f"tl_dyck sweep: {sweep.folder.name}",
        lead=lead,
        parts=[
            Section("status", "How it stands", _status(status)),
            Section("means", "Means over seeds", _means(means, groups)),
            *(
                _metric(folder, index, metric, groups, means[means["metric"] == metric])
                for index, metric in enumerate(metrics[:_MOST_METRICS])
            ),
            Section("errors", "Errors", _errors(status)),
        ],
        about=[
            again("This page again, as the folder then is", report),
            again("All runs, a row each", runs),
        ],
        made=_versions(results),
    ).html


def _names(means: pd.DataFrame, groups: list[str]) -> list[str]:
    """A point in words: the parameters that vary."""
    return [
        ", ".join(f"{name} {value}" for name, value in zip(groups, row, strict=True))
        for row in means[groups].values
    ]


def _metric(folder: str, index: int, metric: str, groups: list[str], means: pd.DataFrame) -> Figure:
    shown = means.dropna(subset=["mean"])[:_MOST_ROWS]
    reading = f"No run has a {metric}."
    if len(shown):
        low, high = shown["mean"].min(), shown["mean"].max()
        reading = f"The means of {metric} lie between {low:.4g} and {high:.4g}."
    left_out = (
        f" Shown are the first {_MOST_ROWS} of {len(means):,} points."
        if len(means) > _MOST_ROWS
        else ""
    )
    plot = dots(
        shown.assign(point=_names(shown, groups)),
        {"mean over seeds, 95% interval": "mean"},
        rows="{point}",
        said="{point}<br>{mean:.4g} [{low:.4g}, {high:.4g}], {seeds} seeds",
        hover="",
        unit=metric,
        bars=("low", "high"),
    )
    return Figure(
        name=f"metric-{index}",
        title=metric,
        reading=reading,
        data=means,
        command=shlex.join(["tl-dyck", "sweep", "results", folder, "--metrics", metric]),
        plots=[plot] if len(shown) else [],
        note=f"A row per point of the sweep. Intervals: bootstrap over seeds.{left_out}",
    )


def _status(status: SweepStatus) -> list[Html | None]:
    counts = ", ".join(f"{number:,} {name}" for name, number in status.counts.items() if number)
    kinds = [name for name, number in status.counts.items() if number]
    rows = [
        [f"{name} = {value}", *(f"{found.get(kind, 0):,}" for kind in kinds)]
        for name, values in status.axes.items()
        for value, found in values.items()
    ]
    columns = ("parameter", *kinds)
    return [
        element("p", f"{status.total:,} runs: {counts}.", class_="reading"),
        table("Runs by parameter", columns, rows, numeric=range(1, len(columns))) if rows else None,
        element("p", f"{status.corrupt:,} damaged records were set aside.", class_="warning")
        if status.corrupt
        else None,
    ]


def _means(means: pd.DataFrame, groups: list[str]) -> list[Html]:
    if means.empty:
        return [element("p", "No run has returned a number.")]
    shown = means[:_MOST_MEANS]
    rows = [
        [
            label,
            str(row.metric),
            f"{row.seeds}" + (f" (+ {row.failed} failed)" if row.failed else ""),
            "–" if row.mean != row.mean else f"{row.mean:.4g}",
            "–" if row.low != row.low else f"[{row.low:.4g}, {row.high:.4g}]",
        ]
        for label, row in zip(_names(shown, groups), shown.itertuples(), strict=True)
    ]
    left_out = (
        f"; {len(means) - len(shown):,} more are in the data" if len(means) > len(shown) else ""
    )
    caption = f"Means over seeds, with 95% bootstrap intervals{left_out}"
    columns = ("point", "metric", "seeds", "mean", "95% interval")
    link = element("div", csv_link(means, "means"), class_="tools")
    return [table(caption, columns, rows, numeric=(2, 3, 4)), link]


def _errors(status: SweepStatus) -> list[Html]:
    if not status.errors:
        return [element("p", "No run has failed.")]
    rows = [(error, f"{number:,}") for error, number in status.errors[:_MOST_ERRORS]]
    more = len(status.errors) - len(rows)
    caption = "Errors, the most frequent first" + (
        f"; {more:,} more kinds are left out" if more else ""
    )
    retry = shlex.join(["tl-dyck", "sweep", "resume", status.folder.as_posix(), "--retry-failed"])
    return [
        table(caption, ("error", "runs"), rows, numeric=(1,)),
        element(
            "p", "Tracebacks are in runs/*/*.failed.json. Try them again: ", element("code", retry)
        ),
    ]


def _versions(results: pd.DataFrame) -> dict[str, str]:
    """The versions that the runs were made with; several, if they differ."""
    columns = {
        "tl_dyck": "tl_dyck",
        "PyTorch": "torch",
        "TransformerLens": "transformer_lens",
        "Python": "python",
        "Machines": "host",
    }
    said = {
        name: ", ".join(sorted({str(value) for value in results[column].dropna()}))
        for name, column in columns.items()
    }
    return {name: versions for name, versions in said.items() if versions}
