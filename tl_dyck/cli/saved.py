"""Saved models, as commands that look at several of them take and load them."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any, NamedTuple

from tl_dyck.cli.options import argument, chosen_values, option
from tl_dyck.cli.terminal import say_note

#: What one saved model is called, in helps.
MODEL = "A saved model: its folder, or as in [bold]results/study:gpt/seed-3[/bold]."
#: Where there may be several.
MODELS = (
    "Saved models: [bold]results/study[/bold] for all of a study's, "
    "[bold]results/study:gpt[/bold], [bold]results/study:gpt/seed-3[/bold], or a folder."
)

Models = Annotated[list[str], argument("MODEL...", MODELS)]

String = Annotated[str | None, option("TEXT", "The string they read.", "--string", "-s")]


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
