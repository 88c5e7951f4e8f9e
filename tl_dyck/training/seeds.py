"""Many seeds of one configuration: in groups trained together, in one-thread worker processes."""

from __future__ import annotations

import itertools
import tempfile
import traceback
from collections.abc import Callable, Iterable
from functools import partial
from pathlib import Path
from typing import Any, SupportsIndex

from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeElapsedColumn

from tl_dyck.kit.arguments import checked
from tl_dyck.kit.check import WrongValueError, check_integer, check_seed
from tl_dyck.kit.environment import default_jobs
from tl_dyck.kit.errors import DyckError
from tl_dyck.kit.files import ensure_folder
from tl_dyck.kit.screen import Bars
from tl_dyck.kit.visible import visible
from tl_dyck.kit.workers import WorkerDiedError, check_jobs, spread
from tl_dyck.models import DyckTransformer, DyckTransformerConfig, config_for
from tl_dyck.models.hooked import HookedTransformerConfig
from tl_dyck.tasks import Task, load_task
from tl_dyck.training.checkpoint import has_result, load_result
from tl_dyck.training.config import TrainConfig, TrainResult
from tl_dyck.training.loop import train_together

# The measured rule, see `train_seeds`: seeds in a group, and the widest models for which groups
# pay, on the CPU.
_ON_CPU = 4
_ON_GPU = 256  # at a time: a GPU has room for them
_WIDEST = 100  # d_model: wider models are bound by arithmetic, and gain nothing
_MOST_SEEDS = 1_000_000  # a slip is refused before seeds are listed


class TrainingFailedError(DyckError, RuntimeError):
    """Some runs raised; the message has their tracebacks. The others are whole, in their folders.

    Attributes:
        results: of those others, if `train_seeds` raised this.
    """

    results: tuple[TrainResult, ...] = ()
    _shown = staticmethod(visible)


@checked
def train_seeds(
    config: DyckTransformerConfig | HookedTransformerConfig | str,
    task: Task | str,
    *,
    seeds: int | Iterable[SupportsIndex] = 8,
    options: TrainConfig | None = None,
    folder: str | Path | None = None,
    n_jobs: int | None = None,
    progress: bool = True,
    on_model: Callable[[int, DyckTransformer, Path], None] | None = None,
    on_result: Callable[[TrainResult, Path], None] | None = None,
) -> list[TrainResult]:
    """Train one model per seed: small ones in groups, trained together; groups in worker processes.

    The rule, measured by ``benchmarks/bench_seeds.py``: on the CPU, models with `d_model` up
    to 100 are trained four at a time, or fewer so that every worker has a group; with more, what a
    step works on leaves a core's cache. Wider models are bound by arithmetic, and go one by one. On
    a GPU, up to 256 at a time.

    Either way each seed has the data, schedule and measurements that `train` gives it, in the same
    calls on operands of the same shapes and alignment (`tl_dyck.training.operations`): on the CPU
    it is, bit for bit, the model of `train`, whoever is trained beside it and however often it was
    interrupted. On a GPU products are batched, and sums may be rounded in another way: in float64
    weights agree to 1e-8 after 70 steps; in float32 training amplifies a last digit.

    Args:
        config: of the models; or the name of a family, or a plain `HookedTransformerConfig`, see
            `tl_dyck.models.config_for`.
        task: a task, or its name.
        seeds: one run each; a number n stands for 0 to n - 1.
        options: how to train; None for the defaults.
        folder: keeps ``seed-<seed>`` folders with checkpoints and results, so an interrupted call
            can be repeated and goes on where it stopped; None keeps nothing.
        n_jobs: worker processes of one thread each, see `tl_dyck.kit.workers.check_jobs`; None for
            one per core on the CPU, for one on a GPU.
        progress: whether to show a progress bar.
        on_model: called with step, model and folder, in the process that trains, at every row of a
            history; after a resumption, again for what comes after the checkpoint.
        on_result: called likewise with result and folder when a run has ended, also if it had
            before.

    Returns:
        One result per seed, in the order of `seeds`, runs that did not learn included.

    Raises:
        TrainingFailedError: a run raised, or what it called; the others were finished first.
        ValueError: a seed is named twice, or `n_jobs` is too small or too large.
        OSError: `folder` cannot be written.
    """
    task = load_task(task) if isinstance(task, str) else task
    config, options = config_for(config, task), options or TrainConfig()
    wanted = _wanted(seeds)
    jobs = default_jobs(config.device) if n_jobs is None else check_jobs(n_jobs)
    with tempfile.TemporaryDirectory(prefix="tl_dyck-") as temporary:
        root = Path(temporary) if folder is None else ensure_folder(folder)
        train = partial(
            train_together, config, task, options=options, on_model=on_model, on_result=on_result
        )
        groups = seed_groups(config, wanted, jobs)
        errors = _train_groups(
            partial(_train_group, root, config.model_name, train), groups, jobs, progress
        )
        if errors:
            failed = TrainingFailedError(
                f"{len(errors)} of {len(wanted)} runs failed:\n" + "\n".join(errors)
            )
            places = [_place(root, seed) for seed in wanted]
            failed.results = tuple(
                load_result(at, device=config.device, task=task) for at in places if has_result(at)
            )
            raise failed
        return [load_result(_place(root, seed), device=config.device, task=task) for seed in wanted]


def _wanted(seeds: int | Iterable[SupportsIndex]) -> list[int]:
    """Seeds by number; all are looked at before anything is trained."""
    if not isinstance(seeds, Iterable):
        seeds = range(check_integer("seeds", seeds, least=0, most=_MOST_SEEDS))
    wanted = [check_seed(seed) for seed in itertools.islice(seeds, _MOST_SEEDS + 1)]
    if len(wanted) > _MOST_SEEDS:
        raise WrongValueError(f"seeds must be at most {_MOST_SEEDS:,}, got more")
    if len(set(wanted)) < len(wanted):
        raise ValueError(f"seeds must be different from each other, not {wanted}")
    return wanted


def _place(root: Path, seed: int) -> Path:
    return root / f"seed-{seed}"


def _train_groups(
    work: Callable[[list[int]], list[tuple[str, str]]],
    groups: list[list[int]],
    n_jobs: int,
    progress: bool,
) -> list[str]:
    """Train groups of seeds in workers; returns the tracebacks of those that raised."""
    errors = []
    columns = (
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        TextColumn("{task.description}"),
    )
    with Bars(*columns, disable=not progress) as bar:
        shown = bar.add_task("training", total=sum(map(len, groups)))
        calls = ((seeds,) for seeds in groups)
        try:
            for lines in spread(work, calls, max(1, min(n_jobs, len(groups))), ordered=False):
                for line, error in lines:
                    bar.update(shown, advance=1, description=line)
                    if error:
                        errors.append(f"{line}\n{error}")
        except WorkerDiedError as error:
            raise TrainingFailedError(
                f"{error}\n"
                "The others ended with it. Runs with a folder go on from their checkpoints if they "
                "are started again."
            ) from error
    return errors


def seed_groups(config: DyckTransformerConfig, seeds: list[int], n_jobs: int) -> list[list[int]]:
    """Divide seeds into groups that are trained together; see `train_seeds` for the rule."""
    number = max(-(-len(seeds) // most_together(config)), min(n_jobs, len(seeds)))
    return [seeds[i::number] for i in range(number)]


def most_together(config: DyckTransformerConfig) -> int:
    """The measured rule, see `train_seeds`."""
    if str(config.device).startswith("cuda"):
        return _ON_GPU
    return _ON_CPU if config.d_model <= _WIDEST else 1


def _train_group(
    root: Path, model_name: str, train: Callable[..., Any], seeds: list[int]
) -> list[tuple[str, str]]:
    """Train a group here; for each run a line about it, and the traceback if something raised."""
    outcomes = train(seeds, folders=[_place(root, seed) for seed in seeds])
    return [_line(f"{model_name} seed {seed}", outcome) for seed, outcome in outcomes.items()]


def _line(name: str, outcome: TrainResult | Exception) -> tuple[str, str]:
    if isinstance(outcome, Exception):
        return name, "".join(traceback.format_exception(outcome))
    return f"{name}: {outcome.status}, accuracy {outcome.accuracy.any_token:.1%}", ""
