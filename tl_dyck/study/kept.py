"""Measurements that are kept beside a run: believed only if they are of that run, and measured as they would be now."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from importlib.metadata import version
from pathlib import Path
from typing import Any

from tl_dyck.files import LARGEST_TENSORS, read_json, read_regular, sha256
from tl_dyck.models.digest import weights_digest
from tl_dyck.training import TrainResult

__all__ = ["file_digests", "identity_of", "is_kept"]


def identity_of(result: TrainResult, settings: dict[str, Any], code: str) -> dict[str, Any]:
    """What a measurement depends on, as JSON values.

    Args:
        result: the run that is measured.
        settings: how closely.
        code: name and number of the code that measures; another number where it measures otherwise.
    """
    return {
        "code": code,
        "version": version("tl-dyck"),
        "run": sha256(result.identity()),
        "outcome": [result.status, result.steps],
        "weights": weights_digest(result.model),
        "settings": settings,
    }


def file_digests(folder: Path, names: Iterable[str]) -> dict[str, str]:
    """SHA-256, in hexadecimal, of files that belong to a measurement."""
    return {name: hashlib.sha256(read_regular(folder / name, LARGEST_TENSORS)).hexdigest() for name in names}


def is_kept(path: Path, identity: dict[str, Any], names: Iterable[str]) -> bool:
    """Whether a file holds a measurement of this identity, and the files that belong to it are as they were.

    Args:
        path: of the measurement, which says under "files" what belongs to it.
        identity: see `identity_of`.
        names: of the files beside it that may belong to it.

    Raises:
        CorruptFileError: it is no JSON.
    """
    if not path.exists():
        return False
    saved = read_json(path)
    if not isinstance(saved, dict) or saved.get("identity") != identity or not isinstance(saved.get("files"), dict):
        return False
    there = [name for name in names if name in saved["files"] and (path.parent / name).is_file()]
    return bool(file_digests(path.parent, there) == saved["files"])
