"""The state of one run between two steps: everything about it but how a step is made."""

from __future__ import annotations

import hashlib
import math
from functools import partial
from pathlib import Path
from typing import Any

import pandas as pd
import torch
from jaxtyping import Int
from torch import Tensor

from tl_dyck.kit.files import ensure_folder, remove_leftovers
from tl_dyck.kit.processes import FolderLock
from tl_dyck.language.symbols import needs_stack
from tl_dyck.models import DyckTransformerConfig, build_model, lean_logits
from tl_dyck.models.storage import load_weights
from tl_dyck.reading.predict import Accuracy
from tl_dyck.tasks import Task, counted_accuracy
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
from tl_dyck.training.drift import DriftRegularizer
from tl_dyck.training.stack import Moments

# steps whose strings are drawn at once: sampling a large batch costs little more than a small one
POOL = 32


class RunState(Progress):
    """The state of a run between two steps: its progress, and what has come of it.

    Attributes:
        model: with its present weights; they may be part of a `Stack`.
        moments: what Adam remembers, likewise.
    """

    def __init__(
        self,
        config: DyckTransformerConfig,
        task: Task,
        options: TrainConfig,
        seed: int,
        folder: Path | None = None,
        lock: FolderLock | None = None,
    ) -> None:
        super().__init__()
        self.task, self.options, self.seed = task, options, seed
        self.folder, self._lock = folder, lock
        self.identity = run_identity(config.to_saved(), task, options, seed)
        self.model = build_model(config, seed)
        self.trained = {name: p for name, p in self.model.named_parameters() if p.requires_grad}
        self.moments: Moments = {
            name: (torch.zeros_like(p.data), torch.zeros_like(p.data))
            for name, p in self.trained.items()
        }
        self._floor = task.entropy_floor
        self._losses: list[float] = []

    def strings(self, block: int) -> Int[Tensor, "string pos"]:
        """Those of `POOL` steps, from step ``block * POOL``; on the CPU.

        They depend on seed and step alone.
        """
        generator = torch.Generator().manual_seed(stream(self.seed, "train", block))
        return self.task.sample(POOL * self.options.batch_size, generator=generator)

    def record(self, total: float, loss: float, rate: float) -> dict[str, Any] | None:
        """Take note of a step: what was descended, the cross-entropy in it, and the learning rate.

        Returns the new row of the history, if it is time to measure.
        """
        self.step += 1
        self._losses.append(loss)
        if not math.isfinite(total):
            self.status = "diverged"
        due = self.step % self.options.check_every == 0 or self.step == self.options.steps
        return self._check(rate) if self.status or due else None

    def _check(self, rate: float) -> dict[str, Any]:
        # fresh prefixes at every measurement, never those of a training step
        accuracy = self.accuracy(self.options.check_size, stream(self.seed, "check", self.step))
        row = {
            "step": self.step,
            "loss": math.nan
            if self.status == "diverged"
            else sum(self._losses) / len(self._losses),
            "floor": self._floor,
            "accuracy": accuracy.any_token,
            "learning_rate": rate,
        }
        self.history.append(row)
        self._losses = []
        target, least = self.options.target, self.options.min_steps
        if self.status is None:
            if target is not None and self.step >= least and row["accuracy"] >= target:
                self.status = "reached"
            elif self.step == self.options.steps:
                self.status = "not reached"
        return row

    def accuracy(self, n: int, seed: int) -> Accuracy:
        """The metric of the task, on `n` prefixes."""
        predict = partial(lean_logits, self.model)
        return counted_accuracy(
            self.task, predict, n=n, seed=seed, device=self.model.cfg.device, chunk=n
        )

    def checkpoint(self) -> None:
        """Write one, if the run has a folder; only between two steps."""
        if self.folder is not None:
            write_checkpoint(self.folder, self.identity, *self.state())

    def state(self) -> tuple[Progress, dict[str, Tensor]]:
        """Contents of a checkpoint; only between two steps."""
        tensors: dict[str, Tensor] = {
            f"model.{name}": tensor for name, tensor in self.model.named_parameters()
        }
        for index, name in enumerate(self.trained):
            tensors[f"adam.{index}.step"] = torch.tensor(float(self.step))
            mean, square = self.moments[name]
            tensors[f"adam.{index}.exp_avg"], tensors[f"adam.{index}.exp_avg_sq"] = mean, square
        tensors["losses"] = torch.tensor(self._losses, dtype=torch.float64)
        return self, tensors

    def restore(self, progress: Progress, tensors: dict[str, Tensor]) -> None:
        """Take up a checkpoint."""
        weights = {
            name[6:]: tensor for name, tensor in tensors.items() if name.startswith("model.")
        }
        try:
            load_weights(self.model, weights, "the checkpoint")
            for index, (name, parameter) in enumerate(self.trained.items()):
                step, mean, square = (
                    tensors[f"adam.{index}.{key}"] for key in ("step", "exp_avg", "exp_avg_sq")
                )
                if [step.shape, mean.shape, square.shape] != [(), parameter.shape, parameter.shape]:
                    raise ValueError(f"the state of Adam for parameter {index} has another shape")
                self.moments[name] = mean.to(parameter.device), square.to(parameter.device)
            if progress.step > self.options.steps:
                raise ValueError(f"step {progress.step} of {self.options.steps}")
            self._losses = [float(loss) for loss in tensors["losses"]]
        except (KeyError, TypeError, ValueError) as error:
            raise CheckpointError(f"the checkpoint does not fit its run: {error!r}") from error
        vars(self).update(vars(progress))

    def release(self) -> None:
        """Leave the folder to others."""
        if self._lock is not None:
            self._lock.release()

    def finish(self) -> TrainResult:
        """The result of a run that has ended, saved if it has a folder, which is left to others."""
        assert self.status is not None
        result = TrainResult(
            model=self.model,
            task=self.task,
            options=self.options,
            seed=self.seed,
            status=self.status,
            steps=self.step,
            seconds=self.seconds,
            # 1000 strings: a standard error of 1.6 points at most, and of a trained model far less
            accuracy=self.accuracy(1000, stream(self.seed, "final", 0)),
            history=pd.DataFrame(self.history, columns=list(HISTORY)),
        )
        if self.folder is not None:
            save_result(result, self.folder)
        self.release()
        return result


def open_run(
    config: DyckTransformerConfig,
    task: Task,
    options: TrainConfig,
    seed: int,
    folder: str | Path | None,
) -> RunState | TrainResult:
    """A run as its folder has it: ended, or interrupted or not begun, and then locked.

    Raises:
        FolderBusyError: another process trains in `folder`.
        CheckpointError: `folder` holds another run, or a corrupt one.
        ValueError: model and task are of different languages, or the model cannot read strings as
            long as the task's.
    """
    if config.language != task.language:
        raise ValueError(
            f"the model reads {config.language}, but task {task.name!r} is about {task.language}"
        )
    if options.drift_weight:
        needs_stack(task.language, "the regularisation drift_weight, of matched pairs, is")
        DriftRegularizer.check(config)
    longest = max(task.train_lengths) + 1
    if options.contrastive_weight:
        regularised = "the regularisation contrastive_weight, of matched pairs, is"
        longest += 2 * needs_stack(task.language, regularised).max_depth
    if config.n_ctx < longest:
        and_prefix = " and the prefix of the regularisation" if options.contrastive_weight else ""
        raise ValueError(
            f"n_ctx={config.n_ctx} is less than the longest training string with BOS{and_prefix}, "
            f"{longest}"
        )
    path = None if folder is None else ensure_folder(folder)
    if path is None:
        return RunState(config, task, options, seed)
    lock = FolderLock(path)
    try:
        if has_result(path):
            identity = run_identity(config.to_saved(), task, options, seed)
            result = load_result(path, identity, config.device, task)
            lock.release()
            return result
        run = RunState(config, task, options, seed, path, lock)
        if (saved := read_checkpoint(path, run.identity)) is not None:
            run.restore(*saved)
        remove_leftovers(path)
    except BaseException:
        lock.release()
        raise
    return run


def stream(seed: int, purpose: str, index: int) -> int:
    """A seed of 63 bits for one purpose of one run: streams do not overlap and need no state."""
    digest = hashlib.sha256(f"{seed}/{purpose}/{index}".encode()).digest()
    # 64 bits, of which one is dropped: torch's seeds are signed
    return int.from_bytes(digest[:8], "big") >> 1
