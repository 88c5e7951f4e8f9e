"""``tl-dyck sweep``: thousands of runs, and what came of them."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
import typer.core
from rich.text import Text

from tl_dyck.cli.answers import answer, answers
from tl_dyck.cli.early import existing
from tl_dyck.cli.options import (
    Address,
    Backend,
    Jobs,
    RetryFailed,
    folder_to_write,
    names,
    out_file,
    out_folder,
    usable_device,
)
from tl_dyck.cli.terminal import Command, Group, console, say_note, say_path, table

if TYPE_CHECKING:
    import pandas as pd

    from tl_dyck.runs import Sweep

_ROWS = 12  # values of a parameter, or kinds of errors, that are shown
_POINTS = 40  # groups of the table of results
_SHOWN = (
    "accuracy",
    "long_accuracy",
    "long_accuracy_after_close",
    "entropy_gap",
    "balance_violation",
    "learned",
)


class _SweepCommands(Group):
    """``tl-dyck sweep FILE`` is short for ``tl-dyck sweep run FILE``."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        if args and args[0] not in self.commands and args[0] not in ("-h", "--help"):
            args = ["run", *args]
        found: list[str] = super().parse_args(ctx, args)
        return found


sweep_app = typer.Typer(
    cls=_SweepCommands,
    no_args_is_help=True,
    rich_markup_mode="rich",
    help="Thousands of runs that survive: [bold]tl-dyck sweep FILE.yaml[/bold], "
    "then status, resume, results, merge.",
)

_Folder = Annotated[
    Path, typer.Argument(metavar="FOLDER", help="Folder of a sweep.", show_default=False)
]
_Device = Annotated[
    str | None, typer.Option(metavar="NAME", help='"cpu", "cuda", … for experiments with models.')
]


def _carry_out(
    load: Callable[[], Any],
    folder: Path,
    *,
    jobs: Jobs = None,
    backend: Backend = "loky",
    address: Address = None,
    retry_failed: RetryFailed = False,
    records_only: Annotated[
        bool, typer.Option("--records-only", help="Do not keep models and patterns.")
    ] = False,
    no_wait: Annotated[
        bool,
        typer.Option("--no-wait", help="Do not wait for runs that other processes are at work on."),
    ] = False,
    device: _Device = None,
) -> None:
    """Run a sweep in a folder, and say how it stands; exit code 1 if runs failed."""
    from tl_dyck.runs import run_sweep

    usable_device(device)
    done = run_sweep(
        load(),
        folder,
        n_jobs=jobs,
        backend=backend,
        address=address,
        retry_failed=retry_failed,
        keep_files=not records_only,
        wait=not no_wait,
        device=device,
    )
    counts = ("total", "done", "failed", "elsewhere", "made", "seconds")
    answer(**{name: getattr(done, name) for name in counts})
    parts = [f"{done.done:,} of {done.total:,} runs done"]
    parts += [f"{done.failed:,} failed"] * bool(done.failed)
    parts += [f"{done.elsewhere:,} left to other processes"] * bool(done.elsewhere)
    console().print(
        Text(f"{', '.join(parts)}; {done.made:,} of them now, in {done.seconds:.0f} s.")
    )
    if done.failed:
        say_note(
            f"tl-dyck sweep status {folder}: why; "
            f"tl-dyck sweep resume {folder} --retry-failed: try them again."
        )
    say_note(f"tl-dyck sweep results {folder}: means over seeds.")
    say_path("Runs", done.folder)
    if done.failed:
        raise typer.Exit(1)


def _with_its_options(command: Callable[..., None]) -> Callable[..., None]:
    """Gives a command the options of `_carry_out`, in place of ``**options``.

    Its own keyword-only ones stay last.
    """
    own = inspect.signature(command, eval_str=True).parameters.values()
    shared = inspect.signature(_carry_out, eval_str=True).parameters.values()
    parts = [
        *(parameter for parameter in own if parameter.kind is parameter.POSITIONAL_OR_KEYWORD),
        *(parameter for parameter in shared if parameter.kind is parameter.KEYWORD_ONLY),
        *(parameter for parameter in own if parameter.kind is parameter.KEYWORD_ONLY),
    ]
    # typer reads options from it
    command.__signature__ = inspect.Signature(parts)  # type: ignore[attr-defined]
    return command


@sweep_app.command(cls=Command)
@answers
@_with_its_options
def run(
    file: Annotated[
        Path, typer.Argument(metavar="FILE", help="The sweep, in YAML.", show_default=False)
    ],
    out: Annotated[Path | None, out_folder("Folder. \\[default: results/<FILE's name>]")] = None,
    *,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Check every point, say what would be run.")
    ] = False,
    **options: Any,
) -> None:
    """Carry out every run that is not done yet.

    Start it again after anything; start it in several processes at once.

    A sweep is a YAML file: [bold]grid[/bold] (every combination), [bold]list[/bold] (points one by
    one), [bold]common[/bold], [bold]seeds[/bold].
    """
    existing(file)
    from tl_dyck.runs import load_sweep

    if dry_run:
        _say_plan(load_sweep(file))
    else:
        _carry_out(lambda: load_sweep(file), out or Path("results") / file.stem, **options)


@sweep_app.command(cls=Command)
@answers
@_with_its_options
def resume(folder: _Folder, **options: Any) -> None:
    """Go on with the sweep of a folder."""
    existing(folder)
    from tl_dyck.runs.store import Store

    _carry_out(lambda: Store.open(folder).plan()[0], folder, **options)


def _say_plan(sweep: Sweep) -> None:
    """Print the runs that a sweep would make, after every point has been checked."""
    from tl_dyck.runs.execute import check_points
    from tl_dyck.runs.experiments import as_experiment

    check_points(sweep, *as_experiment(sweep.experiment))
    answer(size=sweep.size, experiment=sweep.experiment, common=sweep.common, axes=sweep.axes)
    out = console()
    out.print(Text(f"{sweep.size} of {sweep.experiment!r}"))
    rows = table("parameter", "values")
    for name, value in sweep.common.items():
        rows.add_row(Text(name), Text(str(value)))
    for name in sweep.axes:
        values = list(dict.fromkeys(str(point.get(name, "–")) for point in sweep.points()))
        more = f", … ({len(values):,} values)" if len(values) > _ROWS else ""
        rows.add_row(Text(name), Text(", ".join(values[:_ROWS]) + more))
    out.print(rows)


@sweep_app.command(cls=Command)
@answers
def status(folder: _Folder) -> None:
    """Count runs that are done, failed, running, waiting; by parameter, with the errors."""
    existing(folder)
    from tl_dyck.runs import sweep_status

    found = sweep_status(folder)
    answer(
        total=found.total,
        counts=found.counts,
        axes=found.axes,
        errors=[{"error": error, "runs": number} for error, number in found.errors],
        corrupt=found.corrupt,
        of_earlier_sweeps=found.others,
    )
    out = console()
    kinds = [name for name, number in found.counts.items() if number]
    out.print(
        Text(
            f"{found.total:,} runs: "
            f"{', '.join(f'{found.counts[kind]:,} {kind}' for kind in kinds)}",
            style="bold",
        )
    )
    for name, values in found.axes.items():
        rows = table(name, *kinds, right=range(1, len(kinds) + 1))
        for value, numbers in list(values.items())[:_ROWS]:
            rows.add_row(Text(value), *(f"{numbers.get(kind, 0):,}" for kind in kinds))
        out.print()
        out.print(rows)
        if len(values) > _ROWS:
            say_note(f"… and {len(values) - _ROWS:,} more values")
    if found.errors:
        rows = table("runs", "error", right=(0,))
        for error, number in found.errors[:_ROWS]:
            rows.add_row(f"{number:,}", Text(error))
        out.print()
        out.print(rows)
        if len(found.errors) > _ROWS:
            say_note(f"… and {len(found.errors) - _ROWS:,} more kinds")
        say_note("Tracebacks are in runs/*/*.failed.json.")
    if found.corrupt:
        say_note(
            f"{found.corrupt:,} damaged records were set aside (runs/*/*.corrupt); "
            "their runs are done again."
        )
    if found.others:
        say_note(f"{found.others:,} further runs are of other sweeps in this folder.")


@sweep_app.command(cls=Command)
@answers
def results(
    folder: _Folder,
    metrics: Annotated[
        str | None,
        typer.Option(metavar="NAMES", help="Names, separated by commas. \\[default: all]"),
    ] = None,
    by: Annotated[
        str | None,
        typer.Option(metavar="NAMES", help="Parameters to group by. \\[default: those that vary]"),
    ] = None,
    out: Annotated[Path | None, out_file("One row a run: .parquet or .csv.")] = None,
) -> None:
    """Means over seeds with 95 % bootstrap intervals; or the table of all runs as a file."""
    existing(folder)
    if out is not None and out.suffix not in (".parquet", ".csv"):
        raise ValueError(f"results go to a file that ends with .parquet or .csv, not {str(out)!r}")
    from tl_dyck.runs import aggregate, load_results
    from tl_dyck.runs.results import columns_of

    found = load_results(folder)
    if out is not None:
        _save_results(found, out)
    elif not len(found):
        console().print("No run has ended yet.")
    else:
        own = [name for name in _SHOWN if name in columns_of(found)[1]] or None
        wanted = own if metrics is None else list(names(metrics))
        means = aggregate(found, wanted, by=None if by is None else list(names(by)))
        answer(means=means)
        if means.empty:
            console().print("No run has returned a number.")
        else:
            _say_means(means)


def _save_results(results: pd.DataFrame, out: Path) -> None:
    from tl_dyck.files import write_output

    as_text = out.suffix == ".csv"
    write_output(
        out, results.to_csv(index=False).encode() if as_text else results.to_parquet(index=False)
    )
    answer(rows=len(results))
    console().print(Text(f"{len(results):,} runs"))
    say_path("File", out)


def _say_means(means: pd.DataFrame) -> None:
    """Print a table for each metric."""
    groups = [str(name) for name in means.columns[: list(means.columns).index("metric")]]
    screen = console()
    pooled = list(dict.fromkeys(text for text in means["pooled"] if text))
    counts = ("seeds", "runs") if pooled else ("seeds",)
    for metric, found in means.groupby("metric", sort=False):
        rows = table(
            *groups,
            *counts,
            str(metric),
            "95 % interval",
            right=range(len(groups), len(groups) + len(counts) + 1),
        )
        for _, row in found[:_POINTS].iterrows():
            numbers = [f"{row['seeds']}", f"{row['n']}"][: len(counts)]
            numbers[-1] += f" (+ {row['failed']} failed)" if row["failed"] else ""
            interval = "" if row["low"] != row["low"] else f"[{row['low']:.4g}, {row['high']:.4g}]"
            mean = "–" if row["mean"] != row["mean"] else f"{row['mean']:.4g}"
            rows.add_row(*(Text(str(row[name])) for name in groups), *numbers, mean, interval)
        screen.print(rows)
        screen.print()
    if len(found) > _POINTS:
        say_note(
            f"{len(found) - _POINTS:,} more groups: --by makes fewer, "
            "--out writes all runs to a file."
        )
    for text in pooled:
        say_note(f"{text}: a mean is over all of them; --by keeps them apart.")
    say_note("Means over seeds, with bootstrap intervals over seeds.")


@sweep_app.command(cls=Command)
@answers
def report(
    folder: _Folder,
    out: Annotated[
        Path | None, out_file("File to write. \\[default: sweep.html in that folder]")
    ] = None,
) -> None:
    """Write a page of the sweep: how it stands, means over seeds, figures of metrics, errors."""
    existing(folder)
    from tl_dyck.report import write_report
    from tl_dyck.runs import sweep_status

    say_path("Report", write_report(sweep_status(folder), out))


@sweep_app.command(cls=Command)
@answers
def merge(
    into: Annotated[Path, folder_to_write("INTO", "A folder, new or not.")],
    folders: Annotated[
        list[Path], typer.Argument(metavar="FOLDER...", help="What to copy.", show_default=False)
    ],
) -> None:
    """Copy the runs of several machines' folders into one."""
    existing(*folders)
    from tl_dyck.runs import merge_sweeps

    done = merge_sweeps(into, folders)
    facts = {"conflicts": done.conflicts, "skipped": done.skipped}
    answer(copied=done.copied, there=done.there, **facts)
    console().print(Text(f"{done.copied:,} runs copied, {done.there:,} were there already."))
    if done.conflicts:
        say_note(
            f"{len(done.conflicts):,} were there with other metrics, which stay: "
            f"{', '.join(done.conflicts[:5])}"
            f"{', …' if len(done.conflicts) > 5 else ''}. "
            "Was something changed that does not define a run?"
        )
    if done.skipped:
        shown = ", ".join(str(path) for path in done.skipped[:3]) + ", …" * (len(done.skipped) > 3)
        say_note(
            f"{len(done.skipped):,} links (or pipes, devices) were skipped, "
            f"neither followed nor copied: {shown}"
        )
    say_path("Runs", into)
