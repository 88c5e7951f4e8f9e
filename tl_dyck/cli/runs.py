"""``tl-dyck sweep``: thousands of runs, and what came of them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, final

import typer
from rich.text import Text

from tl_dyck.cli.answers import Answer, Command, Group, Next, Saved, answers, text_table
from tl_dyck.cli.options import (
    Runs,
    argument,
    existing,
    flag,
    folder_to_write,
    names,
    option,
    out_file,
    out_folder,
    parse_seeds,
    refuse_twice,
    usable_device,
    whole,
)
from tl_dyck.kit.suggest import command

if TYPE_CHECKING:
    import pandas as pd

    from tl_dyck.runs import RunOptions

_ROWS = 12  # values of a parameter, or kinds of errors, that are shown
_ESTIMATED = 20_000  # runs of a sweep of which it is said how long the rest will take
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

_Folder = Annotated[Path, argument("FOLDER", "Folder of a sweep.")]


@final
@dataclass(frozen=True, kw_only=True)
class _Carried:
    """The options of carrying out a sweep, besides those of `Runs`."""

    records_only: Annotated[bool, flag("--records-only", "Do not keep models and patterns.")] = (
        False
    )
    no_wait: Annotated[
        bool, flag("--no-wait", "Do not wait for runs that other processes are at work on.")
    ] = False
    device: Annotated[
        str | None, option("NAME", '"cpu", "cuda", … for experiments with models.')
    ] = None
    limit: Annotated[
        int | None, option("N", "Begin at most so many runs; the others later.", check=whole(1))
    ] = None


def _carry_out(load: Callable[[], Any], folder: Path, runs: Runs, more: _Carried) -> Answer:
    """Run a sweep in a folder, and say how it stands; exit status 1 if runs failed."""
    from tl_dyck.runs import run_sweep

    usable_device(more.device)
    how: RunOptions = {
        **runs.how,
        "keep_files": not more.records_only,
        "wait": not more.no_wait,
        "limit": more.limit,
    }
    done = run_sweep(load(), folder, device=more.device, **how)
    counts = ("total", "done", "failed", "elsewhere", "made", "seconds")
    yield {name: getattr(done, name) for name in counts}
    parts = [f"{done.done:,} of {done.total:,} runs done"]
    parts += [f"{done.failed:,} failed"] * bool(done.failed)
    rest = "left" if more.limit else "left to other processes"
    parts += [f"{done.elsewhere:,} {rest}"] * bool(done.elsewhere)
    yield Text(f"{', '.join(parts)}; {done.made:,} of them now, in {done.seconds:.0f} s.")
    if done.failed:
        yield Next("Why", command("sweep", "status", folder))
        yield Next("Try them again", command("sweep", "resume", folder, "--retry-failed"))
    yield Next("Means over seeds", command("sweep", "results", folder))
    yield Saved("Runs", done.folder)
    if done.failed:
        raise typer.Exit(1)


@sweep_app.command(cls=Command)
@answers
def run(
    file: Annotated[Path, argument("FILE", "The sweep, in YAML.")],
    runs: Runs,
    more: _Carried,
    out: Annotated[Path | None, out_folder("Folder. \\[default: results/<FILE's name>]")] = None,
    dry_run: Annotated[
        bool, flag("--dry-run", "Check every point, say what would be run.")
    ] = False,
    settings: Annotated[
        list[str] | None,
        option(
            "NAME=VALUE[,VALUE…]",
            "Set a parameter of all points; several values are an axis. May be repeated.",
            "--set",
        ),
    ] = None,
    seeds: Annotated[
        str | None, option("SEEDS", "8, 0-7 or 0,3,5. \\[default: the file's]")
    ] = None,
) -> Answer:
    """Carry out every run that is not done yet.

    Start it again after anything; start it in several processes at once.

    A sweep is a YAML file: [bold]grid[/bold] (every combination), [bold]list[/bold] (points one by
    one), [bold]common[/bold], [bold]seeds[/bold].
    """
    existing(file)
    from tl_dyck.runs import load_sweep
    from tl_dyck.runs.spec import read_setting

    refuse_twice("--set", settings or ())
    changes = dict(map(read_setting, settings or ())), seeds and parse_seeds(seeds)
    if not dry_run:
        folder = out or Path("results") / file.stem
        yield from _carry_out(lambda: load_sweep(file).with_settings(*changes), folder, runs, more)
        return
    sweep = load_sweep(file).with_settings(*changes)
    facts = {"size": sweep.size, "experiment": sweep.experiment}
    yield {**facts, "common": sweep.common, "axes": sweep.axes}
    yield Text(f"{sweep.size} of {sweep.experiment!r}")
    cells = [[name, str(value)] for name, value in sweep.common.items()]
    for name in [name for name in sweep.parameters if name not in sweep.common]:
        values = list(dict.fromkeys(str(point.get(name, "–")) for point in sweep.points()))
        more_values = f", … ({len(values):,} values)" if len(values) > _ROWS else ""
        cells.append([name, ", ".join(values[:_ROWS]) + more_values])
    yield text_table(("parameter", "values"), cells)
    # After what the file says: a field of a model is checked by TransformerLens' class, and to
    # import that takes seconds. An experiment that nobody knows is refused before.
    from tl_dyck.runs.experiments import as_experiment, check_points

    check_points(sweep, *as_experiment(sweep.experiment))
    yield "Every point can be run."


@sweep_app.command(cls=Command)
@answers
def resume(folder: _Folder, runs: Runs, more: _Carried) -> Answer:
    """Go on with the sweep of a folder."""
    existing(folder)
    from tl_dyck.runs.store import Store

    yield from _carry_out(lambda: Store.at(folder).plan()[0], folder, runs, more)


@sweep_app.command(cls=Command)
@answers
def status(folder: _Folder) -> Answer:
    """Count runs that are done, failed, running, waiting; by parameter, with the errors."""
    existing(folder)
    from tl_dyck.runs import sweep_status

    found = sweep_status(folder)
    yield {
        "total": found.total,
        "counts": found.counts,
        "axes": found.axes,
        "errors": [{"error": error, "runs": number} for error, number in found.errors],
        "corrupt": found.corrupt,
        "of_earlier_sweeps": found.others,
    }
    kinds = [name for name, number in found.counts.items() if number]
    counts = ", ".join(f"{found.counts[kind]:,} {kind}" for kind in kinds)
    yield Text(f"{found.total:,} runs: {counts}", style="bold")
    for name, values in found.axes.items():
        cells = [
            [value, *(f"{numbers.get(kind, 0):,}" for kind in kinds)]
            for value, numbers in values.items()
        ]
        yield Text()
        yield text_table((name, *kinds), cells[:_ROWS])
        if len(cells) > _ROWS:
            yield f"… and {len(cells) - _ROWS:,} more values"
    yield from _left(folder) if found.done and found.elsewhere and found.total <= _ESTIMATED else ()
    if found.errors:
        cells = [[f"{number:,}", error] for error, number in found.errors]
        yield Text()
        yield text_table(("runs", "error"), cells[:_ROWS])
        if len(cells) > _ROWS:
            yield f"… and {len(cells) - _ROWS:,} more kinds"
        yield "Tracebacks are in runs/*/*.failed.json."
    if found.corrupt:
        yield (
            f"{found.corrupt:,} damaged records were set aside (runs/*/*.corrupt); "
            "their runs are done again."
        )
    if found.others:
        yield f"{found.others:,} further runs are of other sweeps in this folder."


def _left(folder: Path) -> Answer:
    """How long what is left will take, by point."""
    from tl_dyck.runs import time_left

    left = time_left(folder)
    spans = {
        name: [str(timedelta(seconds=round(each))) for each in left[name]]
        for name in ("seconds", "total")
    }
    heads = ("left", "a run", "of one worker")
    cells = [[str(cell) for cell in row] for row in left.assign(**spans).itertuples(index=False)]
    yield {"left": left}
    yield Text()
    yield text_table((*left.columns[:-3], *heads), cells[:_ROWS])
    yield f"About {timedelta(seconds=round(left['total'].sum()))} of one worker is left."


@sweep_app.command(cls=Command)
@answers
def results(
    folder: _Folder,
    metrics: Annotated[
        str | None, option("NAMES", "Names, separated by commas. \\[default: all]")
    ] = None,
    by: Annotated[
        str | None, option("NAMES", "Parameters to group by. \\[default: those that vary]")
    ] = None,
    out: Annotated[Path | None, out_file("One row a run: .parquet or .csv.")] = None,
) -> Answer:
    """Means over seeds, with intervals, also of as many others; or all runs as a file."""
    existing(folder)
    if out is not None and out.suffix not in (".parquet", ".csv"):
        raise ValueError(f"results go to a file that ends with .parquet or .csv, not {str(out)!r}")
    from tl_dyck.kit.files import write_output
    from tl_dyck.runs import aggregate, load_results
    from tl_dyck.runs.results import columns_of

    found = load_results(folder)
    if out is not None:
        as_text = out.suffix == ".csv"
        write_output(
            out, found.to_csv(index=False).encode() if as_text else found.to_parquet(index=False)
        )
        yield {"rows": len(found)}
        yield Text(f"{len(found):,} runs")
        yield Saved("File", out)
    elif not len(found):
        yield Text("No run has ended yet.")
    else:
        own = [name for name in _SHOWN if name in columns_of(found)[1]] or None
        wanted = own if metrics is None else _metrics(metrics, list(found))
        means = aggregate(found, wanted, by=None if by is None else list(names(by)))
        yield {"means": means}
        yield from _said(means) if len(means) else [Text("No run has returned a number.")]


def _metrics(text: str, known: Sequence[str]) -> list[str]:
    """Names of metrics with commas between; some have commas themselves, such as "dup:1,sub:1"."""
    found: list[str] = []
    parts = text.split(",")
    while parts:
        for most in range(len(parts), 0, -1):
            name = ",".join(parts[:most]).strip()
            if name in known or most == 1:
                found += [name] if name else []
                del parts[:most]
                break
    return found


def _said(means: pd.DataFrame) -> Answer:
    """A table for each metric."""
    from tl_dyck.estimates import again_words, interval_words
    from tl_dyck.runs.results import groups_of, means_shown, pooled_words

    groups = groups_of(means)
    columns, rows = means_shown(means)
    cells = means[groups].astype(str).to_numpy().tolist()
    for metric, found in means.reset_index(drop=True).groupby("metric", sort=False):
        named = [str(metric) if name == "mean" else name for name in columns]
        some = [[*cells[i], *rows[i]] for i in found.index[:_POINTS]]
        yield text_table((*groups, *named), some)
        yield Text()
    if len(found) > _POINTS:
        yield f"{len(found) - _POINTS:,} more groups: --by makes fewer, --out writes all to a file."
    yield from pooled_words(means)
    yield f"Means, with {interval_words(means)}; and {again_words(means)}."


@sweep_app.command(cls=Command)
@answers
def report(
    folder: _Folder,
    out: Annotated[
        Path | None, out_file("File to write. \\[default: sweep.html in that folder]")
    ] = None,
) -> Answer:
    """Write a page of the sweep: how it stands, means over seeds, figures of metrics, errors."""
    existing(folder)
    from tl_dyck.report import write_report
    from tl_dyck.runs import sweep_status

    yield Saved("Report", write_report(sweep_status(folder), out))


@sweep_app.command(cls=Command)
@answers
def merge(
    into: Annotated[Path, folder_to_write("INTO", "A folder, new or not.")],
    folders: Annotated[list[Path], argument("FOLDER...", "What to copy.")],
) -> Answer:
    """Copy the runs of several machines' folders into one."""
    existing(*folders)
    from tl_dyck.runs import merge_sweeps

    done = merge_sweeps(into, folders)
    yield {name: getattr(done, name) for name in ("copied", "unchanged", "conflicts", "skipped")}
    yield Text(f"{done.copied:,} runs copied, {done.unchanged:,} were there already.")
    if done.conflicts:
        yield (
            f"{len(done.conflicts):,} were there with other metrics, which stay: "
            f"{', '.join(done.conflicts[:5])}{', …' * (len(done.conflicts) > 5)}. "
            "Was something changed that does not define a run?"
        )
    if done.skipped:
        yield (
            f"{len(done.skipped):,} links (or pipes, devices) were skipped, neither followed nor "
            f"copied: {', '.join(map(str, done.skipped[:3]))}{', …' * (len(done.skipped) > 3)}"
        )
    yield Saved("Runs", into)
