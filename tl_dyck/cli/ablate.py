"""``tl-dyck ablate``: which heads matter."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from rich.padding import Padding
from rich.text import Text

from tl_dyck.cli.answers import Answer, Rows, Saved
from tl_dyck.cli.completion import saved_models
from tl_dyck.cli.options import (
    MODELS,
    Device,
    Runs,
    argument,
    existing_models,
    flag,
    option,
    out_folder,
    parse_seeds,
    usable_device,
    whole,
)
from tl_dyck.cli.settings import configured, settings_of
from tl_dyck.kit.addresses import beside

if TYPE_CHECKING:
    from tl_dyck.studies.ablation import Ablation

_COLUMNS = ("zero", "mean", "gates", "leave-one-out", "stack-likeness", "entropy")


def ablate(
    runs: Runs,
    models: Annotated[
        list[str] | None, argument("MODEL...", MODELS, autocompletion=saved_models)
    ] = None,
    task: Annotated[
        str | None,
        option("NAME", "Strings of this task. \\[default: each model's own]", "--task", "-t"),
    ] = None,
    out: Annotated[
        Path | None, out_folder("Folder. \\[default: ablation in the study's, or in results]")
    ] = None,
    steps: Annotated[
        int | None,
        option(
            "N",
            "Steps per penalty and per head left out; 0: no fine-tuning. \\[default: 60]",
            check=whole(),
        ),
    ] = None,
    experiment: Annotated[
        bool,
        flag("--experiment", "Train 2- and 3-layer models with 4 heads first, and ablate those."),
    ] = False,
    seeds: Annotated[str | None, option("LIST", "Seeds of the experiment. \\[default: 10]")] = None,
    settings: settings_of("finetune.learning_rate=1e-3") = None,  # type: ignore[valid-type]
    device: Device = None,
) -> Answer:
    """Find the heads that matter: disable each while all else stays, and again while all adapts.

    Models that are done are kept: an interrupted call goes on with the others.

    For example: [bold]tl-dyck ablate results/study:gpt[/bold]
    """
    existing_models(*(models or ()))
    from tl_dyck.report import write_report
    from tl_dyck.studies.ablation import AblateConfig, ablate_runs, ablate_trained

    device = usable_device(device)
    # both or neither
    if bool(models) == experiment:
        raise ValueError("give saved models, or --experiment with none")
    if seeds is not None and not experiment:
        raise ValueError("--seeds are those of --experiment; saved models have theirs")
    chosen = parse_seeds(seeds or "10")
    config = AblateConfig()
    if steps is not None:
        # 0 steps: no fine-tuning at all, not one that does nothing
        tuned = config.finetune and replace(config.finetune, steps=steps) if steps else None
        config = replace(config, finetune=tuned, leave_one_out=tuned)
    config = configured(config, settings)
    if out is None:
        places = {beside(model) for model in models or ()}
        studies = [place for place in places if (place / "results.json").exists()]
        # models of one study, and of nothing else: the report goes beside its own
        one = len(places) == len(studies) == 1
        out = studies[0] / "ablation" if one else Path("results", "ablation")
    if experiment:
        tasks = ("dyck-2-4", "dyck-2-4-prefix") if task is None else (task,)
        found = ablate_trained(out, seeds=chosen, tasks=tasks, config=config, **runs.how)
    else:
        found = ablate_runs(models or (), out, task=task, config=config, device=device, **runs.how)
    yield from _said(found)
    yield Saved("Report", write_report(found))


def _said(found: Ablation) -> Answer:
    """The answers, and the heads of a few models."""
    yield {"answers": found.answers}
    for question in dict.fromkeys(each.question for each in found.answers):
        yield Text(question, style="bold")
        for each in found.answers:
            if each.question == question:
                yield Padding(Text(f"{each.group}: {each.text}"), (0, 0, 0, 2))
        yield Text()
    heads = found.comparison.heads
    columns = {name: f"{{{name}:.3f}}" for name in _COLUMNS if name in heads}
    columns = {"model": "{model}", "layer": "{layer}", "head": "{head}", **columns}
    few = heads["model"].nunique() <= 3  # of many, only where to find them
    yield Rows("heads", heads, columns) if few else {"heads": heads}
