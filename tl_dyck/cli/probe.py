"""``tl-dyck probe`` and ``tl-dyck play``: what saved models do, measured or typed into."""

from __future__ import annotations

import inspect
import shlex
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, NamedTuple, SupportsFloat

from rich.text import Text

from tl_dyck.cli.answers import Answer, Saved, say_note
from tl_dyck.cli.completion import named, saved_models
from tl_dyck.cli.options import (
    MODELS,
    Device,
    Only,
    argument,
    chosen_values,
    existing_models,
    option,
    out_file,
    usable_device,
    whole,
)
from tl_dyck.kit.addresses import beside
from tl_dyck.kit.errors import is_refusal

Models = Annotated[list[str], argument("MODEL...", MODELS, autocompletion=saved_models)]

String = Annotated[str | None, option("TEXT", "The string they read.", "--string", "-s")]


def probe(
    models: Models,
    name: Annotated[
        str | None,
        option(
            "NAME",
            "One probe only. \\[default: all that apply]",
            "--probe",
            "-p",
            autocompletion=named("probes"),
        ),
    ] = None,
    string: String = None,
    only: Only = None,
    head: Annotated[
        int | None,
        option("N", "One head, for probes that measure one.", "--head", check=whole()),
    ] = None,
    device: Device = None,
) -> Answer:
    """Probe saved models: do patterns differ, do they look at the stack, are they balanced?

    For example: [bold]tl-dyck probe results/study:gpt[/bold], or
    [bold]tl-dyck probe results/train/dyck-2-4/gpt -p stack_likeness -s "[[]]()"[/bold]
    """
    from tl_dyck.kit.registry import unknown_name
    from tl_dyck.probes import list_probes

    existing_models(*models)
    if name is not None and name not in list_probes():
        raise unknown_name("probe", name, list_probes())

    loaded = load_models(models, only, usable_device(device))
    if string is not None:
        for each in loaded:
            each.model.cfg.language.parse(string)
    for asked in [name] if name is not None else _apt(list_probes(), loaded):
        found, failed = _measured(asked, loaded, string, head)
        if name is not None and not found:
            raise next(iter(failed.values()))
        if found:
            yield Text(asked, style="bold")
        for called, result in found.items():
            yield Text.assemble((f"{called}  ", "bold"), repr(result))
        reasons = {called: str(error).rstrip(".") for called, error in failed.items()}
        # the same reason for all models is said once
        if not found and len({*reasons.values()}) == 1:
            reasons = {asked: reasons.popitem()[1]}
        yield from (f"Not measured: {called}: {why}." for called, why in reasons.items())
        if found:
            yield Text()
            yield {asked: [_row(called, result) for called, result in found.items()]}


def _apt(names: Sequence[str], models: Sequence[LoadedModel]) -> list[str]:
    """Probes in the order in which they are shown; a comparison is of several models."""
    from tl_dyck.probes import load_probe, takes_many

    return [name for name in names if len(models) > 1 or not takes_many(load_probe(name))]


def _measured(
    name: str, models: Sequence[LoadedModel], string: str | None, head: int | None
) -> tuple[dict[str, Any], dict[str, Exception]]:
    """What a probe says of each model, or of all; and why it says nothing of some."""
    from tl_dyck.probes import call_probe, load_probe, takes_many

    found: dict[str, Any] = {}
    failed: dict[str, Exception] = {}
    many = takes_many(load_probe(name))
    parcels = {f"{len(models)} models": models} if many else {each.name: [each] for each in models}
    for called, parcel in parcels.items():
        read = [each.model for each in parcel]
        try:
            found[called] = call_probe(name, read, **_given(name, parcel, string, head))
        except Exception as error:
            if not is_refusal(error):
                raise
            failed[called] = error
    return found, failed


def _given(
    name: str, models: Sequence[LoadedModel], string: str | None, head: int | None
) -> dict[str, Any]:
    """What a probe is told besides its models: whatever of it its parameters are named for.

    Raises:
        ValueError: an option that it does not take, or models of which no comparison is.
    """
    from tl_dyck.probes import load_probe, takes_many

    first, takes = models[0], inspect.signature(load_probe(name)).parameters
    if takes_many(load_probe(name)) and len({each.model.cfg.language for each in models}) > 1:
        raise ValueError("the models are of different languages; compare like with like")
    found: dict[str, Any] = {}
    if string is not None and "text" in takes:
        found["text"] = string
    elif string is not None and "data" in takes:
        found["data"] = first.model.to_tokens(string).cpu()
    elif string is not None:
        raise ValueError(f"{name} takes no string (--string): it has no parameter text or data")
    if head is not None and "head" not in takes:
        raise ValueError(f"{name} takes no --head: it has no parameter head")
    if head is not None:
        found["head"] = head
    # of ours, `data` is a task or tokens
    for_task = {"task"} | ({"data"} if "Task" in str(_annotation(takes, "data")) else set())
    for_law = {"lengths", "distribution"}
    if (for_task | for_law) & takes.keys() - found.keys():
        task = trained_task(first.folder, first.model)
        known = dict.fromkeys(for_task, task)
        if hasattr(task, "closing_lengths") and hasattr(task, "distribution"):
            known |= {"lengths": task.closing_lengths(long=True), "distribution": task.distribution}
        found = {each: value for each, value in known.items() if each in takes} | found
    return found


def _annotation(parameters: Mapping[str, inspect.Parameter], name: str) -> Any:
    return parameters[name].annotation if name in parameters else ""


def _row(model: str, result: Any) -> dict[str, Any]:
    """A result for programs; one that stands for a number has it as "value"."""
    number = isinstance(result, SupportsFloat) and not hasattr(result, "tolist")
    return {"model": model, **({"value": float(result)} if number else {}), "result": result}


# --- saved models ---------------------------------------------------------------------------------


class LoadedModel(NamedTuple):
    """A model, where it is, what it is called, and what finds it again."""

    name: str
    folder: Path
    model: Any
    address: str


def load_models(
    addresses: Sequence[str], only: list[str] | None, device: str | None
) -> list[LoadedModel]:
    """The models of some addresses, of runs whose parameters are as chosen.

    Of several, those whose weights are no numbers are left out, with a note: their training
    diverged.
    """
    from tl_dyck.models import load_model
    from tl_dyck.models.storage import NotFiniteError
    from tl_dyck.runs.saved import find_models

    chosen = chosen_values(only)
    found, refused = [], None
    for saved in (each for address in addresses for each in find_models(address, chosen)):
        try:
            model = load_model(saved.folder, device=device)
        except NotFiniteError as error:
            refused = error
            say_note(f"{saved.name} is left out: {error}")
        else:
            found.append(LoadedModel(saved.name, saved.folder, model, saved.address))
    if refused is not None and not found:
        raise refused
    return found


def trained_task(folder: Path, model: Any) -> Any:
    """The task that a run was trained on; for a model alone, complete strings of its language."""
    from tl_dyck.tasks.names import task_of
    from tl_dyck.training import load_result

    if (folder / "result.json").exists():
        return load_result(folder, device="cpu").task
    return task_of(model.cfg.language)


# --- a page to type into --------------------------------------------------------------------------


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
    from tl_dyck.kit.screen import share_bar
    from tl_dyck.report import write_playground

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
    target = out or beside(models[0]) / "playground.html"
    shown = {name: saved.model for name, saved in zip(names, found, strict=True)}
    asked = task or tasks[0]
    with share_bar(f"writing {len(shown)} models", transient=True) as progress:
        page = write_playground(shown, target, task=asked, string=string, progress=progress)
    yield Saved("Playground", page)
    yield f"Open it in a browser: {shlex.quote(page.resolve().as_uri())}"
