"""The page of a sweep: how it stands, figures, curves, means over seeds, its runs, errors."""

from __future__ import annotations

import contextlib
from datetime import timedelta
from pathlib import Path

import pandas as pd

from tl_dyck.estimates import again_words, interval_words
from tl_dyck.kit.files import CorruptFileError, read_tensors
from tl_dyck.kit.suggest import command
from tl_dyck.plotting.plot_recipes import dots
from tl_dyck.plotting.plots import Series, curves
from tl_dyck.report.markup import Html, csv_link, element, table
from tl_dyck.report.page import Figure, Page, Section, again, cell
from tl_dyck.runs import SweepStatus, aggregate, load_results, sweep_status, time_left
from tl_dyck.runs.results import columns_of, groups_of, means_shown, varying
from tl_dyck.runs.store import Store

_MOST_ROWS = 40  # of a figure; the table has all
_MOST_METRICS = 12
_MOST_ERRORS = 30  # kinds of errors, most frequent first
_MOST_MEANS = 1000  # rows of the table; the CSV file has all
_MOST_CURVES = 200  # runs whose curves are drawn
_MOST_PANELS = 12  # points whose curves are drawn


def sweep_page(sweep: SweepStatus) -> Html:
    """The page of a sweep, as its folder is now."""
    status = sweep_status(sweep.folder)
    results = load_results(sweep.folder)
    means = aggregate(results) if len(results) else pd.DataFrame()
    groups = [] if means.empty else groups_of(means)
    named = [] if means.empty else list(dict.fromkeys(means["metric"]))
    # a standard error stands in the table; it has no figure beside that of its mean
    metrics = [name for name in named if name.removesuffix("_error") not in {*named} - {name}]
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
    report = command("sweep", "report", folder)
    runs = command("sweep", "results", folder, "--out", "runs.csv")
    return Page(
        title=f"tl_dyck sweep: {sweep.folder.name}",
        lead=lead,
        command=report,
        parts=[
            Section("status", "How it stands", _status(status)),
            *(
                _metric(folder, index, metric, groups, means[means["metric"] == metric])
                for index, metric in enumerate(metrics[:_MOST_METRICS])
            ),
            _variation(sweep.folder, results),
            _curves(sweep.folder, results),
            Section("means", "Means over seeds", _means(means, groups)),
            Section("runs", "Runs", _runs(results)),
            Section("errors", "Errors", _errors(status)),
        ],
        about=[
            again("This page again, as the folder then is", report),
            again("All runs, a row each", runs),
        ],
        made=_versions(results),
    ).html


def _names(means: pd.DataFrame, groups: list[str]) -> list[str]:
    """A point in words: the parameters that vary, by the last part of their names if that tells."""
    short = [name.rpartition(".")[2] for name in groups]
    said = short if len(set(short)) == len(groups) else groups
    return [
        ", ".join(f"{name} {value}" for name, value in zip(said, row, strict=True))
        for row in means[groups].values
    ]


_WORDS = {
    "_closing_only": " among closing brackets",
    "_after_close": " after a closing bracket",
    "_after_open": " after an opening bracket",
    "_error": ", standard error",
}


def in_words(metric: str) -> str:
    """A metric as a heading: ``long_accuracy_after_close`` in words, others without underscores."""
    said = metric.removeprefix("long_")
    for ending, words in _WORDS.items():
        said = said.replace(ending, words)
    said = said.replace("_", " ") + (", long strings" if metric.startswith("long_") else "")
    return said[:1].upper() + said[1:]


def _metric(folder: str, index: int, metric: str, groups: list[str], means: pd.DataFrame) -> Figure:
    shown = means.dropna(subset=["mean"])[:_MOST_ROWS]
    reading = f"No run has a {metric}."
    if len(shown):
        low, high = shown["mean"].min(), shown["mean"].max()
        low, high = f"{low:.4g}", f"{high:.4g}"
        reading = f"Means from {low} to {high}." if low != high else f"Every mean is {low}."
    left_out = (
        f" Shown are the first {_MOST_ROWS} of {len(means):,} points."
        if len(means) > _MOST_ROWS
        else ""
    )
    plot = dots(
        shown.assign(point=_names(shown, groups)),
        {"mean over seeds, with its interval": "mean"},
        rows="{point}",
        said="{point}<br>{mean:.4g} [{low:.4g}, {high:.4g}], {seeds} seeds; as many others "
        "[{again_low:.4g}, {again_high:.4g}]",
        hover="",
        unit=in_words(metric),
        bars=("low", "high"),
    )
    return Figure(
        name=f"metric-{index}",
        title=in_words(metric),
        reading=reading,
        data=means,
        command=command("sweep", "results", folder, "--metrics", metric),
        plots=[plot] if len(shown) else [],
        # on the first figure for all
        note=""
        if index and not left_out
        else f"A row per point of the sweep. Intervals, here and "
        f"below: {interval_words(shown)}. In the text of a mark: {again_words(shown)}.{left_out}",
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
        _left(status) if status.done and status.elsewhere else None,
    ]


def _left(status: SweepStatus) -> Html:
    """How long what is left will take, by point."""
    left = time_left(status.folder)
    rows = [
        [*(str(cell) for cell in row[:-2]), *(_span(seconds) for seconds in row[-2:])]
        for row in left.itertuples(index=False)
    ]
    # the last three are of time: named here as a page has it
    columns = (*left.columns[:-3], "runs left", "a run", "of one worker")
    caption = f"What is left, about {_span(left['total'].sum())} of one worker"
    return table(
        caption, columns, rows[:_MOST_MEANS], numeric=range(len(columns) - 3, len(columns))
    )


def _span(seconds: float) -> str:
    return str(timedelta(seconds=round(seconds)))


def _runs(results: pd.DataFrame) -> list[Html]:
    """All runs, which readers sort and filter."""
    if results.empty:
        return [element("p", "No run has ended yet.")]
    columns = [*varying(results), "seed", "status", *columns_of(results)[1], "seconds"]
    shown = results[columns][:_MOST_MEANS]
    numeric = [index for index, name in enumerate(columns) if shown[name].dtype.kind in "iuf"]
    rows = [[cell(value) for value in row] for row in shown.itertuples(index=False)]
    more = (
        f"; {len(results) - len(shown):,} more are in the data" if len(results) > len(shown) else ""
    )
    caption = f"A row a run{more}. Press the name of a column to sort by it"
    heads = [name.replace("_", " ") for name in columns]
    link = element("div", csv_link(results, "runs"), class_="tools")
    return [table(caption, heads, rows, numeric=numeric, sortable=True), link]


def _kept(folder: Path, results: pd.DataFrame, name: str) -> pd.DataFrame:
    """The runs that left a file of that name, with their points in words, and their folders."""
    store, groups = Store(folder), varying(results)
    words = _names(results, groups) if groups else ["all runs"] * len(results)
    found = results.assign(words=words, folder=[store.path(run) for run in results["id"]])
    there = pd.Series([(place / name).is_file() for place in found["folder"]], found.index, bool)
    return found[there]


def _curves(folder: Path, results: pd.DataFrame) -> Figure | None:
    """The curves of all training runs, those of a point in one panel."""
    runs = _kept(folder, results, "result.json")[:_MOST_CURVES]
    if runs.empty:
        return None
    from tl_dyck.training.checkpoint import load_history

    found = []
    for run in runs.itertuples():
        with contextlib.suppress(CorruptFileError):  # a run that is being done again
            found.append(load_history(str(run.folder)).assign(point=run.words, seed=run.seed))
    if not found:
        return None
    history = pd.concat(found, ignore_index=True)[["point", "seed", "step", "loss", "accuracy"]]
    losses = history["loss"].astype(float)
    # panels have one scale, so that they can be compared
    limits = {"y": [0.0, 1.05 * float(losses.max())]} if losses.notna().any() else {}
    last = losses.groupby([history["point"], history["seed"]]).last()
    panels = list(history.groupby("point", sort=False))

    def curve(seed: int, steps: pd.DataFrame, index: int) -> Series:
        return Series(
            name=f"seed {seed}",
            x=steps["step"],
            y=steps["loss"],
            # six colours, see `plots.COLORS`; a seventh curve begins again
            color=f"@c{index % 6}",
            # a mark at the end alone, to be pointed at; the rest is the curve
            size=[0] * (len(steps) - 1) + [6],
            said=[f"seed {seed}"] * len(steps),
            hover="step %{x}, loss %{y:.4f}",
            legend=False,
            line={},
        )

    left_out = len(panels) - _MOST_PANELS
    return Figure(
        name="curves",
        title="Training curves",
        reading=f"The last losses lie between {last.min():.4g} and {last.max():.4g}.",
        data=history,
        plots=[
            curves(
                str(point),
                "step",
                "loss (nats per token)",
                [
                    curve(int(str(seed)), steps, index)
                    for index, (seed, steps) in enumerate(rows.groupby("seed"))
                ],
                height=300,
                limits=limits,
            )
            for point, rows in panels[:_MOST_PANELS]
        ],
        note="Mean training loss since the measurement before, a line per seed, on one scale."
        + (f" {left_out} more points are in the data." if left_out > 0 else ""),
    )


def _variation(folder: Path, results: pd.DataFrame) -> Figure | None:
    """How much attention differs between the seeds of a point, by layer."""
    rows = []
    for words, runs in _kept(folder, results, "patterns.safetensors").groupby("words", sort=False):
        patterns = [
            read_tensors(place / "patterns.safetensors")["patterns"] for place in runs["folder"]
        ]
        if len({each.shape for each in patterns}) > 1:
            continue
        import torch

        from tl_dyck.studies.measurement import variation_by_layer

        for row in variation_by_layer(torch.stack(patterns)):
            rows.append({"point": words, "seeds": row.pop("n_models"), **row})
    if not rows:
        return None
    data = pd.DataFrame(rows)
    most = data.loc[data["variation"].idxmax()]
    return Figure(
        name="variation",
        title="Attention variation",
        reading=f"Seeds differ most at {most['point']}, in layer {most['layer']}: by "
        f"{most['variation']:.3g}, where random patterns differ by {most['random_baseline']:.3g}.",
        data=data,
        plots=[
            dots(
                data[:_MOST_ROWS],
                {"mean over pairs of seeds, with its interval": "variation"},
                rows="{point}, layer {layer}",
                said="{point}, layer {layer}<br>{variation:.4g} [{low:.4g}, {high:.4g}]",
                hover="",
                unit="attention variation ‖A₁ − A₂‖²",
                bars=("low", "high"),
            )
        ],
        note=f"On one string, heads matched, as attention_variation does; {interval_words(data)}.",
    )


def _means(means: pd.DataFrame, groups: list[str]) -> list[Html]:
    if means.empty:
        return [element("p", "No run has returned a number.")]
    shown = means[:_MOST_MEANS]
    counted, cells = means_shown(shown)
    labels = zip(_names(shown, groups), shown["metric"], strict=True)
    rows = [[label, str(metric), *row] for (label, metric), row in zip(labels, cells, strict=True)]
    columns = ("point", "metric", *counted)
    left_out = (
        f"; {len(means) - len(shown):,} more are in the data" if len(means) > len(shown) else ""
    )
    caption = f"Means over seeds, with {interval_words(means)}; and "
    caption += f"{again_words(means)}{left_out}"
    made = table(caption, columns, rows, numeric=range(2, len(columns)), sortable=True)
    link = element("div", csv_link(means, "means"), class_="tools")
    return [element("details", element("summary", f"All {len(rows):,} means"), made), link]


def _errors(status: SweepStatus) -> list[Html]:
    if not status.errors:
        return [element("p", "No run has failed.")]
    rows = [(error, f"{number:,}") for error, number in status.errors[:_MOST_ERRORS]]
    more = len(status.errors) - len(rows)
    caption = "Errors, the most frequent first" + (
        f"; {more:,} more kinds are left out" if more else ""
    )
    retry = command("sweep", "resume", status.folder.as_posix(), "--retry-failed")
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
