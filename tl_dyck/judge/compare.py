"""Two methods beside each other, on the same questions; and one beside all others."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pandas as pd
from jaxtyping import Float

from tl_dyck.intervals import estimate
from tl_dyck.judge.protocol import COLUMNS
from tl_dyck.judge.rates import N_BOOTSTRAP, resample
from tl_dyck.judge.scores import in_columns
from tl_dyck.kit.arguments import checked
from tl_dyck.kit.registry import unknown_name


@checked
def compare_methods(
    rows: pd.DataFrame,
    method: str,
    other: str | None = None,
    *,
    n_bootstrap: int = N_BOOTSTRAP,
) -> pd.DataFrame:
    """How much better one method is than another: paired, case by case.

    Both are scored on the questions that both answer, and on the same resampled cases: what makes a
    case hard is so for both, and cancels. Two intervals may overlap where the difference is clear.

    Args:
        rows: as `score_table`.
        method: its name.
        other: likewise; None for all others.
        n_bootstrap: resamples.

    Returns:
        A row per column of questions that both answer, trained and built models apart: other,
        question, cases, n (questions), and the differences (`method` less `other`) of all rates,
        see `tl_dyck.judge.rates.rates`, each with ``_low`` and ``_high``; interval (its kind) and
        level; p, of "both have the same AUROC", two-sided, from the spread of the resamples by
        Student's t; p_holm, the same for all rows together (S. Holm, A simple sequentially
        rejective multiple test procedure, Scand. J. Stat. 6, 1979): the chance that any
        difference below a limit is none is at most that limit. Intervals are of one row each.

    Raises:
        UnknownNameError: `rows` has no such method.
    """
    known = sorted(rows["method"].unique())
    for name in (method, *([] if other is None else [other])):
        if name not in known:
            raise unknown_name("method", name, known)
    parts = dict(iter(in_columns(rows).groupby("method")))
    others = [name for name in known if name != method] if other is None else [other]
    found = [
        {"other": name, **row}
        for name in others
        for row in _differences(parts[method], parts[name], n_bootstrap)
    ]
    table = pd.DataFrame(found)
    return table.assign(p_holm=holm(table["p"].to_numpy(float))) if found else table


def _differences(one: pd.DataFrame, other: pd.DataFrame, n_bootstrap: int) -> list[dict[str, Any]]:
    asked = ["case", "question", "target"]
    both = [each.set_index(asked) for each in (one, other)]
    shared = both[0].index.intersection(both[1].index)
    columns = shared.get_level_values("question")
    found = []
    for column in (column for column in COLUMNS if column in set(columns)):
        those = shared[columns == column]
        rates, drawn, n = resample([each.loc[those].reset_index() for each in both], n_bootstrap)
        row: dict[str, Any] = {"question": column, "cases": n, "n": len(those)}
        for name in rates[0]:
            gaps = drawn[0][name] - drawn[1][name]
            gap = estimate(rates[0][name] - rates[1][name], gaps, n, widened=True)
            row |= {name: gap.value, f"{name}_low": gap.low, f"{name}_high": gap.high}
            row |= {"interval": gap.kind, "level": gap.level}
        row["p"] = _p_value(row["auroc"], drawn[0]["auroc"] - drawn[1]["auroc"], n)
        found.append(row)
    return found


def _p_value(gap: float, drawn: Float[np.ndarray, " resample"], n: int) -> float:
    """Of no difference, two-sided; NaN where there is none to speak of, or one case."""
    drawn = drawn[np.isfinite(drawn)]
    if not math.isfinite(gap) or len(drawn) < 2:
        return math.nan
    # resamples vary by (n − 1) / n of the variance
    error = drawn.std() * math.sqrt(n / (n - 1))
    if error < 1e-12:  # rounding, and no spread: exactly alike, or apart in every resample alike
        tails = 1.0 if abs(gap) < 1e-12 else 0.0
    else:
        from scipy import special  # a method is seldom compared where the judge is imported

        tails = 2 * float(special.stdtr(n - 1, -abs(gap) / error))
    # no test by signs of so few cases says less
    return max(tails, 2.0 ** (1 - n))


def holm(p: Float[np.ndarray, " n"]) -> Float[np.ndarray, " n"]:
    """Holm's step-down correction of so many p-values; NaN are no tests, and stay NaN.

    Args:
        p: of one test each.
    """
    found, known = np.full(len(p), np.nan), np.flatnonzero(~np.isnan(p))
    order = known[np.argsort(p[known], kind="stable")]
    # the least of m p-values counts m times, the next m − 1 times, …
    times = np.arange(len(order), 0, -1)
    found[order] = np.minimum(np.maximum.accumulate(times * p[order]), 1.0)
    return found
