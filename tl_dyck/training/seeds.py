"""Many seeds of one configuration: in groups that are trained together, in worker processes of one thread each."""

from __future__ import annotations

import operator
import tempfile
import traceback
from collections.abc import Callable, Iterable
from concurrent.futures.process import BrokenProcessPool
from pathlib import Path
from typing import Any, SupportsIndex

from joblib import Parallel, cpu_count, delayed, parallel_config
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from tl_dyck.files import ensure_folder
from tl_dyck.models import DyckTransformer, DyckTransformerConfig
from tl_dyck.models.config import OPTIONS
from tl_dyck.processes import Watched
from tl_dyck.tasks import DyckTask, load_task
from tl_dyck.training.checkpoint import has_result, load_result
from tl_dyck.training.config import TrainConfig, TrainResult
from tl_dyck.training.together import train_together

__all__ = ["Run", "TrainingFailedError", "group_runs", "most_together", "train_runs", "train_seeds"]

# The measured rule, see `train_seeds`: seeds in a group, and the widest models for which groups pay, on the CPU.
_ON_CPU = 4
_ON_GPU = 256
_WIDEST = 100

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
    together: bool | None = None,
) -> list[TrainResult]:
    """Train one model per seed: small ones in groups that are trained together, and groups in worker processes.

    The rule, measured by ``tests/benchmarks/bench_seeds.py``: on the CPU, models with `d_model` up to 100 are trained
    four at a time, or fewer so that every worker has a group; with more, what a step works on leaves a core's cache.
    Wider models are bound by arithmetic, and go one by one. On a GPU, up to 256 at a time.

    Either way each seed has the data, schedule and measurements that `train` gives it, in the same calls on operands of
    the same shapes and alignment (`tl_dyck.training.operations`): on the CPU it is, bit for bit, the model of `train`,
    whoever is trained beside it and however often it was interrupted. On a GPU products are batched, and sums may be
    rounded in another way: in float64 weights agree to 1e-8 after 70 steps; in float32 training amplifies a last digit.

    Args:
        config: of the models.
        task: a task, or its name.
        seeds: one run each.
        options: how to train; None for the defaults.
        folder: keeps ``seed-<seed>`` folders with checkpoints and results, so an interrupted call can be repeated and
            goes on where it stopped; None keeps nothing.
        n_jobs: worker processes of one thread each; None for one per core on the CPU, for one on a GPU.
        progress: whether to show a progress bar.
        together: None for the rule above, False for one by one, True for groups however wide the model.

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
            train_runs(runs, n_jobs=n_jobs, progress=progress, together=together)
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
    together: bool | None = None,
) -> None:
    """Train any runs, several at once, each into its folder.

    Args:
        runs: what to train; every run needs a folder of its own.
        after: called with result and folder in the process that trained the run, for example to measure it.
        during: called likewise with step, model and folder at every measurement of a run that is being trained, not of
            one that is finished already; after a resumption, again for what comes after the checkpoint.
        n_jobs: as in `train_seeds`.
        progress: whether to show a progress bar.
        together: as in `train_seeds`, for runs that differ in their seeds alone.

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
    groups = group_runs(runs, n_jobs, together)
    with Progress(*columns, disable=not progress) as bar, parallel_config(backend="loky", inner_max_num_threads=1):
        shown = bar.add_task("training", total=len(runs))
        work = Watched.by_this_process(_train_group)
        workers = Parallel(n_jobs=min(n_jobs, max(1, len(groups))), return_as="generator_unordered")
        try:
            for lines in workers(delayed(work)(group, after, during) for group in groups):
                for line, error in lines:
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


def group_runs(runs: list[Run], n_jobs: int, together: bool | None = None) -> list[list[Run]]:
    """Which runs to train together; see `train_seeds` for the rule.

    Args:
        runs: in any order.
        n_jobs: among so many workers every configuration's seeds are shared out, whatever the size of a group.
        together: True for groups whatever the size of the model, False for none, None for the measured rule.

    Returns:
        Groups that have configuration, task and options in common, in the order of their first runs.
    """
    alike: dict[Any, list[Run]] = {}
    for run in runs:
        config, task, _, options, _ = run
        alike.setdefault((repr([getattr(config, name) for name in OPTIONS]), task, options), []).append(run)
    groups = []
    for same in alike.values():
        most = most_together(same[0][0], together)
        number = max(-(-len(same) // most), min(n_jobs, len(same)))
        groups += [same[i::number] for i in range(number)]
    return sorted(groups, key=lambda group: runs.index(group[0]))


def most_together(config: DyckTransformerConfig, together: bool | None = None) -> int:
    """The measured rule, see `train_seeds`."""
    if together is False:
        return 1
    if str(config.device).startswith("cuda"):
        return _ON_GPU
    return _ON_CPU if together or config.d_model <= _WIDEST else 1


def _train_group(
    group: list[Run],
    after: Callable[[TrainResult, Path], None] | None,
    during: Callable[[int, DyckTransformer, Path], None] | None,
) -> list[tuple[str, str]]:
    """Train a group in this process; returns, for each run, a line about it, and the traceback if something raised."""
    config, task, _, options, _ = group[0]
    outcomes = train_together(
        config,
        task,
        [run[2] for run in group],
        options=options,
        folders=[run[4] for run in group],
        on_model=during,
        on_result=after,
    )
    return [_line(config, seed, outcome) for seed, outcome in outcomes.items()]


def _line(config: DyckTransformerConfig, seed: int, outcome: TrainResult | Exception) -> tuple[str, str]:
    name = f"{config.model_name} seed {seed}"
    if isinstance(outcome, Exception):
        return name, "".join(traceback.format_exception(outcome))
    return f"{name}: {outcome.status}, accuracy {outcome.accuracy.any_token:.1%}", ""
