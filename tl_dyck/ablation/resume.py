"""Where a run of fine-tuning stands, on disk: one JSON file, and one of tensors that it names, each whole or absent."""

from __future__ import annotations

import contextlib
from pathlib import Path
from typing import Any

import torch

from tl_dyck.files import CorruptFileError, read_json, read_tensors, remove_leftovers, write_json, write_tensors

__all__ = ["load_state", "save_state"]

_FORMAT = "tl_dyck.ablation/1"


def save_state(
    folder: Path, name: str, identity: dict[str, Any], facts: dict[str, Any], tensors: dict[str, torch.Tensor]
) -> None:
    """Save a state, then drop the one before.

    Args:
        folder: exists.
        name: of the run in that folder.
        identity: what defines the run.
        facts: JSON values; "step" among them.
        tensors: the rest.
    """
    file = f"{name}-{facts['step']}.safetensors"
    digest = write_tensors(folder / file, tensors)
    saved = {"format": _FORMAT, "identity": identity, "facts": facts, "tensors": file, "sha256": digest}
    write_json(folder / f"{name}.json", saved)
    for old in folder.glob(f"{name}-*.safetensors"):
        if old.name != file:
            with contextlib.suppress(OSError):  # untidy, but no reason to lose a run
                old.unlink()


def load_state(
    folder: Path, name: str, identity: dict[str, Any]
) -> tuple[dict[str, Any], dict[str, torch.Tensor]] | None:
    """What `save_state` saved; None if there is nothing.

    Raises:
        CorruptFileError: altered, or of another run.
    """
    remove_leftovers(folder)
    path = folder / f"{name}.json"
    if not path.exists():
        return None
    saved = read_json(path)
    if not isinstance(saved, dict) or saved.get("format") != _FORMAT or not isinstance(saved.get("identity"), dict):
        raise CorruptFileError(f"{str(path)!r} is not a run of this version ({_FORMAT}); delete it to start again")
    if saved["identity"] != identity:
        differ = [key for key in identity if saved["identity"].get(key) != identity[key]]
        raise CorruptFileError(
            f"{str(path)!r} is of another run: it differs in {', '.join(differ) or 'its fields'}. Choose another "
            "folder, or delete this one."
        )
    if (
        not isinstance(saved.get("facts"), dict)
        or saved.get("tensors") != f"{name}-{saved['facts'].get('step')}.safetensors"
    ):
        raise CorruptFileError(f"{str(path)!r} does not describe a run; delete it to start again")
    return saved["facts"], read_tensors(folder / saved["tensors"], saved.get("sha256"))
