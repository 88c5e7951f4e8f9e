"""Checkpoints of a run: safetensors for numbers, JSON for the rest, atomic, so that a kill at any moment loses little.

A run's folder holds `checkpoint.json` and the `state-<step>.safetensors` that it names; when the run has ended,
`result.json` and the model as `save_model` saves it. The tensors are written first and the JSON that names them (with
their digest) is renamed into place last, so whatever is named there is whole.
"""

from __future__ import annotations

import contextlib
from pathlib import Path
from typing import Any

import pandas as pd
import torch

from tl_dyck.files import CorruptFileError, read_json, read_tensors, write_json, write_tensors
from tl_dyck.models import load_model, save_model
from tl_dyck.tasks import ClosingAccuracy, DyckTask
from tl_dyck.training.config import TrainConfig, TrainResult

__all__ = ["CheckpointError", "has_result", "load_result", "read_checkpoint", "save_result", "write_checkpoint"]

_FORMAT = "tl_dyck.run/1"


class CheckpointError(CorruptFileError):
    """A checkpoint is corrupt, or belongs to another run."""


def write_checkpoint(
    folder: Path, identity: dict[str, Any], progress: dict[str, Any], tensors: dict[str, torch.Tensor]
) -> None:
    """Save the state after `progress["step"]` steps, then remove older states."""
    name = f"state-{progress['step']}.safetensors"
    digest = write_tensors(folder / name, tensors)
    write_json(
        folder / "checkpoint.json",
        {"format": _FORMAT, "identity": identity, "progress": progress, "tensors": name, "sha256": digest},
    )
    for old in folder.glob("state-*.safetensors"):
        if old.name != name:
            old.unlink(missing_ok=True)


def read_checkpoint(folder: Path, identity: dict[str, Any]) -> tuple[dict[str, Any], dict[str, torch.Tensor]] | None:
    """The last saved progress and tensors, or None if there is no checkpoint.

    Raises:
        CheckpointError: the checkpoint is corrupt, or of a run that differs in task, model, options or seed.
    """
    if not (folder / "checkpoint.json").exists():
        return None
    saved = _read(folder / "checkpoint.json", identity)
    name = saved.get("tensors")
    if not isinstance(name, str) or Path(name).name != name:
        raise CheckpointError(f"{str(folder / 'checkpoint.json')!r} names no file of its own folder: {name!r}")
    try:
        return saved["progress"], read_tensors(folder / name, saved.get("sha256"))
    except (CorruptFileError, KeyError) as error:
        raise CheckpointError(f"{error}. Delete {str(folder)!r} to train again from the start.") from error


def save_result(result: TrainResult, folder: Path) -> None:
    """Save a run that has ended, and drop its checkpoint."""
    save_model(result.model, folder)
    write_json(
        folder / "result.json",
        {
            "format": _FORMAT,
            "identity": result.identity(),
            "status": result.status,
            "steps": result.steps,
            "seconds": result.seconds,
            "accuracy": vars(result.accuracy),
            # NaN is not JSON; the loss of a run that diverged becomes null
            "history": result.history.astype(object).where(result.history.notna(), None).to_dict("records"),
        },
    )
    (folder / "checkpoint.json").unlink(missing_ok=True)
    for old in folder.glob("state-*.safetensors"):
        with contextlib.suppress(OSError):
            old.unlink()


def has_result(folder: Path) -> bool:
    """Whether the run in `folder` has ended."""
    return (folder / "result.json").exists()


def load_result(folder: str | Path, identity: dict[str, Any] | None = None, device: str | None = None) -> TrainResult:
    """Load a run that has ended.

    Args:
        folder: where `train` saved it.
        identity: what the run must be; None to accept any.
        device: where to put the model.

    Raises:
        CheckpointError: corrupt, or another run than `identity`.
    """
    path = Path(folder)
    saved = _read(path / "result.json", identity)
    try:
        return TrainResult(
            model=load_model(path, device),
            task=DyckTask(**saved["identity"]["task"]),
            options=TrainConfig(**saved["identity"]["options"]),
            seed=saved["identity"]["seed"],
            status=saved["status"],
            steps=saved["steps"],
            seconds=saved["seconds"],
            accuracy=ClosingAccuracy(**saved["accuracy"]),
            history=pd.DataFrame(saved["history"]),
        )
    except CorruptFileError as error:
        raise CheckpointError(str(error)) from error
    except (KeyError, TypeError, ValueError) as error:
        raise CheckpointError(f"{str(path / 'result.json')!r} does not describe a run: {error!r}") from error


def _read(path: Path, identity: dict[str, Any] | None) -> dict[str, Any]:
    try:
        saved = read_json(path)
    except CorruptFileError as error:
        raise CheckpointError(str(error)) from error
    if not isinstance(saved, dict) or saved.get("format") != _FORMAT:
        raise CheckpointError(f"{str(path)!r} is not a run of this version ({_FORMAT})")
    found = saved.get("identity")
    if identity is not None and found != identity:
        different = _differences(found, identity)
        raise CheckpointError(
            f"{str(path.parent)!r} holds another run; it differs in {'; '.join(different)}. "
            "Choose another folder, or delete this one."
        )
    return saved


def _differences(found: Any, wanted: Any, where: str = "") -> list[str]:
    if isinstance(found, dict) and isinstance(wanted, dict):
        return [
            line
            for key in sorted({*found, *wanted})
            for line in _differences(found.get(key), wanted.get(key), f"{where}.{key}" if where else key)
        ]
    return [] if found == wanted else [f"{where} ({found!r} there, {wanted!r} asked for)"]
