"""What every claim reads from the evidence, on evidence made up for the purpose."""

from __future__ import annotations

import itertools
import math
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from scipy import stats

from tl_dyck.intervals import Estimate
from tl_dyck.studies.rules import judge
from tl_dyck_papers.wen_2023 import CLAIMS, Scale, pattern_readings, readings
from tl_dyck_papers.wen_2023.evidence import Evidence, Variation


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


def grown(n, groups, **steps):
    """Rows of n seeds of each group: its values, which grow by steps from seed to seed."""
    return [
        {"group": name, "seed": seed}
        | {key: value + seed * steps.get(key, 0) for key, value in values.items()}
        for name, values in groups.items()
        for seed in range(n)
    ]


WEIGHT_0, WEIGHT_1 = (f"minimal-onehot-complete-weight-{weight}" for weight in (0, 1))


def test_the_regularisation_is_compared_seed_by_seed():
    rows = grown(5, {WEIGHT_0: {"beta": 0.0}, WEIGHT_1: {"beta": -0.05}}, beta=0.1)
    found = readings.regularised(made_up(rows[::-1]), "beta", "complete")
    assert (found.estimate.value, found.estimate.low) == pytest.approx((-0.05, -0.05))
    assert found.reading == "λ = 0: 0.20, λ = 1: 0.15."


def test_ties_across_seeds():
    groups = {
        "minimal-onehot-prefix-weight-0": {"beta": 0.2, "long_accuracy_after_close": 0.9},
        "minimal-onehot-prefix-weight-1": {"beta": 0.1, "long_accuracy_after_close": 0.95},
    }
    rows = grown(6, groups, beta=0.01, long_accuracy_after_close=0.001)
    found = readings.tied(made_up(rows), "minimal-onehot-prefix-weight-0")
    assert found.estimate.value == pytest.approx(1)
    assert found.estimate.n == 6
    assert "6 models" in found.reading


def test_the_regularisation_has_controls():
    values = {WEIGHT_0: 0.6, WEIGHT_1: 0.8, "minimal-onehot-batch-doubled": 0.65}
    groups = {name: {"long_accuracy_after_close": value} for name, value in values.items()}
    rows = grown(5, groups, long_accuracy_after_close=0.01)
    found = readings.against_control(made_up(rows), "minimal-onehot-batch-doubled")
    assert (found.estimate.value, found.estimate.low) == pytest.approx((0.15, 0.15))
    assert found.reading == "Regularised 82.0%, control 67.0%, neither 62.0%."
    without = readings.against_control(made_up(rows), "minimal-onehot-to-34")
    assert math.isnan(without.estimate.low)


def test_theorem_2_at_equal_steps_and_over_lengths():
    """Over a run both fall with time; what counts is the tie over seeds at the same step."""
    checkpoints = [
        {"group": "g", "seed": seed, "step": step, "loss": 1 / step + seed, "beta": sign / step}
        for seed, sign in ((0, 1.0), (1, 2.0), (2, 3.0), (3, 4.0))
        for step in (1, 2, 3)
    ]
    found = readings.violation_and_loss(made_up([], checkpoints=checkpoints))
    assert found.estimate.value == pytest.approx(1)
    assert found.estimate.n == 4
    assert "from 2.50 at the first checkpoint to 0.83 at the last" in found.reading
    against = [{**row, "loss": 1 / row["step"] - row["seed"]} for row in checkpoints]
    found = readings.violation_and_loss(made_up([], checkpoints=against))
    assert found.estimate.value == pytest.approx(-1)  # although both fall within every run
    groups = {
        name: {"beta": 4 / longest, "largest_ratio": 8 / longest}
        for longest, name in ((8, "minimal-onehot-to-8"), (26, WEIGHT_0))
    }
    rows = grown(4, groups, beta=0.001)
    found = readings.violation_and_length(made_up(rows), "beta")
    assert math.isnan(found.estimate.high)  # four seeds are too few
    many = readings.violation_and_length(made_up(grown(8, groups, beta=0.001)), "beta")
    assert many.estimate.high < 0
    bounded = readings.violation_and_length(made_up(rows), "largest_ratio")
    assert bounded.estimate.value == pytest.approx(0)
    assert "N = 8: 8.00, N = 26: 8.00" in bounded.reading


def test_corollary_2_allows_a_quarter_more_than_without_decay():
    def found(excess):
        decayed = {"minimal-onehot-decay-0.001": 0.1 + excess, "minimal-onehot-decay-0.1": 0.5}
        betas = {WEIGHT_0: 0.1, **decayed}
        groups = {name: {"beta": beta, "loss": 0.8} for name, beta in betas.items()}
        return readings.violation_and_decay(made_up(grown(5, groups, beta=0.01)))

    (claim,) = (claim for claim in CLAIMS if claim.name == "corollary-2")
    assert found(0.02).estimate.value == pytest.approx(0.02)
    assert claim.rule.limits(found(0.02).unit)[0] == pytest.approx(0.12 / 4)
    assert judge(claim.rule, found(0.02)) == "reproduced"
    assert judge(claim.rule, found(0.04)) == "not reproduced"
    assert "0: β 0.120, loss 0.8000; 0.001: β 0.140, loss 0.8000;" in found(0.02).reading


def test_a_forecast_is_held_to_what_is_measured():
    """Seeds in any order; a run that diverged does not count."""
    forecast = {0: 0.55, 1: 0.6, 2: 0.7, 3: 0.99, 4: 0.72, 5: 0.9}

    def found(slope, status="diverged"):
        rows = [
            {
                "group": "g",
                "seed": seed,
                "status": status if seed == 3 else "target",
                "forecast_moments": forecast[seed],
                "long_accuracy_after_close": 0.7 + slope * forecast[seed] * (seed != 3),
            }
            for seed in (4, 2, 0, 3, 5, 1)
        ]
        return readings.predicted(made_up(rows), "g", "forecast_moments")

    assert found(0.1).estimate.value == pytest.approx(1)
    assert found(-0.1).estimate.value == pytest.approx(-1)
    assert found(0.1, "target").estimate.value < 1
    assert (found(0.1).estimate.n, found(0.1).correlation) == (5, True)
    mean = np.mean([value for seed, value in forecast.items() if seed != 3])
    assert f"predicted {mean:.1%} [" in found(0.1).reading
    rows = [{"group": "", "seed": 0, "status": "", "long_accuracy_after_close": 0.5}]
    rows[0]["forecast_moments"] = 0.5
    none = readings.predicted(made_up(rows), "g", "forecast_moments")
    assert none.reading == "There are no such models."


def test_looks_at_the_depth_are_counted_among_those_that_learned():
    models = [
        {"group": "g", "seed": 0, "accuracy": 0.99, "look_depth": 0.95},
        {"group": "g", "seed": 1, "accuracy": 0.99, "look_depth": 0.4},
        {"group": "h", "seed": 1, "accuracy": 0.99, "look_depth": 0.9},
        {"group": "h", "seed": 0, "accuracy": 0.5, "look_depth": 1.0},
        {"group": "other", "seed": 0, "accuracy": 0.99, "look_depth": 1.0},
    ]
    place = "a bracket like the top"
    heads = [{"group": "g", "seed": 0, f"look_{place}": 0.2, f"mass_{place}": 0.1}]
    found = pattern_readings.depth_like(made_up(models, heads=heads), ["g", "h"])
    assert found.estimate.value == pytest.approx(2 / 3)
    assert found.reading.startswith("2 of 3 models that learned; there at 75% of closing brackets")
    assert "On one of its type too: 0 of 1 models" in found.reading
    nothing = pattern_readings.depth_like(made_up(models[3:4]), ["h"])
    assert (nothing.reading, nothing.estimate.n) == ("No model learned.", 0)


def heads_of_many(looks):
    """Rows of models with two layers of four heads; (seed, interpretable, replaceable) each."""
    models, heads = [], []
    for seed, (accuracy, shown) in enumerate(looks):
        models.append({"group": "gpt-heads-4-layers-2", "seed": seed, "accuracy": accuracy})
        for head, (interpretable, replaceable) in enumerate(shown):
            seen = {"looks_like": "BOS" if interpretable else "", "interpretable": interpretable}
            place = {"layer": 0, "head": head, "accuracy_together": accuracy - 0.2}
            heads.append({**models[-1], **place, **seen, "replaceable": replaceable})
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
    found = readings.misleading(evidence, "gpt-heads-4-layers-2")
    assert found.estimate.value == pytest.approx(1 / 3)
    assert found.estimate.high == pytest.approx(stats.binomtest(1, 3).proportion_ci().high)
    assert "In 1 of 3 models" in found.reading
    assert "Of 6 heads 2 look interpretable (BOS 2), 1 of these in vain" in found.reading
    assert "Of all heads, 4 can be replaced" in found.reading
    lost = readings.together(evidence, ["gpt-heads-4-layers-2", "gpt-heads-4-layers-3"])
    assert lost.estimate.value == pytest.approx(0.2)
    assert lost.estimate.n == 2  # models with two or more such heads
    nothing = readings.misleading(heads_of_many([(0.99, [(False, False)])]), "gpt-heads-4-layers-2")
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
    found = pattern_readings.stack_like(
        made_up(models, heads=heads), ("gpt",), "the top of the stack"
    )
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

    found = pattern_readings.longer_string(with_patterns(known), "gpt-prefix")
    shares = []
    for patterns, n in ((long, 9), (short, 5)):
        random = sum(2 * (m - 1) / (m * (m + 1)) for m in range(1, n + 1))
        shares.append(average(patterns[:, -1, 0]) / random)
    assert found.estimate.value == pytest.approx(shares[0] - shares[1])
    evidence = with_patterns({"gpt": short}, variation=baseline(1.0))
    over = pattern_readings.over_layers(evidence, "gpt", 2.27)
    expected = (average(short[:, 0, 0]) + average(short[:, 1, 0])) / 2
    assert over.estimate.value == pytest.approx(expected)
    assert over.estimate.low <= expected <= over.estimate.high


def test_the_random_baseline_has_its_known_range():
    """Exactly 3.00 for 16 rows; the standard deviation of an average of 40 is about 0.1."""
    found = pattern_readings.random_baseline(made_up([]))
    assert found.estimate.value == pytest.approx(
        sum(2 * (m - 1) / m / (m + 1) for m in range(1, 17))
    )
    assert 2.7 < found.estimate.low < found.estimate.value < found.estimate.high < 3.3
    assert "with a row for BOS 3.10" in found.reading
    assert "without a causal mask 1.76" in found.reading


def test_kinds_that_differ_are_told_from_seeds_that_differ():
    generator = np.random.default_rng(1)
    one, other = rows_of(generator, 8, 4, 4), rows_of(generator, 8, 4, 4)
    same = pattern_readings._kinds_apart({"a": one, "b": other})
    assert same.estimate.low < 0.3
    eye = np.broadcast_to(np.eye(4), (8, 4, 4))
    apart = pattern_readings._kinds_apart({"a": one, "b": 0.9 * eye + 0.1 * other})
    assert apart.estimate.low > 0
    cross = np.mean([((a - b) ** 2).sum() for a in one for b in 0.9 * eye + 0.1 * other])
    assert f"Between the two kinds {cross:.2f}" in apart.reading
    few = pattern_readings._kinds_apart({"a": one, "b": other[:1]})
    assert math.isnan(few.estimate.value)


def test_those_that_look_at_themselves_and_at_the_start():
    eye = np.broadcast_to(np.eye(5), (6, 5, 5))
    start = np.zeros((6, 5, 5))
    start[..., 0] = 1
    patterns = np.concatenate([eye, start])[:, None, None]
    evidence = with_patterns({"gpt-prefix": patterns})
    found = pattern_readings.itself_or_start(evidence, "gpt-prefix")
    assert found.estimate.value == pytest.approx(8)  # four rows that differ by two each
    assert "present bracket” (6 models) 0.00" in found.reading


def test_choices_are_compared_among_models_that_learned():
    generator = np.random.default_rng(2)
    a, b, c, d = names = [f"figure2-{kind}-rate-{rate}" for rate in (1, 2) for kind in "xy"]
    known = {name: rows_of(generator, 3, 1, 1, 4, 4) for name in names}
    learned = {a: [0, 1, 2], b: [0, 2], c: [0, 1], d: [1]}
    evidence = with_patterns(known, learned=learned.get, variation=baseline(2.0))

    def between(one, other):
        left, right = (known[name][learned[name], -1, 0] for name in (one, other))
        return np.mean([((x - y) ** 2).sum() for x in left for y in right])

    for vary, pair in (("embeddings", (a, b)), ("rates", (a, c))):
        found = pattern_readings.choices(evidence, vary, ["x", "y"], ["1", "2"])
        assert found.estimate.value == pytest.approx(between(*pair))
        assert found.unit == 2.0
        assert f"Left out, since they did not learn: {d}." in found.reading
    nothing = pattern_readings.choices(evidence, "embeddings", ["x", "y"], ["2"])
    assert math.isnan(nothing.estimate.value)
    assert nothing.reading.startswith("No pair learned.")


def test_first_layers_near_uniform_are_counted():
    length = 5
    uniform = np.tril(np.ones((length, length))) / np.arange(1, length + 1)[:, None]
    eye = np.eye(length)
    patterns = np.stack([uniform, uniform, eye])[:, None, None].repeat(3, axis=1)
    group = {"group": "g", "model.n_layers": 3}
    many = {"group": "h", "model.n_layers": 3, "model.n_heads": 4}
    evidence = with_patterns({"g": patterns}, groups=lambda: [group, many])
    found = pattern_readings.first_layer_uniform(evidence)
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
    found = readings.all_learn(evidence, ["gpt-to-the-end", "minimal-onehot-complete-weight-0"])
    assert found.estimate.value == 0.75
    assert found.reading.endswith("Below, by group: minimal-onehot-complete-weight-0 1.")
    gpt = readings.accuracy(evidence, "gpt-to-the-end", "gpt")
    assert gpt.estimate.value == pytest.approx(0.985)
    assert "Stopped at 99 %: 50.0%." in gpt.reading
    far = readings.at_length(evidence, ["gpt-to-the-end", "minimal-onehot-complete-weight-0"])
    assert far.estimate.value == pytest.approx(0.6)
    assert far.beside == "of all closing brackets 80.0% [80.0%, 80.0%]"
