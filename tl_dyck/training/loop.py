"""The training loop for one model."""

from __future__ import annotations

import contextlib
import hashlib
import math
import operator
import signal
import threading
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from types import FrameType
from typing import Any

import pandas as pd
import torch
import torch.nn.functional as F
from rich import progress as rich_progress
from torch import Tensor

from tl_dyck.files import ensure_folder, remove_leftovers
from tl_dyck.models import DyckTransformer, DyckTransformerConfig, build_model
from tl_dyck.models.storage import load_weights
from tl_dyck.tasks import ClosingAccuracy, DyckTask, load_task
from tl_dyck.training.checkpoint import (
    CheckpointError,
    Progress,
    has_result,
    load_result,
    read_checkpoint,
    save_result,
    write_checkpoint,
)
from tl_dyck.training.config import HISTORY, TrainConfig, TrainResult, run_identity
from tl_dyck.training.contrastive import ContrastiveRegularizer
from tl_dyck.training.lean import lean_logits

__all__ = ["batch_loss", "train"]

_POOL = 32  # steps whose strings are drawn at once: sampling a large batch costs little more than a small one


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
    bit, as an uninterrupted one with the same number of threads, and a seed gives the same model alone or among others.

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
    if config.language != task.language:
        raise ValueError(f"the model reads {config.language}, but task {task.name!r} is about {task.language}")
    options, seed = options or TrainConfig(), operator.index(seed)
    longest = max(task.train_lengths) + 1
    if options.contrastive_weight:
        longest += 2 * task.language.max_depth
    if config.n_ctx < longest:
        and_prefix = " and the prefix of the regularisation" if options.contrastive_weight else ""
        raise ValueError(
            f"n_ctx={config.n_ctx} is less than the longest training string with BOS{and_prefix}, {longest}"
        )
    identity = run_identity(config.to_saved(), task, options, seed)
    path = None if folder is None else ensure_folder(folder)
    if path is not None and has_result(path):
        return load_result(path, identity, config.device)
    run = _Run(config, task, options, seed)
    if path is not None and (saved := read_checkpoint(path, identity)) is not None:
        run.restore(*saved)
    if path is not None:
        remove_leftovers(path)
    with _bar(progress) as bar, _interrupt_waits() as interrupted:
        shown = bar.add_task(f"{config.model_name} seed {seed}", total=options.steps, completed=run.step, note="")
        while run.status is None and not interrupted():
            row = run.advance()
            if row is not None:
                note = f"loss {row['loss']:.3f} (floor {row['floor']:.3f})  accuracy {row['accuracy']:.1%}"
                bar.update(shown, note=note)
                if on_check is not None:
                    on_check(row)
                if on_model is not None:
                    on_model(run.step, run.model)
            bar.update(shown, completed=run.step)
            if path is not None and run.status is None and run.step % options.checkpoint_every == 0:
                write_checkpoint(path, identity, *run.state())
        if interrupted():
            if path is not None and run.step > 0:
                write_checkpoint(path, identity, *run.state())
            raise KeyboardInterrupt
    result = run.result()
    if path is not None:
        save_result(result, path)
    return result


def batch_loss(model: DyckTransformer, tokens: Tensor, logits: Tensor | None = None) -> Tensor:
    """Next-token cross-entropy in nats, the mean over all brackets of the batch; BOS, as filling, is not predicted.

    Args:
        model: gradients flow into its parameters.
        tokens: BOS first.
        logits: those of all tokens, if they are known already.
    """
    logits = lean_logits(model, tokens[:, :-1]) if logits is None else logits[:, :-1]
    return F.cross_entropy(logits.flatten(0, 1), tokens[:, 1:].flatten(), ignore_index=model.cfg.language.bos_token)


class _Run:
    """The state of a run between two steps."""

    def __init__(self, config: DyckTransformerConfig, task: DyckTask, options: TrainConfig, seed: int) -> None:
        self.task, self.options, self.seed = task, options, seed
        self.model = build_model(config, seed)
        self.trained = [p for p in self.model.parameters() if p.requires_grad]
        self.optimizer = torch.optim.AdamW(
            self.trained, lr=options.learning_rate, weight_decay=options.weight_decay, fused=True
        )
        self.step = 0
        self.status: str | None = None
        self.seconds = 0.0
        self.history: list[dict[str, Any]] = []
        self.floor = task.entropy_floor
        self.regularizer = ContrastiveRegularizer(task.language)
        self._losses: list[float] = []
        self._pool: tuple[int, Tensor] = (-1, torch.empty(0))

    def advance(self) -> dict[str, Any] | None:
        """Make one step; measure if it is time to. Returns the new row of the history, if any."""
        started = time.perf_counter()
        warmup = min(1.0, (self.step + 1) / (self.options.warmup_steps + 1))
        rate = self.options.learning_rate * warmup * (1 - self.step / self.options.steps)
        for group in self.optimizer.param_groups:
            group["lr"] = rate
        total, loss = self._losses_of_step()
        self.optimizer.zero_grad(set_to_none=True)
        total.backward()
        self.optimizer.step()
        self.step += 1
        self._losses.append(loss.item())
        row = None
        if not math.isfinite(total.item()):
            self.status = "diverged"
        if self.status or self.step % self.options.check_every == 0 or self.step == self.options.steps:
            row = self._check(rate)
        self.seconds += time.perf_counter() - started
        return row

    def _losses_of_step(self) -> tuple[Tensor, Tensor]:
        """What to descend, and the cross-entropy in it."""
        tokens, weight = self._strings(), self.options.contrastive_weight
        if not weight:
            loss = batch_loss(self.model, tokens)
            return loss, loss
        logits = lean_logits(self.model, tokens)
        loss = batch_loss(self.model, tokens, logits)
        generator = torch.Generator().manual_seed(_stream(self.seed, "contrast", self.step))
        predict = partial(lean_logits, self.model)
        return loss + weight * self.regularizer(predict, tokens, generator=generator, logits=logits), loss

    def _check(self, rate: float) -> dict[str, Any]:
        # fresh prefixes at every measurement, never those of a training step
        accuracy = self.accuracy(self.options.check_size, _stream(self.seed, "check", self.step))
        row = {
            "step": self.step,
            "loss": math.nan if self.status == "diverged" else sum(self._losses) / len(self._losses),
            "floor": self.floor,
            "accuracy": accuracy.any_token,
            "learning_rate": rate,
        }
        self.history.append(row)
        self._losses = []
        target = self.options.target
        if (
            self.status is None
            and target is not None
            and self.step >= self.options.min_steps
            and row["accuracy"] >= target
        ):
            self.status = "reached"
        elif self.status is None and self.step == self.options.steps:
            self.status = "not reached"
        return row

    def _strings(self) -> Tensor:
        block, index = divmod(self.step, _POOL)
        if self._pool[0] != block:
            generator = torch.Generator().manual_seed(_stream(self.seed, "train", block))
            drawn = self.task.sample(_POOL * self.options.batch_size, generator=generator)
            self._pool = (block, drawn.to(self.model.cfg.device))
        size = self.options.batch_size
        return self._pool[1][index * size : (index + 1) * size]

    def accuracy(self, n: int, seed: int) -> ClosingAccuracy:
        predict = partial(lean_logits, self.model)
        return self.task.closing_accuracy(predict, n=n, seed=seed, device=self.model.cfg.device, chunk=n)

    def state(self) -> tuple[Progress, dict[str, Tensor]]:
        """What a checkpoint holds; only between two steps."""
        tensors: dict[str, Tensor] = {f"model.{name}": tensor for name, tensor in self.model.named_parameters()}
        for index, parameter in enumerate(self.trained):
            for name, tensor in self.optimizer.state[parameter].items():
                tensors[f"adam.{index}.{name}"] = tensor
        tensors["losses"] = torch.tensor(self._losses, dtype=torch.float64)
        return Progress(self.step, self.status, self.seconds, self.history), tensors

    def restore(self, progress: Progress, tensors: dict[str, Tensor]) -> None:
        """Take up a checkpoint."""
        weights = {name[6:]: tensor for name, tensor in tensors.items() if name.startswith("model.")}
        try:
            load_weights(self.model, weights, "the checkpoint")
            for index, parameter in enumerate(self.trained):
                state = {name: tensors[f"adam.{index}.{name}"] for name in ("step", "exp_avg", "exp_avg_sq")}
                if [tensor.shape for tensor in state.values()] != [(), parameter.shape, parameter.shape]:
                    raise ValueError(f"the state of Adam for parameter {index} has another shape")
                # a fused Adam keeps its step beside the parameter
                self.optimizer.state[parameter] = {name: tensor.to(parameter.device) for name, tensor in state.items()}
            if progress.step > self.options.steps:
                raise ValueError(f"step {progress.step} of {self.options.steps}")
            self._losses = [float(loss) for loss in tensors["losses"]]
        except (KeyError, TypeError, ValueError) as error:
            raise CheckpointError(f"the checkpoint does not fit its run: {error!r}") from error
        self.step, self.status = progress.step, progress.status
        self.seconds, self.history = progress.seconds, list(progress.history)

    def result(self) -> TrainResult:
        assert self.status is not None
        return TrainResult(
            model=self.model,
            task=self.task,
            options=self.options,
            seed=self.seed,
            status=self.status,
            steps=self.step,
            seconds=self.seconds,
            accuracy=self.accuracy(1000, _stream(self.seed, "final", 0)),
            history=pd.DataFrame(self.history, columns=list(HISTORY)),
        )


def _stream(seed: int, purpose: str, index: int) -> int:
    """A seed of 63 bits for one purpose of one run, so that streams do not overlap and need no state."""
    digest = hashlib.sha256(f"{seed}/{purpose}/{index}".encode()).digest()
    return int.from_bytes(digest[:8], "big") >> 1


@contextlib.contextmanager
def _interrupt_waits() -> Iterator[Callable[[], bool]]:
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
