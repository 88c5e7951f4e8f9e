"""A claim is judged by its interval, with power and a correction for many looks."""

from __future__ import annotations

import math
import re

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from tl_dyck.intervals import Estimate, correlation, mean
from tl_dyck.studies.rules import KINDS, ClaimError, Measured, Rule, holm, judge, judge_all


def measured(value, low, high, **more):
    return Measured(estimate=Estimate(value=value, low=low, high=high, n=5), reading="", **more)


numbers = st.floats(-5, 5).map(lambda x: round(x, 1))


@given(ends=st.tuples(numbers, numbers).map(sorted), limit=numbers)
def test_the_interval_decides(ends, limit):
    """Where the whole interval lies, and nothing else, for a claim that is looked at alone."""
    low, high = ends
    found = measured((low + high) / 2, low, high)
    above = judge(Rule(kind="above", limit=limit), found)
    below = judge(Rule(kind="below", limit=limit), found)
    if limit < low:
        assert (above, below) == ("reproduced", "not reproduced")
    elif limit > high:
        assert (above, below) == ("not reproduced", "reproduced")
    else:
        assert above == below == "undecided"
    moved = measured((low + high) / 2, low, high, unit=limit)
    assert judge(Rule(kind="above", limit=1.0, times="a size"), moved) == above
    assert judge(Rule(kind="above", limit=1.0), moved) == judge(Rule(kind="above", limit=1), found)
    holds = judge(Rule(kind="holds", limit=limit), found)
    assert holds == ("reproduced" if low <= limit <= high else "not reproduced")


@given(ends=st.tuples(numbers, numbers).map(sorted), limits=st.tuples(numbers, numbers).map(sorted))
def test_a_band_has_two_sides(ends, limits):
    (low, high), (floor, ceiling) = ends, limits
    found = measured((low + high) / 2, low, high)
    if floor == ceiling:
        with pytest.raises(ClaimError, match="leave nothing between"):
            Rule(kind="between", limit=floor, upper=ceiling)
        return
    verdict = judge(Rule(kind="between", limit=floor, upper=ceiling), found)
    if floor < low and high < ceiling:
        assert verdict == "reproduced"
    elif high < floor or ceiling < low:
        assert verdict == "not reproduced"
    else:
        assert verdict == "undecided"


def test_what_has_no_interval_decides_nothing():
    for kind in KINDS:
        nothing = measured(1.0, math.nan, math.nan)
        assert judge(Rule(kind=kind, upper=1.0), nothing) == "undecided"
    with pytest.raises(ValueError, match="unknown kind of rule 'near'"):
        Rule(kind="near")


def test_what_could_hardly_fail_is_weak_and_can_still_fail():
    rule = Rule(kind="above", weak="it is built so")
    assert judge(rule, measured(1.0, 0.5, 1.5)) == "weak"
    assert judge(rule, measured(-1.0, -1.5, -0.5)) == "not reproduced"
    assert judge(rule, measured(0.2, -0.5, 1.5)) == "undecided"


def test_many_looks_are_corrected():
    """Two and a half standard errors: enough for one look or four, not for sixty."""
    rule = Rule(kind="above")
    found = measured(2.5, 2.5 - 1.96, 2.5 + 1.96)
    p = 2 * stats.norm.sf(2.5)
    for n, verdict in ((1, "reproduced"), (4, "reproduced"), (60, "undecided")):
        null = measured(0.0, -1.96, 1.96)
        judged = judge_all([rule] * n, [found] + [null] * (n - 1))
        assert judged[0].verdict == verdict
        assert judged[0].p == pytest.approx(p, rel=1e-3)
        assert judged[0].p_holm == pytest.approx(min(1, n * p), rel=1e-3)
        assert all(other.verdict == "undecided" for other in judged[1:])
        z = stats.norm.isf(0.025 / n) + stats.norm.isf(0.2)
        assert judged[0].detectable == pytest.approx(z, rel=1e-3)


@given(st.lists(st.floats(0, 1) | st.just(math.nan), max_size=8))
def test_holm_by_the_book(p):
    """Sorted p-values times what is left, never falling; rows that test nothing do not count."""
    found = holm(np.array(p))
    known = sorted(value for value in p if not math.isnan(value))
    expected, running = {}, 0.0
    for i, value in enumerate(known):
        running = max(running, min(1.0, value * (len(known) - i)))
        expected.setdefault(value, []).append(running)
    for value, corrected in zip(p, found, strict=True):
        if math.isnan(value):
            assert math.isnan(corrected)
        else:
            assert corrected == pytest.approx(expected[value][0]) or corrected in expected[value]


def test_what_would_be_seen_is_seen_four_times_in_five():
    """Draw means at the distance that is called detectable, and count the verdicts."""
    rule, n, generator = Rule(kind="above"), 40, np.random.default_rng(0)
    half = 1.96 / np.sqrt(n)
    (probe,) = judge_all([rule], [measured(0.0, -half, half)])
    seen = 0
    for _ in range(400):
        sample = generator.normal(probe.detectable, 1, size=n)
        error = 1.96 * sample.std(ddof=1) / np.sqrt(n)
        found = measured(sample.mean(), sample.mean() - error, sample.mean() + error)
        seen += judge(rule, found) == "reproduced"
    assert seen / 400 == pytest.approx(0.8, abs=0.06)


@pytest.mark.parametrize(("kind", "limit", "tie"), [("above", 0.0, 0.6), ("below", 0.3, 0.0)])
def test_a_correlation_that_would_be_seen_is_seen_four_times_in_five(kind, limit, tie):
    """Whatever was measured: draw ties as strong as is called detectable, count the verdicts."""
    rule, n, rows = Rule(kind=kind, limit=limit), 30, 50
    generator, null = np.random.default_rng(0), measured(limit, -1.0, 1.0)

    def drawn(spearman):
        """A sample of normal variables with that rank correlation (Pearson 1907)."""
        x, noise = generator.normal(size=(2, n))
        pearson = 2 * math.sin(math.pi * spearman / 6)
        y = pearson * x + math.sqrt(1 - pearson**2) * noise
        found = correlation(x, y, 400, int(generator.integers(2**31)))
        return Measured(estimate=found, reading="", correlation=True)

    def judged(found):
        return judge_all([rule] * rows, [found] + [null] * (rows - 1))[0]

    distance = np.median([judged(drawn(tie)).detectable for _ in range(40)])
    there = limit + distance * (1 if kind == "above" else -1)
    seen = sum(judged(drawn(there)).verdict == "reproduced" for _ in range(200))
    assert seen / 200 == pytest.approx(0.8, abs=0.1)
    assert distance < 0.8  # by the normal law and the spread around 0 nothing below 0.8 would be


def test_three_seeds_would_see_no_correlation():
    for low, high in ((-1.0, 1.0), (-0.5, 1 - 1e-16), (-1.0, 0.5)):
        found = measured((low + high) / 2, low, high, correlation=True)
        for kind in ("above", "below"):
            assert math.isnan(judge_all([Rule(kind=kind)], [found])[0].detectable)


# --- what is said of a rule -----------------------------------------------------------------------


@pytest.mark.parametrize(
    ("rule", "form", "unit", "words"),
    [
        (Rule(kind="above", limit=0.95, what="share of models"), ".0%", None,
         "the share of models is above 95%"),
        (Rule(kind="above", limit=0.625), ".0%", None, "the mean is above 62.5%"),
        (Rule(kind="below", limit=-0.3, what="correlation"), "+.2f", None,
         "the correlation is below −0.3"),
        (Rule(kind="above", limit=0), "+.2f", 7.0, "the mean is above 0"),
        (Rule(kind="holds", limit=2.85, what="95 % range"), ".2f", None,
         "the 95 % range holds 2.85"),
        (Rule(kind="between", limit=0.5, upper=1.5, times="random"), ".2f", 3.1013,
         "the mean is between 50% and 150% of random (1.55 and 4.65)"),
        (Rule(kind="between", limit=0.5, upper=1.5, times="random"), ".2f", None,
         "the mean is between 50% and 150% of random"),
        (Rule(kind="below", limit=1, times="the interval of gpt"), ".2f", 3.71,
         "the mean is below the interval of gpt (3.71)"),
        (Rule(kind="below", limit=0.25, times="β"), "+.3f", 0.111,
         "the mean is below 25% of β (0.028)"),
        (Rule(kind="below", limit=0.3, absent=True), "+.2f", None,
         "the mean is below 0.3: smaller than would matter"),
    ],
)  # fmt: skip
def test_words_are_made_from_the_numbers(rule, form, unit, words):
    assert rule.words(form, unit) == words


@given(
    limit=numbers,
    wide=st.floats(0.1, 3).map(lambda x: round(x, 1)),
    kind=st.sampled_from(list(KINDS)),
)
def test_words_have_the_number_that_decides(limit, wide, kind):
    """What is read back from the words gives the same verdict, whatever is measured."""
    rule = Rule(kind=kind, limit=limit, upper=limit + wide if kind == "between" else math.inf)
    said = [
        float(number.replace("−", "-")) for number in re.findall(r"−?\d+(?:\.\d+)?", rule.words())
    ]
    assert said == pytest.approx([limit, limit + wide] if kind == "between" else [limit])


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({}, "one of above, below, between, holds, not none of them"),
        ({"above": 0, "below": 1}, "not ['above', 'below']"),
        ({"above": [0, 1]}, "'above' takes a number, not [0, 1]"),
        ({"between": 1}, "'between' takes a list of two numbers, not 1"),
        ({"between": [1, 2, 3]}, "takes a list of two numbers"),
        ({"between": [2, 1]}, "leave nothing between"),
        ({"above": "0.5"}, "finite numbers, not ('0.5',)"),
        ({"above": math.nan}, "finite numbers"),
        ({"above": True}, "finite numbers, not (True,)"),
        ({"above": 0, "weka": "so"}, "a rule has no 'weka'"),
        ("above 0", "a rule is a mapping, not 'above 0'"),
    ],
)  # fmt: skip
def test_rules_that_say_nothing_are_refused(values, message):
    with pytest.raises(ClaimError, match=re.escape(message)):
        Rule.from_dict(values)


def test_a_rule_is_read_as_it_is_written():
    said = {"between": [0.5, 1.5], "times": "random", "what": "variation", "post_hoc": "late"}
    assert Rule.from_dict(said) == Rule(
        kind="between", limit=0.5, upper=1.5, times="random", what="variation", post_hoc="late"
    )
    assert Rule.from_dict({"holds": 2.85}).limits() == (2.85, math.inf)


# --- verdicts of their own ------------------------------------------------------------------------


def test_a_rule_that_came_after_its_numbers_is_post_hoc_both_ways():
    rule = Rule(kind="above", post_hoc="a limit was moved")
    for low, high, outcome in ((0.5, 1.5, "reproduced"), (-1.5, -0.5, "not reproduced")):
        (judged,) = judge_all([rule], [measured((low + high) / 2, low, high)])
        assert (judged.verdict, judged.outcome) == ("post hoc", outcome)
        assert judged.why == "a limit was moved"
    (judged,) = judge_all([rule], [measured(0.2, -0.5, 1.5)])
    assert (judged.verdict, judged.why) == ("undecided", "")


def test_what_is_smaller_than_would_matter_and_is_there_is_weak():
    """By hand: +0.09 [+0.02, +0.15] against 0.3 is growth, if a small one."""
    rule = Rule(kind="below", limit=0.3, absent=True)
    (there,) = judge_all([rule], [measured(0.09, 0.02, 0.15)])
    assert (there.verdict, there.outcome) == ("weak", "reproduced")
    assert "without 0" in there.why
    for low, high, verdict in (
        (-0.05, 0.15, "reproduced"),
        (0.0, 0.15, "reproduced"),  # an interval that touches 0 holds it
        (-0.2, -0.1, "weak"),
        (0.2, 0.4, "undecided"),
        (0.31, 0.5, "not reproduced"),
    ):
        assert judge(rule, measured((low + high) / 2, low, high)) == verdict
    assert judge(Rule(kind="below", limit=0.3), measured(0.09, 0.02, 0.15)) == "reproduced"


def test_limits_in_units_that_nobody_knows_decide_nothing():
    rule = Rule(kind="above", limit=0.5, times="what random patterns differ by")
    for unit in (None, math.nan):
        (judged,) = judge_all([rule], [measured(9.0, 8.0, 10.0, unit=unit)])
        assert judged.verdict == "undecided"
        assert math.isnan(judged.p)
    assert judge(rule, measured(9.0, 8.0, 10.0, unit=3.1)) == "reproduced"


def test_intervals_that_touch_a_limit_are_decided_by_their_p_value():
    """A limit at the end of the interval is 1.96 standard errors away: p is 5 %, not less."""
    rule = Rule(kind="above", limit=1.0)
    (judged,) = judge_all([rule], [measured(1.5, 1.0, 2.0)])
    assert judged.p == pytest.approx(0.05, abs=1e-12)
    assert judge(rule, measured(1.5, 1.001, 2.0)) == "reproduced"
    assert judge(rule, measured(1.5, 0.999, 2.0)) == "undecided"


@pytest.mark.parametrize("n", [3, 8, 40])
def test_a_t_interval_gives_the_p_value_of_t(n):
    """Student's test, for which three seeds are few; the interval's own limit has p = 5 %."""
    generator = np.random.default_rng(n)
    half = generator.normal(size=n)
    sample = np.concatenate([half, 2 - half])  # symmetric: no skewness to correct for
    found = Measured(estimate=mean(sample), reading="")
    known = stats.ttest_1samp(sample, 0.4).pvalue
    assert judge_all([Rule(kind="above", limit=0.4)], [found])[0].p == pytest.approx(
        known, rel=0.5 if 2 * n < 8 else 1e-6
    )
    at_end = Rule(kind="above", limit=found.estimate.low)
    assert judge_all([at_end], [found])[0].p == pytest.approx(0.05)
