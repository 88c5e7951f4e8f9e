"""What runs keep in files: tables, rows with a seal, tensors beside the JSON that names them."""

from __future__ import annotations

import contextlib
import json
import math
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tl_dyck.files import (
    CorruptFileError,
    read_json,
    sha256,
    write_bytes,
    write_json,
    write_tensors,
)

if TYPE_CHECKING:
    import pandas as pd
    import torch


def write_tables(folder: str | Path, tables: Mapping[str, pd.DataFrame]) -> None:
    """Write tables as Parquet files of their names, each atomically."""
    for name, table in tables.items():
        write_bytes(Path(folder) / f"{name}.parquet", table.to_parquet(index=False))


def finite_rows(rows: Iterable[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Rows as JSON values: None for NaN and infinities, of which a model that diverged has many."""
    return [
        {
            name: None if isinstance(value, float) and not math.isfinite(value) else value
            for name, value in row.items()
        }
        for row in rows
    ]


def sealed(values: Mapping[str, Any], of: str) -> bytes:
    """A JSON object with a digest of its content and of the run that it is of."""
    return json.dumps({**values, "digest": _digest(values, of)}, allow_nan=False).encode()


def read_sealed(path: str | Path, of: str) -> dict[str, Any]:
    """Read a file that holds what `sealed` made.

    Raises:
        CorruptFileError: it is missing, truncated, altered, or of another run.
    """
    saved = read_json(path)
    digest = saved.pop("digest", None) if isinstance(saved, dict) else None
    try:
        sound = digest is not None and digest == _digest(saved, of)
    except (ValueError, RecursionError):  # NaN, infinities, absurd nesting
        sound = False
    if not sound:
        raise CorruptFileError(
            f"{str(path)!r} is truncated, altered or of another run: its digest does not match"
        )
    return saved  # type: ignore[no-any-return]


def _digest(values: Mapping[str, Any], of: str) -> str:
    return sha256({"run": of, "record": dict(values)})


def write_with_tensors(
    path: Path, values: Mapping[str, Any], tensors: Mapping[str, torch.Tensor], file: str
) -> None:
    """Write a JSON object and a file of tensors that it names; whatever happens, they fit together.

    Args:
        path: of the JSON file, which is written last.
        values: it gets "tensors" (the name) and "sha256" as well.
        tensors: go beside it.
        file: their file, ``<stem>-<number>.safetensors``; those of other numbers are removed when
            all is written.
    """
    digest = write_tensors(path.parent / file, tensors)
    write_json(path, {**values, "tensors": file, "sha256": digest})
    remove_numbered(path.parent, file.rpartition("-")[0], but=file)


def remove_numbered(folder: Path, stem: str, *, but: str = "") -> None:
    """Remove the files ``<stem>-<number>.safetensors`` that no JSON file names any more."""
    for old in folder.glob(f"{stem}-*.safetensors"):
        if old.name != but:
            with contextlib.suppress(OSError):  # untidy, but no reason to lose a run
                old.unlink()
