"""A claim is judged by its interval, with power and a correction for many looks."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from tl_dyck.intervals import Estimate, correlation
from tl_dyck.studies.paper import CLAIMS, SCALES, Measured, Rule, Scale
from tl_dyck.studies.paper.rules import KINDS, holm, judge, judge_all
from tl_dyck.studies.paper.scales import groups_of


def measured(value, low, high, **more):
    return Measured(estimate=Estimate(value=value, low=low, high=high, n=5), reading="", **more)


numbers = st.floats(-5, 5).map(lambda x: round(x, 1))


@given(ends=st.tuples(numbers, numbers).map(sorted), limit=numbers)
def test_the_interval_decides(ends, limit):
    """Where the whole interval lies, and nothing else, for a claim that is looked at alone."""
    low, high = ends
    found = measured((low + high) / 2, low, high)
    above = judge(Rule(kind="above", limit=limit, words=""), found)
    below = judge(Rule(kind="below", limit=limit, words=""), found)
    if limit < low:
        assert (above, below) == ("reproduced", "not reproduced")
    elif limit > high:
        assert (above, below) == ("not reproduced", "reproduced")
    else:
        assert above == below == "undecided"
    moved = measured((low + high) / 2, low, high, limit=limit)
    assert judge(Rule(kind="above", limit=-99.0, words=""), moved) == above
    holds = judge(Rule(kind="holds", limit=limit, words=""), found)
    assert holds == ("reproduced" if low <= limit <= high else "not reproduced")


@given(ends=st.tuples(numbers, numbers).map(sorted), limits=st.tuples(numbers, numbers).map(sorted))
def test_a_band_has_two_sides(ends, limits):
    (low, high), (floor, ceiling) = ends, limits
    found = measured((low + high) / 2, low, high)
    verdict = judge(Rule(kind="between", limit=floor, upper=ceiling, words=""), found)
    if floor < low and high < ceiling:
        assert verdict == "reproduced"
    elif high < floor or ceiling < low:
        assert verdict == "not reproduced"
    else:
        assert verdict == "undecided"


def test_what_has_no_interval_decides_nothing():
    for kind in KINDS:
        nothing = measured(1.0, math.nan, math.nan)
        assert judge(Rule(kind=kind, words=""), nothing) == "undecided"
    with pytest.raises(ValueError, match="unknown kind of rule 'near'"):
        Rule(kind="near", words="")


def test_what_could_hardly_fail_is_weak_and_can_still_fail():
    rule = Rule(kind="above", words="", weak="it is built so")
    assert judge(rule, measured(1.0, 0.5, 1.5)) == "weak"
    assert judge(rule, measured(-1.0, -1.5, -0.5)) == "not reproduced"
    assert judge(rule, measured(0.2, -0.5, 1.5)) == "undecided"


def test_many_looks_are_corrected():
    """Two and a half standard errors: enough for one look or four, not for sixty."""
    rule = Rule(kind="above", words="")
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
    rule, n, generator = Rule(kind="above", words=""), 40, np.random.default_rng(0)
    half = 1.96 / np.sqrt(n)
    (probe,) = judge_all([rule], [measured(0.0, -half, half)])
    seen = 0
    for _ in range(400):
        sample = generator.normal(probe.detectable, 1, size=n)
        error = 1.96 * sample.std(ddof=1) / np.sqrt(n)
        found = measured(sample.mean(), sample.mean() - error, sample.mean() + error)
        seen += judge(rule, found) == "reproduced"
    assert seen / 400 == pytest.approx(0.8, abs=0.06)


@pytest.mark.parametrize(("kind", "limit"), [("above", 0.0), ("below", 0.0), ("below", 0.3)])
@pytest.mark.parametrize("tie", [0.0, 0.6])
def test_a_correlation_that_would_be_seen_is_seen_four_times_in_five(kind, limit, tie):
    """Whatever was measured: draw ties as strong as is called detectable, count the verdicts."""
    rule, n, rows = Rule(kind=kind, limit=limit, words=""), 30, 50
    generator, null = np.random.default_rng(0), measured(limit, -1.0, 1.0)

    def drawn(spearman):
        """A sample of normal variables with that rank correlation (Pearson 1907)."""
        x, noise = generator.normal(size=(2, n))
        pearson = 2 * math.sin(math.pi * spearman / 6)
        y = pearson * x + math.sqrt(1 - pearson**2) * noise
        found = correlation(x, y, 400, generator)
        return Measured(estimate=found, reading="", correlation=True)

    def judged(found):
        return judge_all([rule] * rows, [found] + [null] * (rows - 1))[0]

    distance = np.median([judged(drawn(tie)).detectable for _ in range(40)])
    there = limit + distance * (1 if kind == "above" else -1)
    seen = sum(judged(drawn(there)).verdict == "reproduced" for _ in range(400))
    assert seen / 400 == pytest.approx(0.8, abs=0.1)
    assert distance < 0.8  # by the normal law and the spread around 0 nothing below 0.8 would be


def test_three_seeds_would_see_no_correlation():
    for low, high in ((-1.0, 1.0), (-0.5, 1 - 1e-16), (-1.0, 0.5)):
        found = measured((low + high) / 2, low, high, correlation=True)
        for kind in ("above", "below"):
            assert math.isnan(judge_all([Rule(kind=kind, words="")], [found])[0].detectable)


def test_every_experiment_has_claims_and_every_claim_a_rule():
    names = [claim.name for claim in CLAIMS]
    assert len(set(names)) == len(names)
    assert {claim.about for claim in CLAIMS} == {
        "Attention patterns differ",
        "What attention patterns look like",
        "What learns the task",
        "Contrastive regularisation",
        "What predicts length",
        "Approximate balance (Theorem 2)",
        "Misleading attention",
    }
    assert sum(name.startswith("table-1-") for name in names) == 8
    for claim in CLAIMS:
        assert claim.rule.words
        assert claim.rule.kind in KINDS
    assert max(len(name) for name in names) < 30  # a line of a terminal


@pytest.mark.parametrize("name", SCALES)
def test_scales_are_complete_and_survive_json(name):
    scale = SCALES[name]
    assert Scale.from_dict(scale.to_dict()) == scale
    assert 0.0 in scale.weights
    groups = groups_of(scale)
    assert len({group.name for group in groups}) == len(groups)
    assert {group.seeds for group in groups} == {
        scale.seeds,
        scale.table_seeds,
        scale.contrastive_seeds,
    }
    assert name != "paper" or min(group.seeds for group in groups) == 40
    for group in groups:
        assert group.config().language == group.load_task().language
        assert group.longest in (None, max(group.load_task().train_lengths))
    assert {max(g.load_task().train_lengths) for g in groups if g.watched} == {26, *scale.lengths}
