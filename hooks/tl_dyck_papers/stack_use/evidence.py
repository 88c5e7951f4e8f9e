"""What claims about the stack are judged by, and how a number is read from it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, final

import numpy as np
import pandas as pd

from tl_dyck.intervals import mean
from tl_dyck.studies.reproduction import REPRODUCTION
from tl_dyck.studies.rules import Measured
from tl_dyck.studies.train import models_of
from tl_dyck_papers.stack_use.controls import known_models
from tl_dyck_papers.stack_use.directions import reading_of
from tl_dyck_papers.stack_use.measure import StackUseScale

#: What counts as an effect: ten points of accuracy.
EFFECT = 0.1

_FORMS = {"R² left": ".2f", "dimensions": ".0f"}

#: A metric of a model, or the difference of two quantities.
Quantity = str | list[Any]


@final
@dataclass(frozen=True, kw_only=True)
class StackUseEvidence:
    """Everything that was measured.

    Attributes:
        folder: where the models are.
        scale: how many and how closely.
        models: one row per model: group, seed, status, seconds, its metrics, and
            ``reading_middle`` and ``reading_end``: what the ablations say of the direction of the
            probe, see `reading_of`.
        known: one row per construction, with the same metrics.
    """

    folder: Path
    scale: StackUseScale
    models: pd.DataFrame
    known: pd.DataFrame

    def of(self, group: str) -> pd.DataFrame:
        """The models of a group that did not diverge."""
        rows = self.models
        return rows[(rows["group"] == group) & (rows["status"] != "diverged")]

    def said(self) -> list[str]:
        """What is to be told beside the claims: how many models each reading is of."""
        found = []
        for site, place in (("middle", "before the last layer"), ("end", "at the end")):
            groups = []
            for group in self.models["group"].unique():
                counts = Counter(self.of(group)[f"reading_{site}"]).most_common()
                each = ", ".join(f"{reading} {n}" for reading, n in counts)
                groups.append(f"`{group}` {each}")
            found.append(
                f"What the three ablations say of the probe's direction {place}, in numbers of "
                f"seeds: {'; '.join(groups)}."
            )
        return found


def read_evidence(folder: Path, runs: pd.DataFrame, scale: StackUseScale) -> StackUseEvidence:
    """Read what was measured on every model of a scale, and measure the constructions once."""
    models = models_of(runs, {"group": "group", "seed": "seed"})
    for site in ("middle", "end"):
        models[f"reading_{site}"] = [_reading(row, site) for row in models.to_dict("records")]
    known = REPRODUCTION.kept(folder, "known", lambda: known_models(scale.measurement))
    return StackUseEvidence(folder=folder, scale=scale, models=models, known=known)


def _reading(row: dict[str, Any], site: str) -> str:
    """What ablations on whole sequences say of the direction of the probe."""
    direction, rest, everything = (
        float(row.get(f"depth_{name}_{site}_sequence") or "nan")
        for name in ("direction", "rest", "all")
    )
    if direction != direction:
        return ""
    return reading_of(row["depth_sequence"], direction, rest, everything, EFFECT)


def measured(
    evidence: StackUseEvidence,
    group: str,
    value: Quantity,
    form: str,
    beside: Mapping[str, Quantity] | None = None,
    positive: str = "",
    negative: str = "",
) -> Measured:
    """The mean over the seeds of a group, means of what belongs beside it, and constructions."""
    rows = evidence.of(group).to_dict("records")
    found = _numbers(rows, value)
    words = [
        f"{name} {_mean(_numbers(rows, each)):{_FORMS.get(name, form.lstrip('+'))}}"
        for name, each in (beside or {}).items()
    ]
    known = evidence.known.set_index("model").to_dict("index")

    def said(name: str) -> str:
        if not name:
            return ""
        there = _quantity(known[name], value)
        return f"{f'{there:{form}}' if there == there else '–'} ({name})"

    return Measured(
        estimate=mean(found),
        reading="; ".join([*words, f"{len(found)} seeds"]) + ".",
        positive=said(positive),
        negative=said(negative),
    )


def _quantity(row: Mapping[str, Any], quantity: Quantity) -> float:
    """NaN where it was not measured."""
    if isinstance(quantity, str):
        found = row.get(quantity)
        return float("nan") if found is None else float(found)
    first, second = quantity
    return _quantity(row, first) - _quantity(row, second)


def _numbers(rows: list[dict[str, Any]], quantity: Quantity) -> np.ndarray:
    found = np.array([_quantity(row, quantity) for row in rows], dtype=float)
    finite: np.ndarray = found[np.isfinite(found)]
    return finite


def _mean(values: np.ndarray) -> float:
    return float(values.mean()) if len(values) else float("nan")
