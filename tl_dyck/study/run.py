"""Run a study: train, measure, compare."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from tl_dyck.files import ensure_folder, read_json
from tl_dyck.intervals import correlation, mean
from tl_dyck.machine import environment
from tl_dyck.models import DyckTransformer, get_config
from tl_dyck.probes import load_probe
from tl_dyck.study.config import StudyConfig
from tl_dyck.study.measure import measure
from tl_dyck.study.results import RECALLED_VARIATION, Study, as_table, run_folder, save_tables
from tl_dyck.tasks import load_task
from tl_dyck.training import load_result
from tl_dyck.training.seeds import train_runs

__all__ = ["run_study"]


def run_study(
    config: StudyConfig | None = None,
    folder: str | Path = "results/study",
    *,
    n_jobs: int | None = None,
    progress: bool = True,
    device: str | None = None,
) -> Study:
    """Train every family with every seed, measure each model, and write the results into `folder`.

    Runs and measurements that are already there are kept, so an interrupted study goes on where it stopped.

    Args:
        config: what to do; None for the default study: three families, eight seeds, ``dyck-2-4``.
        folder: where to put runs, `results.json` and the Parquet tables.
        n_jobs: worker processes of one thread each; None for one per core (one on a GPU).
        progress: whether to show a progress bar.
        device: of the models; None for TransformerLens' default.

    Raises:
        UnknownNameError: no such task or family.
        OSError: `folder` cannot be written.
        CheckpointError: `folder` holds runs of another configuration.
        TrainingFailedError: a run raised.
    """
    config = config or StudyConfig()
    task = load_task(config.task)
    model_configs = {family: get_config(family, task, device=device) for family in config.families}
    path = ensure_folder(folder)
    runs = [
        (model_configs[family], task, seed, config.training, run_folder(path, family, seed))
        for seed in config.seeds
        for family in config.families
    ]
    train_runs(runs, after=partial(measure, config=config), n_jobs=n_jobs, progress=progress)

    rows, heads, certificates, chance = [], [], [], {}
    for family in config.families:
        for seed in config.seeds:
            measured = read_json(run_folder(path, family, seed) / "measures.json")
            rows.append(measured["row"])
            heads += [{"family": family, "seed": seed, **head} for head in measured["heads"]]
            certificates += [{"family": family, "seed": seed, **row} for row in measured["certificates"]]
            chance = measured["stack_chance"]
    results = {key: load_result(run_folder(path, *key), device=device) for key in _keys(config)}
    # weights that are not finite give no patterns to compare
    sound = [key for key, result in results.items() if result.status != "diverged"]
    trained = {family: [results[key].model for key in sound if key[0] == family] for family in config.families}
    history = [result.history.assign(family=family, seed=seed) for (family, seed), result in results.items()]
    models = as_table("models", rows)
    study = Study(
        folder=path,
        config=config,
        models=models,
        heads=as_table("heads", heads),
        variation=_variation(trained, config),
        certificates=as_table("certificates", certificates),
        history=pd.concat(history, ignore_index=True),
        summary={
            "probe_string": task.language.probe_string,
            "probe_tokens": next(iter(results.values())).model.to_str_tokens(task.language.probe_string),
            "stack_chance": chance,
            "families": _family_intervals(models, config),
            "balance_and_length": _correlation(models, "balance_violation", "long_accuracy", config),
            "balance_and_change": _correlation(models, "balance_violation", "logit_change", config),
            "change_and_length": _correlation(models, "logit_change", "long_accuracy", config),
            "environment": environment(),
        },
    )
    save_tables(study)
    return study


_MEASURES = (
    *("accuracy", "long_accuracy", "entropy_gap", "balance_violation"),
    *("certified_share", "falsified_share", "logit_change", "seconds", "steps"),
)


def _keys(config: StudyConfig) -> list[tuple[str, int]]:
    return [(family, seed) for family in config.families for seed in config.seeds]


def _variation(trained: dict[str, list[DyckTransformer]], config: StudyConfig) -> pd.DataFrame:
    rows: list[dict[str, Any]] = []
    for family, models in trained.items():
        if len(models) < 2:
            continue  # one model does not vary
        found = load_probe("attention_variation")(models, n_bootstrap=config.n_bootstrap, seed=config.data_seed)
        for layer, (value, (low, high)) in enumerate(zip(found.matched, found.matched_interval, strict=True)):
            rows.append(
                {
                    "family": family,
                    "layer": layer,
                    "variation": float(value),
                    "low": float(low),
                    "high": float(high),
                    "random_baseline": found.random_baseline,
                    "n_models": found.n_models,
                    "recalled": RECALLED_VARIATION.get(family),
                }
            )
    columns = ["family", "layer", "variation", "low", "high", "random_baseline", "n_models", "recalled"]
    return pd.DataFrame(rows, columns=columns).astype({"recalled": float})


def _family_intervals(models: pd.DataFrame, config: StudyConfig) -> dict[str, dict[str, Any]]:
    """Per family and measure: mean over seeds with its bootstrap interval."""
    generator = np.random.default_rng(config.data_seed)
    summary: dict[str, dict[str, Any]] = {}
    for family, group in models.groupby("family", sort=False):
        summary[str(family)] = {"n": len(group), "reached": int((group["status"] == "reached").sum())}
        for name in _MEASURES:
            if name not in group:
                continue
            values = group[name].dropna().to_numpy(float)
            if len(values):
                found = mean(values, config.n_bootstrap, generator)
                ends = (found.low, found.high) if found.n > 1 else (found.value,) * 2  # one seed has no interval
                summary[str(family)][name] = {"mean": found.value, "low": ends[0], "high": ends[1]}
    return summary


def _correlation(models: pd.DataFrame, first: str, second: str, config: StudyConfig) -> dict[str, Any]:
    """Spearman's correlation of two measures over seeds, for each family that has both."""
    generator = np.random.default_rng(config.data_seed)
    found: dict[str, Any] = {}
    if first not in models or second not in models:
        return found
    for family, group in models.dropna(subset=[first, second]).groupby("family", sort=False):
        x, y = group[first].to_numpy(float), group[second].to_numpy(float)
        if len(group) < 4 or np.ptp(x) == 0 or np.ptp(y) == 0:
            continue  # no correlation to speak of
        tie = correlation(x, y, config.n_bootstrap, generator)
        found[str(family)] = {"spearman": tie.value, "low": tie.low, "high": tie.high, "n": tie.n}
    return found
