"""The training loop: several seeds in step, each as if it were alone; or one."""

from __future__ import annotations

import contextlib
import itertools
import signal
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from types import FrameType
from typing import Any, final

from tl_dyck.kit.arguments import checked
from tl_dyck.kit.check import check_seed
from tl_dyck.kit.environment import one_thread
from tl_dyck.kit.processes import FolderBusyError
from tl_dyck.kit.screen import progress_bar
from tl_dyck.models import DyckTransformer, DyckTransformerConfig, config_for
from tl_dyck.models.hooked import HookedTransformerConfig
from tl_dyck.tasks import Task, load_task
from tl_dyck.training.config import TrainConfig, TrainResult
from tl_dyck.training.group import SeedGroup
from tl_dyck.training.run import RunState, open_run


@checked
def train(
    config: DyckTransformerConfig | HookedTransformerConfig | str,
    task: Task | str,
    *,
    seed: int = 0,
    options: TrainConfig | None = None,
    folder: str | Path | None = None,
    progress: bool = True,
    on_check: Callable[[dict[str, Any]], None] | None = None,
    on_model: Callable[[int, DyckTransformer, Any], None] | None = None,
) -> TrainResult:
    """Train a model from scratch, or resume where an interrupted run stopped.

    The strings of a step depend on seed and step number alone, so a resumed run ends with the same
    weights, bit for bit, as an uninterrupted one. On the CPU it computes with one thread, whatever
    torch is set to: for models this small that is the fastest, and no number depends on how many
    cores there are. Where another process trains this very run, it waits, and takes what the other
    leaves: the result, or what is still to do.

    One seed is a group of one (`train_together`): its strings are packed end to end, and the
    forward pass is that of `Stack`, on the model's own parameters.

    Args:
        config: of the model, from `get_config`; or the name of a family, or a plain
            `HookedTransformerConfig`, see `tl_dyck.models.config_for`.
        task: a task, or its name.
        seed: of initialisation and data.
        options: how to train; None for the defaults.
        folder: where to keep checkpoints and the result; None keeps nothing. If it holds this very
            run, finished, that is loaded; unfinished, resumed.
        progress: whether to show a progress bar with loss and entropy floor.
        on_check: called with each row of the history.
        on_model: called with step, model as it is then, and folder, after each row of the history;
            it must not change the model.

    Returns:
        The model with its history. A run that diverged, or did not reach the target, says so in
        `status`.

    Raises:
        CheckpointError: `folder` holds another run, or a corrupt one.
        KeyboardInterrupt: Ctrl-C, after the step at hand and a checkpoint.
        OSError: `folder` cannot be written.
        ValueError: model and task are of different languages, or the seed is out of range.
        WrongTypeError: the seed is no integer.
    """
    task = load_task(task) if isinstance(task, str) else task
    config = config_for(config, task)
    options, seed = options or TrainConfig(), check_seed(seed)
    with progress_bar(progress) as bar:
        shown = bar.add_task(f"{config.model_name} seed {seed}", total=options.steps, note="")

        def on_row(row: dict[str, Any]) -> None:
            note = (
                f"loss {row['loss']:.3f} (floor {row['floor']:.3f})  accuracy {row['accuracy']:.1%}"
            )
            bar.update(shown, note=note)
            if on_check is not None:
                on_check(row)

        outcome = train_together(
            config,
            task,
            [seed],
            options=options,
            folders=[None if folder is None else Path(folder)],
            on_step=lambda run: bar.update(shown, completed=run.step),
            on_check=on_row,
            on_model=on_model,
        )[seed]
    if isinstance(outcome, Exception):
        raise outcome
    return outcome


def train_together(
    config: DyckTransformerConfig,
    task: Task,
    seeds: Sequence[int],
    *,
    options: TrainConfig,
    folders: Sequence[Path | None],
    on_step: Callable[[RunState], None] | None = None,
    on_check: Callable[[dict[str, Any]], None] | None = None,
    on_model: Callable[[int, DyckTransformer, Any], None] | None = None,
    on_result: Callable[[TrainResult, Any], None] | None = None,
) -> dict[int, TrainResult | Exception]:
    """Train several seeds at once; `train_seeds` says how close the results are.

    Seeds that are finished are loaded; those that were interrupted at the same step go on together.
    A seed that has reached its target, has diverged, or whose folder or callback raises, leaves the
    others. Seeds that another process is training come last, when it has ended.

    Args:
        config: of the models.
        task: of all.
        seeds: no seed twice.
        options: of all.
        folders: one for each seed; None keeps nothing.
        on_step: called with each run as it begins or goes on, and after every step.
        on_check: called with each row of a history.
        on_model: as `train` calls it.
        on_result: called with result and folder when a run has ended, also if it had before.

    Returns:
        For each seed, its result, or what its folder or a callback raised.
    """
    heard = _Listener(on_step, on_check, on_model, on_result)
    with one_thread(), interrupt_waits() as interrupted:
        pending = list(zip(seeds, folders, strict=True))
        while pending:
            opened: dict[int, list[RunState]] = {}
            busy = []
            try:
                for seed, folder in pending:
                    with heard.raised_by(seed):
                        try:
                            run = open_run(config, task, options, seed, folder)
                        except FolderBusyError:
                            busy.append((seed, folder))
                            continue
                        if isinstance(run, TrainResult):
                            heard.ended(run, folder)
                        # interrupted when nothing but its result was missing
                        elif run.status is not None:
                            heard.ended(run.finish(), folder)
                        else:
                            opened.setdefault(run.step, []).append(run)
                    if interrupted():
                        raise KeyboardInterrupt
                for _, runs in sorted(opened.items()):
                    _train(SeedGroup(runs), heard, interrupted)
            finally:
                for run in itertools.chain.from_iterable(opened.values()):
                    run.release()
            if len(busy) == len(pending):
                wait_a_moment(interrupted)
            pending = busy
    return heard.outcomes


@final
@dataclass(frozen=True)
class _Listener:
    """Keeper of the seeds' results, and caller of the callbacks of `train_together`."""

    on_step: Callable[[RunState], None] | None
    on_check: Callable[[dict[str, Any]], None] | None
    on_model: Callable[[int, DyckTransformer, Any], None] | None
    on_result: Callable[[TrainResult, Any], None] | None
    outcomes: dict[int, TrainResult | Exception] = field(default_factory=dict)

    def stepped(self, run: RunState, row: dict[str, Any] | None) -> None:
        """A run has begun, or made a step; `row` is new in its history."""
        if row is not None and self.on_check is not None:
            self.on_check(row)
        if row is not None and self.on_model is not None:
            self.on_model(run.step, run.model, run.folder)
        if self.on_step is not None:
            self.on_step(run)

    def ended(self, result: TrainResult, folder: Path | None) -> None:
        """A run has ended."""
        self.outcomes[result.seed] = result
        if self.on_result is not None:
            self.on_result(result, folder)

    @contextmanager
    def raised_by(self, seed: int) -> Iterator[None]:
        """Record an exception that is raised in the block as what has come of a seed."""
        try:
            yield
        except Exception as error:
            self.outcomes[seed] = error


def _train(group: SeedGroup, heard: _Listener, interrupted: Callable[[], bool]) -> None:
    """Train a group until all its runs have ended."""
    for run in group.runs:
        with heard.raised_by(run.seed):
            heard.stepped(run, None)
    while group.runs and not interrupted():
        done = []
        for run, row in zip(group.runs, group.advance(), strict=True):
            with heard.raised_by(run.seed):
                heard.stepped(run, row)
                if run.status is None and run.step % run.options.checkpoint_every == 0:
                    run.checkpoint()
            if run.status is not None or run.seed in heard.outcomes:
                done.append(run)
        if done:
            group.take_out(done)
        for run in done:
            if run.seed not in heard.outcomes:
                with heard.raised_by(run.seed):
                    heard.ended(run.finish(), run.folder)
    if interrupted():
        for run in group.runs:
            if run.step > 0:
                run.checkpoint()
        raise KeyboardInterrupt


def wait_a_moment(interrupted: Callable[[], bool]) -> None:
    """For a process that is at work in a folder to end; Ctrl-C is a KeyboardInterrupt."""
    if interrupted():
        raise KeyboardInterrupt
    # as long as a person does not notice
    time.sleep(0.2)


@contextlib.contextmanager
def interrupt_waits() -> Iterator[Callable[[], bool]]:
    """Let Ctrl-C wait until it is asked whether it was pressed: half a step cannot be resumed.

    The second Ctrl-C does not wait.
    """
    pressed: list[int] = []

    def handler(number: int, frame: FrameType | None) -> None:
        if pressed:
            raise KeyboardInterrupt
        pressed.append(number)

    if (
        threading.current_thread() is not threading.main_thread()  # which alone gets signals
        or signal.getsignal(signal.SIGINT)
        is not signal.default_int_handler  # someone else has plans for it
    ):
        yield lambda: False
        return
    signal.signal(signal.SIGINT, handler)
    try:
        yield lambda: bool(pressed)
    finally:
        signal.signal(signal.SIGINT, signal.default_int_handler)
