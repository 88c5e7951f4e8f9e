"""Means over seeds, with intervals."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pandas as pd

from tl_dyck.intervals import mean
from tl_dyck.runs.results import columns_of
from tl_dyck.runs.spec import SweepError

#: What an experiment returns of its cost, not of its outcome: asked for by name only.
COSTS = ("steps", "train_seconds")
_MEANS = ("metric", "n", "seeds", "failed", "mean", "low", "high", "std", "pooled")


def aggregate(
    results: pd.DataFrame,
    metrics: Sequence[str] | None = None,
    *,
    by: Sequence[str] | None = None,
    n_bootstrap: int = 2000,
    seed: int = 0,
) -> pd.DataFrame:
    """Means over seeds with 95 % percentile bootstrap intervals.

    Where a group has several runs of a seed, because `by` leaves out a parameter that varies, the
    mean is over all of them, seeds are resampled with all their runs, and the table says what was
    pooled.

    Args:
        results: from `load_results`.
        metrics: columns of numbers or booleans; None for all that the experiment returned, but what
            it cost (`COSTS`).
        by: columns that name a group, none for one group of all; None for the point, that is for
            all parameters.
        n_bootstrap: resamples.
        seed: of the resampling.

    Returns:
        One row per group and metric: the columns of `by` (of all parameters that differ, if it is
        None), metric, n (runs with a value), seeds (different ones among these), failed, mean, low,
        high, std, pooled ("2 values of training.learning_rate pooled", or ""). low and high are NaN
        for a single seed. A column of `by` that has one of these names is called "by <name>".

    Raises:
        SweepError: an unknown column, or a metric that is not a number.
    """
    parameters, measured = columns_of(results)
    groups = ["point"] if by is None else list(by)
    if metrics is None:
        outcomes = [name for name in measured if name not in (*groups, *COSTS)]
        metrics = [name for name in outcomes if _is_number(results[name])]
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
        pooled = _pooled(group, [name for name in parameters if name not in groups])
        for name in metrics:
            try:
                known = group[name].dropna().astype(float)
            except (TypeError, ValueError) as error:
                raise SweepError(f"{name!r} cannot be averaged: {error}") from error
            values, seeds = known.to_numpy(), group["seed"][known.index].to_numpy()
            found = mean(values, n_bootstrap, generator, clusters=seeds)
            std = float(values.std(ddof=1)) if len(values) > 1 else float("nan")
            rows.append(
                {**named, "metric": name, "n": len(values), "seeds": found.n, "failed": failed}
                | {"mean": found.value, "low": found.low, "high": found.high, "std": std}
                | {"pooled": pooled}
            )
    return pd.DataFrame(rows)


def _pooled(group: pd.DataFrame, parameters: Sequence[str]) -> str:
    """Which parameters have several values in a group, in words."""
    counts = {name: group[name].astype(str).nunique() for name in parameters}
    said = [f"{number} values of {name}" for name, number in counts.items() if number > 1]
    return f"{', '.join(said)} pooled" if said else ""


def _is_number(column: pd.Series) -> bool:
    known = column.dropna()
    return len(known) > 0 and bool(pd.api.types.is_numeric_dtype(known.infer_objects()))
