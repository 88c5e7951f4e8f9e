"""Means over seeds, with intervals."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pandas as pd

from tl_dyck.intervals import mean
from tl_dyck.runs.results import columns_of
from tl_dyck.runs.spec import SweepError

__all__ = ["aggregate"]

_MEANS = ("metric", "n", "failed", "mean", "low", "high", "std")


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
