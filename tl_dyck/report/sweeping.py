"""Sweeps in a terminal."""

from __future__ import annotations

import contextlib
from pathlib import Path
from typing import Any

import typer
from rich.text import Text

from tl_dyck.files import ensure_folder, write_bytes
from tl_dyck.machine import check_device
from tl_dyck.report.terminal import console, say_note, say_path, table
from tl_dyck.runs import aggregate, load_results, load_sweep, merge_sweeps, run_sweep, sweep_status
from tl_dyck.runs.execute import check_points
from tl_dyck.runs.experiments import as_experiment
from tl_dyck.runs.results import columns_of
from tl_dyck.runs.spec import SweepError
from tl_dyck.runs.store import Store
from tl_dyck.runs.trackers import wandb_tracker

__all__ = ["go", "say_merge", "say_plan", "say_results", "say_status"]

_ROWS = 12  # values of a parameter, or kinds of errors, that are shown
_POINTS = 40  # groups of the table of results
_SHOWN = ("accuracy", "long_accuracy", "entropy_gap", "balance_violation", "learned")


def go(file: Path | None, folder: Path, *, wandb: str | None, device: str | None, **options: Any) -> None:
    """Run a sweep, from a file or as a folder has it, and say how it stands; exit code 1 if runs failed."""
    check_device(device)
    sweep = load_sweep(file) if file is not None else Store.open(folder).plan()[0]
    with contextlib.ExitStack() as stack:
        on_result = stack.enter_context(wandb_tracker(wandb)) if wandb is not None else None
        done = run_sweep(sweep, folder, device=device, on_result=on_result, **options)
    parts = [f"{done.done:,} of {done.total:,} runs done"]
    parts += [f"{done.failed:,} failed"] * bool(done.failed)
    parts += [f"{done.elsewhere:,} left to other processes"] * bool(done.elsewhere)
    console().print(Text(f"{', '.join(parts)}; {done.made:,} of them now, in {done.seconds:.0f} s."))
    if done.failed:
        say_note(f"tl-dyck sweep status {folder}: why; tl-dyck sweep resume {folder} --retry-failed: try them again.")
    say_note(f"tl-dyck sweep results {folder}: means over seeds.")
    say_path("Runs", done.folder)
    if done.failed:
        raise typer.Exit(1)


def say_plan(file: Path) -> None:
    """What a sweep would run, after every point has been checked."""
    sweep = load_sweep(file)
    check_points(sweep, *as_experiment(sweep.experiment))
    n_seeds = len(sweep.all_seeds)
    out = console()
    out.print(
        Text(
            f"{sweep.n_points:,} points × {n_seeds:,} seeds = {sweep.n_points * n_seeds:,} runs of {sweep.experiment!r}"
        )
    )
    rows = table("parameter", "values")
    for name, value in sweep.common.items():
        rows.add_row(Text(name), Text(str(value)))
    for name in sweep.axes:
        values = list(dict.fromkeys(str(point.get(name, "–")) for point in sweep.points()))
        more = f", … ({len(values):,} values)" if len(values) > _ROWS else ""
        rows.add_row(Text(name), Text(", ".join(values[:_ROWS]) + more))
    out.print(rows)


def say_status(folder: Path) -> None:
    """How a sweep stands, on one screen."""
    status = sweep_status(folder)
    out = console()
    counts = ", ".join(f"{number:,} {name}" for name, number in status.counts.items() if number)
    out.print(Text(f"{status.total:,} runs: {counts}", style="bold"))
    kinds = [name for name, number in status.counts.items() if number]
    for name, values in status.axes.items():
        rows = table(name, *kinds, right=range(1, len(kinds) + 1))
        for value, found in list(values.items())[:_ROWS]:
            rows.add_row(Text(value), *(f"{found.get(kind, 0):,}" for kind in kinds))
        out.print()
        out.print(rows)
        if len(values) > _ROWS:
            say_note(f"… and {len(values) - _ROWS:,} more values")
    if status.errors:
        rows = table("runs", "error", right=(0,))
        for error, number in status.errors[:_ROWS]:
            rows.add_row(f"{number:,}", Text(error))
        out.print()
        out.print(rows)
        if len(status.errors) > _ROWS:
            say_note(f"… and {len(status.errors) - _ROWS:,} more kinds")
        say_note("Tracebacks are in runs/*/*.failed.json.")
    if status.corrupt:
        say_note(f"{status.corrupt:,} damaged records were set aside (runs/*/*.corrupt); their runs are done again.")
    if status.others:
        say_note(f"{status.others:,} further runs are of earlier sweeps in this folder.")


def say_results(folder: Path, metrics: str | None, by: str | None, out: Path | None) -> None:
    """Means over seeds; or all runs into a file."""
    results = load_results(folder)
    if out is not None:
        ensure_folder(out.parent)
        if out.suffix == ".parquet":
            results.to_parquet(out, index=False)
        elif out.suffix == ".csv":
            write_bytes(out, results.to_csv(index=False).encode())
        else:
            raise SweepError(f"results go to a file that ends with .parquet or .csv, not {str(out)!r}")
        say_path(f"{len(results):,} runs", out)
        return
    if not len(results):
        console().print("No run has ended yet.")
        return
    wanted = _names(metrics)
    if wanted is None:
        wanted = [name for name in _SHOWN if name in columns_of(results)[1]] or None
    means = aggregate(results, wanted, by=_names(by))
    if means.empty:
        console().print("No run has returned a number.")
        return
    groups = [str(name) for name in means.columns[: list(means.columns).index("metric")]]
    screen = console()
    for metric, found in means.groupby("metric", sort=False):
        rows = table(*groups, "seeds", str(metric), "95 % interval", right=range(len(groups), len(groups) + 2))
        for _, row in found[:_POINTS].iterrows():
            seeds = f"{row['n']}" + (f" (+ {row['failed']} failed)" if row["failed"] else "")
            interval = "" if row["low"] != row["low"] else f"[{row['low']:.4g}, {row['high']:.4g}]"
            mean = "–" if row["mean"] != row["mean"] else f"{row['mean']:.4g}"
            rows.add_row(*(Text(str(row[name])) for name in groups), seeds, mean, interval)
        screen.print(rows)
        screen.print()
    if len(found) > _POINTS:
        say_note(f"{len(found) - _POINTS:,} more groups: --by makes fewer, --out writes all runs to a file.")
    say_note("Means over seeds, with bootstrap intervals.")


def say_merge(into: Path, folders: list[Path]) -> None:
    """Merge, and say what was copied."""
    done = merge_sweeps(into, folders)
    console().print(Text(f"{done.copied:,} runs copied, {done.there:,} were there already."))
    if done.conflicts:
        say_note(
            f"{len(done.conflicts):,} were there with other metrics, which stay: {', '.join(done.conflicts[:5])}"
            f"{', …' if len(done.conflicts) > 5 else ''}. Was something changed that does not define a run?"
        )
    if done.skipped:
        shown = ", ".join(str(path) for path in done.skipped[:3]) + ", …" * (len(done.skipped) > 3)
        say_note(f"{len(done.skipped):,} links (or pipes, devices) were skipped, neither followed nor copied: {shown}")
    say_path("Runs", into)


def _names(text: str | None) -> list[str] | None:
    if text is None:
        return None
    return [name.strip() for name in text.split(",") if name.strip()]
