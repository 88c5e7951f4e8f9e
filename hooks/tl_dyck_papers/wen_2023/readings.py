"""From numbers of each model to the numbers that claims are about.

A reading is a function of the evidence and of the arguments that a row of claims.yaml gives it.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from tl_dyck.intervals import correlation, difference, left_out, mean, share, spearman
from tl_dyck.studies.rules import Measured
from tl_dyck_papers.wen_2023.evidence import Evidence
from tl_dyck_papers.wen_2023.measure import LEARNED, REPLACEABLE
from tl_dyck_papers.wen_2023.scales import DECAYS, contrastive_name, decay_name, length_points

#: What length generalisation is measured by.
LONG = "long_accuracy_after_close"

_Point = tuple[np.ndarray, np.ndarray, np.ndarray]  # seeds, their losses, their β


# --- what learns the task -------------------------------------------------------------------------


def accuracy(evidence: Evidence, group: str, stopped: str) -> Measured:
    """Closing accuracy in distribution after a fixed number of steps; beside it, stopped early."""
    rows, early = evidence.of(group), evidence.of(stopped)
    gap = rows["loss"] - rows["entropy_floor"]
    said = f" Stopped at 99 %: {early['accuracy'].mean():.1%}." if len(early) else ""
    reading = (
        f"The least of {len(rows)} models has {rows['accuracy'].min():.1%}. After a closing "
        f"bracket: {evidence.mean('accuracy_after_close', group).text('.1%')}. Loss above the "
        f"entropy floor: {gap.mean():.3f} nats.{said}"
    )
    return Measured(estimate=evidence.mean("accuracy", group), reading=reading)


def all_learn(evidence: Evidence, groups: Sequence[str]) -> Measured:
    """Share of models above 97 %, over families trained for a fixed number of steps."""
    rows = evidence.of(*groups)
    learned = rows["accuracy"] > LEARNED
    below = rows[~learned].groupby("group").size()
    said = ", ".join(f"{name} {count}" for name, count in below.items()) or "none"
    reading = f"{int(learned.sum())} of {len(rows)} models. Below, by group: {said}."
    return Measured(estimate=share(int(learned.sum()), len(rows)), reading=reading)


def at_length(evidence: Evidence, groups: Sequence[str]) -> Measured:
    """Accuracy at lengths 400–500: after a closing bracket, and beside it the paper's, of all."""
    each = ", ".join(
        f"{group} {evidence.mean(LONG, group).text('.0%')} and "
        f"{evidence.mean('long_accuracy', group).text('.0%')}"
        for group in groups
    )
    whole, trained = (
        evidence.mean(name, *groups) for name in ("long_accuracy", "accuracy_after_close")
    )
    reading = (
        f"After a closing bracket, and of all: {each}. Most of all can be copied. After a closing "
        f"bracket in distribution: {trained.value:.0%}."
    )
    beside = f"of all closing brackets {whole.text('.1%')}"
    return Measured(estimate=evidence.mean(LONG, *groups), reading=reading, beside=beside)


# --- contrastive regularisation -------------------------------------------------------------------


def regularised(evidence: Evidence, column: str, mode: str) -> Measured:
    """Compare the largest λ of the contrastive regularisation with none, seed by seed."""
    names = {weight: contrastive_name(mode, weight) for weight in evidence.scale.weights}
    after, before = evidence.paired(column, names[max(names)], names[0.0])
    form = ".2f" if column == "beta" else ".1%"
    listed = ", ".join(
        f"λ = {weight:g}: {evidence.mean(column, name).value:{form}}"
        for weight, name in names.items()
    )
    return Measured(estimate=difference(after, before), reading=f"{listed}.")


def against_control(evidence: Evidence, control: str) -> Measured:
    """The largest λ on complete strings beside a control, seed by seed."""
    name = contrastive_name("complete", max(evidence.scale.weights))
    after, before = evidence.paired(LONG, name, control)
    plain = evidence.mean(LONG, contrastive_name("complete", 0.0)).value
    reading = (
        f"Regularised {after.mean():.1%}, control {before.mean():.1%}, neither {plain:.1%}."
        if len(after)
        else "There are no such models."
    )
    return Measured(estimate=difference(after, before), reading=reading)


def tied(evidence: Evidence, group: str) -> Measured:
    """Rank correlation of β and accuracy at length over seeds."""
    rows = evidence.of(group).dropna(subset=["beta", LONG])
    reading = (
        f"{len(rows)} models; β from {rows['beta'].min():.2f} to {rows['beta'].max():.2f}, "
        f"accuracy at length from {rows[LONG].min():.0%} to {rows[LONG].max():.0%}."
    )
    return _correlation(evidence, rows["beta"], rows[LONG], reading)


def predicted(evidence: Evidence, group: str, forecast: str) -> Measured:
    """Rank correlation over seeds of the predicted accuracy and the measured one."""
    rows = evidence.of(group).dropna(subset=[LONG, forecast])
    rows = rows[rows["seed"].isin(evidence.sound(group))]
    if rows.empty:
        return Measured(estimate=mean([]), reading="There are no such models.")
    measured, said = rows[LONG].to_numpy(float), rows[forecast].to_numpy(float)
    parts = {"Measured": measured, "predicted": said, "mean distance": abs(measured - said)}
    found = ", ".join(f"{name} {mean(values).text('.1%')}" for name, values in parts.items())
    return _correlation(evidence, said, measured, f"{found}; {len(rows)} models.")


def _correlation(
    evidence: Evidence,
    x: np.ndarray,
    y: np.ndarray,
    reading: str,
    clusters: np.ndarray | None = None,
) -> Measured:
    x, y = np.asarray(x, dtype=float), np.asarray(y, dtype=float)
    found = correlation(
        x, y, evidence.scale.n_bootstrap, evidence.scale.measurement.data_seed, clusters
    )
    return Measured(estimate=found, reading=reading, correlation=True)


# --- Theorem 2 and Corollary 2 --------------------------------------------------------------------


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
    if not points:
        return Measured(estimate=mean([]), reading="No step has three checkpoints.")
    seeds = np.unique(np.concatenate([seed for seed, _, _ in points]))
    without = np.array([_mean_tie(points, seeds[seeds != seed]) for seed in seeds])
    found = left_out(_mean_tie(points, seeds), [without])
    first, last = (
        table.groupby(["group", "seed"])["beta"].agg(which).mean() for which in ("first", "last")
    )
    reading = (
        f"{len(points)} steps of {table['group'].nunique()} training lengths. β goes from "
        f"{first:.2f} at the first checkpoint to {last:.2f} at the last, mean over runs."
    )
    return Measured(estimate=found, reading=reading)


def _mean_tie(points: list[_Point], seeds: np.ndarray) -> float:
    """Mean over points of the rank correlation, of the models of these seeds."""
    ties = []
    for known, loss, beta in points:
        order = np.argsort(known)
        place = np.searchsorted(known[order], seeds).clip(max=len(known) - 1)
        rows = order[place][known[order][place] == seeds]
        if len(rows) > 2:
            ties.append(float(spearman(loss[rows], beta[rows])))
    return float(np.mean(ties)) if ties else float("nan")


def violation_and_length(evidence: Evidence, column: str) -> Measured:
    """Rank correlation of N with β, or with the largest S/P times N, which is to be bounded."""
    points = length_points(evidence.scale)
    rows = [
        (longest, seed, value * (longest if column == "largest_ratio" else 1))
        for longest, name in points
        for seed, value in evidence.of(name)
        .dropna(subset=[column])[["seed", column]]
        .itertuples(index=False)
    ]
    N, seeds, values = (np.array(part) for part in zip(*rows, strict=True))
    listed = ", ".join(f"N = {longest}: {values[longest == N].mean():.2f}" for longest, _ in points)
    what = "β" if column == "beta" else "Largest S/P times N"
    return _correlation(evidence, N, values, f"{what} at {listed}.", seeds)


def violation_and_decay(evidence: Evidence) -> Measured:
    """β with the weakest weight decay less β without any, seed by seed."""
    decayed, plain = evidence.paired("beta", decay_name(min(DECAYS)), decay_name(0.0))
    listed = "; ".join(
        f"{strength:g}: β {evidence.mean('beta', decay_name(strength)).value:.3f}, loss "
        f"{evidence.mean('loss', decay_name(strength)).value:.4f}"
        for strength in (0.0, *DECAYS)
    )
    found, unit = difference(decayed, plain), plain.mean() if len(plain) else np.nan
    return Measured(estimate=found, reading=f"At a decay of {listed} nats.", unit=float(unit))


# --- heads that look interpretable and are not needed ---------------------------------------------


def misleading(evidence: Evidence, group: str) -> Measured:
    """Share of models with several heads that have an interpretable head with an idle pattern."""
    heads = evidence.heads[evidence.heads["group"] == group]
    heads = heads[heads["seed"].isin(evidence.learned(group))]
    looking = heads["interpretable"].astype(bool)
    idle = heads["replaceable"].astype(bool)
    if not looking.any():
        return Measured(estimate=share(0, 0), reading="No head looks interpretable.")
    models = heads.assign(misleads=looking & idle).groupby("seed")["misleads"].any()
    kinds = ", ".join(
        f"{kind} {count}" for kind, count in heads.loc[looking, "looks_like"].value_counts().items()
    )
    reading = (
        f"In {int(models.sum())} of {len(models)} models that learned. Of {len(heads)} heads "
        f"{int(looking.sum())} look interpretable ({kinds}), {int((looking & idle).sum())} of "
        f"these in vain: uniform and random patterns in their place cost at most "
        f"{REPLACEABLE:.0%}. Of all heads, {int(idle.sum())} can be replaced so."
    )
    return Measured(estimate=share(int(models.sum()), len(models)), reading=reading)


def together(evidence: Evidence, groups: Sequence[str]) -> Measured:
    """What it costs to replace all heads at once that cost nothing one at a time."""
    heads = evidence.heads[
        evidence.heads["group"].isin(groups)
        & evidence.heads["replaceable"].astype(bool)
        & (evidence.heads["accuracy"] >= LEARNED)
    ]
    models = heads.groupby(["group", "seed"])[["accuracy", "accuracy_together"]]
    several = models.first()[models.size() > 1]
    lost = (several["accuracy"] - several["accuracy_together"]).to_numpy(float)
    found = mean(lost)
    reading = (
        f"{len(several)} models have two or more heads that can be replaced one at a time, at a "
        f"cost of at most {REPLACEABLE:.0%} each."
    )
    return Measured(estimate=found, reading=reading)
