"""Approximate balance, Theorem 2 and Corollary 2: trends that they motivate.

The theorem bounds S/P by C/N for readouts of a given Lipschitz constant and a squared loss that is
small against the probability of one prefix. Neither is measured here, so that these rows are
checks of ours, not tests of the theorem.
"""

from __future__ import annotations

import numpy as np

from tl_dyck.intervals import correlation, difference, estimate, mean, spearman
from tl_dyck.studies.paper.evidence import Evidence
from tl_dyck.studies.paper.rules import Claim, Measured, Rule
from tl_dyck.studies.paper.scales import DECAYS, contrastive_name, decay_name, length_name

__all__ = ["CLAIMS", "length_points"]

_Point = tuple[np.ndarray, np.ndarray, np.ndarray]  # seeds, their losses, their β
_ABOUT = "Approximate balance (Theorem 2)"


# --- readings -------------------------------------------------------------------------------------


def violation_and_loss(evidence: Evidence) -> Measured:
    """Rank correlation of loss and β over seeds at the same step, mean over steps and lengths.

    Over the checkpoints of one run both fall with time, whatever the one has to do with the other.
    """
    table = evidence.checkpoints.dropna(subset=["loss", "beta"])
    points: list[_Point] = [
        (rows["seed"].to_numpy(), rows["loss"].to_numpy(), rows["beta"].to_numpy())
        for _, rows in table.groupby(["group", "step"])
        if len(rows) > 2
    ]
    nothing = "No step has three checkpoints."
    if not points:
        return Measured(estimate=mean([], 1), reading=nothing, form="+.2f")
    seeds = np.unique(np.concatenate([seed for seed, _, _ in points]))
    generator = np.random.default_rng(evidence.scale.data_seed)
    n_bootstrap = min(evidence.scale.n_bootstrap, 1000)
    drawn = [_mean_tie(points, seeds)]
    for _ in range(n_bootstrap):
        drawn.append(_mean_tie(points, generator.choice(seeds, size=len(seeds))))
    found = estimate(drawn[0], np.array(drawn[1:]), len(seeds))
    first, last = (
        table.groupby(["group", "seed"])["beta"].agg(which).mean() for which in ("first", "last")
    )
    reading = (
        f"{len(points)} steps of {table['group'].nunique()} training lengths. β goes from "
        f"{first:.2f} at the first checkpoint to {last:.2f} at the last, mean over runs."
    )
    return Measured(estimate=found, reading=reading, form="+.2f")


def _mean_tie(points: list[_Point], seeds: np.ndarray) -> float:
    """Mean over points of the rank correlation, of the models of these seeds (with repetition)."""
    ties = []
    for known, loss, beta in points:
        order = np.argsort(known)
        place = np.searchsorted(known[order], seeds).clip(max=len(known) - 1)
        rows = order[place][known[order][place] == seeds]
        if len(rows) > 2:
            ties.append(float(spearman(loss[rows], beta[rows])))
    return float(np.mean(ties)) if ties else float("nan")


def length_points(evidence: Evidence) -> list[tuple[int, str]]:
    """Longest training strings, and the groups trained on them, alike otherwise."""
    own = max(evidence.groups()[0].load_task().train_lengths)
    points = [(longest, length_name(longest)) for longest in evidence.scale.lengths]
    return sorted([*points, (own, contrastive_name("complete", 0.0))])


def violation_and_length(evidence: Evidence, column: str) -> Measured:
    """Rank correlation of N with β, or with the largest S/P times N, which is to be bounded."""
    points = length_points(evidence)
    rows = [
        (longest, seed, value * (longest if column == "largest_ratio" else 1))
        for longest, name in points
        for seed, value in evidence.of(name)
        .dropna(subset=[column])[["seed", column]]
        .itertuples(index=False)
    ]
    N, seeds, values = (np.array(part) for part in zip(*rows, strict=True))
    found = correlation(
        N, values, evidence.scale.n_bootstrap, evidence.scale.data_seed, clusters=seeds
    )
    listed = ", ".join(f"N = {longest}: {values[longest == N].mean():.2f}" for longest, _ in points)
    what = "β" if column == "beta" else "Largest S/P times N"
    return Measured(estimate=found, reading=f"{what} at {listed}.", form="+.2f", correlation=True)


def violation_and_decay(evidence: Evidence) -> Measured:
    """β with the weakest weight decay less β without any, seed by seed; a quarter of it matters."""
    decayed, plain = evidence.paired("beta", decay_name(min(DECAYS)), decay_name(0.0))
    found = difference(decayed, plain, evidence.scale.n_bootstrap, evidence.scale.data_seed)
    listed = "; ".join(
        f"{strength:g}: β {evidence.mean('beta', decay_name(strength)).value:.3f}, loss "
        f"{evidence.mean('loss', decay_name(strength)).value:.4f}"
        for strength in (0.0, *DECAYS)
    )
    limit = plain.mean() / 4 if len(plain) else float("nan")
    return Measured(
        estimate=found, reading=f"At a decay of {listed} nats.", form="+.3f", limit=limit
    )


# --- claims ---------------------------------------------------------------------------------------

CLAIMS: tuple[Claim, ...] = (
    Claim(
        name="theorem-2-loss",
        about=_ABOUT,
        where="Theorem 2",
        says="A smaller loss goes with a smaller violation.",
        quantity="rank correlation of loss and β over seeds at the same step, mean over steps and "
        "training lengths",
        rule=Rule(kind="above", words="above 0"),
        measure=violation_and_loss,
        ours=True,
    ),
    Claim(
        name="theorem-2-length",
        about=_ABOUT,
        where="Theorem 2",
        says="Training on longer strings goes with a smaller violation.",
        quantity="rank correlation of the longest training length N and β over models",
        rule=Rule(kind="below", words="below 0"),
        measure=lambda evidence: violation_and_length(evidence, "beta"),
        ours=True,
    ),
    Claim(
        name="theorem-2-bounded",
        about=_ABOUT,
        where="Theorem 2",
        says="The largest S/P times N does not grow with N.",
        quantity="rank correlation of N and N · largest S/P over models",
        rule=Rule(kind="below", limit=0.3, words="below 0.3: no growth that would matter"),
        measure=lambda evidence: violation_and_length(evidence, "largest_ratio"),
        ours=True,
    ),
    Claim(
        name="corollary-2",
        about=_ABOUT,
        where="Corollary 2",
        says="Approximate balance still holds with weight decay, as its strength goes to 0.",
        quantity=f"β with a weight decay of {min(DECAYS):g} less β without, seed by seed",
        rule=Rule(kind="below", words="below a quarter of β without weight decay"),
        measure=violation_and_decay,
        ours=True,
        assumed="Weight decay is that of AdamW, and cross-entropy stands for the squared loss.",
    ),
)
