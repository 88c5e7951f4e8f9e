"""What the claims are judged by: a scale's trained models, and all that was measured on them."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple, final

import numpy as np
import pandas as pd
import torch
from jaxtyping import Float

from tl_dyck.intervals import LEVEL, Estimate, mean
from tl_dyck.kit.files import read_json, read_tensors
from tl_dyck.runs.analysis import of_each
from tl_dyck.runs.spec import Point
from tl_dyck.runs.store import Store
from tl_dyck.studies.measurement import read_measures, variation_by_layer
from tl_dyck.studies.train import models_of
from tl_dyck_papers.wen_2023.measure import LEARNED, PATTERNS
from tl_dyck_papers.wen_2023.scales import Scale, groups_of


class Variation(NamedTuple):
    """Attention variation of a group in one layer, heads matched, and of random patterns."""

    estimate: Estimate
    baseline: float


@final
@dataclass(frozen=True, kw_only=True)
class Evidence:
    """Everything that was measured.

    Attributes:
        folder: where the models are.
        scale: how many and how closely.
        models: one row per model: group, seed, family, task, id, status, steps, seconds, and what
            `PaperMeasurement` measures: accuracy, long_accuracy, loss, entropy_floor, beta, …
        heads: one row per head of every model, see `heads_of`.
        checkpoints: one row per model on its way: group, seed, step, loss, beta, largest_ratio.
    """

    folder: Path
    scale: Scale
    models: pd.DataFrame
    heads: pd.DataFrame
    checkpoints: pd.DataFrame
    _layers: dict[tuple[str, str], list[dict[str, Any]]] = field(default_factory=dict)

    def of(self, *groups: str) -> pd.DataFrame:
        """The models of some groups."""
        return self.models[self.models["group"].isin(groups)]

    def mean(self, column: str, *groups: str) -> Estimate:
        """Mean of a measure over the models of some groups."""
        values = self.of(*groups)[column].dropna().to_numpy(float)
        return mean(values)

    def paired(self, column: str, group: str, other: str) -> tuple[pd.Series[Any], pd.Series[Any]]:
        """A measure of two groups, by seed: of the seeds that have it in both."""
        columns = [self.of(name).set_index("seed")[column] for name in (group, other)]
        both = pd.concat(columns, axis=1, join="inner").dropna().astype(float)
        return both.iloc[:, 0], both.iloc[:, 1]

    def sound(self, group: str) -> list[int]:
        """Seeds whose runs did not diverge: non-finite weights give no patterns to compare."""
        rows = self.of(group)
        return [int(seed) for seed in rows.loc[rows["status"] != "diverged", "seed"]]

    def learned(self, group: str) -> list[int]:
        """Seeds whose models reach `LEARNED` in distribution."""
        rows = self.of(group)
        return [int(seed) for seed in rows.loc[rows["accuracy"] >= LEARNED, "seed"]]

    def run_folder(self, group: str, seed: int) -> Path:
        """Return the folder of one model."""
        rows = self.of(group)
        return Store(self.folder).path(str(rows.loc[rows["seed"] == seed, "id"].iloc[0]))

    def variation(self, group: str, string: str = "paper", layer: int = -1) -> Variation:
        """Attention variation between the models of a group."""
        rows = self.layers(group, string)
        row = rows[layer] if rows else _NO_VARIATION
        found = Estimate.of(row, "variation", "n_models")
        return Variation(estimate=found, baseline=row["random_baseline"])

    def layers(self, group: str, string: str = "paper") -> list[dict[str, Any]]:
        """Attention variation between the models of a group, see `variation_by_layer`."""
        key = (group, string)
        if key not in self._layers:
            patterns = torch.from_numpy(self.patterns(group, string))
            self._layers[key] = variation_by_layer(patterns)
        return self._layers[key]

    def patterns(
        self, group: str, string: str = "paper", seeds: Sequence[int] | None = None
    ) -> Float[np.ndarray, "seed layer head query key"]:
        """Attention patterns of the models of a group, or of given seeds."""
        wanted = self.sound(group) if seeds is None else seeds
        found = [read_tensors(self.run_folder(group, s) / PATTERNS)[string] for s in wanted]
        empty = np.zeros((0, 0, 0, 0, 0))
        return np.stack([pattern.double().numpy() for pattern in found]) if found else empty

    def groups(self) -> list[Point]:
        """The groups of the scale, as points of a sweep."""
        return groups_of(self.scale)


_NO_VARIATION: dict[str, Any] = {
    **dict.fromkeys(("variation", "low", "high", "random_baseline"), math.nan),
    **{"n_models": 0, "interval": "t", "level": LEVEL},
}


def read_evidence(folder: Path, runs: pd.DataFrame, scale: Scale) -> Evidence:
    """Read what was measured on every model of a scale."""
    heads: list[dict[str, Any]] = []
    checkpoints: list[dict[str, Any]] = []

    def read(row: dict[str, Any], place: Path) -> None:
        key = {"group": row["group"], "seed": row["seed"]}
        heads.extend({**key, **head} for head in read_measures(place)["heads"])
        if row["measure.watched"]:
            files = sorted(
                place.glob("checkpoint-*.json"), key=lambda file: int(file.stem.rpartition("-")[2])
            )
            checkpoints.extend({**key, **read_json(file)} for file in files)

    of_each(runs, read)
    numbers = dict.fromkeys(("loss", "beta", "largest_ratio"), float)
    return Evidence(
        folder=folder,
        scale=scale,
        models=models_of(
            runs, {"group": "group", "seed": "seed", "model": "family", "task": "task"}
        ),
        heads=pd.DataFrame(heads),
        checkpoints=pd.DataFrame(checkpoints, columns=_CHECKPOINT).astype(numbers),
    )


_CHECKPOINT = ["group", "seed", "step", "loss", "entropy_floor", "beta", "largest_ratio"]
