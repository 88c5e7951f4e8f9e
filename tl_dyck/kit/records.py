"""What is kept in files: tables, rows with a seal, tensors beside the JSON that names them.

Knows: what a folder of weights holds, in which order it is written, and what is asked of it before
anything is built. What a format's `config` means, the module of the format knows.
"""

from __future__ import annotations

import contextlib
import json
import math
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tl_dyck.kit.files import (
    LARGEST_DESCRIPTION,
    LARGEST_JSON,
    CorruptFileError,
    ensure_folder,
    one_line,
    read_json,
    read_regular,
    read_tensors,
    sha256,
    write_bytes,
    write_json,
    write_tensors,
)
from tl_dyck.kit.visible import in_a_line

if TYPE_CHECKING:
    import pandas as pd
    import torch

# Parquet, of at most so many bytes, and cells, which compression could make out of nothing.
LARGEST_TABLE = 2**30
MOST_CELLS = 2**30  # eight gigabytes, if all are numbers

MODEL_FILES = ("config.json", "model.safetensors")

#: Names of weights, and the shapes that a config says they have.
Shapes = Iterable[tuple[str, list[int]]]


def write_tables(folder: str | Path, tables: Mapping[str, pd.DataFrame]) -> None:
    """Write tables as Parquet files of their names, each atomically."""
    for name, table in tables.items():
        write_bytes(Path(folder) / f"{name}.parquet", table.to_parquet(index=False))


@dataclass(frozen=True)
class TableColumns:
    """What a table holds: columns of texts, and of numbers; it may have more of numbers."""

    texts: tuple[str, ...] = ()
    numbers: tuple[str, ...] = ()


def read_table(path: str | Path, columns: TableColumns | None = None) -> pd.DataFrame:
    """Read a Parquet file.

    Args:
        path: the file.
        columns: what it has to hold; None for any table.

    Raises:
        CorruptFileError: as `read_regular`; it is no such table, or a terminal would act on one of
            its texts.
    """
    import pyarrow as pa  # an RNN is read without these
    import pyarrow.parquet as pq

    data = read_regular(path, LARGEST_TABLE)
    try:
        file = pq.ParquetFile(pa.BufferReader(data))
        # read from the footer, before anything is unpacked
        cells = file.metadata.num_rows * max(1, file.metadata.num_columns)
        if not 0 <= cells <= MOST_CELLS:
            raise ValueError(f"{cells:,} values are too many")
        table = file.read()
        _check_columns(table, columns)
        found = table.to_pandas()
        if [*found.columns] != table.column_names or found.columns.name or found.index.name:
            raise ValueError("its metadata tell of other columns than it has")
        return found
    except (
        pa.ArrowException,
        OSError,
        ValueError,
        TypeError,
        LookupError,
        AttributeError,
    ) as error:
        raise CorruptFileError(
            f"{str(path)!r} is not a Parquet file of this kind: {one_line(error)}"
        ) from error


def _check_columns(table: Any, columns: TableColumns | None) -> None:
    """Raise ValueError for other columns than are asked for, and texts that a terminal obeys."""
    import pyarrow as pa
    import pyarrow.compute as pc

    kinds = pa.types
    asked = () if columns is None else (*columns.texts, *columns.numbers)
    for name in asked:
        if table.column_names.count(name) != 1:
            raise ValueError(f"it has not one column {name!r}")
    for name, column in zip(table.column_names, table.columns, strict=True):
        kind = column.type
        is_text = kinds.is_string(kind) or kinds.is_large_string(kind)
        if columns is not None and not kinds.is_null(kind):
            is_number = kinds.is_integer(kind) or kinds.is_floating(kind) or kinds.is_boolean(kind)
            wanted = "texts" if name in columns.texts else "numbers"
            if not (is_text if wanted == "texts" else is_number):
                raise ValueError(f"its column {name!r:.80} is of {kind}, not of {wanted}")
        held = pc.unique(column).drop_null().to_pylist() if is_text else []
        for text in (name, *held):
            if in_a_line(text) != text:
                raise ValueError(f"it has a control character in {text!r:.80}")


def read_object(
    path: Path, forms: Collection[str], what: str, most: int = LARGEST_JSON
) -> dict[str, Any]:
    """Read a JSON object whose "format" is one of `forms`; `what` is what its folder holds.

    Raises:
        CorruptFileError: it is missing, damaged, or of another format.
    """
    saved = read_json(path, most)
    form = saved.get("format") if isinstance(saved, dict) else type(saved).__name__
    if not isinstance(saved, dict) or not isinstance(form, str) or form not in forms:
        raise CorruptFileError(
            f"{str(path.parent)!r} does not hold {what} of this version: the format in {path.name} "
            f"is {form!r:.80}, not {' or '.join(map(repr, forms))}"
        )
    return saved


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
    """Read a file that holds what `sealed` made; a CorruptFileError if it is of another run."""
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
    """Write a JSON object and a file of tensors beside it; whatever happens, they fit together.

    The object gets "tensors" (the file's name) and "sha256" as well, and is written last.
    """
    digest = write_tensors(path.parent / file, tensors)
    write_json(path, {**values, "tensors": file, "sha256": digest})


def read_named(path: Path, saved: Mapping[str, Any], file: str) -> dict[str, torch.Tensor]:
    """The tensors that a JSON object of `write_with_tensors`, which was read, names."""
    if saved.get("tensors") != file or not isinstance(saved.get("sha256"), str):
        raise CorruptFileError(
            f"{str(path)!r} names tensors {saved.get('tensors')!r:.80}, not {file!r}, or has no "
            f"SHA-256 of them: {saved.get('sha256')!r:.80}"
        )
    return read_tensors(path.parent / file, saved["sha256"])


def write_weights(
    folder: str | Path,
    form: str,
    config: Mapping[str, Any],
    weights: Mapping[str, torch.Tensor],
    files: tuple[str, str] = MODEL_FILES,
) -> Path:
    """Write weights, and then the JSON object of their format and config that names them.

    Args:
        folder: made if need be; returned.
        form: the format.
        config: whatever `read_weights` is to give back, as JSON values.
        weights: tensors by name.
        files: the names of the JSON file and of that of the weights.
    """
    path, values = ensure_folder(folder), {"format": form, "config": dict(config)}
    write_with_tensors(path / files[0], values, weights, files[1])
    return path


def read_weights(
    folder: str | Path,
    forms: Collection[str],
    what: str,
    shapes: Callable[[str, dict[str, Any]], Shapes],
    files: tuple[str, str] = MODEL_FILES,
) -> tuple[str, dict[str, Any], dict[str, torch.Tensor]]:
    """Read what `write_weights` wrote, and compare sizes before anything is built.

    Args:
        folder: the folder.
        forms: the formats that will do.
        what: such a folder holds, with its article, for messages.
        shapes: from a format and its config to the shapes of weights; enough of them to show that
            no layer, token or position is asked for that the weights have not. A typo may ask for
            all memory.
        files: as in `write_weights`.

    Returns:
        The format, the config, and a tensor for each weight.

    Raises:
        CorruptFileError: a file is missing, truncated, altered, or not such a model.
    """
    path = Path(folder) / files[0]
    # a config is short; weights have a file, and a limit, of their own
    saved = read_object(path, forms, what, LARGEST_DESCRIPTION)
    with described(path, what):
        # ^: missing ones and unknown ones
        if odd := saved.keys() ^ {"format", "config", "tensors", "sha256"}:
            raise ValueError(f"keys missing or unknown: {sorted(odd)}")
        if not isinstance(saved["config"], dict):
            raise TypeError(f"its config is {saved['config']!r:.80}")
    weights = read_named(path, saved, files[1])
    with described(path, what):
        check_shapes(shapes(saved["format"], saved["config"]), weights)
    return saved["format"], saved["config"], weights


def check_shapes(shapes: Shapes, weights: Mapping[str, torch.Tensor]) -> None:
    """Raise ValueError unless there are weights of these names and shapes."""
    for name, shape in shapes:
        found = list(weights[name].shape) if name in weights else None
        if found != shape:
            raise ValueError(
                f"by its sizes {name} is {shape}, but the weights have {found or 'none'}"
            )


@contextlib.contextmanager
def described(
    path: Path, what: str, kind: type[CorruptFileError] = CorruptFileError
) -> Iterator[None]:
    """An error of a kind that says which file it is whose values describe nothing."""
    try:
        yield
    except CorruptFileError as error:  # it says so itself
        raise error if isinstance(error, kind) else kind(str(error)) from error
    except KeyError as error:
        raise kind(f"{str(path)!r} lacks {error}") from error
    except (AttributeError, TypeError, ValueError) as error:
        wrong = f"{str(path)!r} does not describe {what}: {one_line(error)}"
        raise kind(wrong) from error


def remove_numbered(folder: Path, stem: str, *, but: str = "") -> None:
    """Remove the files ``<stem>-<number>.safetensors`` that no JSON file names any more."""
    for old in folder.glob(f"{stem}-*.safetensors"):
        if old.name != but:
            with contextlib.suppress(OSError):  # untidy, but no reason to lose a run
                old.unlink()
