"""What came of a sweep: one tidy table, read from the records of its runs, and means over seeds."""

from __future__ import annotations

import contextlib
import json
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from tl_dyck.estimates import ENDS, ends_text
from tl_dyck.intervals import mean, share
from tl_dyck.kit.arguments import checked
from tl_dyck.kit.errors import DyckError
from tl_dyck.kit.files import CorruptFileError
from tl_dyck.kit.suggest import command
from tl_dyck.kit.verdicts import former
from tl_dyck.runs.spec import SweepError
from tl_dyck.runs.store import ENDINGS, RESERVED, Store, row_of, run_id

_FIRST = ("id", "point", "experiment")
_MIDDLE = ("seed", "status")
_LAST = tuple(name for name in RESERVED if name not in _FIRST + _MIDDLE)


@checked
def load_results(folder: str | Path, *, failures: bool = True) -> pd.DataFrame:
    """Every run that has ended, one row each, read from its record: a thousand take half a second.

    Args:
        folder: of a sweep.
        failures: whether runs that raised have rows too (status "failed", error, no metrics).

    Returns:
        Columns: id, point, experiment, the parameters of the points, seed, status, the metrics,
        error, seconds, started (UTC), host, cpu_cores, gpu, python, platform, tl_dyck, torch,
        transformer_lens. Rows are in the order of the sweep's points, those of earlier sweeps in
        the folder last, and of seeds. A column has one type: text is JSON where values are lists or
        of several kinds.

    Raises:
        CorruptFileError: the folder holds no sweep, or one of another version.
    """
    store = Store.at(folder)
    sweep, points = store.plan()
    order = {point: place for place, point in enumerate(points)}
    records: list[tuple[str, dict[str, Any]]] = []
    for run, status in store.names():
        if status == "started":
            continue
        # a damaged record is set aside, and its run done again, by the next `run_sweep`; a failure
        # can be forgotten just now
        with contextlib.suppress(CorruptFileError):
            records.append((status, store.read(store.path(run, ENDINGS[status]))))
    records.sort(
        key=lambda each: (
            # points of other sweeps behind all of this one
            order.get(each[1]["point"], len(order)),
            each[1]["point"],
            each[1]["seed"],
        )
    )
    found = {name for _, record in records for name in record["parameters"]}
    parameters = [name for name in sweep.parameters if name in found]
    parameters += sorted(found.difference(parameters))
    metrics = dict.fromkeys(name for _, record in records for name in record.get("metrics", ()))
    measured = [name for name in metrics if name not in found]
    rows = [row_of(record, status) for status, record in records]
    table = pd.DataFrame(
        {
            name: _typed([row.get(name) for row in rows])
            for name in (*_FIRST, *parameters, *_MIDDLE, *measured, *_LAST)
        }
    )
    return table if failures else table[table["status"] == "done"].reset_index(drop=True)


def _typed(values: list[Any]) -> pd.Series:
    """A column of one type: numbers, booleans or text."""
    kinds = {type(value) for value in values if not _missing(value)}
    # `bool` is a type of its own here: kinds are exact types
    if kinds and kinds <= {int, float}:
        # whole numbers stay whole only where none is missing
        return pd.Series(values, dtype=None if kinds == {int} else float)
    if kinds & {list, dict} or len(kinds) > 1:
        values = [value if _missing(value) else text_of_value(value) for value in values]
    return pd.Series(
        [None if _missing(value) else value for value in values], dtype=None if kinds else object
    )


def columns_of(results: pd.DataFrame) -> tuple[list[str], list[str]]:
    """Names of the parameters, and of the metrics, in a table of results."""
    names = [str(name) for name in results]
    return names[names.index("experiment") + 1 : names.index("seed")], names[
        names.index("status") + 1 : names.index("error")
    ]


def varying(results: pd.DataFrame) -> list[str]:
    """Names of the parameters that differ between runs."""
    return [name for name in columns_of(results)[0] if results[name].astype(str).nunique() > 1]


def _missing(value: Any) -> bool:
    # NaN is the one number that differs from itself
    return value is None or (isinstance(value, float) and value != value)


def text_of_value(value: Any) -> str:
    """Return a parameter's value as it is shown."""
    return value if isinstance(value, str) else json.dumps(value)


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
    store = Store.at(folder)
    sweep, points = store.plan()
    wanted = [
        run_id(point, seed)
        for point, (_, seeds) in zip(points, sweep.points_and_seeds(), strict=True)
        for seed in seeds
    ]
    results = load_results(folder).set_index("id", drop=False).reindex(wanted)
    failed = results[results["status"] != "done"]
    if len(failed):
        # the first line: the rest is in the table
        reasons = Counter(str(error).splitlines()[0] for error in failed["error"].dropna())
        said = (
            "; ".join(f"{number} × {error}" for error, number in reasons.most_common(3))
            or "they were not done"
        )
        raise FailedRunsError(
            f"{len(failed)} of {len(wanted)} runs failed: {said}. The others are kept; "
            f"{command('sweep', 'status', store.folder)} says more, and --retry-failed tries again."
        )
    return results.assign(folder=[store.path(run) for run in wanted]).reset_index(drop=True)


# --- means over seeds -----------------------------------------------------------------------------


#: What an experiment returns of its cost, not of its outcome: asked for by name only.
COSTS = ("steps", "train_seconds")
_MEANS = ("metric", "n", "seeds", "failed", "mean", *ENDS, "std", "pooled")


@checked
def aggregate(
    results: pd.DataFrame,
    metrics: Sequence[str] | None = None,
    *,
    by: Sequence[str] | None = None,
) -> pd.DataFrame:
    """Means over seeds, with the interval of each and that of as many other seeds.

    An interval depends on the group's own numbers, and not on what else is asked for. Where a group
    has several runs of a seed, because `by` leaves out a parameter that varies, the mean is over
    all of them, seeds with all their runs count as one, and the table says what was pooled. The
    mean of booleans, with one run a seed, is a share: its interval is exact, also of one seed.

    Args:
        results: from `load_results`.
        metrics: columns of numbers or booleans; None for all that the experiment returned, but what
            it cost (`COSTS`).
        by: columns that name a group, none for one group of all; None for the point, that is for
            all parameters.

    Returns:
        One row per group and metric: the columns of `by` (of all parameters that differ, if it is
        None), metric, n (runs with a value), seeds (different ones among these), failed, mean, low,
        high, again_low and again_high (where the mean of as many other seeds will be, for instance
        on another machine), interval and level (which kind these are, see `tl_dyck.estimates`),
        std, pooled ("2 values of training.learning_rate pooled", or ""). The ends are NaN for a
        single seed. A column of `by` that has one of these names is called "by <name>".

    Raises:
        SweepError: an unknown column, or a metric that is not a number.
    """
    parameters, measured = columns_of(results)
    groups = ["point"] if by is None else list(by)
    if metrics is None:
        outcomes = [name for name in measured if name not in (*groups, *COSTS)]
        metrics = [name for name in outcomes if _is_number(results[name])]
    metrics = [name if name in results else former(name) for name in metrics]
    for name in (*groups, *metrics):
        if name not in results:
            raise SweepError(
                f"the results have no column {name!r}, but {', '.join(map(str, results))}"
            )
    shown = groups
    if by is None:
        shown = varying(results) or groups
    rows = []
    # to group by nothing, pandas wants a value that is the same for all
    for _, group in results.groupby(groups or (lambda _: 0), sort=False, dropna=False):
        named = {f"by {name}" if name in _MEANS else name: group[name].iloc[0] for name in shown}
        failed = int((group["status"] == "failed").sum())
        pooled = _pooled(group, [name for name in parameters if name not in groups])
        for name in metrics:
            try:
                known = group[name].dropna().astype(float)
            except (TypeError, ValueError) as error:
                raise SweepError(f"{name!r} cannot be averaged: {error}") from error
            values, seeds = known.to_numpy(), group["seed"][known.index].to_numpy()
            if _is_share(group[name]) and len({*seeds}) == len(seeds):
                # a t interval of answers that are all the same has no width
                found = share(int(values.sum()), len(values))
            else:
                found = mean(values, clusters=seeds).of_metric(name)
            # ddof 1: of the seeds there could be, not of these alone
            std = float(values.std(ddof=1)) if len(values) > 1 else float("nan")
            row = (name, len(values), found.n, failed, found.value)
            row += (*found.ends().values(), std, pooled)
            # strict: `row` has to follow `_MEANS`, the one list of these columns
            rows.append({**named, **dict(zip(_MEANS, row, strict=True))})
    return pd.DataFrame(rows)


def groups_of(means: pd.DataFrame) -> list[str]:
    """The columns of means that name a group: those before `_MEANS`."""
    return [str(name) for name in means.columns[: -len(_MEANS)]]


def means_shown(means: pd.DataFrame) -> tuple[tuple[str, ...], list[list[str]]]:
    """What tables show of each mean, behind its group and metric: columns, and rows of texts.

    How many runs there are is shown where it is not the number of seeds.
    """
    counts = ("seeds", "runs") if (means["pooled"] != "").any() else ("seeds",)
    rows = []
    for _, row in means.iterrows():
        numbers = [f"{row['seeds']}", f"{row['n']}"][: len(counts)]
        numbers[-1] += f" (+ {row['failed']} failed)" if row["failed"] else ""
        value = "–" if row["mean"] != row["mean"] else f"{row['mean']:.4g}"
        ends = [ends_text(row[f"{at}low"], row[f"{at}high"]) for at in ("", "again_")]
        rows.append([*numbers, value, *ends])
    return (*counts, "mean", "interval", "other seeds"), rows


def pooled_words(means: pd.DataFrame) -> list[str]:
    """What was pooled, a sentence for each kind; none where means are over seeds alone."""
    pooled = dict.fromkeys(text for text in means["pooled"] if text)
    return [f"{text}: a mean is over all of them; --by keeps them apart." for text in pooled]


def _pooled(group: pd.DataFrame, parameters: Sequence[str]) -> str:
    """Which parameters have several values in a group, in words."""
    counts = {name: group[name].astype(str).nunique() for name in parameters}
    said = [f"{number} values of {name}" for name, number in counts.items() if number > 1]
    return f"{', '.join(said)} pooled" if said else ""


def _is_share(column: pd.Series) -> bool:
    """Whether it answers yes or no for each run, so that its mean is a share of seeds."""
    known = column.dropna()
    return len(known) > 0 and all(isinstance(each, (bool, np.bool_)) for each in known)


def _is_number(column: pd.Series) -> bool:
    known = column.dropna()
    return len(known) > 0 and bool(pd.api.types.is_numeric_dtype(known.infer_objects()))
