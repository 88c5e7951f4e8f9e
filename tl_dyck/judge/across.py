"""Whether methods that are good on one task are good on another: rank correlations of their order.

Knows: that cases of different tasks are resampled apart, and that a correlation is held beside that
of two halves of one task's cases: the order of methods is known no better than that.
"""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from tl_dyck import intervals
from tl_dyck.judge.protocol import CONTROLS, OF_EVERY_TASK, column_of
from tl_dyck.judge.rates import N_BOOTSTRAP, aurocs
from tl_dyck.judge.scores import in_columns
from tl_dyck.judge.small_tasks import TASKS
from tl_dyck.kit.arguments import checked

Floats = NDArray[np.float64]
_LEAST = 3  # methods: of two every order is perfect
_CASES = 5  # fewer, and a resample may be one case


@checked
def rank_correlations(rows: pd.DataFrame, *, n_bootstrap: int = N_BOOTSTRAP) -> pd.DataFrame:
    """How alike the order of methods is on two tasks, by AUROC, for each kind of question.

    Controls are left out, methods that do not answer every question of both, and what is asked of
    fewer than five cases of a task.

    Args:
        rows: of `tl_dyck.judge.scores.ask`, with a column "method", and the oracle's.
        n_bootstrap: resamples of cases, of each task apart; and splits in halves.

    Returns:
        A row per kind of question and pair of tasks: question, task, other, methods (their number),
        spearman and kendall (tau-b), each with ``_low`` and ``_high`` (95 %, bootstrap over cases),
        and cases, of the task that has fewer. Where task and other are the same these are of two
        halves of its cases, drawn again and again: the mean, and where 95 % of them lie.
    """
    rows, found = in_columns(rows), []
    for kind in OF_EVERY_TASK:
        tables = {}
        for seed, task in enumerate(TASKS):
            these = rows[rows["question"] == column_of(kind, task)]
            if these["case"].nunique() >= _CASES:
                tables[task] = _Resampled(these, n_bootstrap, np.random.default_rng(seed))
        for (task, a), (other, b) in itertools.combinations_with_replacement(tables.items(), 2):
            names = [name for name in a.groups if name in b.groups]
            if len(names) < _LEAST:
                continue
            row = {"question": kind, "task": task, "other": other, "methods": len(names)}
            pair = a.halves(names) if a is b else (a.drawn(names), b.drawn(names))
            once = None if a is b else (a.once(names), b.once(names))
            found.append({**row, **_alike(once, pair), "cases": min(a.n, b.n)})
    return pd.DataFrame(found)


class _Resampled:
    """Methods on the cases of a task, and how often each case counts in a resample or a half."""

    def __init__(self, rows: pd.DataFrame, n_bootstrap: int, random: np.random.Generator) -> None:
        rows = rows.sort_values(["case", "target"], kind="stable")
        known = rows[rows["method"] == "oracle"]
        self.place, cases = pd.factorize(known["case"])
        self.n, self.answers = len(cases), known["answer"].to_numpy(bool)
        self.groups = {
            str(name): group["score"].to_numpy(float)
            for name, group in rows.groupby("method")
            if name not in CONTROLS and len(group) == len(known)
        }
        drawn = random.integers(self.n, size=(n_bootstrap, self.n))
        self._counts = np.stack([np.bincount(each, minlength=self.n) for each in drawn]).astype(
            float
        )
        order = np.argsort(random.random((n_bootstrap, self.n)), axis=1)
        self._half = (order < self.n // 2).astype(float)  # a random half of the cases

    def _by(self, names: list[str], counts: Floats) -> Floats:
        """AUROC, ``[method, resample]``."""
        weights = counts[:, self.place]
        return np.stack([aurocs(self.answers, self.groups[name], weights) for name in names])

    def once(self, names: list[str]) -> Floats:
        return self._by(names, np.ones((1, self.n)))

    def drawn(self, names: list[str]) -> Floats:
        return self._by(names, self._counts)

    def halves(self, names: list[str]) -> tuple[Floats, Floats]:
        return self._by(names, self._half), self._by(names, 1 - self._half)


def _alike(once: tuple[Floats, Floats] | None, pair: tuple[Floats, Floats]) -> dict[str, Any]:
    """Both correlations, of all cases or in the mean of halves, with their intervals."""
    found: dict[str, Any] = {}
    for name, how in (("spearman", spearman), ("kendall", kendall)):
        drawn = how(*pair)
        value = float(np.nanmean(drawn)) if once is None else float(how(*once)[0])
        told = intervals.estimate(value, drawn, len(drawn))
        found |= {name: told.value, f"{name}_low": told.low, f"{name}_high": told.high}
    return found


def spearman(a: Floats, b: Floats) -> Floats:
    """Spearman's ρ of each column of two tables ``[method, column]``; NaN where one is constant."""
    return np.where(_known(a, b), intervals.spearman(a.T, b.T), np.nan)


def kendall(a: Floats, b: Floats) -> Floats:
    """Kendall's τ_b, likewise."""
    i, j = np.triu_indices(len(a), 1)
    x, y = (np.sign(each[i] - each[j]) for each in (a, b))
    part, whole = (x * y).sum(0), np.sqrt((x * x).sum(0) * (y * y).sum(0))
    found: Floats = np.divide(part, whole, out=np.full(len(part), np.nan), where=_known(a, b))
    return found


def _known(*tables: Floats) -> NDArray[np.bool_]:
    """Columns of which no table lacks a number, and which are constant in none."""
    known: NDArray[np.bool_] = np.all(
        [np.isfinite(each).all(0) & (np.ptp(each, 0) > 0) for each in tables], axis=0
    )
    return known
