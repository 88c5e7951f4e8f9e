"""From attention patterns to the numbers that claims are about.

A reading is a function of the evidence and of the arguments that a row of claims.yaml gives it.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

import numpy as np
from jaxtyping import Float

from tl_dyck.intervals import (
    Estimate,
    distances,
    drawn_pair_mean,
    estimate,
    left_out,
    mean_over_pairs,
    share,
)
from tl_dyck.reading.attention import random_row_variation
from tl_dyck.studies.rules import Measured
from tl_dyck_papers.wen_2023.evidence import Evidence
from tl_dyck_papers.wen_2023.measure import INTERPRETABLE, LIKE_THE_TOP

Patterns = Float[np.ndarray, "seed query key"]

_NOTHING = Estimate(value=float("nan"), low=float("nan"), high=float("nan"), n=0)
_TOP = "the top of the stack"


# --- how much seeds differ ------------------------------------------------------------------------


def variation(evidence: Evidence, group: str) -> Measured:
    """Attention variation of a group in its last layer, beside that of random patterns."""
    last = evidence.variation(group)
    steps = sorted({int(n) for n in evidence.of(group)["steps"]})
    trained = f"{steps[0]:,}" + (f" to {steps[-1]:,}" if len(steps) > 1 else "")
    reading = (
        f"{last.estimate.value / last.baseline:.0%} of what random patterns differ by "
        f"({last.baseline:.2f}). {_layers(evidence, group)} {trained} steps of training, accuracy "
        f"{evidence.mean('accuracy', group).text('.1%')}."
    )
    return Measured(estimate=last.estimate, reading=reading, unit=last.baseline)


def over_layers(evidence: Evidence, group: str, recalled: float) -> Measured:
    """Attention variation averaged over layers: one way to read a number without a layer."""
    patterns = evidence.patterns(group)[:, :, 0]
    between = sum(distances(*[patterns[:, layer]] * 2) for layer in range(patterns.shape[1]))
    found = _over_pairs(np.asarray(between) / patterns.shape[1])
    return Measured(estimate=found, reading=_layers(evidence, group), unit=recalled)


def less(evidence: Evidence, group: str, than: str) -> Measured:
    """Attention variation of a group, beside the lower end of another's interval."""
    last, other = evidence.variation(group), evidence.variation(than)
    reading = f"{than}: {other.estimate.text()}; random patterns: {last.baseline:.2f}."
    return Measured(estimate=last.estimate, reading=reading, unit=other.estimate.low)


def _layers(evidence: Evidence, group: str) -> str:
    n_layers = evidence.patterns(group).shape[1]
    values = [evidence.variation(group, layer=layer).estimate.text() for layer in range(n_layers)]
    return f"By layer, from 0: {', '.join(values)}."


def random_baseline(evidence: Evidence) -> Measured:
    """The average over pairs of 40 patterns drawn at random, 16 causal rows: its 95 % range."""
    rows, n = 16, 40
    generator = np.random.default_rng(evidence.scale.measurement.data_seed)
    keep = np.tril(np.ones((rows, rows)))
    drawn = []
    for _ in range(200):
        patterns = generator.exponential(size=(n, rows, rows)) * keep
        patterns /= patterns.sum(-1, keepdims=True)
        drawn.append(float(distances(patterns, patterns).sum() / n / (n - 1)))
    found = estimate(_random(rows), np.array(drawn), n, kind="simulated")
    reading = (
        f"Exactly {_random(rows):.2f} for the 16 rows of the string; with a row for BOS "
        f"{_random(rows + 1):.2f} (which other rows here are held to, since our models have one), "
        f"without a causal mask {2 * (rows - 1) / (rows + 1):.2f}. Interval: of averages over 40 "
        "patterns."
    )
    return Measured(estimate=found, reading=reading)


def other_strings(evidence: Evidence, group: str) -> Measured:
    """The least variation over other strings, as a share of the baseline."""
    shares = {}
    for string in ("longer", "mixed", "random, 16", "random, 26"):
        found = evidence.variation(group, string)
        shares[string] = found.estimate.times(1 / found.baseline)
    least = min(shares, key=lambda string: shares[string].value)
    listed = ", ".join(f"{string} {each.value:.0%}" for string, each in shares.items())
    return Measured(estimate=shares[least], reading=f"{group}, by string: {listed}.")


def longer_string(evidence: Evidence, group: str) -> Measured:
    """Share of random variation on a string twice as long, less that on the string, same models."""
    shares = []
    for string in ("longer", "paper"):
        patterns = evidence.patterns(group, string)[:, -1, 0]
        shares.append(distances(patterns, patterns) / _random(patterns.shape[-1]))
    found, n = _over_pairs(shares[0] - shares[1]), len(shares[0])
    long, short = (each.sum() / n / max(1, n - 1) for each in shares)
    reading = f"{long:.0%} of random patterns against {short:.0%}."
    return Measured(estimate=found, reading=reading)


def _over_pairs(distance: Float[np.ndarray, "model model"]) -> Estimate:
    value, (low, high) = mean_over_pairs(distance)
    return Estimate(value=float(value), low=float(low), high=float(high), n=len(distance), kind="t")


def _random(n_rows: int) -> float:
    return float(random_row_variation(n_rows).sum())


# --- which choices change patterns ----------------------------------------------------------------


def choices(
    evidence: Evidence, vary: str, embeddings: Sequence[str], rates: Sequence[str]
) -> Measured:
    """Models of two embeddings or two rates, alike otherwise; only models that learned."""
    name = "figure2-{}-rate-{}".format
    if vary == "embeddings":
        ways = itertools.product(rates, itertools.combinations(embeddings, 2))
        pairs = [(name(a, rate), name(b, rate)) for rate, (a, b) in ways]
    else:
        pairs = [(name(each, rates[0]), name(each, rates[1])) for each in embeddings]
    names = sorted({group for pair in pairs for group in pair})
    patterns = {
        group: evidence.patterns(group, seeds=evidence.learned(group))[:, -1, 0]
        for group in names
        if len(evidence.learned(group)) > 1
    }
    known = [pair for pair in pairs if pair[0] in patterns and pair[1] in patterns]
    baseline = evidence.variation(pairs[0][0]).baseline
    left_out = [group for group in names if group not in patterns]
    said = f" Left out, since they did not learn: {', '.join(left_out)}." if left_out else ""
    if not known:
        return Measured(estimate=_NOTHING, reading=f"No pair learned.{said}", unit=baseline)
    matrices = {pair: distances(patterns[pair[0]], patterns[pair[1]]) for pair in known}

    def average(rows: Mapping[str, np.ndarray]) -> float:
        found = [
            drawn_pair_mean(matrix, rows[a], rows[b], False) for (a, b), matrix in matrices.items()
        ]
        return float(np.mean(found))

    found = _over_models(patterns, average)
    each = ", ".join(f"{a} and {b} {matrix.mean():.2f}" for (a, b), matrix in matrices.items())
    reading = f"{each.replace('figure2-', '')}. Random patterns {baseline:.2f}.{said}"
    return Measured(estimate=found, reading=reading, unit=baseline)


def _over_models(
    patterns: Mapping[str, Patterns], statistic: Callable[[Mapping[str, np.ndarray]], float]
) -> Estimate:
    """A statistic of models of several kinds, each with seeds of its own; none for fewer than 3."""
    rows = {name: np.arange(len(found)) for name, found in patterns.items()}
    without = [
        np.array([statistic({**rows, name: np.delete(of, each)}) for each in of])
        for name, of in rows.items()
    ]
    found = left_out(statistic(rows), without)
    return found if found.n > 2 else replace(found, low=float("nan"), high=float("nan"))


def _kinds_apart(patterns: Mapping[str, Patterns]) -> Measured:
    """Distance between models of two kinds, less the mean distance within either."""
    (a, left), (b, right) = patterns.items()
    if min(len(left), len(right)) < 2:
        reading = f"{len(left)} models are “{a}”, {len(right)} “{b}”: too few to compare."
        return Measured(estimate=_NOTHING, reading=reading)
    between = distances(left, right)
    inside = {a: distances(left, left), b: distances(right, right)}

    def gap(rows: Mapping[str, np.ndarray]) -> float:
        within = sum(
            drawn_pair_mean(matrix, rows[kind], rows[kind], True) for kind, matrix in inside.items()
        )
        return drawn_pair_mean(between, rows[a], rows[b], False) - within / 2

    found = _over_models(patterns, gap)
    mean_a, mean_b = (each.sum() / len(each) / (len(each) - 1) for each in inside.values())
    reading = (
        f"Between the two kinds {between.mean():.2f}; within “{a}” ({len(left)} models) "
        f"{mean_a:.2f}, within “{b}” ({len(right)}) {mean_b:.2f}."
    )
    return Measured(estimate=found, reading=reading)


def positions_matter(evidence: Evidence, groups: Sequence[str]) -> Measured:
    """Models with and without positions."""
    return _kinds_apart({name: evidence.patterns(name)[:, -1, 0] for name in groups})


def itself_or_start(evidence: Evidence, group: str) -> Measured:
    """Models that look at the present bracket more than at BOS, and the others."""
    patterns = evidence.patterns(group)[:, -1, 0]
    itself = np.einsum("mqq->mq", patterns)[:, 1:].mean(-1)
    present = itself > patterns[:, 1:, 0].mean(-1)
    kinds = {"present bracket": patterns[present], "start": patterns[~present]}
    return _kinds_apart(kinds)


# --- what they look like --------------------------------------------------------------------------


def stack_like(evidence: Evidence, groups: Sequence[str], place: str = _TOP) -> Measured:
    """Share of the models that learned with a head whose largest weight is there 9 times in 10."""
    heads = evidence.heads[evidence.heads["group"].isin(groups)]
    keys = ["group", "seed"]
    best = heads.groupby(keys)[[f"look_{place}", f"mass_{place}"]].max().reset_index()
    learned = [(group, seed) for group in groups for seed in evidence.learned(group)]
    best = best[[row in learned for row in best[keys].itertuples(index=False, name=None)]]
    looks = best[f"look_{place}"]
    if best.empty:
        return Measured(estimate=share(0, 0), reading="No model learned.")
    hits = int((looks >= INTERPRETABLE).sum())
    reading = (
        f"{hits} of {len(best)} models that learned; the best head of a model is there at "
        f"{looks.mean():.0%} of closing brackets ({looks.min():.0%} to {looks.max():.0%}), with a "
        f"mean weight of {best[f'mass_{place}'].mean():.2f}."
    )
    return Measured(estimate=share(hits, len(best)), reading=reading)


def depth_like(evidence: Evidence, groups: Sequence[str]) -> Measured:
    """Share of the one-headed models that learned that look for the top's depth 9 times in 10."""
    rows = evidence.of(*groups)
    looks = rows.loc[[row.seed in evidence.learned(row.group) for row in rows.itertuples()]]
    looks = looks["look_depth"].dropna()
    if looks.empty:
        return Measured(estimate=share(0, 0), reading="No model learned.")
    hits = int((looks >= INTERPRETABLE).sum())
    exact = stack_like(evidence, groups, LIKE_THE_TOP).reading
    reading = (
        f"{hits} of {len(looks)} models that learned; there at {looks.mean():.0%} of closing "
        f"brackets ({looks.min():.0%} to {looks.max():.0%}). On one of its type too: {exact}"
    )
    return Measured(estimate=share(hits, len(looks)), reading=reading)


def first_layer_uniform(evidence: Evidence) -> Measured:
    """Share of three-layer models whose first layer is at most half as far from uniform."""
    away: list[float] = []
    for group in evidence.groups():
        if group.get("model.n_layers") != 3 or group.get("model.n_heads", 1) > 1:
            continue
        patterns = evidence.patterns(group["group"])[:, 0, 0]
        length = patterns.shape[-1]
        uniform = np.tril(np.ones((length, length))) / np.arange(1, length + 1)[:, None]
        # two random patterns differ by twice the variance, a random and the uniform one by the
        # variance
        away += (((patterns - uniform) ** 2).sum((-1, -2)) / (_random(length) / 2)).tolist()
    near = int((np.array(away) < 0.5).sum())
    reading = (
        f"{near} of {len(away)} models; squared distance from uniform as a share of that of a "
        f"random pattern: median {np.median(away):.2f}, mean {np.mean(away):.2f}, largest "
        f"{max(away):.2f}."
        if away
        else "No model has three layers."
    )
    return Measured(estimate=share(near, len(away)), reading=reading)


def clear_higher_layers(evidence: Evidence) -> Measured:
    """Share of three-layer models with a head above the first layer that looks interpretable."""
    groups = [g["group"] for g in evidence.groups() if g.get("model.n_layers") == 3]
    heads = evidence.heads
    heads = heads[heads["group"].isin(groups) & (heads["layer"] > 0)]
    if heads.empty:
        return Measured(estimate=share(0, 0), reading="No model has three layers.")
    clear = heads.groupby(["group", "seed"])["interpretable"].any()
    looks = heads.loc[heads["interpretable"].astype(bool), "looks_like"].value_counts()
    kinds = ", ".join(f"{kind} {count}" for kind, count in looks.items()) or "none"
    reading = f"{int(clear.sum())} of {len(clear)} models; heads by what they look at: {kinds}."
    return Measured(estimate=share(int(clear.sum()), len(clear)), reading=reading)
