"""Head importance of many models, compared: saved ones, or trained for it.

The latter is the experiment of App. B.2.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, final

import pandas as pd
from typing_extensions import Unpack

from tl_dyck.ablation.compare import Answer, ImportanceComparison, compare_importance
from tl_dyck.kit.configuration import parameters_of
from tl_dyck.kit.records import TableColumns, read_table
from tl_dyck.runs import RunOptions, Sweep, run_sweep
from tl_dyck.runs.analysis import Analysis, of_each
from tl_dyck.runs.saved import find_models
from tl_dyck.studies.heads import AblateConfig, HeadsExperiment
from tl_dyck.tasks import DyckTask, Task, load_task
from tl_dyck.training import TrainConfig

__all__ = ["AblateConfig", "Ablation", "ablate_runs", "ablate_trained", "load_ablation"]

_ABLATION = Analysis("ablation.json", "tl_dyck.ablation-report/3", "an ablation", "ablate again")
_VERSIONS = ("tl_dyck", "torch", "transformer_lens", "python")
#: Tables of every run; of frozen models the first only.
_TABLES = {
    "heads": TableColumns(numbers=("layer", "head")),
    "trajectories": TableColumns(
        numbers=(
            *("step", "penalty", "layer", "head", "log_alpha", "p_open", "expected_gate", "gate"),
        )
    ),
    "paths": TableColumns(numbers=("penalty", "step", "metric", "n_open")),
}


@final
@dataclass(frozen=True, kw_only=True)
class Ablation:
    """Results on the heads of many models, as the folder of their sweep holds them.

    Attributes:
        folder: where it is kept.
        sources: the models that were asked for, as they were named.
        config: how it was measured, as JSON values.
        versions: of what measured, by name, see `load_results`.
        models: one row per model: group, model, folder, accuracy (NaN if not known), metric (of the
            intact model), and status of the gates.
        comparison: the heads and their correlations, computed when it is loaded.
        trajectories: gates of all models: group, model, and the columns of
            `FinetunedImportance.trajectories`.
        paths: likewise of `FinetunedImportance.path`.
    """

    folder: Path
    sources: list[str]
    config: dict[str, Any]
    versions: dict[str, str]
    models: pd.DataFrame
    comparison: ImportanceComparison
    trajectories: pd.DataFrame
    paths: pd.DataFrame

    @property
    def answers(self) -> list[Answer]:
        """In words."""
        return self.comparison.answers


def ablate_runs(
    folders: Iterable[str | Path],
    out: str | Path,
    *,
    task: Task | str | None = None,
    config: AblateConfig | None = None,
    device: str | None = None,
    **how: Unpack[RunOptions],
) -> Ablation:
    """Measure the heads of saved models, compare them, and keep everything in a folder.

    It is a sweep (`run_sweep`): what is done is kept, several processes may work on one folder,
    folders of several machines can be merged.

    Args:
        folders: of models, of runs, or of whole studies; or names in them, such as
            ``results/study:gpt/seed-3``, see `find_models`.
        out: gets a folder for each model, and ``ablation.json``, which says what was asked.
        task: of which strings are drawn; None for that of each run, or complete strings of the
            model's language.
        config: how closely to look.
        device: of the models.
        **how: n_jobs, backend, address, retry_failed, progress, … as for `run_sweep`.

    Raises:
        CorruptFileError: a folder without a model.
        SweepError: two of the models are the same.
        FailedRunsError: a model could not be measured: the task is of another language, say.
    """
    config = config or AblateConfig()
    addresses = [Path(each).as_posix() for each in folders]
    saved = [found for address in addresses for found in find_models(address)]
    # `resolve`: two addresses, or a link, may name one folder
    if len({found.folder.resolve() for found in saved}) < len(saved):
        raise ValueError("a model is named twice")
    common = parameters_of("measure", config)
    plugs: dict[tuple[str, str], Any] = {}
    task = load_task(task) if isinstance(task, str) else task
    if isinstance(task, DyckTask):
        common |= parameters_of("task", task)
    elif task is not None:
        common["task"] = task.name
        plugs["task", task.name] = task
    points = [{"called": found.name, "saved": found.folder.as_posix()} for found in saved]
    sweep = Sweep(list=points, common=common, seeds=(config.seed,), experiment="heads")
    experiment = HeadsExperiment(device=device, plugs=plugs)
    return _ablate(sweep, experiment, Path(out), addresses, config, how)


def ablate_trained(
    out: str | Path,
    *,
    seeds: Sequence[int] = tuple(range(10)),
    layers: Sequence[int] = (2, 3),
    n_heads: int = 4,
    tasks: Sequence[str] = ("dyck-2-4", "dyck-2-4-prefix"),
    d_model: int = 48,
    training: TrainConfig | None = None,
    config: AblateConfig | None = None,
    **how: Unpack[RunOptions],
) -> Ablation:
    """Train models of two depths on complete strings and prefixes, and ask App. B.2's questions.

    Args:
        out: a folder; the models are kept in its ``runs``. Call again to go on, or to add seeds.
        seeds: of the models, for each depth and task.
        layers: depths.
        n_heads: in each layer.
        tasks: names of tasks.
        d_model: their width, a multiple of `n_heads`.
        training: how to train.
        config: how closely to look.
        **how: n_jobs, backend, address, retry_failed, progress, … as for `run_sweep`.
    """
    config, training = config or AblateConfig(), training or TrainConfig(min_steps=500)
    sweep = Sweep(
        grid={"task": list(tasks), "model.n_layers": list(layers)},
        common={
            "model": "gpt",
            "model.n_heads": n_heads,
            "model.d_model": d_model,
            **parameters_of("training", training),
            **parameters_of("measure", config),
        },
        seeds=tuple(seeds),
        experiment="heads",
    )
    # models this small train sooner on a CPU, several processes at a time
    experiment, folder = HeadsExperiment(device="cpu"), Path(out)
    return _ablate(sweep, experiment, folder, [folder.as_posix()], config, how)


def _ablate(
    sweep: Sweep,
    experiment: HeadsExperiment,
    out: Path,
    sources: list[str],
    config: AblateConfig,
    how: RunOptions,
) -> Ablation:
    """Run the sweep, and write down what makes its folder an ablation."""
    run_sweep(sweep, out, experiment=experiment, **how)
    _ABLATION.write(out, sources=sources, config=config.to_dict())
    return load_ablation(out)


def load_ablation(folder: str | Path) -> Ablation:
    """Read an ablation from its folder: from the records of its runs.

    Raises:
        CorruptFileError: a file is missing, altered or of another version.
    """
    path = Path(folder)
    with _ABLATION.read(path) as (saved, runs):
        sources, config = [*saved["sources"]], dict(saved["config"])
    rows: list[dict[str, Any]] = []
    tables: dict[str, list[pd.DataFrame]] = {name: [] for name in _TABLES}

    def read(row: dict[str, Any], place: Path) -> None:
        named = {"group": row["heads_of"], "model": _called(row)}
        where = row["saved"] if isinstance(row.get("saved"), str) else place.as_posix()
        facts = {"status": row["gates"], "accuracy": row["accuracy"], "metric": row["metric"]}
        rows.append({**named, "folder": where, **facts})
        # gates that were not trained have no trajectories, and no paths
        for name in _TABLES if row["gates"] != "frozen" else ("heads",):
            found = read_table(place / f"{name}.parquet", _TABLES[name])
            tables[name].append(found.assign(**named))

    of_each(runs, read)
    joined = {
        name: pd.concat(parts, ignore_index=True) if parts else pd.DataFrame()
        for name, parts in tables.items()
    }
    heads = joined.pop("heads")
    first = ["group", "model", "layer", "head"]
    heads = heads[[*first, *(column for column in heads if column not in first)]]
    return Ablation(
        folder=path,
        sources=sources,
        config=config,
        versions={name: ", ".join(runs[name].astype(str).unique()) for name in _VERSIONS},
        models=pd.DataFrame(rows).astype({"accuracy": float, "metric": float}),
        comparison=compare_importance(heads),
        **joined,
    )


def _called(row: Mapping[str, Any]) -> str:
    if isinstance(row.get("called"), str):
        return str(row["called"])
    # only `ablate_trained` gets here: its points have these parameters
    size = f"{row['model.n_layers']}x{row['model.n_heads']}"
    return f"{row['task']}-{row['model']}-{size}-seed-{row['seed']}"
