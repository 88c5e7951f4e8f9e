"""What came of a sweep: one tidy table, means over seeds, and how it stands."""

from __future__ import annotations

import contextlib
import json
import warnings
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, final

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq

from tl_dyck.errors import DyckError
from tl_dyck.files import CorruptFileError, read_table, write_bytes
from tl_dyck.intervals import mean
from tl_dyck.runs.spec import SweepError
from tl_dyck.runs.store import RESERVED, Store, run_id
from tl_dyck.runs.worker import row_of

__all__ = [
    "FailedRunsError",
    "SweepStatus",
    "aggregate",
    "columns_of",
    "load_models",
    "load_results",
    "load_runs",
    "said_how_to_repeat",
    "sweep_status",
]

_TABLE = "results.parquet"
_FIRST = ("id", "point", "experiment")
_MIDDLE = ("seed", "status")
_LAST = tuple(name for name in RESERVED if name not in _FIRST + _MIDDLE)
_STAMP = (
    " stamp"  # of the record that a row was read from; only in the file, and no name of a parameter
)
_MEANS = ("metric", "n", "failed", "mean", "low", "high", "std")


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
    return table


def _typed(values: list[Any]) -> pd.Series:
    """A column of one type: numbers, booleans or text.

    Text is JSON where values are lists or of several kinds.
    """
    kinds = {type(value) for value in values if not _missing(value)}
    if kinds and kinds <= {int, float}:
        return pd.Series(values, dtype=None if kinds == {int} else float)
    if kinds & {list, dict} or len(kinds) > 1:
        values = [value if _missing(value) else _text(value) for value in values]
    return pd.Series([None if _missing(value) else value for value in values])


def columns_of(results: pd.DataFrame) -> tuple[list[str], list[str]]:
    """Names of the parameters, and of the metrics, in a table of results."""
    names = [str(name) for name in results]
    return names[names.index("experiment") + 1 : names.index("seed")], names[
        names.index("status") + 1 : names.index("error")
    ]


def _missing(value: Any) -> bool:
    return value is None or (isinstance(value, float) and value != value)


def _text(value: Any) -> str:
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
        SweepError: there is no such column, or a run's files were not kept.
    """
    from tl_dyck.models import load_model

    store = Store.open(folder)
    results = load_results(folder, failures=False)
    for name, value in (parameters or {}).items():
        if name not in results:
            raise SweepError(
                f"the results have no column {name!r}, but {', '.join(map(str, results))}"
            )
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


# --- over seeds -----------------------------------------------------------------------------------


def aggregate(
    results: pd.DataFrame,
    metrics: Sequence[str] | None = None,
    *,
    by: Sequence[str] | None = None,
    n_bootstrap: int = 2000,
    seed: int = 0,
) -> pd.DataFrame:
    """Means over seeds with 95 % percentile bootstrap intervals.

    Args:
        results: from `load_results`.
        metrics: columns of numbers or booleans; None for all that the experiment returned.
        by: columns that name a group, none for one group of all; None for the point, that is for
            all parameters.
        n_bootstrap: resamples.
        seed: of the resampling.

    Returns:
        One row per group and metric: the columns of `by` (of all parameters that differ, if it is
        None), metric, n (runs with a value), failed, mean, low, high, std. low and high are NaN for
        a single run. A column of `by` that has one of these names is called "by <name>".

    Raises:
        SweepError: an unknown column, or a metric that is not a number.
    """
    parameters, measured = columns_of(results)
    groups = ["point"] if by is None else list(by)
    if metrics is None:
        metrics = [name for name in measured if name not in groups and _is_number(results[name])]
    for name in (*groups, *metrics):
        if name not in results:
            raise SweepError(
                f"the results have no column {name!r}, but {', '.join(map(str, results))}"
            )
    shown = groups
    if by is None:
        shown = [name for name in parameters if results[name].astype(str).nunique() > 1] or groups
    generator = np.random.default_rng(seed)
    rows = []
    # to group by nothing, pandas wants a value that is the same for all
    for _, group in results.groupby(groups or (lambda _: 0), sort=False, dropna=False):
        named = {f"by {name}" if name in _MEANS else name: group[name].iloc[0] for name in shown}
        failed = int((group["status"] == "failed").sum())
        for name in metrics:
            try:
                values = group[name].dropna().astype(float).to_numpy()
            except (TypeError, ValueError) as error:
                raise SweepError(f"{name!r} cannot be averaged: {error}") from error
            found = mean(values, n_bootstrap, generator)
            std = float(values.std(ddof=1)) if len(values) > 1 else float("nan")
            rows.append(
                {**named, "metric": name, "n": found.n, "failed": failed}
                | {"mean": found.value, "low": found.low, "high": found.high, "std": std}
            )
    return pd.DataFrame(rows)


def _is_number(column: pd.Series) -> bool:
    known = column.dropna()
    return len(known) > 0 and bool(pd.api.types.is_numeric_dtype(known.infer_objects()))


# --- how it stands --------------------------------------------------------------------------------


@final
@dataclass(frozen=True, kw_only=True)
class SweepStatus:
    """How a sweep stands.

    Attributes:
        folder: where it is.
        total: runs of the sweep that was last asked for in it.
        counts: how many of them are "done", "failed", "running" (in some process, on any machine),
            "interrupted" (begun by a process that is gone), "waiting" (not begun).
        axes: for each parameter that varies, each of its values, as text, with such counts.
        errors: first lines of failures, most frequent first, with how often they occur.
        corrupt: files that were set aside because their digest did not match.
        others: runs in the folder that are not of this sweep, but of others before it.
    """

    folder: Path
    total: int
    counts: dict[str, int]
    axes: dict[str, dict[str, dict[str, int]]]
    errors: list[tuple[str, int]]
    corrupt: int
    others: int


def sweep_status(folder: str | Path) -> SweepStatus:
    """How a sweep stands; writes nothing.

    Raises:
        CorruptFileError: the folder holds no sweep, or one of another version.
    """
    store = Store.open(folder)
    sweep, points = store.plan()
    names = dict(store.names())
    counts: Counter[str] = Counter()
    axes: dict[str, dict[str, Counter[str]]] = {name: {} for name in sweep.axes}
    total, mine = 0, 0
    errors: Counter[str] = Counter()
    for point, (parameters, seeds) in zip(points, sweep.points_and_seeds(), strict=True):
        found: Counter[str] = Counter()
        for seed in seeds:
            run = run_id(point, seed)
            status = names.get(run, "waiting")
            mine += status != "waiting"
            if status == "started":
                status = "running" if store.is_claimed(run) else "interrupted"
            if status == "failed":
                errors[_error(store, run)] += 1
            found[status] += 1
        total += len(seeds)
        counts += found
        for name in axes:
            axes[name].setdefault(_text(parameters.get(name)), Counter()).update(found)
    return SweepStatus(
        folder=store.folder,
        total=total,
        counts={
            name: counts[name] for name in ("done", "failed", "running", "interrupted", "waiting")
        },
        axes={
            name: {value: dict(found) for value, found in values.items()}
            for name, values in axes.items()
        },
        errors=errors.most_common(),
        corrupt=sum(1 for _ in (store.folder / "runs").glob("*/*.corrupt")),
        others=len(names) - mine,
    )


def _error(store: Store, run: str) -> str:
    try:
        return str(store.read(store.path(run, ".failed.json")).get("error"))
    except CorruptFileError as error:
        return str(error)
