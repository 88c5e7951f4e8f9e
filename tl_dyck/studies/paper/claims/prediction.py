"""What predicts length: the drift of matched pairs, computed from the weights. Checks of ours.

Beside the paper's tie of balance violation and length (`contrast`), on the same models.
"""

from __future__ import annotations

from functools import partial

import numpy as np

from tl_dyck.intervals import correlation, mean
from tl_dyck.models import load_model
from tl_dyck.probes import pair_drift
from tl_dyck.studies.paper.claims.contrast import LONG
from tl_dyck.studies.paper.evidence import Evidence
from tl_dyck.studies.paper.rules import Claim, Measured, Rule
from tl_dyck.studies.paper.scales import contrastive_name, to_the_end

__all__ = ["CLAIMS", "FAMILIES"]

#: Those with a minimal first layer.
FAMILIES = ("minimal-onehot", "minimal-split", "minimal-yao")


# --- readings -------------------------------------------------------------------------------------


def predicted(evidence: Evidence, group: str) -> Measured:
    """Rank correlation over seeds of the accuracy predicted from the drift, and the measured one.

    The prediction is for the middle of the lengths that are measured, and nothing is fitted.
    """
    rows = evidence.of(group).dropna(subset=[LONG])
    rows = rows[rows["seed"].isin(evidence.sound(group))]
    if rows.empty:
        return Measured(estimate=mean([], 1), reading="There are no such models.", form="+.2f")
    measured = rows[LONG].to_numpy(float)
    drifts = [
        pair_drift(load_model(evidence.run_folder(group, int(seed)), "cpu"))
        for seed in rows["seed"]
    ]
    lengths = (
        next(each for each in evidence.groups() if each.name == group).load_task().long_lengths
    )
    middle = sum(lengths) / 2
    forecast = np.array([drift.accuracy(middle) for drift in drifts])
    found = correlation(forecast, measured, evidence.scale.n_bootstrap, evidence.scale.data_seed)
    return Measured(
        estimate=found,
        reading=_reading(evidence, measured, forecast),
        form="+.2f",
        correlation=True,
    )


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


def _claim(name: str, says: str, group: str) -> Claim:
    return Claim(
        name=f"drift-predicts-{name}",
        about="What predicts length",
        where="beside Section 4.2",
        says=says,
        quantity="rank correlation over seeds of the accuracy at lengths 400–500 that the drift of "
        "matched pairs predicts, and that after a closing bracket",
        rule=Rule(kind="above", words="above 0"),
        measure=partial(predicted, group=group),
        ours=True,
    )


CLAIMS: tuple[Claim, ...] = (
    *(
        _claim(
            family.removeprefix("minimal-"),
            f"The accuracy that the drift of pairs predicts goes with the measured one ({family}).",
            to_the_end(family),
        )
        for family in FAMILIES
    ),
    _claim(
        "regularised",
        "The same for models with the paper's regularisation, λ = 1.",
        contrastive_name("complete", 1.0),
    ),
)
