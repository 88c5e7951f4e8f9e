"""Files that are either whole or absent: atomic writes, JSON and safetensors with clear errors. Never pickle."""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from safetensors.torch import load as load_safetensors
from safetensors.torch import save as dump_safetensors

__all__ = [
    "CorruptFileError",
    "ensure_folder",
    "read_json",
    "read_tensors",
    "remove_leftovers",
    "saved_runs",
    "sha256",
    "write_bytes",
    "write_json",
    "write_tensors",
]


_TEMPORARY = ".tl_dyck-"


class CorruptFileError(ValueError):
    """A file that we should be able to read is missing, truncated, altered, or not what it says it is."""


def ensure_folder(folder: str | Path) -> Path:
    """Create `folder` if need be and check that files can be created in it.

    Raises:
        OSError: it cannot be created or written to; the message names the folder.
    """
    path = Path(folder)
    try:
        path.mkdir(parents=True, exist_ok=True)
        descriptor, probe = tempfile.mkstemp(prefix=_TEMPORARY, suffix=".tmp", dir=path)
        os.close(descriptor)
        os.unlink(probe)
    except OSError as error:
        raise type(error)(
            error.errno, f"cannot write to the folder {str(path)!r} ({error.strerror}); choose another one"
        ) from error
    return path


def remove_leftovers(folder: Path) -> None:
    """Remove the unfinished files of a process that was killed. For folders in which one process at a time writes."""
    for path in folder.glob(f"{_TEMPORARY}*.tmp"):
        path.unlink(missing_ok=True)


def write_bytes(path: str | Path, data: bytes, *, flush: bool = True) -> None:
    """Write `data` so that `path` holds either its old content or all of the new, whatever happens half-way.

    The bytes go to a temporary name in the same folder, are flushed to disk, and are renamed onto `path`.

    Args:
        path: of the file.
        data: its new content.
        flush: False saves the milliseconds that flushing takes; what happens half-way may then be anything that happens
            to a process, but not to the machine.

    Raises:
        OSError: no space, no permission, …; `path` is as it was.
    """
    path = Path(path)
    descriptor, temporary = tempfile.mkstemp(prefix=_TEMPORARY, suffix=".tmp", dir=path.parent)
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(data)
            if flush:
                file.flush()
                os.fsync(file.fileno())
        os.chmod(temporary, 0o644)  # mkstemp makes it private
        os.replace(temporary, path)
    except BaseException:  # Ctrl-C too: leave no half file behind
        with contextlib.suppress(OSError):
            os.unlink(temporary)
        raise


def write_json(path: str | Path, value: Any) -> None:
    """Write `value` as indented JSON, atomically. NaN and infinities are refused, for they are not JSON."""
    write_bytes(path, (json.dumps(value, indent=1, allow_nan=False) + "\n").encode())


def read_json(path: str | Path) -> Any:
    """Read a JSON file.

    Raises:
        CorruptFileError: it is missing or not JSON.
    """
    try:
        return json.loads(Path(path).read_bytes())
    except (FileNotFoundError, IsADirectoryError, NotADirectoryError) as error:
        raise CorruptFileError(f"there is no file {str(path)!r}") from error
    except (ValueError, RecursionError) as error:  # bad UTF-8, bad JSON, absurd nesting
        raise CorruptFileError(f"{str(path)!r} is not valid JSON: {error}") from error


def write_tensors(path: str | Path, tensors: Mapping[str, torch.Tensor]) -> str:
    """Write tensors as safetensors, atomically.

    Returns:
        The SHA-256 of the file, in hexadecimal, for the JSON file beside it.
    """
    # copies, since safetensors refuses tensors that share memory
    data = dump_safetensors(
        {name: tensor.detach().cpu().clone(memory_format=torch.contiguous_format) for name, tensor in tensors.items()}
    )
    write_bytes(path, data)
    return hashlib.sha256(data).hexdigest()


def read_tensors(path: str | Path, sha256: str | None = None) -> dict[str, torch.Tensor]:
    """Read a safetensors file, onto the CPU.

    Args:
        path: the file.
        sha256: the digest it must have; not checked if None.

    Raises:
        CorruptFileError: it is missing, not safetensors, or has another digest.
    """
    try:
        data = Path(path).read_bytes()
    except (FileNotFoundError, IsADirectoryError, NotADirectoryError) as error:
        raise CorruptFileError(f"there is no file {str(path)!r}") from error
    digest = hashlib.sha256(data).hexdigest()
    if sha256 is not None and digest != sha256:
        raise CorruptFileError(
            f"{str(path)!r} is truncated or was altered: its SHA-256 is {digest[:12]}…, not {sha256[:12]}…"
        )
    try:
        return load_safetensors(data)
    except (SafetensorError, ValueError, KeyError) as error:
        raise CorruptFileError(f"{str(path)!r} is not a safetensors file: {error}") from error


def sha256(value: Any) -> str:
    """SHA-256, in hexadecimal, of the canonical JSON of `value`: the identity of a configuration."""
    canonical = json.dumps(value, sort_keys=True, separators=(",", ":"), allow_nan=False)
    return hashlib.sha256(canonical.encode()).hexdigest()


def saved_runs(folder: Path) -> list[Path]:
    """The folder itself, or the runs in it (``seed-0``, ``seed-1``, …) if it is not of a model."""
    runs = [path for path in folder.glob("seed-*") if (path / "config.json").exists()]
    if (folder / "config.json").exists() or not runs:
        return [folder]
    return sorted(runs, key=lambda path: (len(path.name), path.name))
