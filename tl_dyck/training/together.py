"""Training several seeds together, each into its folder, in which nothing shows that it was not alone."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Any

from tl_dyck.machine import one_thread
from tl_dyck.models import DyckTransformer, DyckTransformerConfig
from tl_dyck.processes import FolderBusyError
from tl_dyck.tasks import DyckTask
from tl_dyck.training.config import TrainConfig, TrainResult
from tl_dyck.training.group import Group
from tl_dyck.training.loop import interrupt_waits, wait_a_moment
from tl_dyck.training.run import RunState, open_run

__all__ = ["train_together"]

#: What came of each seed: its result, or what was raised.
Outcome = TrainResult | Exception


def train_together(
    config: DyckTransformerConfig,
    task: DyckTask,
    seeds: Sequence[int],
    *,
    options: TrainConfig,
    folders: Sequence[Path | None],
    on_model: Callable[[int, DyckTransformer, Any], None] | None = None,
    on_result: Callable[[TrainResult, Any], None] | None = None,
) -> dict[int, Outcome]:
    """What `train` does, for several seeds at once; see `train_seeds` for how close the results are.

    Seeds that are finished are loaded; those that were interrupted at the same step go on together. A seed that has
    reached its target, has diverged, or whose folder or callback raises, leaves the others. Seeds that another process
    is training come last, when it has ended.

    Args:
        config: of the models.
        task: of all.
        seeds: no seed twice.
        options: of all.
        folders: one for each seed; None keeps nothing.
        on_model: called with step, model and folder (maybe None) at every measurement.
        on_result: called with result and folder (maybe None) when a run has ended, also if it had before.

    Returns:
        For each seed, its result, or what its folder or a callback raised.

    Raises:
        KeyboardInterrupt: Ctrl-C, after the step at hand and a checkpoint of each run.
    """
    outcomes: dict[int, Outcome] = {}

    @contextmanager
    def noted(seed: int) -> Iterator[None]:
        try:
            yield
        except Exception as error:
            outcomes[seed] = error

    def ended(result: TrainResult, folder: Path | None) -> None:
        outcomes[result.seed] = result
        if on_result is not None:
            on_result(result, folder)

    with one_thread(), interrupt_waits() as interrupted:
        pending = list(zip(seeds, folders, strict=True))
        while pending:
            opened: dict[int, list[RunState]] = {}
            busy = []
            try:
                for seed, folder in pending:
                    with noted(seed):
                        try:
                            run = open_run(config, task, options, seed, folder)
                        except FolderBusyError:
                            busy.append((seed, folder))
                            continue
                        if isinstance(run, TrainResult):
                            ended(run, folder)
                        elif run.status is not None:  # interrupted when nothing but its result was missing
                            ended(run.finish(), folder)
                        else:
                            opened.setdefault(run.step, []).append(run)
                    if interrupted():
                        raise KeyboardInterrupt
                for _, runs in sorted(opened.items()):
                    _train(Group(runs), interrupted, noted, outcomes, ended, on_model)
            finally:
                for run in itertools.chain.from_iterable(opened.values()):
                    run.release()
            if len(busy) == len(pending):
                wait_a_moment(interrupted)
            pending = busy
    return outcomes


def _train(
    group: Group,
    interrupted: Callable[[], bool],
    noted: Callable[[int], AbstractContextManager[None]],
    outcomes: dict[int, Outcome],
    ended: Callable[[TrainResult, Path | None], None],
    on_model: Callable[[int, DyckTransformer, Any], None] | None,
) -> None:
    """Train a group until all its runs have ended."""
    while group.runs and not interrupted():
        done = []
        for run, row in zip(group.runs, group.advance(), strict=True):
            with noted(run.seed):
                if row is not None and on_model is not None:
                    on_model(run.step, run.model, run.folder)
                if run.status is None and run.step % run.options.checkpoint_every == 0:
                    run.checkpoint()
            if run.status is not None or run.seed in outcomes:
                done.append(run)
        if done:
            group.take_out(done)
        for run in done:
            if run.seed not in outcomes:
                with noted(run.seed):
                    ended(run.finish(), run.folder)
    if interrupted():
        for run in group.runs:
            if run.step > 0:
                run.checkpoint()
        raise KeyboardInterrupt
