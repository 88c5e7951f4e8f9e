"""What is measured on one trained model, at which scale, and with which models.

Masked brackets, ablated directions, interchanges.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar, final

import torch

from tl_dyck.kit.configuration import drawn, parameters_of
from tl_dyck.models import build_model
from tl_dyck.runs.spec import Sweep
from tl_dyck.studies.measurement import Measures
from tl_dyck.studies.reproduction import Size
from tl_dyck.training import TrainConfig, TrainResult
from tl_dyck.training.run import stream
from tl_dyck_papers.stack_use.alignment import alignment
from tl_dyck_papers.stack_use.directions import depth_effects
from tl_dyck_papers.stack_use.masks import far_answers, mask_effects


@final
@dataclass(frozen=True, kw_only=True)
class StackUseMeasurement(Measures):
    """Options of measuring one model.

    Attributes:
        n_accuracy: strings for the closing accuracy in distribution.
        n_far: strings from which far answers are drawn; about two in five have one.
        n_depth: strings to fit the probe of the depth, to test it, and to ablate it on.
        n_pairs: pairs to learn a subspace from, and to test it on.
        data_seed: of everything that is measured; each model has strings of its own.
    """

    n_accuracy: int = drawn(500)
    n_far: int = drawn(1000)
    n_depth: int = drawn(300)
    n_pairs: int = drawn(128)
    data_seed: int = 1_000_003

    #: Another number where the same fields give other metrics: then runs are done again.
    code: ClassVar[int] = 1

    def measure(self, result: TrainResult, folder: Path) -> dict[str, Any]:
        """Measure a trained model; nothing if it diverged.

        Returns:
            accuracy and accuracy_after_close; what `mask_effects` returns, as ``mask_…``,
            `depth_effects`, as ``depth_…``, and `alignment`, as ``das_…``.
        """
        model, task, seed = result.model, result.task, result.seed
        if result.status == "diverged":
            return {}
        generator = torch.Generator().manual_seed(stream(self.data_seed, "stack use", seed))
        closing = task.closing_accuracy(
            model,
            n=self.n_accuracy,
            seed=stream(self.data_seed, "closing, training", seed),
            device=model.cfg.device,
            chunk=500,
        )
        untrained = build_model(model.cfg, seed=seed)
        far = far_answers(task, self.n_far, generator)
        return {
            "accuracy": closing.any_token,
            "accuracy_after_close": closing.after_close,
            **prefixed("mask", mask_effects(model, far)),
            **prefixed(
                "depth", depth_effects(model, task, far, self.n_depth, generator, untrained)
            ),
            **prefixed("das", alignment(model, task, self.n_pairs, generator, untrained)),
        }


def prefixed(name: str, metrics: dict[str, Any]) -> dict[str, Any]:
    """Metrics under a common first word."""
    return {f"{name}_{key}": value for key, value in metrics.items()}


# --- scales ---------------------------------------------------------------------------------------


#: Families of two layers and one head, by what they are called in the table. Which positions the
#: papers' models have is not known to us; learned ones are the likeliest.
GROUPS = {
    "gpt-learned": "learned positions",
    "gpt-sinusoidal": "sinusoidal positions",
    "gpt": "no positions",
}
_TASK = "dyck-2-4"


@final
@dataclass(frozen=True, kw_only=True)
class StackUseScale(Size):
    """Size: numbers of models, of steps and of measurements.

    Attributes:
        steps: of training, all of them: an early stop would select by speed.
        measurement: on every model.
    """

    steps: int = 700
    measurement: StackUseMeasurement = field(default_factory=StackUseMeasurement)

    def sweep(self) -> Sweep:
        """The runs: a point for each group of models."""
        training = TrainConfig(
            steps=self.steps, target=None, check_every=self.steps, check_size=200
        )
        points = [
            {
                "group": group,
                "model": group,
                "task": _TASK,
                **parameters_of("training", training),
                **parameters_of("measure", self.measurement),
            }
            for group in GROUPS
        ]
        return Sweep(list=points, experiment="stack-use", seeds=self.seeds)


#: Minutes, and 40 seeds.
SCALES = {
    "quick": StackUseScale(),
    "paper": StackUseScale(name="paper", seeds=40),
}
