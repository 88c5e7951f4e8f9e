"""``tl-dyck accuracy``: how saved models do on a file of strings."""

from __future__ import annotations

import functools
import math
from pathlib import Path
from typing import Annotated

from rich.text import Text

from tl_dyck.cli.answers import Answer
from tl_dyck.cli.options import Device, Only, existing_models, option, real, usable_device
from tl_dyck.cli.probe import Models, load_models, trained_task


def accuracy(
    models: Models,
    file: Annotated[
        Path,
        option("FILE", "Strings, one a line; spaces, an END and gzip are fine.", "--file", "-f"),
    ],
    task: Annotated[
        str | None, option("NAME", "Whose strings. \\[default: each model's own]", "--task", "-t")
    ] = None,
    claim: Annotated[
        str, option("NAME", "any_token, or allowed: which symbols may follow.", "--property")
    ] = "any_token",
    threshold: Annotated[
        float | None,
        option("X", "Of allowed, for logits. \\[default: 0]", check=real(-math.inf)),
    ] = None,
    end: Annotated[str, option("WORD", "What stands at the end of lines.")] = "END",
    only: Only = None,
    device: Device = None,
) -> Answer:
    """Measure saved models on strings of yours: by length, by depth, and where it takes a stack.

    For example: [bold]tl-dyck accuracy results/study:gpt --file dev.txt[/bold]
    """
    from tl_dyck.language import read_strings
    from tl_dyck.tasks import accuracy_on, load_task

    existing_models(*models)
    place = usable_device(device)
    loaded = load_models(models, only, place)
    known = None if task is None else load_task(task)
    # a large file is read once for all models of one language
    read = functools.cache(lambda language: read_strings(file, language, end=end))
    rows = []
    for each in loaded:
        of = known or trained_task(each.folder, each.model)
        found = accuracy_on(
            each.model, read(of.language), of, claim=claim, threshold=threshold, device=place
        )
        yield Text(each.name, style="bold")
        yield str(found)
        values = {name: getattr(found, name) for name in ("accuracy", "whole", "places", "strings")}
        values |= {"too_long": found.too_long, "table": found.table.to_dict("records")}
        rows.append({"model": each.name, **values})
    yield {"accuracy": rows}
