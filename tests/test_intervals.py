"""Intervals: how often they hold what they are to hold, by simulation; and by hand."""

from __future__ import annotations

import ast
import itertools
import math
import re
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from tests.sources import SOURCES, nodes, shown
from tl_dyck.estimates import (
    ENDS,
    KINDS,
    NUMBERS,
    SKEWED,
    SKEWED_AGAIN,
    Estimate,
    IntervalKind,
    again_words,
    interval_words,
    place_of,
)
from tl_dyck.intervals import (
    correlation,
    difference,
    distances,
    drawn_pair_mean,
    estimate,
    left_out,
    mean,
    mean_over_pairs,
    ratio_of_sums,
    regression,
    share,
    t_interval,
)

#: Law -> how it is drawn, its mean, and in percent how often words say that an interval holds the
#: mean, and the mean of as many others: of numbers that are very skewed, they say it apart. The
#: last law lies between the two.
LAWS = {
    "normal": (lambda g, size: g.normal(3, 2, size), 3.0, (95,), (95,)),
    "exponential": (lambda g, size: g.exponential(size=size), 1.0, (95,), (95,)),
    "left": (lambda g, size: 1 - 0.1 * g.exponential(size=size), 0.9, (95,), (95,)),
    "uniform": (lambda g, size: g.random(size), 0.5, (95,), (95,)),
    "lognormal": (lambda g, n: g.lognormal(size=n), math.exp(0.5), SKEWED, SKEWED_AGAIN),
    "near an end": (
        lambda g, size: g.beta(9, 0.5, size), 9 / 9.5, (*SKEWED, 95), (*SKEWED_AGAIN, 95),
    ),
}  # fmt: skip
SAMPLES = 10_000  # so that a share of 95 % is off by 0.2 points


def covered(low, high, wanted) -> float:
    """In percent."""
    return 100 * float(((low <= wanted) & (wanted <= high)).mean())


@pytest.mark.parametrize("n", [3, 8, 40])
@pytest.mark.parametrize("law", LAWS)
def test_an_interval_of_a_mean_covers(law, n):
    draw, wanted, said, _ = LAWS[law]
    low, high = t_interval(draw(np.random.default_rng(n), (SAMPLES, n)))
    assert min(said) - 2 < covered(low, high, wanted) < max(said) + 2


@pytest.mark.parametrize("n", [3, 8, 40])
@pytest.mark.parametrize("law", LAWS)
def test_the_mean_of_other_seeds_is_where_it_is_said_to_be(law, n):
    draw, _, _, said = LAWS[law]
    generator = np.random.default_rng(n)
    low, high = t_interval(draw(generator, (SAMPLES, n)), others=n)
    again = draw(generator, (SAMPLES, n)).mean(-1)
    assert min(said) - 2 < covered(low, high, again) < max(said) + 2


@pytest.mark.parametrize("n", [2, 3, 5, 8, 16, 40])
def test_of_skewed_numbers_the_words_are_within_a_point_for_every_number_of_them(n):
    """One share for all of them, as was said before, is about two points off for 40."""
    generator = np.random.default_rng(100 + n)
    draw, wanted, mine, other = LAWS["lognormal"]
    sample, again = draw(generator, (2, 4 * SAMPLES, n))
    shares = (
        covered(*t_interval(sample), wanted),
        covered(*t_interval(sample, others=n), again.mean(-1)),
    )
    for share_held, said in zip(shares, (mine, other), strict=True):
        assert min(said) - 1 < share_held < max(said) + 1


@pytest.mark.parametrize(("n", "others"), [(8, 3), (5, 40), (40, 8)])
def test_so_is_the_mean_of_fewer_or_more(n, others):
    generator = np.random.default_rng(n)
    low, high = t_interval(generator.exponential(size=(SAMPLES, n)), others=others)
    again = generator.exponential(size=(SAMPLES, others)).mean(-1)
    assert covered(low, high, again) == pytest.approx(95, abs=2)


def test_words_say_what_is_covered_where():
    found = mean([1.0, 2.0, 4.0])
    assert found.words().endswith("(90 to 93 % where numbers are as skewed as lognormal ones)")
    assert "(92 to 94 % where numbers are as skewed" in again_words([found.ends()])
    other = mean([1.0, 2.0, 4.0], level=0.999)  # how often is not known
    assert other.words().endswith("(less where numbers are as skewed as lognormal ones)")
    assert "(less where numbers are as skewed" in again_words([found.ends(), other.ends()])
    assert "lognormal" not in share(3, 4).words()


@pytest.mark.parametrize("level", [0.5, 0.8, 0.9, 0.99])
def test_other_levels_are_held_as_well(level):
    generator = np.random.default_rng(0)
    low, high = t_interval(generator.normal(size=(4 * SAMPLES, 12)), level=level)
    assert covered(low, high, 0) == pytest.approx(100 * level, abs=1)


def test_what_was_printed_before_does_not_cover():
    """Percentiles of resamples of 8: the guard above would have seen them."""
    generator = np.random.default_rng(0)
    sample = generator.exponential(size=(2000, 8))
    index = generator.integers(8, size=(2000, 400, 8))
    means = np.take_along_axis(sample[:, None], index, axis=-1).mean(-1)
    low, high = np.quantile(means, [0.025, 0.975], axis=-1)
    assert covered(low, high, 1.0) < 88


def test_eight_runs_again_are_in_the_prediction_interval_and_not_in_the_other():
    """The interval of a mean is no place for another mean: one in seven is outside."""
    generator = np.random.default_rng(1)
    sample = generator.normal(size=(SAMPLES, 8))
    again = generator.normal(size=(SAMPLES, 8)).mean(-1)
    assert covered(*t_interval(sample), again) < 88
    assert covered(*t_interval(sample, others=8), again) > 93


@given(
    st.lists(st.floats(-1e6, 1e6), min_size=2, max_size=12),
    st.sampled_from([0.5, 0.9, 0.95]),
    st.floats(-5, 5),
)
def test_symmetric_numbers_have_the_interval_of_t(values, level, shift):
    """And the prediction interval by its formula, t s √(1/n + 1/m)."""
    sample = np.array([*values, *(-value for value in values)])
    n = len(sample)
    found = mean(sample + shift, level=level)
    s = sample.std(ddof=1)
    tails = {4: 0.6, 6: 0.75}.get(n, 1.0)
    top = stats.t.ppf(1 - (1 - level) / 2 * tails, n - 1)
    about = {"rel": 1e-6, "abs": 1e-6 * (1 + abs(sample).max())}
    width = found.high - found.low
    assert width == pytest.approx(2 * top * s * math.sqrt(1 / n), **about)
    again = found.again_high - found.again_low
    assert again == pytest.approx(2 * top * s * math.sqrt(2 / n), **about)
    assert found.n == n


@given(st.lists(st.floats(-1e3, 1e3), min_size=2, max_size=12), st.floats(0.1, 10))
def test_intervals_hold_the_mean_and_move_with_the_unit(values, factor):
    found, scaled = mean(values), mean([-factor * value for value in values])
    room = 1e-9 * (1 + max(map(abs, values)))
    assert found.low - room <= found.value <= found.high + room
    assert found.again_low - room <= found.low
    assert found.high <= found.again_high + room
    about = {"rel": 1e-6, "abs": 1e-6 * (1 + max(map(abs, values)))}
    assert (scaled.low, scaled.high) == pytest.approx(
        (-factor * found.high, -factor * found.low), **about
    )


def test_an_interval_leans_to_where_the_numbers_are_rare():
    found = mean([0.99, 0.98, 0.99, 0.97, 0.99, 0.98, 0.99, 0.80])
    assert found.value - found.low > 2 * (found.high - found.value)


def test_too_few_for_an_interval():
    one, none = mean([7.0]), mean([])
    assert (one.value, one.n, one.text()) == (7.0, 1, "7.00")
    assert math.isnan(one.low)
    assert math.isnan(one.again_high)
    assert math.isnan(none.value)
    assert none.n == 0


def test_equal_numbers_have_no_width():
    found = mean([0.5] * 8)
    assert (found.low, found.high, found.again_low) == (0.5, 0.5, 0.5)


# --- pairs, clusters, the jackknife ---------------------------------------------------------------


@pytest.mark.parametrize("n", [3, 8, 40])
def test_differences_are_paired_and_cover(n):
    """What both have in common is large; by seed, as a table has them, in any order."""
    generator = np.random.default_rng(n)
    common = generator.normal(0, 10, size=(SAMPLES, n))
    after = common + 1 + generator.normal(size=(SAMPLES, n))
    before = common + generator.exponential(size=(SAMPLES, n)) - 1
    assert covered(*t_interval(after - before), 1.0) == pytest.approx(95, abs=2)

    first = pd.Series(after[0], index=range(n))
    second = pd.Series(before[0], index=range(n)).sample(frac=1, random_state=1)
    found = difference(first, pd.concat([second, pd.Series({99: 5.0})]))
    known = mean(after[0] - before[0])
    assert (found.value, found.low, found.n) == pytest.approx((known.value, known.low, n))
    assert found.high - found.low < mean(after[0]).high - mean(after[0]).low


def test_a_pair_without_a_number_does_not_count():
    assert difference({1: 2.0, 2: math.nan, 3: 5.0}, {1: 1.0, 2: 1.0, 3: 1.0}).n == 2
    assert difference({1: 2.0}, {2: 1.0}).n == 0


def test_the_runs_of_a_seed_count_as_one():
    generator = np.random.default_rng(0)
    per_seed = generator.normal(size=6)
    often = np.repeat(per_seed, 4)
    found = mean(often, clusters=np.repeat([5, 3, 9, 1, 0, 7], 4))
    known = mean(per_seed)
    assert (found.value, found.low, found.high, found.n) == pytest.approx(
        (known.value, known.low, known.high, 6)
    )
    uneven = mean([0.0, 1.0, 1.0, 1.0, 1.0, 1.0, 2.0], clusters=np.array([7, 3, 3, 3, 3, 3, 4]))
    assert (uneven.value, uneven.n) == (pytest.approx(1), 3)


def test_seeds_of_which_there_are_unequal_numbers_have_the_error_of_a_ratio_of_sums():
    """What seeds are off by is symmetric here, so that the interval is that of t."""
    counts = np.array([1, 3, 1, 3, 2, 2, 1, 3])
    off = np.array([1.0, -1.0, 0.5, -0.5, 2.0, -2.0, 0.25, -0.25])  # of a seed's sum
    seeds = np.repeat(np.arange(8), counts)
    found = mean(7 + (off / counts)[seeds], clusters=seeds)
    ratio, error = ratio_of_sums(7.0 * counts + off, counts.astype(float))
    assert found.value == pytest.approx(ratio) == pytest.approx(7)
    reach = stats.t.ppf(0.975, 7) * error
    assert (found.low, found.high) == pytest.approx((7 - reach, 7 + reach))


@pytest.mark.parametrize(("n", "samples"), [(8, 4000), (40, 400)])
def test_an_interval_over_pairs_of_models_covers(n, samples):
    """Squared distances of points in six dimensions, twice the variance of each on average."""
    generator = np.random.default_rng(n)
    points = generator.normal(size=(samples, n, 6))
    apart = ((points[:, :, None] - points[:, None]) ** 2).sum(-1)
    value, ends = mean_over_pairs(np.moveaxis(apart, 0, -1))
    assert value.mean() == pytest.approx(12, rel=0.02)
    assert covered(ends[:, 0], ends[:, 1], 12.0) == pytest.approx(95, abs=2.5)


@given(st.lists(st.floats(-100, 100), min_size=2, max_size=9))
def test_the_jackknife_of_a_mean_is_the_mean(values):
    sample = np.array(values)
    without = np.array([np.delete(sample, each).mean() for each in range(len(sample))])
    found, known = left_out(float(sample.mean()), [without]), mean(sample)
    assert (found.low, found.high) == pytest.approx((known.low, known.high), rel=1e-6, abs=1e-6)
    assert found.n == len(sample)


def test_two_kinds_of_models_have_welchs_interval():
    generator = np.random.default_rng(3)
    a, b = generator.normal(0, 3, 10), generator.normal(0, 1, 7)
    a, b = np.concatenate([a, -a]), np.concatenate([b, -b])  # no skewness
    value = float(a.mean() - b.mean())
    without = [
        np.array([np.delete(a, i).mean() - b.mean() for i in range(len(a))]),
        np.array([a.mean() - np.delete(b, i).mean() for i in range(len(b))]),
    ]
    found = left_out(value, without)
    known = stats.ttest_ind(a, b, equal_var=False).confidence_interval()
    assert (found.low, found.high) == pytest.approx((known.low, known.high), rel=1e-6)
    assert math.isnan(left_out(value, [np.array([1.0, math.nan]), without[1]]).low)


# --- words ----------------------------------------------------------------------------------------


def test_words_are_made_from_the_interval(monkeypatch):
    assert mean([1.0, 2.0]).words().startswith("95 % t interval over seeds, corrected for skewness")
    assert share(3, 4, level=0.9).words("models").startswith("90 % interval over models (exact")
    tie = correlation(np.arange(9.0), np.arange(9.0), 20)
    assert tie.words("") == "95 % bootstrap interval"
    score = IntervalKind("score interval", over="strings", of_shares=True)
    monkeypatch.setitem(KINDS, "score", score)
    mixed = [share(1, 2), replace(share(3, 4), kind="score")]
    assert interval_words(mixed) == (
        "95 % intervals over seeds (exact: Clopper and Pearson), or "
        "95 % score intervals over strings"
    )
    without = "no prediction intervals, since of shares there are none"
    assert again_words([found.ends() for found in mixed]) == without
    found = interval_words([mean([1.0, 2.0]), share(1, 2), mean([3.0, 5.0]), mean([1.0])])
    assert found.count("t intervals") == 1
    assert found.endswith(", or 95 % intervals over seeds (exact: Clopper and Pearson)")
    assert interval_words([mean([1.0])]) == "no intervals"
    few = "no prediction intervals, since there are too few seeds"
    assert again_words([mean([1.0]).ends()]) == few
    assert again_words([mean([1.0, 2.0], level=0.9).ends()]).startswith("90 % prediction")


@pytest.mark.parametrize(
    ("numbers", "place"),
    [((1, 1, 2), "inside"), ((2, 1, 2), "inside"), ((3, 1, 2), "outside"), ((0, 1, 2), "outside")]
    + [(tuple(float("nan") if i == at else 1 for i in range(3)), "not known") for at in range(3)],
)
def test_where_a_number_is(numbers, place):
    assert place_of(*numbers) == place


@pytest.mark.parametrize("kind", KINDS)
def test_a_row_of_a_table_has_all_of_an_interval(kind):
    found = Estimate(value=1.0, low=0.5, high=2.0, n=4, kind=kind, level=0.9, again_low=0.1)
    row = {"mean": found.value, "n": found.n, **found.ends()}
    assert tuple(found.ends()) == ENDS
    assert repr(Estimate.of(row)) == repr(found)
    assert interval_words(pd.DataFrame([row])) == interval_words([found])
    assert found.times(10).text(".0f") == "10 [5, 20]"


def test_no_page_says_by_itself_what_its_intervals_are():
    """Words about kinds of intervals are in one module: elsewhere prose would go on saying it."""
    found = set()
    for path in SOURCES.values():
        documented = {
            id(node.body[0].value)
            for node in nodes(path)
            if isinstance(node, (ast.Module, ast.ClassDef, ast.FunctionDef))
            and isinstance(node.body[0], ast.Expr)
        }
        for node in nodes(path):
            said = isinstance(node, ast.Constant) and isinstance(node.value, str)
            if said and id(node) not in documented and _CLAIMS.search(node.value):
                found.add(shown(path))
    assert found <= {"tl_dyck/estimates.py"}


_CLAIMS = re.compile(r"bootstrap (interval|over)|percentile boot|95 ?% (boot|interval|t )")


# --- what is resampled ----------------------------------------------------------------------------


@pytest.mark.parametrize(("strength", "n"), [(0.5, 8), (0.9, 40)])
def test_an_interval_of_a_correlation_covers(strength, n):
    generator = np.random.default_rng(7)
    known = 6 / math.pi * math.asin(strength / 2)  # of a normal law (Pearson 1907)
    hits = 0
    for seed in range(400):
        x, noise = generator.normal(size=(2, n))
        found = correlation(x, strength * x + math.sqrt(1 - strength**2) * noise, 200, seed)
        hits += found.low <= known <= found.high
    assert hits / 4 == pytest.approx(95, abs=3)


def test_the_order_of_models_moves_no_interval():
    """Whoever lists seeds in another order has the same models."""
    random = np.random.default_rng(0)
    x, y = random.integers(0, 9, (2, 24)).astype(float)  # with ties
    seeds, places = np.repeat(np.arange(12), 2), np.array([1.0, 2.0])
    for order in (random.permutation(24), np.arange(24)[::-1]):
        assert correlation(x, y, 200) == correlation(x[order], y[order], 200)
        whole = correlation(x[order], y[order], 20, clusters=seeds[order])
        assert correlation(x, y, 20, clusters=seeds) == whole
        lines = regression(x, y, places, 20), regression(x[order], y[order], places, 20)
        np.testing.assert_allclose(*lines)


def test_few_models_have_no_interval_of_a_correlation():
    assert math.isnan(correlation(np.arange(7.0), np.arange(7.0), 50).low)
    clusters = np.repeat(np.arange(7), 3)
    assert math.isnan(correlation(np.arange(21.0), np.arange(21.0), 50, clusters=clusters).low)


@pytest.mark.parametrize("n", [8, 40, 200])
def test_widened_percentiles_are_as_wide_as_t(n):
    generator = np.random.default_rng(n)
    sample = np.concatenate([found := generator.normal(size=n // 2), -found])
    drawn = sample[generator.integers(n, size=(20_000, n))].mean(1)
    found = estimate(0.0, drawn, n, widened=True)
    width = 2 * stats.t.ppf(0.975, n - 1) * sample.std(ddof=1) / math.sqrt(n)
    assert found.high - found.low == pytest.approx(width, rel=0.05)
    assert found.kind == "bootstrap"


samples = st.lists(st.integers(-1000, 1000).map(lambda x: x / 100), min_size=8, max_size=12)


@given(st.data())
def test_rank_correlation(data):
    x = np.array(data.draw(samples))
    y = np.array(
        data.draw(st.lists(st.integers(0, 3), min_size=len(x), max_size=len(x))), dtype=float
    )
    found = correlation(x, y, 30, 1)
    if np.ptp(x) == 0 or np.ptp(y) == 0:
        assert found.value == 0
    else:
        assert found.value == pytest.approx(stats.spearmanr(x, y).statistic, abs=1e-12)
    assert -1 <= found.low <= found.high <= 1


def test_clusters_are_resampled_whole():
    """Models of one seed go together: ten copies of each tell nothing more."""
    generator = np.random.default_rng(0)
    x, y = generator.normal(size=(2, 9))
    x.sort()  # pairs are drawn in order, so that both draw the same ones
    once = correlation(x, y, 400)
    often = correlation(np.tile(x, 10), np.tile(y, 10), 400, clusters=np.tile(np.arange(9), 10))
    assert (often.value, often.n) == (pytest.approx(once.value), 9)
    assert (often.low, often.high) == pytest.approx((once.low, once.high), abs=0.05)


def test_regression_is_least_squares_with_its_interval():
    generator = np.random.default_rng(0)
    x = generator.normal(size=30)
    y = 2 * x + 1 + 0.1 * generator.normal(size=30)
    at = np.array([-1.0, 0.5])
    line, low, high = regression(x, y, at, 400, 0)
    assert line == pytest.approx(np.polyval(np.polyfit(x, y, 1), at), rel=1e-9)
    assert (low < line).all()
    assert (line < high).all()
    # the classical interval of the height of a regression line
    fit = stats.linregress(x, y)
    error = np.sqrt(((y - fit.intercept - fit.slope * x) ** 2).sum() / 28)
    width = 2 * 2.05 * error * np.sqrt(1 / 30 + (at - x.mean()) ** 2 / ((x - x.mean()) ** 2).sum())
    assert high - low == pytest.approx(width, rel=0.5)


def test_distances_between_models():
    generator = np.random.default_rng(0)
    a, b = generator.normal(size=(3, 2, 2)), generator.normal(size=(4, 2, 2))
    matrix = distances(a, b)
    for i, j in itertools.product(range(3), range(4)):
        assert matrix[i, j] == pytest.approx(np.linalg.norm(a[i] - b[j]) ** 2)
    rows, columns = np.array([0, 0, 2]), np.array([3, 1, 1, 0])
    expected = np.mean([matrix[i, j] for i in rows for j in columns])
    assert drawn_pair_mean(matrix, rows, columns, False) == pytest.approx(expected)
    square = distances(a, a)
    pairs = [
        square[i, j] for i in rows for j in rows if i != j
    ]  # a model drawn twice is still itself
    assert drawn_pair_mean(square, rows, rows, True) == pytest.approx(np.mean(pairs))
    assert math.isnan(drawn_pair_mean(square, np.array([1, 1]), np.array([1, 1]), True))


@pytest.mark.parametrize("name", ["accuracy", "long_accuracy_closing_only", "proved_share"])
def test_an_interval_of_shares_ends_where_shares_do(name: str) -> None:
    """Three seeds, one of them far away: the t interval alone reaches below 0 and above 1."""
    for values in ([1.0, 1.0, 0.2], [0.0, 0.0, 0.8]):
        free, found = mean(values), mean(values).of_metric(name)
        assert free.low < 0 or free.high > 1
        assert (
            0 <= found.again_low <= found.low <= found.value <= found.high <= found.again_high <= 1
        )
        assert found == replace(
            free, **{end: min(max(getattr(free, end), 0), 1) for end in NUMBERS}
        )
    for others in ("logit_change", "accuracy_change", "my_accuracy"):
        assert mean([0.1, 0.1, -0.3]).of_metric(others) == mean([0.1, 0.1, -0.3])
    assert mean([90.0, 95.0, 70.0]).of_metric(name) == mean([90.0, 95.0, 70.0])  # in percent
    assert math.isnan(mean([0.5]).of_metric(name).low)
