"""Many seeds of one configuration, in worker processes of one thread each."""

from __future__ import annotations

import operator
import tempfile
import traceback
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import SupportsIndex

import torch
from joblib import Parallel, cpu_count, delayed, parallel_config
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from tl_dyck.files import ensure_folder
from tl_dyck.models import DyckTransformer, DyckTransformerConfig
from tl_dyck.tasks import DyckTask, load_task
from tl_dyck.training.checkpoint import has_result, load_result
from tl_dyck.training.config import TrainConfig, TrainResult
from tl_dyck.training.loop import train

__all__ = ["Run", "TrainingFailedError", "train_runs", "train_seeds"]

#: One training run: configuration, task, seed, options, folder.
Run = tuple[DyckTransformerConfig, DyckTask, int, TrainConfig, Path]


class TrainingFailedError(RuntimeError):
    """Some runs raised; the message has their tracebacks. The others are whole, in their folders.

    Attributes:
        results: of those others, if `train_seeds` raised this.
    """

    results: tuple[TrainResult, ...] = ()


def train_seeds(
    config: DyckTransformerConfig,
    task: DyckTask | str,
    *,
    seeds: Iterable[SupportsIndex] = range(8),
    options: TrainConfig | None = None,
    folder: str | Path | None = None,
    n_jobs: int | None = None,
    progress: bool = True,
) -> list[TrainResult]:
    """Train one model per seed; each is, bit for bit, the model that `train` gives for that seed with one thread.

    Args:
        config: of the models.
        task: a task, or its name.
        seeds: one run each.
        options: how to train; None for the defaults.
        folder: keeps ``seed-<seed>`` folders with checkpoints and results, so an interrupted call can be repeated and
            goes on where it stopped; None keeps nothing.
        n_jobs: worker processes of one thread each; None for one per core on the CPU, for one on a GPU.
        progress: whether to show a progress bar.

    Returns:
        One result per seed, in the order of `seeds`, runs that did not learn included.

    Raises:
        TrainingFailedError: a run raised; the others were finished first.
        OSError: `folder` cannot be written.
    """
    task = load_task(task) if isinstance(task, str) else task
    with tempfile.TemporaryDirectory(prefix="tl_dyck-") as temporary:
        root = Path(temporary) if folder is None else ensure_folder(folder)
        options = options or TrainConfig()
        runs = [(config, task, seed, options, root / f"seed-{seed}") for seed in map(operator.index, seeds)]
        try:
            train_runs(runs, n_jobs=n_jobs, progress=progress)
        except TrainingFailedError as error:
            error.results = tuple(load_result(run[4], device=config.device) for run in runs if has_result(run[4]))
            raise
        return [load_result(run[4], device=config.device) for run in runs]


def train_runs(
    runs: list[Run],
    *,
    after: Callable[[TrainResult, Path], None] | None = None,
    during: Callable[[int, DyckTransformer, Path], None] | None = None,
    n_jobs: int | None = None,
    progress: bool = True,
) -> None:
    """Train any runs, several at once, each into its folder.

    Args:
        runs: what to train; every run needs a folder of its own.
        after: called with result and folder in the process that trained the run, for example to measure it.
        during: called likewise with step, model and folder at every measurement of a run that is being trained, not of
            one that is finished already; after a resumption, again for what comes after the checkpoint.
        n_jobs: as in `train_seeds`.
        progress: whether to show a progress bar.

    Raises:
        TrainingFailedError: a run, `after` or `during`, raised; the others were finished first.
        ValueError: two runs share a folder, or `n_jobs` is less than one.
    """
    if len({run[4] for run in runs}) < len(runs):
        raise ValueError("two runs share a folder; is a seed named twice?")
    if n_jobs is None:
        n_jobs = 1 if any(str(run[0].device).startswith("cuda") for run in runs) else cpu_count()
    if n_jobs < 1:
        raise ValueError(f"n_jobs must be at least 1, or None for as many as there are cores, not {n_jobs}")
    errors = []
    columns = (BarColumn(), MofNCompleteColumn(), TimeElapsedColumn(), TextColumn("{task.description}"))
    with Progress(*columns, disable=not progress) as bar, parallel_config(backend="loky", inner_max_num_threads=1):
        shown = bar.add_task("training", total=len(runs))
        workers = Parallel(n_jobs=min(n_jobs, max(1, len(runs))), return_as="generator_unordered")
        try:
            for line, error in workers(delayed(_train_into_folder)(*run, after, during) for run in runs):
                bar.update(shown, advance=1, description=line)
                if error:
                    errors.append(f"{line}\n{error}")
        except BrokenProcessPool as error:
            raise TrainingFailedError(
                f"a worker process was killed, perhaps for want of memory, and the others with it: {error}\n"
                "Runs with a folder go on from their checkpoints if they are started again."
            ) from error
    if errors:
        raise TrainingFailedError(f"{len(errors)} of {len(runs)} runs failed:\n" + "\n".join(errors))


@contextmanager
def one_thread() -> Iterator[None]:
    """Compute with one thread, in a worker process and elsewhere, so that no result depends on the number of jobs."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(threads)


def _train_into_folder(
    config: DyckTransformerConfig,
    task: DyckTask,
    seed: int,
    options: TrainConfig,
    folder: Path,
    after: Callable[[TrainResult, Path], None] | None,
    during: Callable[[int, DyckTransformer, Path], None] | None,
) -> tuple[str, str]:
    """Train one run in this process; returns a line about it, and the traceback if something raised."""
    name = f"{config.model_name} seed {seed}"
    try:
        with one_thread():
            on_model = None if during is None else partial(_with_folder, during, folder)
            result = train(config, task, seed=seed, options=options, folder=folder, progress=False, on_model=on_model)
            if after is not None:
                after(result, folder)
    except Exception:
        return name, traceback.format_exc()
    return f"{name}: {result.status}, accuracy {result.accuracy.any_token:.1%}", ""


def _with_folder(
    during: Callable[[int, DyckTransformer, Path], None], folder: Path, step: int, model: DyckTransformer
) -> None:
    during(step, model, folder)
