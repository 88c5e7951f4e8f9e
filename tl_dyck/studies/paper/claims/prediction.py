"""What predicts length, computed from the weights: checks of ours.

The drift of matched pairs, along one axis, and two moments of the numbers of pairs, through all of
the model. Beside the paper's tie of balance violation and length (`contrast`), on the same models.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np

from tl_dyck.intervals import correlation, mean
from tl_dyck.models import load_model
from tl_dyck.probes import accuracy_at_length, pair_drift
from tl_dyck.studies.paper.claims.contrast import LONG
from tl_dyck.studies.paper.evidence import Evidence
from tl_dyck.studies.paper.rules import Claim, Measured, Rule
from tl_dyck.studies.paper.scales import contrastive_name, to_the_end
from tl_dyck.tasks import DyckTask

__all__ = ["CLAIMS", "FAMILIES"]

#: Those with a minimal first layer.
FAMILIES = ("minimal-onehot", "minimal-split", "minimal-yao")


Forecast = Callable[[Any, DyckTask], float]

# --- forecasts ------------------------------------------------------------------------------------


def by_drift(model: Any, task: DyckTask) -> float:
    """`pair_drift`, for the middle of the lengths that are measured."""
    return pair_drift(model, task.distribution).accuracy(sum(task.long_lengths) / 2)


def by_moments(model: Any, task: DyckTask) -> float:
    """`accuracy_at_length`, for all of them."""
    lengths = task.closing_lengths(long=True)
    return accuracy_at_length(model, lengths, task.distribution).after_close


# --- readings -------------------------------------------------------------------------------------


def predicted(evidence: Evidence, group: str, forecast: Forecast) -> Measured:
    """Rank correlation over seeds of the predicted accuracy and the measured one.

    Nothing is fitted.
    """
    rows = evidence.of(group).dropna(subset=[LONG])
    rows = rows[rows["seed"].isin(evidence.sound(group))]
    if rows.empty:
        return Measured(estimate=mean([], 1), reading="There are no such models.", form="+.2f")
    (task,) = (each.load_task() for each in evidence.groups() if each.name == group)
    measured = rows[LONG].to_numpy(float)
    models = (load_model(evidence.run_folder(group, int(seed)), "cpu") for seed in rows["seed"])
    said = np.array([forecast(model, task) for model in models])
    found = correlation(said, measured, evidence.scale.n_bootstrap, evidence.scale.data_seed)
    reading = _reading(evidence, measured, said)
    return Measured(estimate=found, reading=reading, form="+.2f", correlation=True)


def _reading(evidence: Evidence, measured: np.ndarray, forecast: np.ndarray) -> str:
    parts = []
    for name, values in (
        ("Measured", measured),
        ("predicted", forecast),
        ("mean distance", abs(measured - forecast)),
    ):
        found = mean(values, evidence.scale.n_bootstrap, evidence.scale.data_seed)
        parts.append(f"{name} {found.value:.1%} [{found.low:.1%}, {found.high:.1%}]")
    return f"{', '.join(parts)}; {len(measured)} models."


# --- claims ---------------------------------------------------------------------------------------


def _claims(name: str, says: str, quantity: str, rule: Rule, forecast: Forecast) -> list[Claim]:
    """Of every family, and of models with the paper's regularisation."""
    groups = {family.removeprefix("minimal-"): to_the_end(family) for family in FAMILIES}
    kinds = [f"({family})" for family in FAMILIES]
    kinds.append("(minimal-onehot with the paper's regularisation, λ = 1)")
    groups["regularised"] = contrastive_name("complete", 1.0)
    return [
        Claim(
            name=f"{name}-{of}",
            about="What predicts length",
            where="beside Section 4.2",
            says=f"{says} {kind}.",
            quantity="rank correlation over seeds of the accuracy at lengths 400–500 that "
            f"{quantity}, and that after a closing bracket",
            rule=rule,
            measure=partial(predicted, group=group, forecast=forecast),
            ours=True,
        )
        for (of, group), kind in zip(groups.items(), kinds, strict=True)
    ]


CLAIMS: tuple[Claim, ...] = (
    *_claims(
        "drift-predicts",
        "The accuracy that the drift of pairs along one axis predicts goes with the measured one",
        "the drift of matched pairs predicts",
        Rule(kind="above", words="above 0"),
        by_drift,
    ),
    *_claims(
        "moments-predict",
        "So does that which two moments of the numbers of pairs predict, through the whole model",
        "mean and covariance of the numbers of pairs predict",
        Rule(kind="above", limit=0.8, words="above 0.8"),
        by_moments,
    ),
)
