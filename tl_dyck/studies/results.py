"""A study as its folder holds it: the records of its runs, read as tables, and what compares seeds.

Knows: what is averaged over seeds; what is measured has a column of its own in the table of models.
The folder is that of a sweep; ``results.json`` adds what a sweep does not know: that it is a study,
which runs are its own, and where it was run.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache, cached_property
from pathlib import Path
from typing import Any, final

import numpy as np
import pandas as pd
import torch
from torch import Tensor

from tl_dyck.intervals import correlation, mean
from tl_dyck.kit.addresses import REFERENCE_FOLDER, split_address
from tl_dyck.kit.arguments import checked
from tl_dyck.kit.errors import DyckError
from tl_dyck.kit.files import CorruptFileError, read_json, read_tensors
from tl_dyck.language.checks import BOS_STRING
from tl_dyck.runs.analysis import Analysis, of_each
from tl_dyck.runs.store import Store
from tl_dyck.studies.config import StudyConfig
from tl_dyck.studies.measurement import ACCURACIES, read_measures, variation_by_layer
from tl_dyck.studies.train import models_of, with_numbers
from tl_dyck.tasks import DyckTask
from tl_dyck.training import TrainResult, load_result
from tl_dyck.training.checkpoint import load_history

STUDY = Analysis("results.json", "tl_dyck.study/6", "the results of a study")

#: Attention variation that Wen et al. 2023 report for 40 seeds, as remembered: the numbers are lost
#: in our copy.
RECALLED_VARIATION = {"gpt-linear": 2.20, "gpt": 2.27, "minimal-onehot": 0.24, "random": 2.85}

_CERTIFIED = (
    "balance_violation",
    "proved_share",
    "refuted_share",
    "logit_change",
    "proved_to",
)
_AVERAGED = (*ACCURACIES, "entropy_gap", *_CERTIFIED, "seconds", "steps")
#: Length generalisation, measured where it takes a stack.
_AT_LENGTH = "long_accuracy_after_close"
_TIES = {
    "balance_and_length": ("balance_violation", _AT_LENGTH),
    "balance_and_change": ("balance_violation", "logit_change"),
    "change_and_length": ("logit_change", _AT_LENGTH),
}

#: The tables that a measurement leaves.
_LEFT = ("heads", "closings", "certificates", "languages")
#: Of tables that may be empty.
_COLUMNS = {
    "variation": [
        *("family", "layer", "variation", "low", "high", "interval", "level"),
        *("random_baseline", "n_models", "recalled"),
    ],
    "closings": ["family", "seed", "lengths", "depth", "accuracy"],
    "certificates": [
        *("family", "seed", "prefix", "target", "status", "margin_proved", "margin_seen"),
        *("worst_string", "worst_edits", "logit_change_proved", "logit_change_seen"),
        *("most_changed_string", "seconds"),
    ],
    "languages": [
        *("family", "seed", "status", "length", "proved_to", "accuracy_low", "accuracy_high"),
        *("likeliest", "is_likeliest", "probability", "may_follow", "predicted", "seconds"),
        "proof",
    ],
}


class NoRunError(DyckError, KeyError):
    """A study has no run of this family and seed."""

    def __str__(self) -> str:
        """Return the message as it is; a KeyError shows its repr."""
        return str(self.args[0])


@final
@dataclass(frozen=True, kw_only=True)
class Study:
    """A finished study.

    Attributes:
        folder: where everything is.
        config: what was asked.
        task: what the models learned, whole: its name may mean nothing elsewhere.
        models: one row per model, runs that failed to learn included: family, seed, id, status,
            steps, seconds, accuracy and long_accuracy (each also _error, _closing_only,
            _after_open, _after_close, _after_close_error, see `ClosingAccuracy`), loss, loss_error,
            entropy_floor, entropy_gap (nats per token), balance_violation (NaN where it is not
            defined), stack_likeness, proved_share, refuted_share, logit_change, proved_to (NaN
            where there is no certificate): whatever `Measurement.measure` returns.
        heads: one row per head of every model: family, seed, layer, head, and the stack-likeness
            measures.
        closings: accuracy after a closing bracket, where the answer takes a stack, one row per
            model, lengths ("training" or "long") and depth (open brackets): family, seed, lengths,
            depth, accuracy (NaN where no test string has such a place).
        variation: one row per family and layer: variation, low, high, interval (its kind) and
            level, random_baseline, recalled.
        certificates: one row per prefix and one-layer model, against inserted matched pairs:
            family, seed, prefix, target, status, margin_proved, margin_seen (logits), worst_string,
            worst_edits, logit_change_proved, logit_change_seen, most_changed_string, seconds.
        languages: one row per model of one layer or two, without positions, decided on every
            prefix up to a length, as far as there was time: family, seed, status, length,
            proved_to, accuracy_low and accuracy_high (the exact closing accuracy in distribution,
            or bounds), likeliest (wrong prefix), is_likeliest (whether it is proved that none is
            likelier), its probability, may_follow, predicted, seconds, proof (a file in the run's
            folder, of every prefix up to proved_to, for ``tl-dyck check``; None if there is none).
        history: the training curves: family, seed, step, loss, floor, accuracy, learning_rate.
        summary: further facts: per family and measure its mean over seeds, n, and the columns of
            `Estimate.ends` (low, high, again_low, …); stack-likeness by chance, correlations,
            environment.
    """

    folder: Path
    config: StudyConfig
    task: DyckTask
    models: pd.DataFrame
    heads: pd.DataFrame
    closings: pd.DataFrame
    variation: pd.DataFrame
    certificates: pd.DataFrame
    languages: pd.DataFrame
    history: pd.DataFrame
    summary: dict[str, Any]

    @cached_property
    def learned(self) -> pd.Series[bool]:
        """Which runs reached their target; without one, making all steps is enough."""
        enough = (
            ["reached"] if self.config.training.target is not None else ["reached", "not reached"]
        )
        return self.models["status"].isin(enough)

    @property
    def means(self) -> list[dict[str, Any]]:
        """Every mean over seeds in `summary`, with its interval."""
        facts = [each for of in self.summary["families"].values() for each in of.values()]
        return [each for each in facts if isinstance(each, dict)]

    @cached_property
    def long_lengths(self) -> str:
        """The lengths that test length generalisation: ``400–500``."""
        return "{}–{}".format(*self.task.long_lengths)

    @checked
    def patterns(self, family: str, seed: int) -> Tensor:
        """Attention patterns of one model on the probe string, ``[layer, head, query, key]``."""
        return _tensor(self.run_folder(family, seed) / "patterns.safetensors", "patterns")

    @checked
    def certificate_patterns(self, family: str, seed: int) -> dict[str, Tensor]:
        """Attention patterns on the prefix with the least margin, and on its worst string.

        They are called "original" and "worst".

        Each is ``[head, query, key]``; the strings are in `certificates`.
        """
        path = self.run_folder(family, seed) / "certificate.safetensors"
        return {name: _tensor(path, name) for name in ("original", "worst")}

    @checked
    def language_pattern(self, family: str, seed: int) -> Tensor:
        """Attention on the likeliest wrong prefix in `languages`, ``[head, query, key]``."""
        return _tensor(self.run_folder(family, seed) / "language.safetensors", "likeliest")

    def proofs(self) -> dict[tuple[str, int], Path]:
        """Files that prove `languages`, by family and seed; see ``tl-dyck check``."""
        kept = self.languages.dropna(subset=["proof"])
        return {
            (row.family, row.seed): self.run_folder(row.family, row.seed) / row.proof
            for row in kept.itertuples()
        }

    @checked
    def run(self, family: str, seed: int, device: str | None = None) -> TrainResult:
        """One trained model with its history."""
        return load_result(self.run_folder(family, seed), device=device)

    @checked
    def run_folder(self, family: str, seed: int) -> Path:
        """Return the folder of one run: its model, its history, its patterns."""
        rows = self.models[(self.models["family"] == family) & (self.models["seed"] == seed)]
        if len(rows) != 1:
            raise NoRunError(f"the study has no run of {family!r} with seed {seed}")
        return Store(self.folder).path(str(rows["id"].iloc[0]))


@checked
def load_study(folder: str | Path) -> Study:
    """Read a study back from its folder: from the records of its runs.

    Args:
        folder: of the study; ``"reference"`` is the one that comes with the package.

    Raises:
        CorruptFileError: a file is missing, altered or of another version.
    """
    path, name = split_address(folder)
    if name:
        raise ValueError(f"{str(folder)!r} names models; load_study takes a study's folder")
    with STUDY.read(path) as (saved, runs):
        config, task = StudyConfig.from_dict(saved["config"]), DyckTask(**saved["task"])
        # a run for each family and seed, no more: a study has no other axes
        if len(runs) != len(config.families) * len(config.seeds):
            raise ValueError("it lacks some of its runs")
        if {*runs["model"]} != {*config.families}:
            raise ValueError("its runs are of other families")
        environment = dict(saved["environment"])
        versions = dict(environment["versions"])
    return _study(path, config, task, runs, {**environment, "versions": versions})


def _study(
    folder: Path,
    config: StudyConfig,
    task: DyckTask,
    runs: pd.DataFrame,
    environment: dict[str, Any],
) -> Study:
    """The study whose records these are."""
    tables: dict[str, list[dict[str, Any]]] = {name: [] for name in _LEFT}
    history, chances = [], []
    patterns: dict[str, list[Tensor]] = {family: [] for family in config.families}
    language = task.language
    probe = language.parse(language.probe_string)

    def read(row: dict[str, Any], place: Path) -> None:
        key = {"family": row["model"], "seed": row["seed"]}
        measured = read_measures(place)
        if row["outcome"] != "diverged":  # weights that are not finite give no patterns
            patterns[row["model"]].append(_tensor(place / "patterns.safetensors", "patterns"))
        for name, table in tables.items():
            table += [{**key, **found} for found in measured[name]]
        chances.append(measured["stack_chance"])
        history.append(load_history(place).assign(**key))

    of_each(runs, read)
    models = models_of(runs, {"model": "family", "seed": "seed"})
    summary = {
        "probe_string": language.probe_string,
        "probe_tokens": [BOS_STRING, *(language.alphabet[token] for token in probe.tolist())],
        # each model has strings of its own, on which chance differs a little
        "stack_chance": pd.DataFrame(chances).mean().to_dict(),
        "families": _family_intervals(models),
        **{name: _correlation(models, *pair, config) for name, pair in _TIES.items()},
        "environment": environment,
    }
    return Study(
        folder=folder,
        config=config,
        task=task,
        models=models,
        **{
            name: with_numbers(pd.DataFrame(rows, columns=_COLUMNS.get(name)))
            for name, rows in tables.items()
        },
        variation=_variation(patterns),
        history=pd.concat(history, ignore_index=True),
        summary=summary,
    )


def _tensor(path: Path, name: str) -> Tensor:
    """What the measurement kept, under that name."""
    found = read_tensors(path)
    if name not in found:
        raise CorruptFileError(f"{str(path)!r} does not hold {name!r}; run the study again")
    return found[name]


def _variation(patterns: dict[str, list[Tensor]]) -> pd.DataFrame:
    rows = [
        {"family": family, **row, "recalled": RECALLED_VARIATION.get(family)}
        for family, found in patterns.items()
        if found
        for row in variation_by_layer(torch.stack(found))
    ]
    return pd.DataFrame(rows, columns=_COLUMNS["variation"]).astype({"recalled": float})


def _family_intervals(models: pd.DataFrame) -> dict[str, dict[str, Any]]:
    """Per family and measure: mean over seeds, and what `Estimate` says of its interval."""
    summary: dict[str, dict[str, Any]] = {}
    for family, group in models.groupby("family", sort=False):
        summary[str(family)] = {
            "n": len(group),
            "reached": int((group["status"] == "reached").sum()),
        }
        for name in _AVERAGED:
            if name not in group:
                continue
            values = group[name].dropna().to_numpy(float)
            if len(values):
                found = mean(values).of_metric(name)
                summary[str(family)][name] = {"mean": found.value, "n": found.n, **found.ends()}
    return summary


def _correlation(
    models: pd.DataFrame, first: str, second: str, config: StudyConfig
) -> dict[str, Any]:
    """Spearman's correlation of two measures over seeds, for each family that has both."""
    found: dict[str, Any] = {}
    if first not in models or second not in models:
        return found
    for family, group in models.dropna(subset=[first, second]).groupby("family", sort=False):
        x, y = group[first].to_numpy(float), group[second].to_numpy(float)
        # Fisher's z has a spread of 1 / √(n - 3): none below 4; nor have constants a rank
        if len(group) < 4 or np.ptp(x) == 0 or np.ptp(y) == 0:
            continue  # no correlation to speak of
        tie = correlation(x, y, config.n_bootstrap, config.measurement.data_seed)
        found[str(family)] = {"spearman": tie.value, "n": tie.n, **tie.ends()}
    return found


def reference_means(study: Study) -> dict[str, dict[str, float]]:
    """By family and measure, the means of the models that come with the package.

    Of a study that trains or measures otherwise there are none: its means are not theirs.
    """
    saved = read_json(REFERENCE_FOLDER / "results.json")

    def asked(fields: Mapping[str, Any]) -> dict[str, Any]:
        return {name: fields[name] for name in fields if name not in ("families", "seeds")}

    if asked(saved["config"]) != asked(study.config.to_dict()):
        return {}
    if DyckTask(**saved["task"]) != study.task:
        return {}
    return {
        family: {
            name: facts["mean"]
            for name, facts in of.items()
            if isinstance(facts, dict) and name != "seconds"  # of another machine
        }
        for family, of in _reference().summary["families"].items()
    }


@cache
def _reference() -> Study:
    return load_study(REFERENCE_FOLDER)  # and not a folder of that name where a user works
