"""Bootstrap intervals over seeds: the one place where anything is resampled.

Here is also the error of a ratio of sums, which needs no resampling.

Every interval is a percentile interval of 95 % unless a level is given. What is resampled are
models, that is seeds: a mean over them (by SciPy), a correlation of two measures of the same
models, a mean over pairs of models. Where several rows belong to one seed, its rows are resampled
together.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, final

import numpy as np
from einops import rearrange, reduce
from jaxtyping import Float, Int

_LEVEL = 0.95
_DRAWN = 2_000_000  # numbers that are drawn at once

Source = int | np.random.Generator


@final
@dataclass(frozen=True, kw_only=True)
class Estimate:
    """A number with its bootstrap interval; NaN where there is none.

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
        """``0.12 [0.10, 0.15]``, or ``–`` where there is nothing."""
        if self.value != self.value:
            return "–"
        if self.low != self.low:
            return f"{self.value:{form}}"
        return f"{self.value:{form}} [{self.low:{form}}, {self.high:{form}}]"


Values = Float[np.ndarray, " n"]


def mean(
    values: Sequence[float] | np.ndarray,
    n_bootstrap: int,
    source: Source = 0,
    *,
    level: float = _LEVEL,
    clusters: np.ndarray | None = None,
) -> Estimate:
    """Mean over seeds; no interval for fewer than two, and nothing at all for none.

    Args:
        values: one for each seed; or several, with `clusters`.
        n_bootstrap: resamples.
        source: a seed, or a generator that is advanced.
        level: of the interval.
        clusters: of which seed each value is; the values of a seed are resampled together. None if
            each has one.
    """
    sample = np.asarray(values, dtype=float)
    n = len(sample) if clusters is None else len(np.unique(clusters))
    if n < 2:
        value = float(sample.mean()) if len(sample) else float("nan")
        return Estimate(value=value, low=float("nan"), high=float("nan"), n=n)
    # takes half a second, and what is imported with this module seldom needs it
    from scipy import stats

    data: tuple[Any, ...] = (sample,)
    statistic: Callable[..., Any] = np.mean
    if clusters is not None and n < len(sample):
        _, seed = np.unique(clusters, return_inverse=True)
        data = (np.bincount(seed, weights=sample), np.bincount(seed).astype(float))
        statistic = _mean_of_sums
    found = stats.bootstrap(
        data,
        statistic,
        n_resamples=n_bootstrap,
        confidence_level=level,
        method="percentile",
        random_state=np.random.default_rng(source),
        batch=max(1, _DRAWN // n),
        paired=len(data) > 1,
    ).confidence_interval
    return Estimate(value=float(sample.mean()), low=float(found.low), high=float(found.high), n=n)


def _mean_of_sums(sums: np.ndarray, counts: np.ndarray, axis: int = -1) -> Any:
    """The mean of all values, from the sum and the number of each seed's."""
    return sums.sum(axis) / counts.sum(axis)


def share(successes: int, n: int, *, level: float = _LEVEL) -> Estimate:
    """A share of seeds with its exact interval (Clopper and Pearson 1934), by SciPy.

    A bootstrap of a share that is 0 or 1 would have no width.
    """
    if n == 0:
        return Estimate(value=float("nan"), low=float("nan"), high=float("nan"), n=0)
    from scipy import stats

    found = stats.binomtest(successes, n).proportion_ci(confidence_level=level)
    return Estimate(value=successes / n, low=float(found.low), high=float(found.high), n=n)


def ratio_of_sums(
    parts: Float[np.ndarray, " n"], sizes: Float[np.ndarray, " n"]
) -> tuple[float, float]:
    """Σ parts / Σ sizes over strings, and its standard error by the delta method.

    The error is that of the mean of ``parts - ratio * sizes``, over the mean of `sizes`; NaN for
    fewer than two strings.
    """
    ratio = parts.sum() / sizes.sum()
    if len(parts) < 2:
        return float(ratio), float("nan")
    error = np.std(parts - ratio * sizes, ddof=1) / sizes.mean() / np.sqrt(len(parts))
    return float(ratio), float(error)


def spearman(x: np.ndarray, y: np.ndarray) -> np.ndarray:
    """Spearman's rank correlation along the last axis; 0 where one of the two does not vary."""
    from scipy import stats

    ranks = stats.rankdata(x, axis=-1), stats.rankdata(y, axis=-1)
    a, b = (rank - rank.mean(-1, keepdims=True) for rank in ranks)
    norm = np.sqrt((a**2).sum(-1) * (b**2).sum(-1))
    rho: np.ndarray = np.divide((a * b).sum(-1), norm, out=np.zeros(norm.shape), where=norm > 0)
    return rho


def correlation(
    x: np.ndarray,
    y: np.ndarray,
    n_bootstrap: int,
    source: Source = 0,
    clusters: np.ndarray | None = None,
) -> Estimate:
    """Spearman's rank correlation; resampled are models, or whole clusters of models.

    A resample in which one of the two does not vary counts as no correlation.
    """
    generator = np.random.default_rng(source)
    if clusters is None:
        index = generator.integers(len(x), size=(n_bootstrap, len(x)))
        return estimate(float(spearman(x, y)), spearman(x[index], y[index]), len(x))
    kinds = [np.flatnonzero(clusters == name) for name in np.unique(clusters)]
    drawn = []
    for _ in range(n_bootstrap):
        rows = np.concatenate(
            [kinds[index] for index in generator.integers(len(kinds), size=len(kinds))]
        )
        drawn.append(float(spearman(x[rows], y[rows])))
    return estimate(float(spearman(x, y)), np.array(drawn), len(kinds))


def regression(
    x: np.ndarray, y: np.ndarray, at: np.ndarray, n_bootstrap: int, source: Source = 0
) -> tuple[Values, Values, Values]:
    """The least-squares line at some places, with bootstrap intervals: (line, low, high)."""
    generator = np.random.default_rng(source)
    heights = []
    for _ in range(n_bootstrap):
        rows = generator.integers(len(x), size=len(x))
        if np.ptp(x[rows]) > 0:  # else there is no line
            heights.append(_line(x[rows], y[rows], at))
    low, high = (
        np.quantile(heights, _tails(_LEVEL), axis=0) if heights else (np.full(len(at), np.nan),) * 2
    )
    return _line(x, y, at), low, high


def _line(x: np.ndarray, y: np.ndarray, at: np.ndarray) -> Values:
    centred = x - x.mean()
    slope = (centred * y).sum() / (centred**2).sum()
    line: np.ndarray = y.mean() + slope * (at - x.mean())
    return line


def estimate(value: float, drawn: np.ndarray, n: int, *, level: float = _LEVEL) -> Estimate:
    """A number and the percentile interval of its resamples, non-finite ones left out."""
    known = drawn[np.isfinite(drawn)]
    low, high = np.quantile(known, _tails(level)) if len(known) else (np.nan, np.nan)
    return Estimate(value=value, low=float(low), high=float(high), n=n)


def _tails(level: float) -> tuple[float, float]:
    return (1 - level) / 2, (1 + level) / 2


# --- pairs of models ------------------------------------------------------------------------------


def distances(
    a: Float[np.ndarray, "a *rest"], b: Float[np.ndarray, "b *rest"]
) -> Float[np.ndarray, "a b"]:
    """Squared Frobenius norm of the difference of each pattern of one kind and each of another."""
    found: np.ndarray = reduce((a[:, None] - b[None]) ** 2, "a b ... -> a b", "sum")
    return found


def drawn_pair_mean(
    matrix: Float[np.ndarray, "a b"],
    rows: Int[np.ndarray, " x"],
    columns: Int[np.ndarray, " y"],
    same: bool,
) -> float:
    """Mean of a matrix of distances over drawn rows and columns.

    If rows and columns are the same models, a model and itself are no pair, however often it was
    drawn.
    """
    counts = (
        np.bincount(drawn, minlength=size)
        for drawn, size in zip((rows, columns), matrix.shape, strict=True)
    )
    weight = np.outer(*counts).astype(float)
    if same:
        np.fill_diagonal(weight, 0)
    total = weight.sum()
    return float((weight * matrix).sum() / total) if total > 0 else float("nan")


def mean_over_pairs(
    distance: Float[np.ndarray, "model model *rest"],
    n_bootstrap: int,
    source: Source = 0,
    *,
    level: float = _LEVEL,
) -> tuple[np.ndarray, np.ndarray]:
    """Mean over pairs of different models; interval over resampled models (last axis: low, high).

    A model that was drawn twice makes no pair with itself; a resample of one model alone has no
    pairs. With two models every resample has the same pair, and the interval is NaN.
    """
    n = len(distance)
    counts = (
        np.random.default_rng(source)
        .multinomial(n, np.full(n, 1 / n), size=n_bootstrap)
        .astype(float)
    )
    counts = counts[(counts > 0).sum(1) > 1]
    if not len(counts):  # so few resamples that none has a pair
        counts = np.full((1, n), np.nan)
    weights = np.einsum("sa,sb->sab", counts, counts) * (1 - np.eye(n))
    weights /= weights.sum((1, 2), keepdims=True)
    resampled = np.einsum("sab,ab...->s...", weights, distance)
    interval = rearrange(np.quantile(resampled, _tails(level), axis=0), "end ... -> ... end")
    return distance.sum((0, 1)) / (n * (n - 1)), interval if n > 2 else np.full_like(
        interval, np.nan
    )
