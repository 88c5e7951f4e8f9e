"""One function per kind of claim: from the evidence to a number, its interval and what it means."""

from __future__ import annotations

import itertools

import numpy as np

from tl_dyck.intervals import (
    Estimate,
    correlation,
    difference,
    distances,
    drawn_pair_mean,
    estimate,
    mean,
    within_runs_correlation,
)
from tl_dyck.studies.paper.evidence import Evidence
from tl_dyck.studies.paper.measure import INTERPRETABLE, LEARNED, REPLACEABLE
from tl_dyck.studies.paper.rules import Measured
from tl_dyck.studies.paper.scales import contrastive_name, length_name

__all__ = [
    "accuracy",
    "between_choices",
    "first_layer_uniform",
    "length_points",
    "less_variation",
    "longer_string",
    "lost_at_length",
    "misleading",
    "other_strings",
    "positions_matter",
    "random_baseline",
    "regularised",
    "stack_like",
    "table_cell",
    "tied",
    "variation",
    "violation_and_length",
    "violation_and_loss",
]

_FIGURE_2 = tuple(
    f"figure2-{embedding}-rate-{rate:g}"
    for embedding in ("onehot", "split", "yao")
    for rate in (1e-2, 3e-3)
)


# --- attention patterns ---------------------------------------------------------------------------


def variation(evidence: Evidence, group: str) -> Measured:
    """Attention variation of a group in its last layer."""
    last = evidence.variation(group)
    share = last.estimate.value / last.baseline
    steps = evidence.of(group)["steps"]
    reading = (
        f"{share:.0%} of what random patterns differ by ({last.baseline:.2f}); "
        f"{_layers(evidence, group)} {steps.min():,} to {steps.max():,} steps of training."
    )
    return Measured(estimate=last.estimate, reading=reading, limit=last.baseline / 2)


def less_variation(evidence: Evidence, group: str, than: str) -> Measured:
    """Attention variation of a group, beside that of another."""
    last, other = evidence.variation(group), evidence.variation(than)
    reading = f"{than}: {other.estimate.text()}; random patterns: {last.baseline:.2f}."
    return Measured(estimate=last.estimate, reading=reading, limit=other.estimate.low)


def table_cell(evidence: Evidence, group: str) -> Measured:
    """A cell of Table 1."""
    last = evidence.variation(group)
    learned = evidence.mean("accuracy", group)
    reading = (
        f"{_layers(evidence, group)} Random patterns: {last.baseline:.2f}. "
        f"Accuracy {learned.text('.1%')}."
    )
    return Measured(estimate=last.estimate, reading=reading)


def _layers(evidence: Evidence, group: str) -> str:
    n_layers = evidence.patterns(group).shape[1]
    values = [evidence.variation(group, layer=layer).estimate.text() for layer in range(n_layers)]
    return f"By layer: {', '.join(values)}."


def random_baseline(evidence: Evidence) -> Measured:
    """The exact baseline, and what the recalled number may be of."""
    baseline = evidence.variation("gpt").baseline
    exact = Estimate(value=baseline, low=float("nan"), high=float("nan"), n=0)
    reading = (
        f"Exactly {baseline:.2f} for the string with BOS (17 rows), 3.00 without (16), 2.89 for 15 "
        "rows: the recalled 2.85 is nearest to the last. Square patterns without a causal mask "
        "would differ by 1.76 (16 rows)."
    )
    return Measured(estimate=exact, reading=reading)


def between_choices(evidence: Evidence) -> Measured:
    """Models of different embeddings or learning rates, bare attention."""
    patterns = {name: evidence.patterns(name)[:, -1, 0] for name in _FIGURE_2}
    matrices = {
        (a, b): distances(patterns[a], patterns[b]) for a, b in itertools.combinations(_FIGURE_2, 2)
    }
    generator = np.random.default_rng(evidence.scale.data_seed)
    drawn = []  # seeds are resampled, the choices are what they are
    for _ in range(evidence.scale.n_bootstrap):
        rows = {
            name: generator.integers(len(found), size=len(found))
            for name, found in patterns.items()
        }
        drawn.append(
            np.mean(
                [
                    drawn_pair_mean(matrix, rows[a], rows[b], False)
                    for (a, b), matrix in matrices.items()
                ]
            )
        )
    pairs = [float(matrix.mean()) for matrix in matrices.values()]
    n = min(len(found) for found in patterns.values())
    value = estimate(float(np.mean(pairs)), np.array(drawn if n > 1 else [np.nan]), n)
    within = [evidence.variation(name).estimate.value for name in _FIGURE_2]
    baseline = evidence.variation(_FIGURE_2[0]).baseline
    reading = (
        f"Between choices {min(pairs):.2f} to {max(pairs):.2f}; between seeds of one choice "
        f"{min(within):.2f} to {max(within):.2f}; random patterns {baseline:.2f}. Accuracy of "
        f"these models: {evidence.mean('accuracy', *_FIGURE_2).text('.1%')}."
    )
    return Measured(estimate=value, reading=reading, limit=baseline / 2)


def positions_matter(evidence: Evidence) -> Measured:
    """Distance between models with and without positions, less the distance within."""
    a, b = (evidence.patterns(name)[:, -1, 0] for name in ("gpt", "gpt-linear"))
    between, within_a, within_b = distances(a, b), distances(a, a), distances(b, b)

    def gap(rows: np.ndarray, columns: np.ndarray) -> float:
        within = drawn_pair_mean(within_a, rows, rows, True) + drawn_pair_mean(
            within_b, columns, columns, True
        )
        return drawn_pair_mean(between, rows, columns, False) - within / 2

    generator = np.random.default_rng(evidence.scale.data_seed)
    drawn = [
        gap(*(generator.integers(len(found), size=len(found)) for found in (a, b)))
        for _ in range(evidence.scale.n_bootstrap)
    ]
    n = min(len(a), len(b))
    value = estimate(
        gap(np.arange(len(a)), np.arange(len(b))), np.array(drawn if n > 2 else [np.nan]), n
    )
    reading = (
        f"Between the two kinds {between.mean():.2f}, within them "
        f"{within_a.sum() / len(a) / max(1, len(a) - 1):.2f} and "
        f"{within_b.sum() / len(b) / max(1, len(b) - 1):.2f}: above 0, "
        "the kind tells more than the seed."
    )
    return Measured(estimate=value, reading=reading, form="+.2f")


def other_strings(evidence: Evidence) -> Measured:
    """The least variation over other strings, as a share of the baseline."""
    shares = {}
    for string in ("longer", "mixed", "random, 16", "random, 26"):
        found = evidence.variation("gpt", string)
        e, base = found.estimate, found.baseline
        shares[string] = Estimate(value=e.value / base, low=e.low / base, high=e.high / base, n=e.n)
    least = min(shares, key=lambda string: shares[string].value)
    listed = ", ".join(f"{string} {share.value:.0%}" for string, share in shares.items())
    return Measured(estimate=shares[least], reading=f"gpt, by string: {listed}.", form=".0%")


def longer_string(evidence: Evidence) -> Measured:
    """Variation on a string twice as long, models trained on prefixes."""
    long, short = (evidence.variation("gpt-prefix", string) for string in ("longer", "paper"))
    reading = (
        f"On the shorter string {short.estimate.text()}. As a share of random patterns: "
        f"{long.estimate.value / long.baseline:.0%} against "
        f"{short.estimate.value / short.baseline:.0%}."
    )
    return Measured(estimate=long.estimate, reading=reading, limit=short.estimate.value)


def stack_like(evidence: Evidence) -> Measured:
    """Share of models that have a stack-like head."""
    heads = evidence.heads
    per_model = heads.groupby(["group", "seed"])["look_the top of the stack"].max() >= INTERPRETABLE
    n_heads = int((heads["look_the top of the stack"] >= INTERPRETABLE).sum())
    groups = sorted({str(name) for name, _ in per_model[per_model].index})
    reading = (
        f"{n_heads} of {len(heads)} heads, in {int(per_model.sum())} of {len(per_model)} models"
    )
    reading += f" ({', '.join(groups)})." if groups else "."
    found = mean(per_model.to_numpy(float), evidence.scale.n_bootstrap, evidence.scale.data_seed)
    return Measured(estimate=found, reading=reading, form=".1%")


def first_layer_uniform(evidence: Evidence) -> Measured:
    """Read how far the first layer of three-layer models is from uniform attention."""
    shares: list[float] = []
    later: list[float] = []
    for group in evidence.groups():
        if group.overrides.get("n_layers") != 3:
            continue
        patterns = evidence.patterns(group.name)[:, :, 0]
        length = patterns.shape[-1]
        uniform = np.tril(np.ones((length, length))) / np.arange(1, length + 1)[:, None]
        # two random patterns differ by twice the variance, a random and the uniform one by the
        # variance
        random = evidence.variation(group.name).baseline / 2
        away = ((patterns - uniform) ** 2).sum((-1, -2)) / random
        shares += away[:, 0].tolist()
        later += away[:, 1:].mean(1).tolist()
    found = mean(shares, evidence.scale.n_bootstrap, evidence.scale.data_seed)
    return Measured(
        estimate=found, reading=f"Of the other layers: {np.mean(later):.2f}; of random patterns: 1."
    )


# --- what learns ----------------------------------------------------------------------------------


def accuracy(evidence: Evidence, groups: tuple[str, ...]) -> Measured:
    """Closing accuracy in distribution."""
    least = evidence.of(*groups)["accuracy"].min()
    gap = evidence.of(*groups)["loss"] - evidence.of(*groups)["entropy_floor"]
    reading = (
        f"The least of {len(gap)} models has {least:.1%}. "
        f"Loss above the entropy floor: {gap.mean():.3f} nats."
    )
    return Measured(estimate=evidence.mean("accuracy", *groups), reading=reading, form=".1%")


def lost_at_length(evidence: Evidence) -> Measured:
    """Accuracy in distribution less accuracy at length, standard training on complete strings."""
    groups = ("gpt", "gpt-linear", "minimal-onehot")
    rows = evidence.of(*groups)
    found = mean(
        rows["accuracy"] - rows["long_accuracy"],
        evidence.scale.n_bootstrap,
        evidence.scale.data_seed,
    )
    far = ", ".join(f"{name} {evidence.mean('long_accuracy', name).value:.0%}" for name in groups)
    return Measured(estimate=found, reading=f"Accuracy at length: {far}.", form=".1%")


# --- contrastive regularisation, balance ----------------------------------------------------------


def regularised(evidence: Evidence, column: str, mode: str) -> Measured:
    """Compare the largest λ of the contrastive regularisation with none, seed by seed."""
    weights = evidence.scale.weights
    names = {weight: contrastive_name(mode, weight) for weight in weights}
    after, before = evidence.paired(column, names[max(weights)], names[0.0])
    found = difference(after, before, evidence.scale.n_bootstrap, evidence.scale.data_seed)
    form = ".2f" if column == "beta" else ".1%"
    listed = ", ".join(
        f"λ = {weight:g}: {evidence.mean(column, name).value:{form}}"
        for weight, name in names.items()
    )
    return Measured(estimate=found, reading=f"{listed}.", form="+" + form)


def tied(evidence: Evidence, mode: str, every_weight: bool = False) -> Measured:
    """Rank correlation of β and accuracy at length."""
    weights = evidence.scale.weights if every_weight else (0.0,)
    rows = evidence.of(*(contrastive_name(mode, weight) for weight in weights)).dropna(
        subset=["beta", "long_accuracy"]
    )
    found = correlation(
        rows["beta"].to_numpy(float),
        rows["long_accuracy"].to_numpy(float),
        evidence.scale.n_bootstrap,
        evidence.scale.data_seed,
        clusters=rows["seed"].to_numpy(),
    )
    reading = (
        f"{len(rows)} models; β from {rows['beta'].min():.2f} to {rows['beta'].max():.2f}, "
        f"accuracy at length from {rows['long_accuracy'].min():.0%} to "
        f"{rows['long_accuracy'].max():.0%}."
    )
    return Measured(estimate=found, reading=reading, form="+.2f")


def violation_and_loss(evidence: Evidence) -> Measured:
    """Rank correlation of loss and β over the checkpoints of a run."""
    table = evidence.checkpoints.dropna(subset=["loss", "beta"])
    runs = [
        (run["loss"].to_numpy(), run["beta"].to_numpy())
        for _, run in table.groupby(["group", "seed"])
        if len(run) > 2
    ]
    found = within_runs_correlation(runs, evidence.scale.n_bootstrap, evidence.scale.data_seed)
    first, last = (
        table.groupby(["group", "seed"])["beta"].agg(which).mean() for which in ("first", "last")
    )
    reading = (
        f"β goes from {first:.2f} at the first checkpoint to {last:.2f} at the last, "
        "mean over runs."
    )
    return Measured(estimate=found, reading=reading, form="+.2f")


def length_points(evidence: Evidence) -> list[tuple[int, str]]:
    """Longest training strings, and the groups trained on them, alike otherwise."""
    own = max(evidence.groups()[0].load_task().train_lengths)
    points = [(longest, length_name(longest)) for longest in evidence.scale.lengths]
    return sorted([*points, (own, contrastive_name("complete", 0.0))])


def violation_and_length(evidence: Evidence) -> Measured:
    """Rank correlation of N and β over models; whether the largest S/P times N is bounded."""
    points = length_points(evidence)
    rows = [
        (longest, seed, beta)
        for longest, name in points
        for seed, beta in evidence.of(name)
        .dropna(subset=["beta"])[["seed", "beta"]]
        .itertuples(index=False)
    ]
    N, seeds, beta = (np.array(column) for column in zip(*rows, strict=True))
    found = correlation(
        N, beta, evidence.scale.n_bootstrap, evidence.scale.data_seed, clusters=seeds
    )
    listed = ", ".join(
        f"N = {longest}: {evidence.mean('beta', name).value:.2f}" for longest, name in points
    )
    bound = ", ".join(
        f"{longest * evidence.mean('largest_ratio', name).value:.1f}" for longest, name in points
    )
    reading = f"β at {listed}. Largest S/P times N, which the theorem bounds: {bound}."
    return Measured(estimate=found, reading=reading, form="+.2f")


# --- misleading attention -------------------------------------------------------------------------


def misleading(evidence: Evidence) -> Measured:
    """Heads that look interpretable, with a replaceable pattern, in models of several layers."""
    heads = evidence.heads
    deep = heads.groupby("group")["layer"].transform("max") > 0
    uniform = heads["group"].isin(["gpt-uniform"])  # there the pattern is no finding
    heads = heads[deep & ~uniform & (heads["accuracy"] >= LEARNED)]
    looking = heads[heads["interpretable"].astype(bool)]
    idle = looking[looking["replaceable"].astype(bool)]
    kinds = ", ".join(
        f"{kind} {count}" for kind, count in looking["looks_like"].value_counts().items()
    )
    anyway = int(heads["replaceable"].astype(bool).sum())
    reading = (
        f"Of {len(heads)} heads of models that are {LEARNED:.0%} accurate, {len(looking)} look "
        f"interpretable ({kinds or 'none'}), {len(idle)} of them in vain: uniform and random "
        f"patterns in their place cost at most {REPLACEABLE:.0%} of accuracy. Of all these heads, "
        f"{anyway} can be replaced so. Interpretable: the largest weight at {INTERPRETABLE:.0%} of "
        "closing brackets is on the top of the stack, the bracket itself, the bracket before, "
        "or BOS."
    )
    count = Estimate(value=float(len(idle)), low=float("nan"), high=float("nan"), n=_seeds(heads))
    return Measured(estimate=count, reading=reading, form=".0f", possible=len(looking))


def _seeds(heads: object) -> int:
    return int(heads.groupby(["group", "seed"]).ngroups)  # type: ignore[attr-defined]
