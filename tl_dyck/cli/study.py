"""``tl-dyck study`` and ``tl-dyck report``: the main job, and its report once more."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.padding import Padding
from rich.text import Text

from tl_dyck.cli.answers import answer
from tl_dyck.cli.early import known_family, known_task, study_folder
from tl_dyck.cli.options import (
    Address,
    Backend,
    Device,
    Jobs,
    Out,
    RetryFailed,
    Steps,
    Task,
    names,
    out_file,
    parse_seeds,
    usable_device,
)
from tl_dyck.cli.terminal import console, say_note, say_path, table

if TYPE_CHECKING:
    from tl_dyck.runs import RunOptions
    from tl_dyck.studies import Study

_SHOWN = (
    ("accuracy_after_close", ".1%"),
    ("long_accuracy_after_close", ".1%"),
    ("accuracy", ".1%"),
    ("entropy_gap", ".3f"),
)


def study(
    task: Task = "dyck-2-4",
    families: Annotated[
        str | None,
        typer.Option(
            metavar="NAMES",
            help="Names, separated by commas. \\[default: gpt,gpt-linear,minimal-onehot]",
        ),
    ] = None,
    seeds: Annotated[
        str, typer.Option(metavar="LIST", help='How many ("8"), or which ("0-7", "0,3,5").')
    ] = "8",
    steps: Steps = None,
    out: Out = Path("results/study"),
    jobs: Jobs = None,
    backend: Backend = "loky",
    address: Address = None,
    retry_failed: RetryFailed = False,
    device: Device = None,
) -> None:
    """Train families with several seeds, probe every model, and write a [bold]report.html[/bold].

    What is already in the folder is kept: an interrupted study goes on where it stopped, in any
    number of processes at a time. [bold]tl-dyck sweep status FOLDER[/bold] says how it stands.
    """
    known_task(task)
    known_family(*names(families or ""))
    from tl_dyck.report import write_report
    from tl_dyck.report.commands import with_steps
    from tl_dyck.studies import StudyConfig, run_study

    config = StudyConfig(task=task, seeds=parse_seeds(seeds))
    config = replace(config, training=with_steps(config.training, steps))
    if families is not None:
        config = replace(config, families=names(families))
    how: RunOptions = {
        "n_jobs": jobs,
        "backend": backend,
        "address": address,
        "retry_failed": retry_failed,
    }
    done = run_study(config, out, device=usable_device(device), **how)
    _say_study(done, write_report(done))


def report(
    results: Annotated[
        Path, typer.Argument(metavar="RESULTS", help="Folder of a study.", show_default=False)
    ],
    out: Annotated[
        Path | None, out_file("File to write. \\[default: report.html in that folder]")
    ] = None,
) -> None:
    """Write the report of a finished study again, without training."""
    folder = study_folder(results)
    from tl_dyck.report import write_report
    from tl_dyck.studies import load_study

    done = load_study(folder)
    _say_study(done, write_report(done, out))


def _say_study(study: Study, path: Path) -> None:
    """Print the three most interesting findings, a small table, and where the report is."""
    from tl_dyck.studies import findings  # brings TransformerLens, which other commands do without

    answer(findings=findings(study), summary=study.summary)
    out = console()
    chance = study.task.closing_chance(long=True)
    out.print()
    for number, finding in enumerate(findings(study)[:3], start=1):
        out.print(Text(f"{number}. {finding.title}", style="bold"))
        out.print(Padding(Text(finding.text), (0, 0, 1, 3)))
    rows = table(
        "family",
        "learned",
        "after close",
        "at length",
        "all",
        "entropy gap",
        "variation",
        right=range(1, 7),
    )
    variation = study.variation.groupby("family", sort=False)["variation"].max().to_dict()
    for family, facts in study.summary["families"].items():
        cells = [f"{facts[name]['mean']:{form}}" if name in facts else "–" for name, form in _SHOWN]
        cells.append(f"{variation[family]:.2f}" if family in variation else "–")
        rows.add_row(Text(family), f"{facts['reached']} of {facts['n']}", *cells)
    out.print(rows)
    say_note(
        "Means over seeds. Accuracy on closing brackets after a closing one, as trained and at "
        f"length (it takes a stack; guessing: {chance.constant:.0%}), and on all (copying the last "
        f"token: {study.task.closing_chance().copier:.0%}). entropy gap: nats per token; "
        "variation: of attention, in the layer that varies most."
    )
    say_path("Report", path)
