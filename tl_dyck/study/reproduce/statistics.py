"""Estimates with bootstrap intervals over seeds: means, differences, correlations, distances between patterns."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import final

import numpy as np
from jaxtyping import Float, Int

from tl_dyck.study.ranks import spearman

__all__ = [
    "Estimate",
    "correlation",
    "difference",
    "distances",
    "drawn_pair_mean",
    "estimate",
    "mean",
    "regression",
    "within_runs_correlation",
]

_LEVEL = 0.95


@final
@dataclass(frozen=True, kw_only=True)
class Estimate:
    """A number with its 95 % percentile bootstrap interval; NaN where there is none.

    Attributes:
        value: the estimate.
        low: lower end.
        high: upper end.
        n: number of seeds behind it.
    """

    value: float
    low: float
    high: float
    n: int

    def text(self, form: str = ".2f") -> str:
        """``0.12 [0.10, 0.15]``."""
        if self.low != self.low:
            return f"{self.value:{form}}"
        return f"{self.value:{form}} [{self.low:{form}}, {self.high:{form}}]"


Values = Float[np.ndarray, " n"]


def mean(values: Sequence[float] | np.ndarray, n_bootstrap: int, seed: int) -> Estimate:
    """Mean over seeds."""
    sample = np.asarray(values, dtype=float)
    return _bootstrap([sample], lambda drawn: drawn.mean(-1), n_bootstrap, seed)


def difference(
    after: Sequence[float] | np.ndarray, before: Sequence[float] | np.ndarray, n_bootstrap: int, seed: int
) -> Estimate:
    """Difference of means; of the same seeds, so that they are resampled in pairs."""
    pairs = np.asarray(after, dtype=float) - np.asarray(before, dtype=float)
    return mean(pairs, n_bootstrap, seed)


def correlation(
    x: np.ndarray, y: np.ndarray, n_bootstrap: int, seed: int, clusters: np.ndarray | None = None
) -> Estimate:
    """Spearman's rank correlation; resampled are models, or whole clusters of models.

    A resample in which one of the two does not vary counts as no correlation.
    """
    names = np.arange(len(x)) if clusters is None else clusters
    kinds = [np.flatnonzero(names == name) for name in np.unique(names)]
    generator = np.random.default_rng(seed)
    drawn = []
    for _ in range(n_bootstrap):
        rows = np.concatenate([kinds[index] for index in generator.integers(len(kinds), size=len(kinds))])
        drawn.append(float(spearman(x[rows], y[rows])))
    return estimate(float(spearman(x, y)), np.array(drawn), len(kinds))


def within_runs_correlation(runs: Sequence[tuple[np.ndarray, np.ndarray]], n_bootstrap: int, seed: int) -> Estimate:
    """Mean over runs of the rank correlation within a run; resampled are runs."""
    return mean([float(spearman(x, y)) for x, y in runs], n_bootstrap, seed)


def regression(
    x: np.ndarray, y: np.ndarray, at: np.ndarray, n_bootstrap: int, seed: int
) -> tuple[Values, Values, Values]:
    """The least-squares line at some places, and the bootstrap interval of its height there: (line, low, high)."""
    generator = np.random.default_rng(seed)
    heights = []
    for _ in range(n_bootstrap):
        rows = generator.integers(len(x), size=len(x))
        if np.ptp(x[rows]) > 0:  # else there is no line
            heights.append(_line(x[rows], y[rows], at))
    tail = (1 - _LEVEL) / 2
    low, high = np.quantile(heights, [tail, 1 - tail], axis=0) if heights else (np.full(len(at), np.nan),) * 2
    return _line(x, y, at), low, high


def _line(x: np.ndarray, y: np.ndarray, at: np.ndarray) -> Values:
    centred = x - x.mean()
    slope = (centred * y).sum() / (centred**2).sum()
    line: np.ndarray = y.mean() + slope * (at - x.mean())
    return line


# --- attention patterns -----------------------------------------------------------------------------------------------


def distances(a: Float[np.ndarray, "a *rest"], b: Float[np.ndarray, "b *rest"]) -> Float[np.ndarray, "a b"]:
    """Squared Frobenius norm of the difference of each pattern of one kind and each of another."""
    found: np.ndarray = ((a[:, None] - b[None]) ** 2).reshape(len(a), len(b), -1).sum(-1)
    return found


def drawn_pair_mean(
    matrix: Float[np.ndarray, "a b"], rows: Int[np.ndarray, " x"], columns: Int[np.ndarray, " y"], same: bool
) -> float:
    """Mean of a matrix of distances over drawn rows and columns.

    If rows and columns are the same models, a model and itself are no pair, however often it was drawn.
    """
    counts = (np.bincount(drawn, minlength=size) for drawn, size in zip((rows, columns), matrix.shape, strict=True))
    weight = np.outer(*counts).astype(float)
    if same:
        np.fill_diagonal(weight, 0)
    total = weight.sum()
    return float((weight * matrix).sum() / total) if total > 0 else float("nan")


def _bootstrap(
    samples: list[np.ndarray], statistic: Callable[..., np.ndarray], n_bootstrap: int, seed: int
) -> Estimate:
    n = len(samples[0])
    index = np.random.default_rng(seed).integers(n, size=(n_bootstrap, n)) if n else np.zeros((1, 0), int)
    value = float(statistic(*samples)) if n else float("nan")
    drawn = statistic(*(sample[index] for sample in samples)) if n > 1 else np.array([np.nan])
    return estimate(value, drawn, n)


def estimate(value: float, drawn: np.ndarray, n: int) -> Estimate:
    """A number with the percentile interval of its resamples, those that are not finite left out."""
    tail = (1 - _LEVEL) / 2
    known = drawn[np.isfinite(drawn)]
    low, high = np.quantile(known, [tail, 1 - tail]) if len(known) else (np.nan, np.nan)
    return Estimate(value=value, low=float(low), high=float(high), n=n)
