"""Checkpoints of a run: safetensors for numbers, JSON for the rest, atomic.

A kill at any moment loses little.

A run's folder holds `checkpoint.json` and the `state-<step>.safetensors` that it names; when the
run has ended, `result.json` and the model as `save_model` saves it. The tensors are written first
and the JSON that names them (with their digest) is renamed into place last, so whatever is named
there is whole.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any

import pandas as pd
import torch

from tl_dyck.kit.arguments import checked
from tl_dyck.kit.files import CorruptFileError, write_json
from tl_dyck.kit.records import (
    described,
    finite_rows,
    read_named,
    read_object,
    remove_numbered,
    write_with_tensors,
)
from tl_dyck.models import load_model, save_model
from tl_dyck.reading.predict import Accuracy
from tl_dyck.tasks import Task
from tl_dyck.tasks.closing_accuracy import ClosingAccuracy
from tl_dyck.tasks.names import task_from_dict
from tl_dyck.training.config import HISTORY, STATUSES, TrainConfig, TrainResult

_FORMAT = "tl_dyck.run/1"
_MAYBE_NAN = ("loss", "floor")  # diverged; of a task whose floor nobody knows


class CheckpointError(CorruptFileError):
    """A checkpoint is corrupt, or belongs to another run."""


@dataclass(eq=False)  # a run is itself, whatever another's progress
class Progress:
    """Progress of a run, apart from its tensors.

    Attributes:
        step: updates made.
        status: a key of `STATUSES` if the run has ended, else None.
        seconds: training time; of steps made together with other runs, an equal share.
        history: rows so far.
    """

    step: int = 0
    status: str | None = None
    seconds: float = 0.0
    history: list[dict[str, Any]] = field(default_factory=list)


def write_checkpoint(
    folder: Path, identity: dict[str, Any], progress: Progress, tensors: dict[str, torch.Tensor]
) -> None:
    """Save the state between two steps, then remove older states."""
    saved = {"format": _FORMAT, "identity": identity, **_to_json(progress)}
    file = f"state-{progress.step}.safetensors"
    write_with_tensors(folder / "checkpoint.json", saved, tensors, file)
    remove_numbered(folder, "state", but=file)


def read_checkpoint(
    folder: Path, identity: dict[str, Any]
) -> tuple[Progress, dict[str, torch.Tensor]] | None:
    """The last saved progress and tensors, or None if there is no checkpoint.

    Who reads has the folder's lock: nobody writes meanwhile.

    Raises:
        CheckpointError: it is corrupt, or of another run than `identity`.
    """
    path = folder / "checkpoint.json"
    if not path.exists():
        return None
    saved = _read(path, identity)
    try:
        with described(path, "a checkpoint", CheckpointError):
            progress = _from_json(saved)
        return progress, read_named(path, saved, f"state-{progress.step}.safetensors")
    except CorruptFileError as error:
        raise CheckpointError(
            f"{error}. Delete {str(folder)!r} to train again from the start."
        ) from error


def save_result(result: TrainResult, folder: Path) -> None:
    """Save a run that has ended, and drop its checkpoint."""
    save_model(result.model, folder)
    progress = Progress(
        result.steps, result.status, result.seconds, result.history.to_dict("records")
    )
    saved = {"format": _FORMAT, "identity": result.identity(), **_to_json(progress)}
    write_json(folder / "result.json", {**saved, "accuracy": vars(result.accuracy)})
    (folder / "checkpoint.json").unlink(missing_ok=True)
    remove_numbered(folder, "state")


def has_result(folder: Path) -> bool:
    """Whether the run in `folder` has ended."""
    return (folder / "result.json").exists()


def load_history(folder: str | Path) -> pd.DataFrame:
    """The history of a run that has ended, as in `TrainResult`, without its model.

    Raises:
        CheckpointError: there is none, or it is corrupt.
    """
    path = Path(folder) / "result.json"
    with described(path, "a run", CheckpointError):
        return pd.DataFrame(_from_json(_read(path, None)).history, columns=list(HISTORY))


@checked
def load_result(
    folder: str | Path,
    identity: dict[str, Any] | None = None,
    device: str | None = None,
    task: Task | None = None,
) -> TrainResult:
    """Load a run that has ended.

    Args:
        folder: where `train` saved it.
        identity: what the run must be; None to accept any.
        device: where to put the model.
        task: what it was trained on, if that may not be registered here.

    Raises:
        CheckpointError: corrupt, another run than `identity`, or of a task that is not known here.
    """
    path = Path(folder)
    saved = _read(path / "result.json", identity)
    with described(path / "result.json", "a run", CheckpointError):
        progress = _from_json(saved)
        if progress.status is None:
            raise ValueError("a run without status")
        if type(saved["identity"]["seed"]) is not int:
            raise TypeError(f"seed {saved['identity']['seed']!r}")
        task = task_from_dict(saved["identity"]["task"], task)
        metric = ClosingAccuracy if "closing_only" in saved["accuracy"] else Accuracy
        result = TrainResult(
            model=load_model(path, device, diverged=progress.status == "diverged"),
            task=task,
            options=TrainConfig(**saved["identity"]["options"]),
            seed=saved["identity"]["seed"],
            status=progress.status,
            steps=progress.step,
            seconds=progress.seconds,
            accuracy=metric(**saved["accuracy"]),
            history=pd.DataFrame(progress.history, columns=list(HISTORY)),
        )
    if result.model.cfg.language != result.task.language:
        raise CheckpointError(
            f"the model in {str(path)!r} reads {result.model.cfg.language}, but by its result.json "
            f"it was trained on {result.task.language}"
        )
    if result.identity() != saved["identity"]:
        different = "; ".join(_differences(result.identity(), saved["identity"]))
        raise CheckpointError(
            f"the model in {str(path)!r} is not that of its result.json; it differs in {different}"
        )
    return result


def _to_json(progress: Progress) -> dict[str, Any]:
    values = {each.name: getattr(progress, each.name) for each in fields(Progress)}
    return {**values, "history": finite_rows(progress.history)}


def _from_json(saved: dict[str, Any]) -> Progress:
    """The inverse; KeyError, TypeError or ValueError for what `_to_json` does not write."""
    step, status, seconds = saved["step"], saved["status"], saved["seconds"]
    if type(step) is not int or step < 0:
        raise TypeError(f"step {step!r}")
    # NaN is not JSON, but Python reads it
    if type(seconds) not in (int, float) or not 0 <= seconds < math.inf:
        raise ValueError(f"seconds {seconds!r}")
    if status is not None and status not in STATUSES:
        raise ValueError(f"status {status!r}")
    rows = [dict(row) for row in saved["history"]]
    for row in rows:
        for name in _MAYBE_NAN:
            row[name] = math.nan if row[name] is None else row[name]
        if set(row) != set(HISTORY) or not all(
            isinstance(value, int | float) for value in row.values()
        ):
            raise ValueError(f"row of the history: {row!r}")
        if not all(
            math.isfinite(value) or (name in _MAYBE_NAN and value != value)
            for name, value in row.items()
        ):
            raise ValueError(f"row of the history, with a number that is not finite: {row!r}")
    return Progress(step, status, float(seconds), rows)


def _read(path: Path, identity: dict[str, Any] | None) -> dict[str, Any]:
    with described(path, "a run", CheckpointError):
        saved = read_object(path, (_FORMAT,), "a run")
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
            for line in _differences(
                found.get(key), wanted.get(key), f"{where}.{key}" if where else key
            )
        ]
    return [] if found == wanted else [f"{where} ({found!r} there, {wanted!r} asked for)"]
