"""Trained models by name, from a folder or from a repository of the Hugging Face Hub.

What is in a folder, `tl_dyck.runs.saved` looks up; the Hub and its lists of models are dealt with
here.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from tl_dyck.errors import DyckError
from tl_dyck.files import CorruptFileError, one_line, read_json
from tl_dyck.registry import unknown_name
from tl_dyck.runs.saved import find_model

ZOO_FORMAT = "tl_dyck.zoo/1"

_NAME = re.compile(r"[A-Za-z0-9][\w.-]*(/[A-Za-z0-9][\w.-]*)*")
_REPOSITORY = re.compile(r"[A-Za-z0-9][\w.-]*/[A-Za-z0-9][\w.-]*")


class HubError(DyckError, OSError):
    """A repository of the Hub could not be had; the message says why, and what to do."""


def load_pretrained(
    name: str | Path,
    source: str | Path | None = None,
    *,
    revision: str | None = None,
    device: str | None = None,
) -> Any:
    """Load a trained model by its name.

    Only weights (safetensors) and JSON are read; nothing that is downloaded is run.

    Args:
        name: family and seed, ``"gpt/seed-3"``: a folder of `source`, or a run of a study; without
            `source` the whole address, ``"results/study:gpt/seed-3"`` or a model's own folder, as
            the command line takes it.
        source: a folder (what ``tl-dyck publish`` wrote, or that of a study or sweep), or else a
            repository of the Hub, ``"owner/name"``. A folder that exists is preferred. What was
            downloaded once is not downloaded again; with ``HF_HUB_OFFLINE=1`` only that is used.
        revision: of the repository: a branch, tag or commit; None for its main branch.
        device: where to put the model; None for TransformerLens' default.

    Returns:
        The model, as `load_model` gives it: a `DyckTransformer`, or an adopted one.

    Raises:
        UnknownNameError: there is no such model, or several; the message names those that there
            are.
        CorruptFileError: the source or a file of the model is missing or damaged, or weights are
            NaN or infinite.
        HubError: the repository could not be had.
        ValueError: the name is none of a model, or a revision was given for a folder.
    """
    from tl_dyck.models import load_model

    if source is None:
        if revision is not None:
            raise ValueError("a revision is of a repository: name it as source")
        return load_model(find_model(name).folder, device=device)
    check_name(name)
    path = Path(source)
    if path.is_dir():
        if revision is not None:
            raise ValueError(
                f"{str(source)!r} is a folder, which has no revisions: leave out revision"
            )
        return load_model(_in_folder(path, name), device=device)
    if not isinstance(source, str) or not _REPOSITORY.fullmatch(source) or ".." in source:
        raise CorruptFileError(
            f"there is no folder {str(source)!r}, and it is no name of a Hub repository "
            "('owner/name')"
        )
    return load_model(_in_folder(_downloaded(source, name, revision), name), device=device)


def check_name(name: str | Path) -> None:
    """Insist that a name is made of words and slashes and leads nowhere else.

    Raises:
        ValueError: it is not.
    """
    if not isinstance(name, str) or not _NAME.fullmatch(name) or ".." in name:
        raise ValueError(f"{repr(name)[:80]} is no name of a model; they look like 'gpt/seed-3'")


def _downloaded(repository: str, name: str | Path, revision: str | None) -> Path:
    """The snapshot of a repository, with no more than the list of models and the one model."""
    from huggingface_hub import snapshot_download
    from huggingface_hub.errors import (
        HFValidationError,
        LocalEntryNotFoundError,
        OfflineModeIsEnabled,
        RepositoryNotFoundError,
        RevisionNotFoundError,
    )

    wanted = ["zoo.json", f"{name}/config.json", f"{name}/model.safetensors"]
    missing = f"there is no folder {repository!r}, and "
    try:
        found = snapshot_download(
            repository, revision=revision, allow_patterns=wanted, library_name="tl_dyck"
        )
    except RepositoryNotFoundError as error:  # of a private one too
        raise HubError(
            f"{missing}the Hub has no repository of that name, or it is private: log in with "
            "`hf auth login`"
        ) from error
    except RevisionNotFoundError as error:
        raise HubError(f"the repository {repository!r} has no revision {revision!r}") from error
    except (LocalEntryNotFoundError, OfflineModeIsEnabled) as error:
        raise HubError(
            f"{missing}the Hub cannot be reached, nor was that repository downloaded before: "
            f"{one_line(error)}"
        ) from error
    except (HFValidationError, OSError) as error:
        raise HubError(f"{missing}the Hub refuses it: {one_line(error)}") from error
    return Path(found)


def _in_folder(root: Path, name: str | Path) -> Path:
    """The folder of a model: of that name, or the run that a sweep calls so."""
    if not (root / "zoo.json").exists():
        return find_model(f"{root}:{name}").folder
    place = root / name
    if not (place / "config.json").exists():
        raise unknown_name("model", name, _names(root))
    if not place.resolve().is_relative_to(root.resolve()):
        raise CorruptFileError(f"{name!r} in {str(root)!r} is a link that leads out of that folder")
    return place


def _names(root: Path) -> list[str]:
    """The models that a folder lists."""
    listed = read_json(root / "zoo.json")
    models = listed.get("models") if isinstance(listed, dict) else None
    if not isinstance(models, list) or listed.get("format") != ZOO_FORMAT:
        raise CorruptFileError(
            f"{str(root / 'zoo.json')!r} is no list of models, which has format {ZOO_FORMAT!r}"
        )
    return [str(each.get("name")) for each in models if isinstance(each, dict)]
