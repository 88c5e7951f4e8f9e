"""``tl-dyck study`` and ``tl-dyck report``: the main job, and its report once more."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from rich.padding import Padding
from rich.text import Text

from tl_dyck.cli.answers import Answer, Rows, Saved
from tl_dyck.cli.completion import named
from tl_dyck.cli.options import (
    Device,
    Out,
    Runs,
    Steps,
    Task,
    argument,
    names,
    option,
    out_file,
    parse_seeds,
    study_folder,
    usable_device,
)
from tl_dyck.cli.settings import configured, settings_of

if TYPE_CHECKING:
    from tl_dyck.studies import Study

_COLUMNS = {
    "family": "{family}",
    "learned": "{reached} of {n}",
    "after close": "{accuracy_after_close[mean]:.1%}",
    "at length": "{long_accuracy_after_close[mean]:.1%}",
    "all": "{accuracy[mean]:.1%}",
    "entropy gap": "{entropy_gap[mean]:.3f}",
    "variation": "{variation:.2f}",
}


def study(
    runs: Runs,
    task: Task = "dyck-2-4",
    families: Annotated[
        str | None,
        option(
            "NAMES",
            "Names, separated by commas. \\[default: gpt,gpt-linear,minimal-onehot]",
            autocompletion=named("models"),
        ),
    ] = None,
    seeds: Annotated[str, option("LIST", 'How many ("8"), or which ("0-7", "0,3,5").')] = "8",
    steps: Steps = None,
    out: Out = Path("results/study"),
    settings: settings_of("training.learning_rate=3e-3") = None,  # type: ignore[valid-type]
    device: Device = None,
) -> Answer:
    """Train families with several seeds, probe every model, and write a [bold]report.html[/bold].

    What is already in the folder is kept: an interrupted study goes on where it stopped, in any
    number of processes at a time. [bold]tl-dyck sweep status FOLDER[/bold] says how it stands.
    """
    from tl_dyck.report import write_report
    from tl_dyck.report.commands import with_steps
    from tl_dyck.studies import StudyConfig, run_study

    config = StudyConfig(task=task, seeds=parse_seeds(seeds))
    config = replace(config, training=with_steps(config.training, steps))
    if families is not None:
        config = replace(config, families=names(families))
    config = configured(config, settings)
    done = run_study(config, out, device=usable_device(device), **runs.how)
    yield from _said(done)
    yield Saved("Report", write_report(done))


def report(
    results: Annotated[Path, argument("RESULTS", "Folder of a study.")],
    out: Annotated[
        Path | None, out_file("File to write. \\[default: report.html in that folder]")
    ] = None,
) -> Answer:
    """Write the report of a finished study again, without training."""
    folder = study_folder(results)
    from tl_dyck.report import write_report
    from tl_dyck.studies import load_study

    done = load_study(folder)
    yield from _said(done)
    yield Saved("Report", write_report(done, out))


def _said(study: Study) -> Answer:
    """The three most interesting findings, and a small table."""
    from tl_dyck.studies import findings  # brings TransformerLens, which other commands do without

    found = findings(study)
    yield {"findings": found, "summary": study.summary}
    yield Text()
    for number, finding in enumerate(found[:3], start=1):
        yield Text(f"{number}. {finding.title}", style="bold")
        yield Padding(Text(finding.text), (0, 0, 1, 3))
    variation = study.variation.groupby("family", sort=False)["variation"].max().to_dict()
    rows = [
        {"family": family, "variation": variation.get(family), **facts}
        for family, facts in study.summary["families"].items()
    ]
    yield Rows("families", rows, _COLUMNS)
    chance = study.task.closing_chance(long=True)
    yield (
        "Means over seeds. Accuracy on closing brackets after a closing one, as trained and at "
        f"length (a stack is needed; guessing: {chance.constant:.0%}), and on all (copying the "
        f"last token: {study.task.closing_chance().copier:.0%}). entropy gap: nats per token; "
        "variation: of attention, in the layer that varies most."
    )
