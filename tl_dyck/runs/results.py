"""What came of a sweep: one tidy table."""

from __future__ import annotations

import contextlib
import json
import warnings
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq

from tl_dyck.errors import DyckError
from tl_dyck.files import CorruptFileError, read_table, write_bytes
from tl_dyck.runs.spec import SweepError
from tl_dyck.runs.store import RESERVED, Store, run_id
from tl_dyck.runs.worker import row_of

_TABLE = "results.parquet"
_FIRST = ("id", "point", "experiment")
_MIDDLE = ("seed", "status")
_LAST = tuple(name for name in RESERVED if name not in _FIRST + _MIDDLE)
# Of the record that a row was read from; only in the file, and no name of a parameter.
_STAMP = " stamp"


def load_results(folder: str | Path, *, failures: bool = True) -> pd.DataFrame:
    """Every run that has ended, one row each.

    The table is kept as ``results.parquet``; only records that it lacks are read. Where the folder
    cannot be written, it is put together without being kept.

    Args:
        folder: of a sweep.
        failures: whether runs that raised have rows too (status "failed", error, no metrics).

    Returns:
        Columns: id, point, experiment, the parameters of the points, seed, status, the metrics,
        error, seconds, started (UTC), host, cpu_cores, gpu, python, platform, tl_dyck, torch,
        transformer_lens. Rows are in the order of the sweep's points, those of earlier sweeps in
        the folder last, and of seeds.

    Raises:
        CorruptFileError: the folder holds no sweep, or one of another version.
    """
    store = Store.open(folder)
    sweep, points = store.plan()
    kept = _up_to_date(store, _read_table(store))
    order = {point: place for place, point in enumerate(points)}
    place = kept["point"].map(order).fillna(len(order))
    kept = (
        kept.assign(**{"": place})
        .sort_values(["", "point", "seed"], ignore_index=True)
        .drop(columns="")
    )
    parameters, metrics = columns_of(kept)
    named = [name for name in sweep.parameters if name in parameters]
    named += [name for name in parameters if name not in named]
    kept = kept[[*_FIRST, *named, *_MIDDLE, *metrics, *_LAST]]
    return kept if failures else kept[kept["status"] == "done"].reset_index(drop=True)


def _up_to_date(store: Store, kept: pd.DataFrame) -> pd.DataFrame:
    """The table as the records are now; `kept` is what it was at some time."""
    stamps = store.stamps()
    known = dict(zip(kept["id"], kept[_STAMP], strict=True))
    if known == {run: stamp for run, (_, stamp) in stamps.items()}:
        return kept.drop(columns=_STAMP)
    old = kept[kept["status"] == "done"]  # failures come and go
    if any(stamps.get(run) != ("done", known[run]) for run in old["id"]):
        old = old[:0]  # a record is gone, or was made again: begin anew
    table = _join(store, stamps, old)
    typed = [name for name in old if old[name].dtype.kind in "biuf"] if len(old) else []
    if any(
        table[name].dtype.kind not in "biuf" and table[name].map(type).eq(str).any()
        for name in typed
    ):
        table = _join(
            store, stamps, old[:0]
        )  # the numbers, as text, are not as the records have them
    with contextlib.suppress(
        OSError, pa.ArrowException
    ):  # only a copy; the folder of someone else is read all the same
        write_bytes(store.folder / _TABLE, _parquet(table))
    return table.drop(columns=_STAMP)


def _join(store: Store, stamps: Mapping[str, tuple[str, int]], old: pd.DataFrame) -> pd.DataFrame:
    """A table of records read before, and the others."""
    known = set(old["id"])
    return _tidy(
        [old, _frame(store, {run: how for run, how in sorted(stamps.items()) if run not in known})]
    )


def _frame(store: Store, runs: Mapping[str, tuple[str, int]]) -> pd.DataFrame:
    """Records as a table, read anew, of Python objects."""
    records, rows = [], []
    for run, (status, stamp) in runs.items():
        with contextlib.suppress(
            CorruptFileError
        ):  # it is set aside, and the run done again, by the next `run_sweep`
            records.append(
                store.read(store.path(run, ".json" if status == "done" else ".failed.json"))
            )
            rows.append({**row_of(records[-1], status), _STAMP: stamp})
    parameters = dict.fromkeys(name for record in records for name in record["parameters"])
    metrics = dict.fromkeys(
        name for record in records for name in record.get("metrics", ()) if name not in parameters
    )
    names = [*_FIRST, *parameters, *_MIDDLE, *metrics, *_LAST, _STAMP]
    return pd.DataFrame(rows, columns=names, dtype=object)


def _read_table(store: Store) -> pd.DataFrame:
    """The table as it was kept; an empty one if it cannot be read, for it is only a copy."""
    empty = pd.DataFrame({name: [] for name in (*_FIRST, *_MIDDLE, *_LAST, _STAMP)})
    try:
        table = read_table(store.folder / _TABLE)
    except (OSError, CorruptFileError):
        return empty
    if not table.columns.is_unique or not {*empty} <= {*table} or not table["id"].is_unique:
        return empty
    return table


def _parquet(table: pd.DataFrame) -> bytes:
    sink = pa.BufferOutputStream()
    pq.write_table(pa.Table.from_pandas(table, preserve_index=False), sink, compression="zstd")
    found: bytes = sink.getvalue().to_pybytes()
    return found


def _tidy(parts: Sequence[pd.DataFrame]) -> pd.DataFrame:
    """One table of several. Parameters stand before the seed, metrics between status and error."""
    parts = [part for part in parts if len(part)] or list(parts[:1])
    parameters = list(dict.fromkeys(name for part in parts for name in columns_of(part)[0]))
    metrics = [name for part in parts for name in columns_of(part)[1] if name not in parameters]
    with warnings.catch_warnings():
        # what pandas will do one day about columns without any value makes no difference here
        warnings.simplefilter("ignore", FutureWarning)
        table = pd.concat(parts, ignore_index=True) if len(parts) > 1 else parts[0]
    table = table[[*_FIRST, *parameters, *_MIDDLE, *dict.fromkeys(metrics), *_LAST, _STAMP]].copy()
    for name in table:
        if table[name].dtype == object and len(table):
            table[name] = _typed(table[name].tolist())
    return table.copy()  # in one piece: of a hundred columns replaced, pandas warns


def _typed(values: list[Any]) -> pd.Series:
    """A column of one type: numbers, booleans or text.

    Text is JSON where values are lists or of several kinds.
    """
    kinds = {type(value) for value in values if not _missing(value)}
    if kinds and kinds <= {int, float}:
        return pd.Series(values, dtype=None if kinds == {int} else float)
    if kinds & {list, dict} or len(kinds) > 1:
        values = [value if _missing(value) else text_of_value(value) for value in values]
    return pd.Series([None if _missing(value) else value for value in values])


def columns_of(results: pd.DataFrame) -> tuple[list[str], list[str]]:
    """Names of the parameters, and of the metrics, in a table of results."""
    names = [str(name) for name in results]
    return names[names.index("experiment") + 1 : names.index("seed")], names[
        names.index("status") + 1 : names.index("error")
    ]


def _missing(value: Any) -> bool:
    return value is None or (isinstance(value, float) and value != value)


def text_of_value(value: Any) -> str:
    """Return a parameter's value as it is shown."""
    return value if isinstance(value, str) else json.dumps(value)


def load_models(folder: str | Path, parameters: Mapping[str, Any] | None = None) -> list[Any]:
    """The models of a sweep of the experiment "train", in the order of the table of results.

    Args:
        folder: of the sweep.
        parameters: columns of the table of results and what they must be
            (``{"model": "gpt", "seed": 3}``); None for all models.

    Returns:
        A `DyckTransformer` per run that is done and matches.

    Raises:
        SweepError: there is no such column, no run has such a value, or a run's files were not
            kept.
    """
    from tl_dyck.models import load_model

    store = Store.open(folder)
    results, every = load_results(folder, failures=False), load_results(folder)
    for name, value in (parameters or {}).items():
        if name not in results:
            raise SweepError(
                f"the results have no column {name!r}, but {', '.join(map(str, results))}"
            )
        if not (every[name] == value).any():
            there = ", ".join(sorted({str(each) for each in every[name]})) or "none"
            raise SweepError(f"no run that has ended has {name}={value!r}, but {there}")
        results = results[results[name] == value]
    models = []
    for run in results["id"]:
        if not (store.path(run) / "config.json").exists():
            raise SweepError(
                f"run {run} kept no model: was the sweep run with records only, "
                "or another experiment?"
            )
        models.append(load_model(store.path(run)))
    return models


class FailedRunsError(DyckError, RuntimeError):
    """Some runs raised, or were not done; the message says why. The others are done, and kept."""


def load_runs(folder: str | Path) -> pd.DataFrame:
    """Every run of the sweep that was last asked for in a folder, when all are done.

    Returns:
        The rows of `load_results`, in the order of points and seeds, with a column ``folder``: the
        run's own.

    Raises:
        FailedRunsError: runs failed, or are not done.
        CorruptFileError: the folder holds no sweep, or one of another version.
    """
    store = Store.open(folder)
    sweep, points = store.plan()
    wanted = [
        run_id(point, seed)
        for point, (_, seeds) in zip(points, sweep.points_and_seeds(), strict=True)
        for seed in seeds
    ]
    results = load_results(folder).set_index("id", drop=False).reindex(wanted)
    failed = results[results["status"] != "done"]
    if len(failed):
        reasons = Counter(str(error).splitlines()[0] for error in failed["error"].dropna())
        said = (
            "; ".join(f"{number} × {error}" for error, number in reasons.most_common(3))
            or "they were not done"
        )
        raise FailedRunsError(
            f"{len(failed)} of {len(wanted)} runs failed: {said}. The others are kept; 'tl-dyck "
            f"sweep status {store.folder}' says more, and --retry-failed tries again."
        )
    return results.assign(folder=[store.path(run) for run in wanted]).reset_index(drop=True)


def runs_of(folder: str | Path, ids: Sequence[str]) -> pd.DataFrame:
    """The rows of `load_results` of some runs, in the order of their ids.

    Raises:
        CorruptFileError: a run has no record, or none is named.
    """
    every = load_results(folder).set_index("id", drop=False)
    missing = [run for run in ids if run not in every.index]
    if missing or not len(ids):
        what = f"has no record of its run {missing[0]!r:.40}" if missing else "names no runs"
        raise CorruptFileError(f"{str(folder)!r} {what}")
    return every.loc[list(ids)]


@contextlib.contextmanager
def said_how_to_repeat(folder: Path) -> Iterator[None]:
    """Have an error about files that a run's record says are there end with what to do."""
    try:
        yield
    except CorruptFileError as error:
        record = folder.with_suffix(".json")
        raise CorruptFileError(
            f"{error}; delete '{folder}' and '{record}' to do this run again"
        ) from error
