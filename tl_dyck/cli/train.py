"""``tl-dyck tasks``, ``models`` and ``train``: what there is, and one family of it trained."""

from __future__ import annotations

import math
import shlex
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.text import Text

from tl_dyck.cli.answers import answer
from tl_dyck.cli.early import known_family, known_task
from tl_dyck.cli.options import (
    Device,
    Jobs,
    Steps,
    Task,
    one_seed,
    out_folder,
    parse_seeds,
    usable_device,
)
from tl_dyck.cli.terminal import console, say_note, say_path, table

if TYPE_CHECKING:
    from tl_dyck.training import TrainResult


def tasks() -> None:
    """List the tasks.

    For example: [bold]tl-dyck tasks --json[/bold]
    """
    from tl_dyck.tasks import load_task
    from tl_dyck.tasks import tasks as registry

    rows = table("task", "k", "D", "lengths", "long", "floor", "what it is", right=(1, 2, 5))
    listed: list[dict[str, Any]] = []
    for name, summary in registry.summaries().items():
        try:
            found = load_task(name)
        except ValueError:  # the summary says why it is unusable
            rows.add_row(name, "", "", "", "", "", Text(summary))
            listed.append({"name": name, "summary": summary})
            continue
        known = not math.isnan(found.entropy_floor)
        floor = {"entropy_floor": found.entropy_floor if known else None, "summary": summary}
        listed.append({**found.to_dict(), "name": name, **floor})
        lengths = f"{min(found.train_lengths)}–{max(found.train_lengths)}"
        far = f"{found.long_lengths[0]}–{found.long_lengths[1]}"
        size = [str(getattr(found, key, "–")) for key in ("n_types", "max_depth")]
        least = f"{found.entropy_floor:.3f}" if known else "–"
        rows.add_row(name, *size, lengths, far, least, Text(summary))
    answer(tasks=listed)
    console().print(rows)
    say_note("k: bracket types. D: largest depth. lengths: of training strings, in symbols.")
    say_note("long: lengths that test length generalisation.")
    say_note("floor: the least cross-entropy any model can reach, nats per token.")


def models(task: Task = "dyck-2-4") -> None:
    """List the model families, as they are for a task."""
    known_task(task)
    from tl_dyck.models import get_config
    from tl_dyck.models import models as registry
    from tl_dyck.tasks import load_task

    chosen = load_task(task)
    rows = table("family", "layers", "heads", "width", "what it is", right=(1, 2, 3))
    listed: list[dict[str, Any]] = []
    for name, summary in registry.summaries().items():
        try:
            config = get_config(name, chosen)
        except ValueError as error:
            rows.add_row(name, "", "", "", Text(f"{summary} (not for this task: {error})"))
            listed.append({"name": name, "summary": summary, "not_for_this_task": str(error)})
            continue
        sizes = {key: getattr(config, key) for key in ("n_layers", "n_heads", "d_model")}
        listed.append({"name": name, **sizes, "summary": summary})
        facts = (str(config.n_layers), str(config.n_heads), str(config.d_model))
        rows.add_row(name, *facts, Text(summary))
    answer(task=chosen.name, models=listed)
    console().print(rows)
    say_note("Any field can be changed in Python: get_config(family, task, n_layers=3, n_heads=4).")


def train(
    model: Annotated[
        str,
        typer.Argument(
            metavar="MODEL", help="A family, see [bold]tl-dyck models[/bold].", show_default=False
        ),
    ],
    task: Task = "dyck-2-4",
    seed: Annotated[
        int | None,
        typer.Option(metavar="N", help="Train this seed alone. \\[default: 0]", callback=one_seed),
    ] = None,
    seeds: Annotated[
        str | None, typer.Option(metavar="LIST", help='Or several: "8", "0-7", "0,3,5".')
    ] = None,
    steps: Steps = None,
    out: Annotated[Path | None, out_folder("Folder. \\[default: results/train/TASK/MODEL]")] = None,
    jobs: Jobs = None,
    device: Device = None,
) -> None:
    """Train one family; each seed is kept in a folder of its own and resumed if interrupted.

    For example: [bold]tl-dyck train gpt --seeds 8[/bold], or
    [bold]tl-dyck train minimal-onehot --task dyck-3-8 --seed 5[/bold]
    """
    known_family(model)
    known_task(task)
    from tl_dyck.models import get_config
    from tl_dyck.report.commands import with_steps
    from tl_dyck.training import TrainConfig, train_seeds
    from tl_dyck.training import train as train_one

    if seed is not None and seeds is not None:
        raise ValueError("give --seed or --seeds, not both")
    chosen = parse_seeds(seeds) if seeds is not None else (seed or 0,)
    config = get_config(model, task, device=usable_device(device))
    options = with_steps(TrainConfig(), steps)
    folder = out or Path("results", "train", task, model)
    if len(chosen) == 1:  # in this process, so that the bar shows loss and accuracy
        results = [
            train_one(
                config, task, seed=chosen[0], options=options, folder=folder / f"seed-{chosen[0]}"
            )
        ]
    else:
        results = train_seeds(
            config, task, seeds=chosen, options=options, folder=folder, n_jobs=jobs
        )
    _say_runs(results)
    say_path("Models", folder)
    say_note(f"Probe them: tl-dyck probe {shlex.quote(folder.as_posix())}")


def _say_runs(results: Sequence[TrainResult]) -> None:
    """Print a row for each seed."""
    facts = ("seed", "status", "learned", "steps", "seconds", "accuracy")
    answer(runs=[{name: getattr(result, name) for name in facts} for result in results])
    rows = table(
        "seed", "status", "steps", "time (s)", "accuracy", "after a close", right=(0, 2, 3, 4, 5)
    )
    for result in results:
        found = result.accuracy
        closed = getattr(found, "after_close", None)
        after = "–" if closed is None else f"{closed:.1%}"
        accuracy = f"{found.any_token:.1%}", after
        status = Text(result.status, style="" if result.learned else "red")
        rows.add_row(
            str(result.seed), status, f"{result.steps:,}", f"{result.seconds:.1f}", *accuracy
        )
    console().print(rows)
