"""The training loop for one model."""

from __future__ import annotations

import contextlib
import operator
import signal
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from types import FrameType
from typing import Any

from rich import progress as rich_progress

from tl_dyck.machine import one_thread
from tl_dyck.models import DyckTransformer, DyckTransformerConfig
from tl_dyck.processes import FolderBusyError
from tl_dyck.tasks import DyckTask, load_task
from tl_dyck.training.config import TrainConfig, TrainResult
from tl_dyck.training.group import Group
from tl_dyck.training.run import RunState, open_run

__all__ = ["interrupt_waits", "train", "wait_a_moment"]


def train(
    config: DyckTransformerConfig,
    task: DyckTask | str,
    *,
    seed: int = 0,
    options: TrainConfig | None = None,
    folder: str | Path | None = None,
    progress: bool = True,
    on_check: Callable[[dict[str, Any]], None] | None = None,
    on_model: Callable[[int, DyckTransformer], None] | None = None,
) -> TrainResult:
    """Train a model from scratch, or resume where an interrupted run stopped.

    The strings of a step depend on seed and step number alone, so a resumed run ends with the same weights, bit for
    bit, as an uninterrupted one. On the CPU it computes with one thread, whatever torch is set to: for models this
    small that is the fastest, and no number depends on how many cores there are. Where another process trains this very
    run, it waits, and takes what the other leaves: the result, or what is still to do.

    One seed is a group of one (`tl_dyck.training.group`): its strings are packed end to end, and the forward pass is
    that of `Stack`, on the model's own parameters.

    Args:
        config: of the model, from `get_config`.
        task: a task, or its name.
        seed: of initialisation and data.
        options: how to train; None for the defaults.
        folder: where to keep checkpoints and the result; None keeps nothing. If it holds this very run, finished, that
            is loaded; unfinished, resumed.
        progress: whether to show a progress bar with loss and entropy floor.
        on_check: called with each row of the history.
        on_model: called with step and model as it is then, after each row of the history; it must not change the model.

    Returns:
        The model with its history. A run that diverged, or did not reach the target, says so in `status`.

    Raises:
        CheckpointError: `folder` holds another run, or a corrupt one.
        KeyboardInterrupt: Ctrl-C, after the step at hand and a checkpoint.
        OSError: `folder` cannot be written.
        ValueError: model and task are of different languages.
    """
    if isinstance(task, str):
        task = load_task(task)
    options = options or TrainConfig()
    with one_thread(), interrupt_waits() as interrupted:
        while True:
            try:
                run = open_run(config, task, options, operator.index(seed), folder)
                break
            except FolderBusyError:
                wait_a_moment(interrupted)
        if isinstance(run, RunState):
            try:
                group = Group([run])
                with _bar(progress) as bar:
                    _advance_until(interrupted, group, bar, on_check, on_model)
                if interrupted():
                    if run.step > 0:
                        run.checkpoint()
                    raise KeyboardInterrupt
                group.take_out([run])
                return run.finish()
            finally:
                run.release()
        if interrupted():
            raise KeyboardInterrupt
    return run


def _advance_until(
    interrupted: Callable[[], bool],
    group: Group,
    bar: rich_progress.Progress,
    on_check: Callable[[dict[str, Any]], None] | None,
    on_model: Callable[[int, DyckTransformer], None] | None,
) -> None:
    """Train a group of one until it ends or is interrupted."""
    (run,) = group.runs
    name = f"{run.model.cfg.model_name} seed {run.seed}"
    shown = bar.add_task(name, total=run.options.steps, completed=run.step, note="")
    while run.status is None and not interrupted():
        (row,) = group.advance()
        if row is not None:
            note = f"loss {row['loss']:.3f} (floor {row['floor']:.3f})  accuracy {row['accuracy']:.1%}"
            bar.update(shown, note=note)
            if on_check is not None:
                on_check(row)
            if on_model is not None:
                on_model(run.step, run.model)
        bar.update(shown, completed=run.step)
        if run.status is None and run.step % run.options.checkpoint_every == 0:
            run.checkpoint()


def wait_a_moment(interrupted: Callable[[], bool]) -> None:
    """For a process that is at work in a folder to end.

    Raises:
        KeyboardInterrupt: Ctrl-C.
    """
    if interrupted():
        raise KeyboardInterrupt
    time.sleep(0.2)


@contextlib.contextmanager
def interrupt_waits() -> Iterator[Callable[[], bool]]:
    """Let Ctrl-C wait until it is asked for, since half a step cannot be resumed; the second Ctrl-C does not wait.

    Yields:
        Whether Ctrl-C was pressed.
    """
    pressed: list[int] = []

    def handler(number: int, frame: FrameType | None) -> None:
        if pressed:
            raise KeyboardInterrupt
        pressed.append(number)

    if (
        threading.current_thread() is not threading.main_thread()  # which alone gets signals
        or signal.getsignal(signal.SIGINT) is not signal.default_int_handler  # someone else has plans for it
    ):
        yield lambda: False
        return
    signal.signal(signal.SIGINT, handler)
    try:
        yield lambda: bool(pressed)
    finally:
        signal.signal(signal.SIGINT, signal.default_int_handler)


def _bar(enabled: bool) -> rich_progress.Progress:
    columns = (
        rich_progress.TextColumn("{task.description}"),
        rich_progress.BarColumn(bar_width=None),  # gives way in a narrow terminal
        rich_progress.MofNCompleteColumn(),
        rich_progress.TextColumn("{task.fields[note]}"),
    )
    return rich_progress.Progress(*columns, disable=not enabled)
