"""Where intervals are made: of means, of statistics of many models, of shares, by resampling.

Units are what is independent: models (seeds) in a study or a sweep, cases in a judgement.

*Means* have a t interval that is corrected for skewness, by Hall's cubic transformation (P. Hall,
On the removal of skewness by transformation, J. R. Stat. Soc. B 54, 1992). Numbers of seeds are
skewed (accuracies end at 100 %), and there are few. Tried beside it, by simulation: a percentile
bootstrap covers 88, 84 and 78 % (8 normal, exponential, lognormal numbers, for 95 %), BCa 87, 85
and 80, a plain t interval 95, 89 and 83, a bootstrap of t 94, 94 and 89 (and 80 % of three normal
numbers). This one covers 95, 94 and 90, needs no draws, and so does not depend on what else is
asked. `python docs/coverage.py` measures it again.

*No interval covers every mean*: whatever is not seen in a sample may be far away (Bahadur and
Savage 1956). Normal, uniform and exponential numbers are covered within two points, by 3, 8 and 40
of them. Of lognormal ones (σ = 1) 90 to 93 % of means are held, of 95. Nothing that was tried has
more: Johnson's t and Chen's have 84, a bootstrap of t 80 and 90, with 3 and 8. So the words of such
an interval say both, 95 and 90 to 93 (`tl_dyck.estimates.SKEWED`).

*Statistics of many models at once*, such as a mean over pairs of them, are means of the jackknife's
pseudo-values (Tukey 1958). *Correlations and rates of cases* are resampled (percentiles), where
that covers; what is drawn depends on the data alone. *Shares of models* have exact intervals.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
from einops import rearrange, reduce
from jaxtyping import Float, Int

from tl_dyck.estimates import LEVEL, NUMBERS, Estimate

__all__ = [
    "LEVEL",
    "Estimate",
    "correlation",
    "difference",
    "distances",
    "drawn_pair_mean",
    "estimate",
    "left_out",
    "mean",
    "mean_over_pairs",
    "ratio_of_sums",
    "regression",
    "share",
    "spearman",
    "t_interval",
]

_TAILS = {2: 0.7, 3: 0.6, 4: 0.6, 5: 0.7, 6: 0.75, 7: 0.9}
"""What the tails of t are multiplied by for so few numbers, the rest in proportion: the skewness of
few is underestimated. Set so that normal and exponential numbers are missed as far on either side
of what is said; `docs/coverage.py` shows both."""

_FEWEST_RANKED = 8
"""Fewer models give no interval of a correlation: resampled, it covers 60 to 90 % of them."""


Values = Float[np.ndarray, " n"]


# --- means ----------------------------------------------------------------------------------------


def t_interval(
    values: Float[np.ndarray, "*samples n"], *, level: float = LEVEL, others: int | float = math.inf
) -> tuple[np.ndarray, np.ndarray]:
    """The interval of the mean of each sample, or of the mean of so many other numbers.

    With skewness γ and n numbers T = (mean - μ) / error is not distributed as t. A cubic function
    of it is, to one order in 1/√n more: f(T) = T + a T² + a² T³ / 3 + b. Its inverse at the
    quantiles of t gives the interval. a and b follow from the first and third moments of T, which
    are those of γ and of the covariance of mean and error; for the mean of m other numbers the
    error and both moments are those of the difference of two means.

    Args:
        values: samples of at least two numbers each.
        level: of the interval.
        others: m, for the prediction interval of the mean of m other numbers of the same law; inf
            for the interval of the mean itself.

    Returns:
        Lower and upper ends.
    """
    middle = values.mean(-1)
    return _ends(middle, [_moments(values)], level, others)


_Moments = tuple[int, Any, Any]


def _moments(values: np.ndarray) -> _Moments:
    """Of samples: how many numbers each has, their variance (unbiased) and third moment."""
    n = values.shape[-1]
    apart = values - values.mean(-1, keepdims=True)
    square = (apart**2).mean(-1)
    # n / (n - 1) makes a variance unbiased; its power 1.5 keeps the skewness
    # that of the numbers given
    return n, square * n / (n - 1), (apart**3).mean(-1) * (n / (n - 1)) ** 1.5


def _ends(
    value: Any, parts: Sequence[_Moments], level: float, others: int | float = math.inf
) -> tuple[Any, Any]:
    """See `t_interval`; of a sum of means of several samples there are several `parts`."""
    from scipy import special  # takes a while, and what is imported with this seldom needs it

    own = sum(variance / n for n, variance, _ in parts)
    error = np.sqrt(sum(variance * (1 / n + 1 / others) for n, variance, _ in parts))
    # of a difference: what the other mean adds to the third moment has the other sign
    third = sum(skew * (1 / n**2 - 1 / others**2) for n, _, skew in parts)
    with np.errstate(all="ignore"):  # no variance: no width
        tie = np.nan_to_num(sum(skew / n**2 for n, _, skew in parts) / own / error)
        lean = np.nan_to_num(third / error**3) - 3 * tie  # third moment of T
        # Welch and Satterthwaite; of one sample, n − 1
        freedom = own**2 / sum((variance / n) ** 2 / (n - 1) for n, variance, _ in parts)
    fewest = min(n for n, _, _ in parts)
    tail = (1 - level) / 2 * _TAILS.get(fewest, 1.0)
    top = special.stdtrit(np.where(np.isfinite(freedom), freedom, fewest - 1), 1 - tail)
    # so that f(T) has mean 0 and no third moment, to that order
    a, b = -lean / 6, tie / 2 + lean / 6

    def inverse(quantile: Any) -> Any:
        small = np.abs(a) < 1e-9  # then f is the identity
        root = np.cbrt(1 + 3 * a * (quantile - b)) - 1
        return np.where(small, quantile, root / np.where(small, 1.0, a))

    # T has the mean on top: the upper quantile makes the lower end
    return value - inverse(top) * error, value - inverse(-top) * error


def _estimate_of(
    value: float, parts: Sequence[np.ndarray], level: float, n: int | None = None
) -> Estimate:
    """A sum of the means of samples, with its interval; of one sample, that of others, too."""
    moments = [_moments(part) for part in parts]
    low, high = _ends(value, moments, level)
    n = len(parts[0]) if n is None else n
    again = _ends(value, moments, level, n) if len(parts) == 1 else (math.nan, math.nan)
    ends = dict(zip(NUMBERS, map(float, (low, high, *again)), strict=True))
    return Estimate(value=value, **ends, n=n, kind="t", level=level)


def mean(
    values: Sequence[float] | np.ndarray,
    *,
    level: float = LEVEL,
    clusters: np.ndarray | None = None,
) -> Estimate:
    """Mean over seeds; no interval for fewer than two, and nothing at all for none.

    Args:
        values: one for each seed; or several, with `clusters`.
        level: of the interval.
        clusters: of which seed each value is; seeds are what is independent. None if each has one.
    """
    sample = np.asarray(values, dtype=float)
    n = len(sample) if clusters is None else len(np.unique(clusters))
    value = float(sample.mean()) if len(sample) else math.nan
    if n < 2:
        return Estimate(value=value, low=math.nan, high=math.nan, n=n, kind="t", level=level)
    if clusters is not None and n < len(sample):
        # the mean is a ratio of two sums over seeds: of values, and of how many there are
        _, seed = np.unique(clusters, return_inverse=True)
        counts = np.bincount(seed)
        # the ratio, linearised: one number a seed, whose mean is the ratio
        sample = value + np.bincount(seed, weights=sample - value) / counts.mean()
    return _estimate_of(value, [sample], level)


def difference(after: Any, before: Any, *, level: float = LEVEL) -> Estimate:
    """Mean of the differences of what both have: paired, by seed or by case.

    What two groups share (initial weights, test strings) cancels, and the interval is that of the
    differences; it is narrower than two intervals beside each other say.

    Args:
        after: a number for each seed: a dict, or a Series indexed by seed.
        before: likewise; seeds that only one of the two has do not count, nor does NaN.
        level: of the interval.
    """
    both = [key for key in after.keys() if key in before.keys()]  # noqa: SIM118 (of a Series)
    found = np.array([after[key] - before[key] for key in both], dtype=float)
    return mean(found[np.isfinite(found)], level=level)


def left_out(value: float, without: Sequence[np.ndarray], *, level: float = LEVEL) -> Estimate:
    """A statistic of models, by the jackknife: from its values without one model after the other.

    Args:
        value: of all models.
        without: for each kind of models that is sampled by itself, the statistic without each one.
        level: of the interval.

    Returns:
        The mean of the pseudo-values n·value - (n - 1)·without; no interval if a value is NaN. n is
        the smallest number of models of a kind.
    """
    fewest = min(map(len, without))
    known = all(np.isfinite(each).all() for each in without)
    if fewest < 2 or not known or not math.isfinite(value):
        return Estimate(value=value, low=math.nan, high=math.nan, n=fewest, kind="t", level=level)
    # pseudo-values: n times the whole less n − 1 times the rest is what one adds
    parts = [len(each) * value - (len(each) - 1) * np.asarray(each) for each in without]
    return _estimate_of(value, parts, level, fewest)


def share(successes: int, n: int, *, level: float = LEVEL) -> Estimate:
    """A share of seeds with its exact interval (Clopper and Pearson 1934).

    It also says something of a share that is 0 or 1.
    """
    about: dict[str, Any] = {"n": n, "kind": "exact", "level": level}
    if n == 0:
        return Estimate(value=math.nan, low=math.nan, high=math.nan, **about)
    from scipy import special

    # quantiles of beta distributions; SciPy's test searches for them, a hundred times as long
    tail, others = (1 - level) / 2, n - successes
    low = special.betaincinv(successes, others + 1, tail) if successes else 0.0
    high = special.betaincinv(successes + 1, others, 1 - tail) if others else 1.0
    return Estimate(value=successes / n, low=float(low), high=float(high), **about)


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
    # how far a string is from the line through 0 with the ratio as slope
    error = np.std(parts - ratio * sizes, ddof=1) / sizes.mean() / np.sqrt(len(parts))
    return float(ratio), float(error)


# --- what is resampled ----------------------------------------------------------------------------


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
    seed: int = 0,
    clusters: np.ndarray | None = None,
) -> Estimate:
    """Spearman's rank correlation; resampled are models, or whole clusters of models.

    A resample in which one of the two does not vary counts as no correlation. Fewer than eight
    models or clusters give no interval. The order in which models are listed changes nothing.
    """
    generator = np.random.default_rng(seed)
    value = float(spearman(x, y))
    n = len(x) if clusters is None else len(np.unique(clusters))
    if n < _FEWEST_RANKED:
        return Estimate(value=value, low=math.nan, high=math.nan, n=n, kind="bootstrap")
    if clusters is None:
        x, y = _in_order(x, y)
        index = generator.integers(n, size=(n_bootstrap, n))
        return estimate(value, spearman(x[index], y[index]), n)
    kinds = [np.flatnonzero(clusters == name) for name in np.unique(clusters)]
    drawn = []
    for _ in range(n_bootstrap):
        rows = np.concatenate([kinds[index] for index in generator.integers(n, size=n)])
        drawn.append(float(spearman(x[rows], y[rows])))
    return estimate(value, np.array(drawn), n)


def regression(
    x: np.ndarray, y: np.ndarray, at: np.ndarray, n_bootstrap: int, seed: int = 0
) -> tuple[Values, Values, Values]:
    """The least-squares line at some places, with bootstrap intervals: (line, low, high)."""
    generator, (x, y) = np.random.default_rng(seed), _in_order(x, y)
    heights = []
    for _ in range(n_bootstrap):
        rows = generator.integers(len(x), size=len(x))
        if np.ptp(x[rows]) > 0:  # else there is no line
            heights.append(_line(x[rows], y[rows], at))
    low, high = (
        np.quantile(heights, _tails(LEVEL), axis=0) if heights else (np.full(len(at), np.nan),) * 2
    )
    return _line(x, y, at), low, high


def _in_order(x: np.ndarray, y: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Pairs sorted by what they are: the same draws then take the same models, however listed."""
    order = np.lexsort((y, x))
    return x[order], y[order]


def _line(x: np.ndarray, y: np.ndarray, at: np.ndarray) -> Values:
    centred = x - x.mean()
    slope = (centred * y).sum() / (centred**2).sum()
    line: np.ndarray = y.mean() + slope * (at - x.mean())
    return line


def estimate(
    value: float,
    drawn: np.ndarray,
    n: int,
    *,
    level: float = LEVEL,
    kind: str = "bootstrap",
    widened: bool = False,
) -> Estimate:
    """A number and the percentile interval of its resamples, non-finite ones left out.

    Args:
        value: the number.
        drawn: what it was in the resamples.
        n: number of units that were resampled.
        level: of the interval.
        kind: of the interval.
        widened: whether the percentiles are those that would make the interval of a mean as wide as
            a t interval (Hesterberg 2015, "expanded"): of few units, resamples vary too little.
    """
    known = drawn[np.isfinite(drawn)]
    low, high = _tails(level)
    if widened and n > 1:
        from scipy import special

        # resamples vary by (n − 1) / n of the variance, and with normal tails: the percentile at
        # which they are as far out as t is
        low = special.ndtr(math.sqrt(n / (n - 1)) * special.stdtrit(n - 1, low))
        high = 1 - low
    ends = np.quantile(known, (low, high)) if len(known) else (math.nan, math.nan)
    return Estimate(
        value=value, low=float(ends[0]), high=float(ends[1]), n=n, kind=kind, level=level
    )


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
    distance: Float[np.ndarray, "model model *rest"], *, level: float = LEVEL
) -> tuple[np.ndarray, np.ndarray]:
    """Mean over pairs of different models; interval by the jackknife (last axis: low, high).

    Each pseudo-value is what one model adds. Two models have one distance, and no interval.
    """
    n = len(distance)
    total = reduce(distance, "a b ... -> ...", "sum")
    # the matrix has every pair twice, and n zeros on its diagonal
    value = np.asarray(total / (n * (n - 1)))
    if n < 3:
        return value, np.full((*value.shape, 2), np.nan)
    of_each = reduce(distance, "a b ... -> a ...", "sum")
    # a model is in a row and in a column
    without = (total - 2 * of_each) / ((n - 1) * (n - 2))
    pseudo = rearrange(n * value - (n - 1) * without, "model ... -> ... model")
    return value, np.stack(_ends(value, [_moments(pseudo)], level), axis=-1)
