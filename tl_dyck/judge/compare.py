"""Two methods beside each other, on the same questions."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd

from tl_dyck.intervals import estimate
from tl_dyck.judge.protocol import KINDS
from tl_dyck.judge.scores import N_BOOTSTRAP, resample
from tl_dyck.kit.arguments import checked
from tl_dyck.kit.registry import unknown_name


@checked
def compare_methods(
    rows: pd.DataFrame, method: str, other: str, *, n_bootstrap: int = N_BOOTSTRAP
) -> pd.DataFrame:
    """How much better one method is than another: paired, case by case.

    Both are scored on the questions that both answer, and on the same resampled cases: what makes a
    case hard is so for both, and cancels. Two intervals may overlap where the difference is clear.

    Args:
        rows: as `score_table`.
        method: its name.
        other: likewise.
        n_bootstrap: resamples.

    Returns:
        A row per kind of question that both answer: question, cases, n (questions), and the
        differences (`method` less `other`) of auroc, accuracy, false_alarms, misses and off, each
        with ``_low`` and ``_high``; interval (its kind) and level.

    Raises:
        UnknownNameError: `rows` has no such method.
    """
    known = sorted(rows["method"].unique())
    for name in (method, other):
        if name not in known:
            raise unknown_name("method", name, known)
    asked = ["case", "question", "target"]
    both = [rows[rows["method"] == name].set_index(asked) for name in (method, other)]
    shared = both[0].index.intersection(both[1].index)
    kinds = list(dict.fromkeys(shared.get_level_values("question")))
    found = []
    for kind in (kind for kind in KINDS if kind in kinds):
        those = shared[shared.get_level_values("question") == kind]
        rates, drawn, n = resample([each.loc[those].reset_index() for each in both], n_bootstrap)
        row: dict[str, Any] = {"question": kind, "cases": n, "n": len(those)}
        for name in rates[0]:
            gaps = np.array([a[name] - b[name] for a, b in zip(*drawn, strict=True)])
            gap = estimate(rates[0][name] - rates[1][name], gaps, n, widened=True)
            row |= {name: gap.value, f"{name}_low": gap.low, f"{name}_high": gap.high}
            row |= {"interval": gap.kind, "level": gap.level}
        found.append(row)
    return pd.DataFrame(found)
