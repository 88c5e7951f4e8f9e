"""The paper's claims: rules decide as they say, estimates against slow accounts, known heads."""

from __future__ import annotations

import dataclasses
import itertools
import math
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from tests.recorded import numbers as recorded
from tests.studies.jobs import TINY_PAPER
from tl_dyck.files import CorruptFileError
from tl_dyck.intervals import (
    Estimate,
    correlation,
    difference,
    distances,
    drawn_pair_mean,
    mean,
    regression,
)
from tl_dyck.language import DyckLanguage
from tl_dyck.models import build_model, construct, get_config
from tl_dyck.registry import UnknownNameError
from tl_dyck.studies.paper import (
    CLAIMS,
    SCALES,
    VERDICTS,
    Measured,
    Rule,
    Scale,
    load_reproduction,
    reproduce,
)
from tl_dyck.studies.paper import evidence as evidence_module
from tl_dyck.studies.paper import measure as measure_module
from tl_dyck.studies.paper import run as run_module
from tl_dyck.studies.paper import scales as scales_module
from tl_dyck.studies.paper.claims import (
    choices,
    contrast,
    learning,
    looks,
    misleading,
    theorem2,
    variation,
)
from tl_dyck.studies.paper.evidence import Evidence, Variation
from tl_dyck.studies.paper.measure import heads_of, probe_strings, share_at_depth
from tl_dyck.studies.paper.rules import KINDS, holm, judge, judge_all
from tl_dyck.studies.paper.scales import groups_of
from tl_dyck.tasks import DyckTask, load_task
from tl_dyck.training import TrainConfig

pytestmark = pytest.mark.filterwarnings(
    "ignore::ResourceWarning"
)  # joblib's pool of workers outlives a call


# --- rules ----------------------------------------------------------------------------------------


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


def test_every_experiment_has_claims_and_every_claim_a_rule():
    names = [claim.name for claim in CLAIMS]
    assert len(set(names)) == len(names)
    assert {claim.about for claim in CLAIMS} == {
        "Attention patterns differ",
        "What attention patterns look like",
        "What learns the task",
        "Contrastive regularisation",
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


# --- estimates ------------------------------------------------------------------------------------

samples = st.lists(st.integers(-1000, 1000).map(lambda x: x / 100), min_size=4, max_size=9)


def slow_interval(rows, statistic, n_bootstrap, seed):
    """Percentiles of a statistic over resampled rows, drawn one after the other in plain loops."""
    index = np.random.default_rng(seed).integers(len(rows), size=(n_bootstrap, len(rows)))
    values = [statistic([rows[i] for i in drawn]) for drawn in index]
    return np.quantile(values, [0.025, 0.975])


@given(samples)
def test_mean_and_difference(values):
    found = mean(values, 100, 3)
    assert found.value == pytest.approx(math.fsum(values) / len(values), abs=1e-12)
    assert [found.low, found.high] == pytest.approx(
        slow_interval(values, np.mean, 100, 3).tolist(), abs=1e-12
    )
    assert found.n == len(values)
    moved = difference([value + 1 for value in values], values, 50, 0)
    assert (moved.value, moved.low, moved.high) == pytest.approx((1, 1, 1))
    one = mean(values[:1], 50, 0)
    assert (one.value, one.text()) == (values[0], f"{values[0]:.2f}")
    assert math.isnan(one.low)


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
    """Models of one seed go together: with one cluster alone, nothing varies."""
    x, y = np.array([1.0, 2, 3, 4]), np.array([1.0, 3, 2, 4])
    whole = correlation(x, y, 20, 0, clusters=np.zeros(4))
    assert whole.low == whole.high == pytest.approx(whole.value)
    assert whole.n == 1
    apart = correlation(x, y, 200, 0, clusters=np.arange(4))
    assert apart.low < whole.value
    assert apart.n == 4


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


# --- heads ----------------------------------------------------------------------------------------

LANGUAGE = DyckLanguage(2, 4)
TASK = load_task("dyck-2-4")


def test_a_decoy_looks_interpretable_and_does_nothing():
    model = construct.decoy_head(construct.uniform_attention(LANGUAGE, n_ctx=64), "stack")
    real, decoy = heads_of(model, TASK, n=60, seed=0)
    assert decoy["look_the top of the stack"] == pytest.approx(1)
    assert decoy["looks_like"] == "the top of the stack"
    assert decoy["interpretable"]
    assert decoy["replaceable"]
    assert decoy["accuracy_uniform"] == decoy["accuracy_random"] == decoy["accuracy"] == 1
    # the head that does the work is uniform already: only random patterns hurt
    assert real["accuracy_uniform"] == 1
    assert real["accuracy_random"] < 0.95
    assert not real["replaceable"]


def test_a_parser_needs_its_pattern():
    (head,) = heads_of(construct.stack(LANGUAGE, n_ctx=64), TASK, n=60, seed=0)
    assert head["looks_like"] == "the top of the stack"
    assert head["accuracy"] == 1
    assert head["accuracy_uniform"] < 0.9
    assert not head["replaceable"]


def test_uniform_is_what_a_head_without_scores_does():
    """Replacing one head's pattern by uniform attention equals taking its queries away."""
    model = build_model(
        get_config("gpt", TASK, n_heads=2, dtype=torch.float64, initializer_range=0.5), seed=3
    )
    rows = heads_of(model, TASK, n=80, seed=1)
    tokens, last = TASK.sample_closing(80, generator=torch.Generator().manual_seed(1))

    def accuracy(other):
        logits = other(tokens)[torch.arange(80), last - 1]
        return (logits.argmax(-1) == tokens[torch.arange(80), last]).double().mean().item()

    assert [(row["layer"], row["head"]) for row in rows] == [(0, 0), (0, 1), (1, 0), (1, 1)]
    for row in rows:
        other = build_model(model.cfg, seed=3)
        other.load_state_dict(model.state_dict())
        with torch.no_grad():
            attn = other.blocks[row["layer"]].attn
            attn.W_Q[row["head"]] = 0
            attn.b_Q[row["head"]] = 0
        assert row["accuracy_uniform"] == pytest.approx(accuracy(other))
    assert rows[0]["accuracy"] == pytest.approx(accuracy(model))
    assert heads_of(model, TASK, n=80, seed=1) == rows


@pytest.mark.parametrize(
    ("pattern", "place"), [("previous", "the bracket before"), ("uniform", "")]
)
def test_looks(pattern, place):
    model = construct.decoy_head(build_model(get_config("gpt-uniform", TASK, n_layers=1)), pattern)
    assert heads_of(model, TASK, n=40, seed=0)[-1]["looks_like"] == place


@pytest.mark.parametrize(("family", "options"), [("gpt", {"n_heads": 2}), ("minimal-onehot", {})])
def test_looks_and_weights_string_by_string(family, options):
    """Against plain loops over strings, closing brackets and a stack of positions."""
    config = get_config(family, TASK, dtype=torch.float64, initializer_range=0.8, **options)
    model = build_model(config, seed=1)
    rows = heads_of(model, TASK, n=25, seed=4)
    tokens, last = TASK.sample_closing(25, generator=torch.Generator().manual_seed(4))
    found = {(row["layer"], row["head"]): {} for row in rows}
    for string, end in zip(tokens, last, strict=True):
        _, cache = model.run_with_cache(string[None])
        text = string[: int(end) + 1].tolist()
        stack, depth = [], [0]
        for position, token in enumerate(text[1:], start=1):
            if token % 2 == 0:
                stack.append(position)
            else:
                stack.pop()
            depth.append(len(stack))
            if token % 2 == 0 or not stack:
                continue
            top = stack[-1]
            like = [j for j in range(1, position) if (text[j], depth[j]) == (text[top], depth[top])]
            places = {
                "the top of the stack": [top],
                "itself": [position],
                "the bracket before": [position - 1],
                "BOS": [0],
                "a bracket like the top": like,
            }
            for (layer, head), sums in found.items():
                row = cache["pattern", layer][0, head, position]
                largest = [j for j in range(position + 1) if row[j] >= row.max() * (1 - 1e-5)]
                for name, place in places.items():
                    share = len(set(place) & set(largest)) / len(largest)
                    if name == "a bracket like the top":
                        share = float(share > 0)
                    sums.setdefault(f"look_{name}", []).append(share)
                    sums.setdefault(f"mass_{name}", []).append(float(row[place].sum()))
    for row in rows:
        for name, values in found[row["layer"], row["head"]].items():
            assert row[name] == pytest.approx(np.mean(values), abs=1e-9), name


def test_looks_at_the_depth_of_the_top_string_by_string():
    config = get_config("minimal-onehot", TASK, dtype=torch.float64, initializer_range=0.8)
    model = build_model(config, seed=1)
    tokens, last = TASK.sample_closing(40, generator=torch.Generator().manual_seed(4))
    found = []
    for string, end in zip(tokens, last, strict=True):
        _, cache = model.run_with_cache(string[None])
        depth, depths = 0, [0]
        for position in range(1, int(end) + 1):
            depth += 1 if string[position] % 2 == 0 else -1
            depths.append(depth)
            if string[position] % 2 == 0 or depth == 0:
                continue
            row = cache["pattern", 0][0, 0, position]
            like = [j for j in range(1, position) if string[j] % 2 == 0 and depths[j] == depth]
            found.append(bool(max(row[like]) >= row.max() * (1 - 1e-5)))
    assert 0 < np.mean(found) < 1
    assert share_at_depth(model, TASK, n=40, seed=4) == pytest.approx(np.mean(found))
    parser = construct.stack(LANGUAGE, n_ctx=64)
    assert share_at_depth(parser, TASK, n=40, seed=4) == 1


def test_heads_that_can_be_spared_are_also_taken_together(monkeypatch):
    """With all heads idle by decree: as accurate as a model without any queries, or less."""
    monkeypatch.setattr(measure_module, "REPLACEABLE", 1.0)
    config = get_config("gpt", TASK, n_heads=2, dtype=torch.float64, initializer_range=0.5)
    model = build_model(config, seed=3)
    rows = heads_of(model, TASK, n=80, seed=1)
    (together,) = {row["accuracy_together"] for row in rows}
    tokens, last = TASK.sample_closing(80, generator=torch.Generator().manual_seed(1))
    with torch.no_grad():
        for block in model.blocks:
            block.attn.W_Q[:] = 0
            block.attn.b_Q[:] = 0
    chosen = model(tokens)[torch.arange(80), last - 1].argmax(-1)
    uniform = (chosen == tokens[torch.arange(80), last]).double().mean().item()
    assert together == pytest.approx(uniform) or together < uniform
    # and by default only those that can be spared are: a decoy's absence costs nothing
    monkeypatch.undo()
    pair = construct.decoy_head(construct.stack(LANGUAGE, n_ctx=64), "uniform")
    real, decoy = heads_of(pair, TASK, n=60, seed=0)
    assert (real["replaceable"], decoy["replaceable"]) == (False, True)
    assert decoy["accuracy_together"] == 1


def test_a_nearly_uniform_head_does_not_look_interpretable():
    """Its largest weight is always on BOS, by a little: an argmax without a mass."""

    def leaning(tokens):
        rows = torch.ones(*tokens.shape, tokens.shape[-1], dtype=torch.float64).tril()
        rows[..., 0] += 0.2
        return rows / rows.sum(-1, keepdim=True)

    *_, head = heads_of(
        construct.decoy_head(construct.stack(LANGUAGE, n_ctx=64), leaning), TASK, n=40, seed=0
    )
    assert head["look_BOS"] == pytest.approx(1)
    assert head["mass_BOS"] < 0.5
    assert not head["interpretable"]


def test_probe_strings_are_of_the_language():
    for k, depth in ((2, 4), (3, 8), (1, 1)):
        language = DyckLanguage(k, depth)
        found = probe_strings(language, 1)
        assert found["paper"] == language.probe_string
        assert found == probe_strings(language, 1)
        for text in found.values():
            tokens = language.parse(text, prefix=False)
            assert language.is_complete(tokens)
        assert int(language.depth(language.parse(found["mixed"])).max()) == depth


# --- experiments on evidence made up for the purpose ----------------------------------------------


def made_up(rows, heads=(), checkpoints=()):
    models = pd.DataFrame(rows)
    scale = Scale(weights=(0.0, 1.0), lengths=(8,), n_bootstrap=200)
    return Evidence(
        folder=Path("nowhere"),
        scale=scale,
        models=models,
        heads=pd.DataFrame(heads),
        checkpoints=pd.DataFrame(checkpoints),
    )


def test_the_regularisation_is_compared_seed_by_seed():
    rows = [
        {
            "group": f"minimal-onehot-complete-weight-{weight}",
            "seed": seed,
            "beta": 0.1 * seed - 0.05 * weight,
        }
        for weight in (0, 1)
        for seed in range(5)
    ]
    found = contrast.regularised(made_up(rows[::-1]), "beta", "complete")
    assert (found.estimate.value, found.estimate.low) == pytest.approx((-0.05, -0.05))
    assert found.reading == "λ = 0: 0.20, λ = 1: 0.15."


def test_ties_across_seeds():
    rows = [
        {
            "group": f"minimal-onehot-prefix-weight-{weight}",
            "seed": seed,
            "beta": 0.2 + 0.01 * seed - 0.1 * weight,
            "long_accuracy_after_close": 0.9 + 0.001 * seed + 0.05 * weight,
        }
        for weight in (0, 1)
        for seed in range(6)
    ]
    found = contrast.tied(made_up(rows), "prefix")
    assert found.estimate.value == pytest.approx(1)
    assert found.estimate.n == 6
    assert "6 models" in found.reading


def test_the_regularisation_has_controls():
    rows = [
        {"group": group, "seed": seed, "long_accuracy_after_close": value + 0.01 * seed}
        for group, value in (
            ("minimal-onehot-complete-weight-0", 0.6),
            ("minimal-onehot-complete-weight-1", 0.8),
            ("minimal-onehot-batch-doubled", 0.65),
        )
        for seed in range(5)
    ]
    found = contrast.against_control(made_up(rows), "minimal-onehot-batch-doubled")
    assert (found.estimate.value, found.estimate.low) == pytest.approx((0.15, 0.15))
    assert found.reading == "Regularised 82.0%, control 67.0%, neither 62.0%."
    without = contrast.against_control(made_up(rows), "minimal-onehot-to-34")
    assert math.isnan(without.estimate.low)


def test_theorem_2_at_equal_steps_and_over_lengths():
    """Over a run both fall with time; what counts is the tie over seeds at the same step."""
    checkpoints = [
        {"group": "g", "seed": seed, "step": step, "loss": 1 / step + seed, "beta": sign / step}
        for seed, sign in ((0, 1.0), (1, 2.0), (2, 3.0), (3, 4.0))
        for step in (1, 2, 3)
    ]
    found = theorem2.violation_and_loss(made_up([], checkpoints=checkpoints))
    assert found.estimate.value == pytest.approx(1)
    assert found.estimate.n == 4
    assert "from 2.50 at the first checkpoint to 0.83 at the last" in found.reading
    against = [{**row, "loss": 1 / row["step"] - row["seed"]} for row in checkpoints]
    found = theorem2.violation_and_loss(made_up([], checkpoints=against))
    assert found.estimate.value == pytest.approx(-1)  # although both fall within every run
    rows = [
        {
            "group": name,
            "seed": seed,
            "beta": 4 / longest + 0.001 * seed,
            "largest_ratio": 8 / longest,
        }
        for longest, name in ((8, "minimal-onehot-to-8"), (26, "minimal-onehot-complete-weight-0"))
        for seed in range(4)
    ]
    found = theorem2.violation_and_length(made_up(rows), "beta")
    assert found.estimate.high < 0
    bounded = theorem2.violation_and_length(made_up(rows), "largest_ratio")
    assert bounded.estimate.value == pytest.approx(0)
    assert "N = 8: 8.00, N = 26: 8.00" in bounded.reading


def test_corollary_2_allows_a_quarter_more_than_without_decay():
    def found(excess):
        rows = [
            {"group": name, "seed": seed, "beta": beta + 0.01 * seed, "loss": 0.8}
            for name, beta in (
                ("minimal-onehot-complete-weight-0", 0.1),
                ("minimal-onehot-decay-0.001", 0.1 + excess),
                ("minimal-onehot-decay-0.1", 0.5),
            )
            for seed in range(5)
        ]
        return theorem2.violation_and_decay(made_up(rows))

    (claim,) = (claim for claim in theorem2.CLAIMS if claim.name == "corollary-2")
    assert found(0.02).estimate.value == pytest.approx(0.02)
    assert found(0.02).limit == pytest.approx(0.12 / 4)
    assert judge(claim.rule, found(0.02)) == "reproduced"
    assert judge(claim.rule, found(0.04)) == "not reproduced"
    assert "0: β 0.120, loss 0.8000; 0.001: β 0.140, loss 0.8000;" in found(0.02).reading


def heads_of_many(looks):
    """Rows of models with two layers of four heads; (seed, interpretable, replaceable) each."""
    models, heads = [], []
    for seed, (accuracy, shown) in enumerate(looks):
        models.append({"group": "gpt-heads-4-layers-2", "seed": seed, "accuracy": accuracy})
        for head, (interpretable, replaceable) in enumerate(shown):
            heads.append(
                {
                    "group": "gpt-heads-4-layers-2",
                    "seed": seed,
                    "layer": 0,
                    "head": head,
                    "accuracy": accuracy,
                    "accuracy_together": accuracy - 0.2,
                    "looks_like": "BOS" if interpretable else "",
                    "interpretable": interpretable,
                    "replaceable": replaceable,
                }
            )
    return made_up(models, heads=heads)


def test_misleading_heads_are_counted_in_models_that_learned():
    evidence = heads_of_many(
        [
            (0.99, [(True, True), (False, True)]),  # misleads
            (0.99, [(True, False), (False, False)]),  # is needed
            (0.99, [(False, True), (False, True)]),  # shows nothing
            (0.50, [(True, True), (True, True)]),  # did not learn
        ]
    )
    found = misleading.misleading(evidence, 2)
    assert found.estimate.value == pytest.approx(1 / 3)
    assert found.estimate.high == pytest.approx(stats.binomtest(1, 3).proportion_ci().high)
    assert "In 1 of 3 models" in found.reading
    assert "Of 6 heads 2 look interpretable (BOS 2), 1 of these in vain" in found.reading
    assert "Of all heads, 4 can be replaced" in found.reading
    lost = misleading.together(evidence)
    assert lost.estimate.value == pytest.approx(0.2)
    assert lost.estimate.n == 2  # models with two or more such heads
    nothing = misleading.misleading(heads_of_many([(0.99, [(False, False)])]), 2)
    assert math.isnan(nothing.estimate.value)


def test_stack_like_models_are_counted_among_those_that_learned():
    heads = [
        {"group": "gpt", "seed": seed, "accuracy": accuracy, "layer": layer, "head": 0}
        | {"look_the top of the stack": look, "mass_the top of the stack": look / 2}
        for seed, accuracy, looked in (
            (0, 0.99, (0.2, 0.95)),
            (1, 0.99, (0.3, 0.4)),
            (2, 0.5, (1, 1)),
        )
        for layer, look in enumerate(looked)
    ]
    models = [
        {"group": "gpt", "seed": seed, "accuracy": accuracy}
        for seed, accuracy in ((0, 0.99), (1, 0.99), (2, 0.5))
    ]
    found = looks.stack_like(made_up(models, heads=heads), ("gpt",), "the top of the stack")
    assert found.estimate.value == 0.5
    assert "1 of 2 models that learned" in found.reading
    assert "(40% to 95%)" in found.reading


def with_patterns(known, **parts):
    """Evidence that has made-up patterns, by group or by group and string."""
    evidence = made_up([])
    object.__setattr__(evidence, "scale", Scale(n_bootstrap=100))

    def patterns(group, string="paper", seeds=None):
        found = known[group, string] if (group, string) in known else known[group]
        return found if seeds is None else found[list(seeds)]

    for name, part in {"patterns": patterns, **parts}.items():
        object.__setattr__(evidence, name, part)
    return evidence


def baseline(value):
    """What `Evidence.variation` gives, where its baseline is all that counts."""
    nothing = Estimate(value=0.0, low=0.0, high=0.0, n=4)
    return lambda group, string="paper", layer=-1: Variation(estimate=nothing, baseline=value)


def rows_of(generator, *shape):
    drawn = generator.exponential(size=shape) * np.tril(np.ones(shape[-2:]))
    return drawn / drawn.sum(-1, keepdims=True)


def test_variation_over_layers_and_strings_by_loops():
    generator = np.random.default_rng(0)
    short, long = rows_of(generator, 4, 2, 1, 5, 5), rows_of(generator, 4, 2, 1, 9, 9)
    known = {("gpt-prefix", "paper"): short, ("gpt-prefix", "longer"): long}
    pairs = list(itertools.combinations(range(4), 2))

    def average(patterns):
        return np.mean([((patterns[i] - patterns[j]) ** 2).sum() for i, j in pairs])

    found = variation.longer_string(with_patterns(known))
    shares = []
    for patterns, n in ((long, 9), (short, 5)):
        random = sum(2 * (m - 1) / (m * (m + 1)) for m in range(1, n + 1))
        shares.append(average(patterns[:, -1, 0]) / random)
    assert found.estimate.value == pytest.approx(shares[0] - shares[1])
    evidence = with_patterns({"gpt": short}, variation=baseline(1.0))
    over = variation.over_layers(evidence, "gpt")
    expected = (average(short[:, 0, 0]) + average(short[:, 1, 0])) / 2
    assert over.estimate.value == pytest.approx(expected)
    assert over.estimate.low <= expected <= over.estimate.high


def test_the_random_baseline_has_its_known_range():
    """Exactly 3.00 for 16 rows; the standard deviation of an average of 40 is about 0.1."""
    found = variation.random_baseline(made_up([]))
    assert found.estimate.value == pytest.approx(
        sum(2 * (m - 1) / m / (m + 1) for m in range(1, 17))
    )
    assert 2.7 < found.estimate.low < found.estimate.value < found.estimate.high < 3.3
    assert "with a row for BOS 3.10" in found.reading
    assert "without a causal mask 1.76" in found.reading


def test_kinds_that_differ_are_told_from_seeds_that_differ():
    generator = np.random.default_rng(1)
    one, other = rows_of(generator, 8, 4, 4), rows_of(generator, 8, 4, 4)
    evidence = with_patterns({})
    same = choices.kinds_apart(evidence, {"a": one, "b": other})
    assert same.estimate.low < 0.3
    eye = np.broadcast_to(np.eye(4), (8, 4, 4))
    apart = choices.kinds_apart(evidence, {"a": one, "b": 0.9 * eye + 0.1 * other})
    assert apart.estimate.low > 0
    cross = np.mean([((a - b) ** 2).sum() for a in one for b in 0.9 * eye + 0.1 * other])
    assert f"Between the two kinds {cross:.2f}" in apart.reading
    few = choices.kinds_apart(evidence, {"a": one, "b": other[:1]})
    assert math.isnan(few.estimate.value)


def test_those_that_look_at_themselves_and_at_the_start():
    eye = np.broadcast_to(np.eye(5), (6, 5, 5))
    start = np.zeros((6, 5, 5))
    start[..., 0] = 1
    patterns = np.concatenate([eye, start])[:, None, None]
    evidence = with_patterns({"gpt-prefix": patterns})
    found = choices.itself_or_start(evidence)
    assert found.estimate.value == pytest.approx(8)  # four rows that differ by two each
    assert "present bracket” (6 models) 0.00" in found.reading


def test_choices_are_compared_among_models_that_learned():
    generator = np.random.default_rng(2)
    known = {name: rows_of(generator, 3, 1, 1, 4, 4) for name in ("figure2-a", "figure2-b", "c")}
    learned = {"figure2-a": [0, 1, 2], "figure2-b": [0, 2], "c": [1]}
    evidence = with_patterns(known, learned=learned.get, variation=baseline(2.0))
    found = choices.choices(evidence, [("figure2-a", "figure2-b"), ("figure2-a", "c")])
    a, b = known["figure2-a"][:, -1, 0], known["figure2-b"][[0, 2], -1, 0]
    assert found.estimate.value == pytest.approx(
        np.mean([((x - y) ** 2).sum() for x in a for y in b])
    )
    assert found.limit == 1.0
    assert "Left out, since they did not learn: c." in found.reading
    nothing = choices.choices(evidence, [("c", "figure2-a")])
    assert math.isnan(nothing.estimate.value)


def test_first_layers_near_uniform_are_counted():
    length = 5
    uniform = np.tril(np.ones((length, length))) / np.arange(1, length + 1)[:, None]
    eye = np.eye(length)
    patterns = np.stack([uniform, uniform, eye])[:, None, None].repeat(3, axis=1)
    group = SimpleNamespace(name="g", overrides={"n_layers": 3})
    many = SimpleNamespace(name="h", overrides={"n_layers": 3, "n_heads": 4})
    evidence = with_patterns({"g": patterns}, groups=lambda: [group, many], variation=baseline(2.0))
    found = looks.first_layer_uniform(evidence)
    assert found.estimate.value == pytest.approx(2 / 3)
    assert "2 of 3 models" in found.reading


def test_who_learns_is_counted_after_a_fixed_number_of_steps():
    rows = [
        {"group": group, "seed": seed, "accuracy": value, "long_accuracy_after_close": 0.6}
        | {"accuracy_after_close": 0.9, "long_accuracy": 0.8, "loss": 1.0, "entropy_floor": 0.9}
        for group, values in (
            ("gpt-to-the-end", (0.99, 0.98)),
            ("minimal-onehot-complete-weight-0", (0.99, 0.9)),
            ("gpt", (0.5, 0.5)),  # stopped early
        )
        for seed, value in enumerate(values)
    ]
    evidence = made_up(rows)
    found = learning.all_learn(evidence)
    assert found.estimate.value == 0.75
    assert found.reading.endswith("Below, by group: minimal-onehot-complete-weight-0 1.")
    gpt = learning.accuracy(evidence, "gpt")
    assert gpt.estimate.value == pytest.approx(0.985)
    assert "Stopped at 99 %: 50.0%." in gpt.reading
    far = learning.at_length(evidence, ("gpt", "minimal-onehot"))
    assert far.estimate.value == pytest.approx(0.6)


# --- from end to end, on few and hardly trained models --------------------------------------------

FEW = (
    "gpt",
    "minimal-onehot",
    "minimal-onehot-complete-weight-0",
    "minimal-onehot-complete-weight-1",
)


def few_groups(scale):
    for group in groups_of(scale):
        if group.name in FEW:
            weight = group.training.contrastive_weight
            training = TrainConfig(
                steps=8,
                batch_size=8,
                check_every=4,
                check_size=20,
                target=None,
                contrastive_weight=weight,
            )
            yield dataclasses.replace(group, training=training)


@pytest.fixture
def few(monkeypatch):
    claims = [
        c
        for c in CLAIMS
        if c.name in ("variation-minimal", "contrastive-beta-complete", "theorem-2-loss")
    ]
    for module in (scales_module, evidence_module):
        monkeypatch.setattr(module, "groups_of", lambda scale: list(few_groups(scale)))
    monkeypatch.setattr(run_module, "CLAIMS", claims)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("reproduce")


def test_everything_is_trained_measured_judged_and_kept(few, folder):
    done = reproduce(TINY_PAPER, folder, n_jobs=1, progress=False)
    assert done.claims["name"].tolist() == [
        "variation-minimal",
        "contrastive-beta-complete",
        "theorem-2-loss",
    ]
    recorded.check("reproduction", recorded.of_reproduction(done))
    assert set(done.claims["verdict"]) <= set(VERDICTS)
    assert done.claims["reported"].tolist() == ["0.24", "", ""]
    assert len(done.evidence.models) == 12
    assert done.evidence.models.groupby("group")["beta"].count().to_dict() == {
        name: 3 * (name != "gpt") for name in FEW
    }
    assert done.evidence.checkpoints.groupby("seed")["step"].agg(list).tolist() == [[4, 8]] * 3
    # the violation on the way ends with that of the finished model
    last = done.evidence.checkpoints.set_index(["seed", "step"])["beta"][:, 8]
    end = done.evidence.of("minimal-onehot-complete-weight-0").set_index("seed")["beta"]
    assert last.tolist() == end.tolist()
    assert len(done.evidence.heads) == 3 * 2 + 9

    again = reproduce(TINY_PAPER, folder, n_jobs=1, progress=False)  # nothing is trained anew
    assert again.evidence.models["seconds"].tolist() == done.evidence.models["seconds"].tolist()
    loaded = load_reproduction(folder)
    pd.testing.assert_frame_equal(loaded.claims, done.claims)
    for name in ("models", "heads", "checkpoints"):
        pd.testing.assert_frame_equal(getattr(loaded.evidence, name), getattr(done.evidence, name))
    assert loaded.scale == TINY_PAPER


def test_the_variation_is_the_probes_own(few, folder):
    from tl_dyck.models import load_model
    from tl_dyck_hooks.probes import attention_variation

    done = reproduce(TINY_PAPER, folder, n_jobs=1, progress=False)
    models = [load_model(done.evidence.run_folder("gpt", seed)) for seed in range(3)]
    found = done.evidence.variation("gpt", "mixed", layer=0)
    expected = attention_variation(models, probe_strings(LANGUAGE, TINY_PAPER.data_seed)["mixed"])
    assert found.estimate.value == pytest.approx(expected.matched[0])
    assert found.baseline == pytest.approx(expected.random_baseline)
    square = distances(*[done.evidence.patterns("gpt", "mixed")[:, 0, 0]] * 2)
    assert square.sum() / 6 == pytest.approx(expected.matched[0], rel=1e-5)


def test_what_is_wrong_is_said(tmp_path):
    with pytest.raises(UnknownNameError, match=r"unknown scale 'quik'\. Did you mean 'quick'"):
        reproduce("quik", tmp_path)
    with pytest.raises(CorruptFileError):
        load_reproduction(tmp_path)
    (tmp_path / "claims.json").write_text('{"format": "other"}')
    with pytest.raises(CorruptFileError, match="not hold a reproduction of this version"):
        load_reproduction(tmp_path)


def test_lengths_of_a_task_can_be_changed():
    group = next(group for group in groups_of(SCALES["quick"]) if group.longest == 12)
    task = group.load_task()
    assert isinstance(task, DyckTask)
    assert task.train_lengths == (2, 4, 6, 8, 10, 12)
    assert (task.name, task.long_lengths) == ("dyck-2-4-to-12", TASK.long_lengths)
