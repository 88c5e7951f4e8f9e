"""``tl-dyck ablate``: which heads matter."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.padding import Padding
from rich.text import Text

from tl_dyck.addresses import split_address
from tl_dyck.cli.answers import answer
from tl_dyck.cli.early import existing_models, known_task
from tl_dyck.cli.options import (
    Address,
    Backend,
    Device,
    Jobs,
    RetryFailed,
    out_folder,
    parse_seeds,
    usable_device,
    whole,
)
from tl_dyck.cli.saved import MODELS
from tl_dyck.cli.terminal import console, say_path, table

if TYPE_CHECKING:
    from tl_dyck.runs import RunOptions
    from tl_dyck.studies.ablation import Ablation

_Models = Annotated[
    list[str] | None,
    typer.Argument(metavar="MODEL...", help=MODELS, show_default=False),
]
_Task = Annotated[
    str | None,
    typer.Option(
        "--task",
        "-t",
        metavar="NAME",
        help="Strings of this task. \\[default: each model's own]",
    ),
]
_Out = Annotated[
    Path | None, out_folder("Folder. \\[default: ablation in the study's, or in results]")
]
_Steps = Annotated[
    int | None,
    typer.Option(
        metavar="N",
        help="Steps per penalty and per head left out; 0: no fine-tuning. \\[default: 60]",
        callback=whole(),
    ),
]
_Experiment = Annotated[
    bool,
    typer.Option(
        "--experiment", help="Train 2- and 3-layer models with 4 heads first, and ablate those."
    ),
]


def ablate(
    models: _Models = None,
    task: _Task = None,
    out: _Out = None,
    steps: _Steps = None,
    experiment: _Experiment = False,
    seeds: Annotated[str, typer.Option(metavar="LIST", help="Seeds of the experiment.")] = "10",
    jobs: Jobs = None,
    backend: Backend = "loky",
    address: Address = None,
    retry_failed: RetryFailed = False,
    device: Device = None,
) -> None:
    """Find the heads that matter: disable each while all else stays, and again while all adapts.

    Models that are done are kept: an interrupted call goes on with the others.

    For example: [bold]tl-dyck ablate results/study:gpt[/bold]
    """
    existing_models(*(models or ()))
    known_task(task)
    from tl_dyck.report import write_report
    from tl_dyck.studies.ablation import AblateConfig, ablate_runs, ablate_trained

    device = usable_device(device)
    chosen = parse_seeds(seeds) if experiment else None
    if bool(models) == experiment:
        raise ValueError("give saved models, or --experiment with none")
    config = AblateConfig()
    if steps is not None:
        tuned = config.finetune and replace(config.finetune, steps=steps) if steps else None
        config = replace(config, finetune=tuned, leave_one_out=tuned)
    if out is None:
        places = {split_address(model)[0] for model in models or ()}
        studies = [place for place in places if (place / "results.json").exists()]
        one = len(places) == len(studies) == 1
        out = studies[0] / "ablation" if one else Path("results", "ablation")
    how: RunOptions = {
        "n_jobs": jobs,
        "backend": backend,
        "address": address,
        "retry_failed": retry_failed,
    }
    if chosen is not None:
        tasks = ("dyck-2-4", "dyck-2-4-prefix") if task is None else (task,)
        found = ablate_trained(out, seeds=chosen, tasks=tasks, config=config, **how)
    else:
        found = ablate_runs(models or (), out, task=task, config=config, device=device, **how)
    _say_ablation(found, write_report(found))


def _say_ablation(found: Ablation, path: Path) -> None:
    """Print the answers, a few heads, and where the page is."""
    answer(answers=found.answers, heads=found.comparison.heads)
    out = console()
    for question in dict.fromkeys(each.question for each in found.answers):
        out.print(Text(question, style="bold"))
        for each in found.answers:
            if each.question == question:
                out.print(Padding(Text(f"{each.group}: {each.text}"), (0, 0, 0, 2)))
        out.print()
    _say_heads(found)
    say_path("Report", path)


def _say_heads(found: Ablation) -> None:
    """The heads of a few models; of many, only where to find them."""
    heads = found.comparison.heads
    if heads["model"].nunique() > 3:
        return
    columns = [
        name
        for name in ("zero", "mean", "gates", "leave-one-out", "stack-likeness", "entropy")
        if name in heads
    ]
    rows = table("model", "layer", "head", *columns, right=range(1, 3 + len(columns)))
    for _, row in heads.iterrows():
        cells = ["–" if row[name] != row[name] else f"{row[name]:.3f}" for name in columns]
        rows.add_row(Text(str(row["model"])), str(row["layer"]), str(row["head"]), *cells)
    console().print(rows)
