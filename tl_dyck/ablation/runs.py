"""Saved models: measure all their heads, compare, keep the result on disk; and the experiment of App. B.2."""

from __future__ import annotations

import io
import math
import re
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, field
from importlib.metadata import version
from pathlib import Path
from typing import Any, final

import pandas as pd
import torch
from joblib import Parallel, cpu_count, delayed, parallel_config
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from tl_dyck.ablation.compare import Answer, ImportanceComparison, compare_importance
from tl_dyck.ablation.measure import measure_heads
from tl_dyck.ablation.tuning import FinetuneConfig
from tl_dyck.files import CorruptFileError, ensure_folder, read_json, read_table, write_bytes, write_json
from tl_dyck.machine import one_thread
from tl_dyck.models import get_config, load_model
from tl_dyck.models.digest import weights_digest
from tl_dyck.processes import Watched
from tl_dyck.tasks import DyckTask, load_task
from tl_dyck.training import TrainConfig, load_result, train_seeds

__all__ = ["AblateConfig", "Ablation", "ablate_runs", "find_runs", "load_ablation", "run_experiment"]

_FORMAT = "tl_dyck.ablation-report/1"
_MODEL_FORMAT = "tl_dyck.ablation-model/2"
"""Of what is kept on one model; another number where it is measured otherwise, so that none is mixed with old ones."""
_PACKAGES = ("tl-dyck", "torch", "transformer_lens", "numpy", "pandas", "scipy")


@final
@dataclass(frozen=True, kw_only=True)
class AblateConfig:
    """How closely to look at every model.

    Attributes:
        finetune: of the gates; None to measure frozen models only.
        leave_one_out: of leave-one-out; None for none.
        n: strings on which frozen models are measured.
        n_bootstrap: resamples for every interval.
        seed: of everything that is drawn.
    """

    finetune: FinetuneConfig | None = field(default_factory=lambda: FinetuneConfig(steps=60))
    leave_one_out: FinetuneConfig | None = field(default_factory=lambda: FinetuneConfig(steps=60))
    n: int = 200
    n_bootstrap: int = 2000
    seed: int = 0

    def to_dict(self) -> dict[str, Any]:
        """The fields as JSON values."""
        tuned = {name: getattr(self, name) for name in ("finetune", "leave_one_out")}
        return {**asdict(self), **{name: None if value is None else value.to_dict() for name, value in tuned.items()}}


@final
@dataclass(frozen=True, kw_only=True)
class Ablation:
    """What was found on the heads of many models.

    Attributes:
        folder: where it is kept.
        sources: the folders that were asked for.
        config: how it was measured, as JSON values.
        versions: of packages, by name.
        models: one row per model: group, model, folder, accuracy (NaN if not known), metric (of the intact model),
            and status of the gates.
        comparison: the heads and their correlations.
        trajectories: gates of all models: group, model, and the columns of `FinetunedImportance.trajectories`.
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


def find_runs(folder: Path) -> list[Path]:
    """The saved models in a folder, or the folder itself if it is one.

    Raises:
        CorruptFileError: there are none.
    """
    if (folder / "config.json").exists():
        return [folder]
    found = sorted({path.parent for path in folder.rglob("config.json")}, key=_natural)
    if not found:
        raise CorruptFileError(f"there is no saved model in {str(folder)!r}: no config.json, there or below")
    return found


def ablate_runs(
    folders: Iterable[str | Path],
    out: str | Path,
    *,
    task: DyckTask | str | None = None,
    config: AblateConfig | None = None,
    device: str | None = None,
    n_jobs: int | None = None,
    progress: bool = True,
) -> Ablation:
    """Measure the heads of saved models, compare them, and keep everything in a folder.

    What is already there is not measured again, so an interrupted call can be repeated and goes on.

    Args:
        folders: of models, of runs, or of whole studies.
        out: gets ``ablation.json``, a Parquet file per table, and a folder for each model.
        task: of which strings are drawn; None for that of each run, or complete strings of the model's language.
        config: how closely to look.
        device: of the models.
        n_jobs: worker processes of one thread each; None for one per core, or one on a GPU.
        progress: whether to show a progress bar.

    Raises:
        CorruptFileError: a folder without a model, or results of other options in `out`.
        ValueError: the task is of another language than a model.
    """
    config = config or AblateConfig()
    target = ensure_folder(out)
    sources = [Path(folder) for folder in folders]
    runs = [run for folder in sources for run in find_runs(folder)]
    if len({run.resolve() for run in runs}) < len(runs):
        raise ValueError("a model is named twice")
    chosen = load_task(task) if isinstance(task, str) else task
    if n_jobs is None:
        n_jobs = (
            1 if str(device or ("cuda" if torch.cuda.is_available() else "cpu")).startswith("cuda") else cpu_count()
        )
    jobs = [(run, target / "models" / _slug(runs, run), chosen, config, device) for run in runs]
    columns = (BarColumn(), MofNCompleteColumn(), TimeElapsedColumn(), TextColumn("{task.description}"))
    with Progress(*columns, disable=not progress) as bar, parallel_config(backend="loky", inner_max_num_threads=1):
        shown = bar.add_task("heads", total=len(jobs))
        work = Watched.by_this_process(_measure)
        workers = Parallel(n_jobs=max(1, min(n_jobs, len(jobs))), return_as="generator")
        for found in workers(delayed(work)(*job) for job in jobs):
            bar.update(shown, advance=1, description=found)
    return _collect(target, [path.as_posix() for path in sources], [job[1] for job in jobs], config)


def run_experiment(
    out: str | Path,
    *,
    seeds: Sequence[int] = tuple(range(10)),
    layers: Sequence[int] = (2, 3),
    n_heads: int = 4,
    tasks: Sequence[str] = ("dyck-2-4", "dyck-2-4-prefix"),
    family: str = "gpt",
    d_model: int = 48,
    training: TrainConfig | None = None,
    config: AblateConfig | None = None,
    n_jobs: int | None = None,
    progress: bool = True,
) -> Ablation:
    """Train models of two depths on complete strings and on prefixes, and ask App. B.2's questions of their heads.

    Args:
        out: a folder; the models are kept in its ``runs``. Call again to go on.
        seeds: of the models, for each depth and task.
        layers: depths.
        n_heads: in each layer.
        tasks: names of tasks.
        family: of the models.
        d_model: their width, a multiple of `n_heads`.
        training: how to train.
        config: how closely to look.
        n_jobs: as for `ablate_runs`.
        progress: whether to show progress bars.
    """
    target = ensure_folder(out)
    training = training or TrainConfig(min_steps=500)
    folders = []
    for name in tasks:
        for depth in layers:
            folder = target / "runs" / name / f"{family}-{depth}x{n_heads}"
            model = get_config(family, name, n_layers=depth, n_heads=n_heads, d_model=d_model, device="cpu")
            train_seeds(model, name, seeds=seeds, options=training, folder=folder, n_jobs=n_jobs, progress=progress)
            folders.append(folder)
    return ablate_runs(folders, target, config=config, device="cpu", n_jobs=n_jobs, progress=progress)


def load_ablation(folder: str | Path) -> Ablation:
    """Load what `ablate_runs` wrote.

    Raises:
        CorruptFileError: a file is missing, altered or of another version.
    """
    path = Path(folder)
    saved = read_json(path / "ablation.json")
    if not isinstance(saved, dict) or saved.get("format") != _FORMAT:
        raise CorruptFileError(f"{str(path)!r} does not hold an ablation of this version ({_FORMAT})")
    try:
        names = ("models", "heads", "correlations", "trajectories", "paths")
        tables = {name: read_table(path / f"{name}.parquet") for name in names}
        comparison = ImportanceComparison(
            heads=tables.pop("heads"), correlations=tables.pop("correlations"), level=saved["level"]
        )
        facts = {name: saved[name] for name in ("sources", "config", "versions")}
        return Ablation(folder=path, comparison=comparison, **facts, **tables)
    except CorruptFileError as error:
        raise CorruptFileError(f"{error}; ablate again") from error
    except (KeyError, TypeError, ValueError, OSError) as error:
        raise CorruptFileError(f"{str(path)!r} does not hold a whole ablation: {error!r}; ablate again") from error


def _measure(run: Path, folder: Path, task: DyckTask | None, config: AblateConfig, device: str | None) -> str:
    """Measure one model in this process, unless its folder has the result already; returns a line on it."""
    with one_thread():
        model = load_model(run, device=device)
        accuracy = math.nan
        if (run / "result.json").exists():
            result = load_result(run, device=device)
            accuracy = result.accuracy.any_token
            task = task or result.task
        task = task or _complete(model.cfg.language)
        if task.language != model.cfg.language:
            raise ValueError(
                f"the model in {str(run)!r} reads {model.cfg.language}, task {task.name!r} {task.language}"
            )
        cfg = model.cfg
        identity = {
            "model": weights_digest(model),
            "settings": cfg.to_saved(),
            "task": task.to_dict(),
            "config": config.to_dict(),
        }
        size = f"{cfg.n_layers} layer{'s' * (cfg.n_layers > 1)} × {cfg.n_heads} head{'s' * (cfg.n_heads > 1)}"
        group = f"{cfg.model_name}, {size}, {task.name}"
        if _is_done(folder, identity):
            return group
        ensure_folder(folder)
        heads, swept = measure_heads(
            model, task, finetune=config.finetune, leave_one_out=config.leave_one_out, n=config.n, seed=config.seed,
            folder=folder, progress=False,
        )  # fmt: skip
        tables = {"heads": heads}
        facts: dict[str, Any] = {
            "group": group,
            "model": str(folder.name),
            "folder": run.as_posix(),
            "status": "frozen",
        }
        facts |= {"accuracy": None if math.isnan(accuracy) else accuracy, "metric": None}
        if swept is not None:
            tables |= {"trajectories": swept.trajectories, "paths": swept.path}
            facts |= {"metric": swept.metric, "status": swept.status}
        for name, table in tables.items():
            _write_table(folder / f"{name}.parquet", table)
        write_json(folder / "model.json", {"format": _MODEL_FORMAT, "identity": identity, "facts": facts})
        return group


def _is_done(folder: Path, identity: dict[str, Any]) -> bool:
    path = folder / "model.json"
    if not path.exists():
        return False
    saved = read_json(path)
    if not isinstance(saved, dict) or saved.get("format") != _MODEL_FORMAT:
        raise CorruptFileError(
            f"{str(folder)!r} holds what another version measured (not {_MODEL_FORMAT}); choose another folder with "
            "--out, or delete this one"
        )
    if saved.get("identity") != identity:
        raise CorruptFileError(
            f"{str(folder)!r} holds the heads of another model, task or configuration; choose another folder with "
            "--out, or delete this one"
        )
    return True


def _collect(target: Path, sources: list[str], folders: Sequence[Path], config: AblateConfig) -> Ablation:
    """Compare what was measured, and write it down."""
    tables: dict[str, list[pd.DataFrame]] = {"heads": [], "trajectories": [], "paths": []}
    rows = []
    for folder in folders:
        facts = read_json(folder / "model.json")["facts"]
        rows.append({**facts, **{name: math.nan for name in ("accuracy", "metric") if facts[name] is None}})
        for name, parts in tables.items():
            if (folder / f"{name}.parquet").exists():
                table = read_table(folder / f"{name}.parquet")
                parts.append(table.assign(group=facts["group"], model=facts["model"]))
    heads = pd.concat(tables["heads"], ignore_index=True)
    first = ["group", "model", "layer", "head"]
    heads = heads[[*first, *(column for column in heads if column not in first)]]
    comparison = compare_importance(heads, n_bootstrap=config.n_bootstrap, seed=config.seed)
    empty = pd.DataFrame()
    found = Ablation(
        folder=target,
        sources=sources,
        config=config.to_dict(),
        versions={name: version(name) for name in _PACKAGES},
        models=pd.DataFrame(rows),
        comparison=comparison,
        trajectories=pd.concat(tables["trajectories"], ignore_index=True) if tables["trajectories"] else empty,
        paths=pd.concat(tables["paths"], ignore_index=True) if tables["paths"] else empty,
    )
    named = {"models": found.models, "heads": comparison.heads, "correlations": comparison.correlations}
    for name, table in {**named, "trajectories": found.trajectories, "paths": found.paths}.items():
        _write_table(target / f"{name}.parquet", table)
    write_json(
        target / "ablation.json",
        {
            "format": _FORMAT,
            "sources": sources,
            "config": found.config,
            "versions": found.versions,
            "level": comparison.level,
            "models": _rows(found.models),
            "heads": _rows(comparison.heads),
            "correlations": _rows(comparison.correlations),
            "answers": [asdict(answer) for answer in found.answers],
        },
    )
    return found


def _rows(table: pd.DataFrame) -> list[dict[str, Any]]:
    """As JSON values: None for NaN."""
    return [
        {key: None if isinstance(value, float) and not math.isfinite(value) else value for key, value in row.items()}
        for row in table.to_dict("records")
    ]


def _write_table(path: Path, table: pd.DataFrame) -> None:
    buffer = io.BytesIO()
    table.to_parquet(buffer, index=False)
    write_bytes(path, buffer.getvalue())


def _complete(language: Any) -> DyckTask:
    """Complete strings of a language, for a model that does not say what it was trained on."""
    return DyckTask(
        name="complete strings", n_types=language.n_types, max_depth=language.max_depth, brackets=language.alphabet
    )


def _slug(runs: Sequence[Path], run: Path) -> str:
    """A folder name for a run: its path without what all runs have in common."""
    parts = [path.resolve().parts for path in runs]
    common = 0
    while all(len(part) > common + 1 for part in parts) and len({part[common] for part in parts}) == 1:
        common += 1
    if len(runs) == 1:
        common = max(0, len(parts[0]) - 2)
    return re.sub(r"[^\w.-]+", "-", "-".join(run.resolve().parts[common:]))


def _natural(path: Path) -> list[tuple[int, str]]:
    """Numbers in their order."""
    return [(int(part), "") if part.isdigit() else (-1, part) for part in re.split(r"(\d+)", path.as_posix())]
