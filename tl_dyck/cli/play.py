"""``tl-dyck play``: a page on which saved models read what one types."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import Annotated

from tl_dyck.addresses import split_address
from tl_dyck.cli.answers import Answer, Saved
from tl_dyck.cli.early import existing_models, known
from tl_dyck.cli.options import Only, option, out_file
from tl_dyck.cli.saved import Models, String, load_models, trained_task


def play(
    models: Models,
    out: Annotated[Path | None, out_file("The page. \\[default: playground.html in MODEL]")] = None,
    string: String = None,
    task: Annotated[
        str | None,
        option("NAME", "For the exact law. \\[default: the models' own]", "--task", "-t"),
    ] = None,
    only: Only = None,
) -> Answer:
    """Write a page on which models read what you type: attention, predictions, the exact law.

    For example: [bold]tl-dyck play results/study:gpt[/bold]
    """
    existing_models(*models)
    known("task", task)
    from tl_dyck.report import write_playground
    from tl_dyck.screen import share_bar

    found = load_models(models, only, "cpu")
    names = [saved.name for saved in found]
    if len(set(names)) < len(names):  # of several folders
        names = [saved.address for saved in found]
    tasks = [trained_task(saved.folder, saved.model) for saved in found]
    several = sorted({each.name for each in tasks})
    if task is None and len(several) > 1:
        raise ValueError(
            f"the models were trained on several tasks, {', '.join(several)}: say by --task whose "
            "law to show"
        )
    target = out or split_address(models[0])[0] / "playground.html"
    shown = {name: saved.model for name, saved in zip(names, found, strict=True)}
    asked = task or tasks[0]
    with share_bar(f"writing {len(shown)} models", transient=True) as progress:
        page = write_playground(shown, target, task=asked, string=string, progress=progress)
    yield Saved("Playground", page)
    yield f"Open it in a browser: {shlex.quote(page.resolve().as_uri())}"
