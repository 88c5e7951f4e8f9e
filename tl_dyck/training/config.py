"""What a training run is asked to do, and what came of it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, final

import pandas as pd

from tl_dyck.kit.configuration import Configuration, drawn, number, whole
from tl_dyck.models import DyckTransformer
from tl_dyck.tasks import Task

#: Columns of a history.
HISTORY = ("step", "loss", "floor", "accuracy", "learning_rate")

#: What can come of a run, and what it means.
STATUSES = {
    "reached": "the metric reached its target, so training stopped",
    "not reached": "all steps were made, but the metric stayed below its target",
    "diverged": "the loss became infinite or NaN",
}


@final
@dataclass(frozen=True, kw_only=True)
class TrainConfig(Configuration):
    """Options of training: Adam, warm-up, then a learning rate that falls linearly to zero.

    Strings are fresh in every step.

    Attributes:
        steps: number of updates at most; the learning rate falls to zero over these, also if
            training stops earlier.
        batch_size: strings per step, of mixed lengths.
        learning_rate: of Adam; it falls linearly from here at the first step to zero at the last.
        warmup_steps: over the first so many steps it is scaled up linearly as well; without that,
            many seeds of the GPT families stay at 97 % for a long time.
        weight_decay: of AdamW; 0 is plain Adam.
        contrastive_weight: λ of the contrastive regularisation (Eq. 22, `ContrastiveRegularizer`)
            that is added to the loss; 0 leaves it out, and with it the second forward pass that it
            costs.
        drift_weight: of the regularisation of what matched pairs add in a string as long as the
            task's longest (`DriftRegularizer`), for minimal first layers; 0 leaves it out.
        drift_anywhere: whether that is in all directions, or only along the axis between answers.
        target: stop when the accuracy at the tokens that the task counts (closing brackets;
            argmax over all tokens, fresh in-distribution strings) reaches this; None to make all
            steps whatever the accuracy.
        min_steps: do not stop before this many steps.
        check_every: steps between two measurements of loss and accuracy.
        check_size: number of prefixes in such a measurement.
        checkpoint_every: steps between two checkpoints, for runs that have a folder.

    Raises:
        ValueError: a value is out of range; the message names it.
    """

    steps: int = whole(1000)
    batch_size: int = drawn(32)
    learning_rate: float = number(6e-3, above=True)
    warmup_steps: int = whole(100, least=0)
    weight_decay: float = number(0.0)
    contrastive_weight: float = number(0.0)
    drift_weight: float = number(0.0)
    drift_anywhere: bool = True
    target: float | None = number(0.99, above=True, most=1)
    min_steps: int = whole(0, least=0)
    check_every: int = whole(100)
    check_size: int = drawn(1000)
    checkpoint_every: int = whole(250)


@final
@dataclass(frozen=True, kw_only=True)
class TrainResult:
    """A trained model and how it came about.

    Attributes:
        model: the model after its last step.
        task: what it was trained on, a `tl_dyck.tasks.Task`.
        options: how.
        seed: of initialisation and data.
        status: a key of `STATUSES`; a run that diverged or did not learn is a result like any
            other, never dropped.
        steps: updates that were made.
        seconds: training time, in seconds of wall clock, without the time between a kill and its
            resumption.
        accuracy: at the end, on 1,000 fresh strings of the training distribution: an
            `Accuracy`, of a `DyckTask` a `ClosingAccuracy`.
        history: one row per measurement: step, loss (cross-entropy without regularisation, nats per
            token, mean since the row before; NaN if it diverged), floor (entropy floor, nats per
            token), accuracy, learning_rate.
    """

    model: DyckTransformer
    task: Any
    options: TrainConfig
    seed: int
    status: str
    steps: int
    seconds: float
    accuracy: Any
    history: pd.DataFrame

    @property
    def learned(self) -> bool:
        """Whether the metric reached its target; with no target, whether the loss is finite."""
        return self.status == "reached" or (
            self.options.target is None and self.status != "diverged"
        )

    def identity(self) -> dict[str, Any]:
        """Everything that defines the run: task, model, options, seed."""
        return run_identity(self.model.cfg.to_saved(), self.task, self.options, self.seed)

    def __repr__(self) -> str:
        return (
            f"TrainResult({self.model.cfg.model_name} on {self.task.name}, seed {self.seed}: "
            f"{self.status} after {self.steps} steps, {self.seconds:.1f} s; "
            f"{self.accuracy.kind} accuracy {self.accuracy.any_token:.1%})"
        )


def run_identity(
    model: dict[str, Any], task: Task, options: TrainConfig, seed: int
) -> dict[str, Any]:
    """Return everything that defines a run, as JSON values; equal identities give equal results."""
    saved = options.to_dict()
    # Runs from before there were such things are runs without them.
    if not saved["contrastive_weight"]:
        del saved["contrastive_weight"]
    if not saved["drift_weight"]:
        del saved["drift_weight"], saved["drift_anywhere"]
    return {"task": task.to_dict(), "model": model, "options": saved, "seed": seed}
