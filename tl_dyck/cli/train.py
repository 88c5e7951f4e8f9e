"""``tl-dyck tasks``, ``models`` and ``train``: what there is, and one family of it trained."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

from tl_dyck.cli.answers import Answer, Next, Rows, Saved
from tl_dyck.cli.completion import named
from tl_dyck.cli.options import (
    Device,
    Jobs,
    Steps,
    Task,
    argument,
    one_seed,
    option,
    out_folder,
    parse_seeds,
    usable_device,
)
from tl_dyck.cli.settings import changed, settings_of
from tl_dyck.kit.suggest import command


def tasks() -> Answer:
    """List the tasks.

    For example: [bold]tl-dyck tasks --json[/bold]
    """
    from tl_dyck.tasks import load_task
    from tl_dyck.tasks import tasks as registry

    listed: list[dict[str, Any]] = []
    for name, summary in registry.summaries().items():
        try:
            found = load_task(name)
        except ValueError:  # the summary says why it is unusable
            listed.append({"name": name, "summary": summary})
            continue
        facts = {"name": name, "entropy_floor": found.entropy_floor, "summary": summary}
        ends = {"shortest": min(found.train_lengths), "longest": max(found.train_lengths)}
        listed.append({**found.to_dict(), **ends, **facts})
    columns = {
        "task": "{name}",
        "k": "{n_types}",
        "D": "{max_depth}",
        "lengths": "{shortest}–{longest}",
        "long": "{long_lengths[0]}–{long_lengths[1]}",
        "floor": "{entropy_floor:.3f}",
        "what it is": "{summary}",
    }
    yield Rows("tasks", listed, columns)
    yield "k: bracket types. D: largest depth. lengths: of training strings, in symbols."
    yield "long: lengths that test length generalisation."
    yield "floor: the least cross-entropy any model can reach, nats per token."


def models(task: Task = "dyck-2-4") -> Answer:
    """List the model families, as they are for a task."""
    from tl_dyck.models import get_config
    from tl_dyck.models import models as registry
    from tl_dyck.tasks import load_task

    chosen = load_task(task)
    listed: list[dict[str, Any]] = []
    for name, summary in registry.summaries().items():
        try:
            config = get_config(name, chosen)
        except ValueError as error:
            why = f"{summary} (not for this task: {error})"
            listed.append({"name": name, "summary": why})
            continue
        sizes = {key: getattr(config, key) for key in ("n_layers", "n_heads", "d_model")}
        listed.append({"name": name, **sizes, "summary": summary})
    columns = {"family": "{name}", "layers": "{n_layers}", "heads": "{n_heads}"}
    columns |= {"width": "{d_model}", "what it is": "{summary}"}
    yield {"task": chosen.name}
    yield Rows("models", listed, columns)
    first = next((each["name"] for each in listed if "n_layers" in each), None)
    if first is not None:
        words = ("train", first, "--task", task, "--set", "training.steps=500")
        yield Next("Any field can be changed", command(*words))


def train(
    model: Annotated[
        str,
        argument(
            "MODEL", "A family, see [bold]tl-dyck models[/bold].", autocompletion=named("models")
        ),
    ],
    task: Task = "dyck-2-4",
    seed: Annotated[
        int | None, option("N", "Train this seed alone. \\[default: 0]", check=one_seed)
    ] = None,
    seeds: Annotated[str | None, option("LIST", 'Or several: "8", "0-7", "0,3,5".')] = None,
    steps: Steps = None,
    settings: settings_of("training.learning_rate=3e-3") = None,  # type: ignore[valid-type]
    out: Annotated[Path | None, out_folder("Folder. \\[default: results/train/TASK/MODEL]")] = None,
    jobs: Jobs = None,
    device: Device = None,
) -> Answer:
    """Train one family; each seed is kept in a folder of its own and resumed if interrupted.

    For example: [bold]tl-dyck train gpt --seeds 8[/bold], or
    [bold]tl-dyck train minimal-onehot --task dyck-3-8 --seed 5[/bold]
    """
    from tl_dyck.models import get_config
    from tl_dyck.report.commands import with_steps
    from tl_dyck.training import TrainConfig, train_seeds
    from tl_dyck.training import train as train_one

    if seed is not None and seeds is not None:
        raise ValueError("give --seed or --seeds, not both")
    chosen = parse_seeds(seeds) if seeds is not None else (seed or 0,)
    plain = vars(get_config(model, task, device=usable_device(device)))
    values = {"model": plain, "training": with_steps(TrainConfig(), steps).to_dict()}
    wanted = changed(values, settings)
    own = {name: value for name, value in wanted["model"].items() if value != plain[name]}
    config = get_config(model, task, device=device, **own)
    options = TrainConfig.from_dict(wanted["training"])
    folder = out or Path("results", "train", task, model)
    if len(chosen) == 1:  # in this process, so that the bar shows loss and accuracy
        place = folder / f"seed-{chosen[0]}"
        results = [train_one(config, task, seed=chosen[0], options=options, folder=place)]
    else:
        results = train_seeds(
            config, task, seeds=chosen, options=options, folder=folder, n_jobs=jobs
        )
    facts = ("seed", "status", "learned", "steps", "seconds", "accuracy")
    columns = {"seed": "{seed}", "status": "{status}", "steps": "{steps:,}"}
    columns |= {"time (s)": "{seconds:.1f}", "accuracy": "{accuracy.any_token:.1%}"}
    columns |= {"after a close": "{accuracy.after_close:.1%}"}
    yield Rows("runs", [{name: getattr(each, name) for name in facts} for each in results], columns)
    yield Saved("Models", folder)
    yield Next("Probe them", command("probe", folder.as_posix()))
