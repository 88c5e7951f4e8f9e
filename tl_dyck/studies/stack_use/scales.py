"""At which scale to look at the use of the stack, and with which models."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import final

from tl_dyck.configuration import parameters_of
from tl_dyck.runs.spec import Sweep
from tl_dyck.studies.reproduction import Size
from tl_dyck.studies.stack_use.measure import StackUseMeasurement
from tl_dyck.training import TrainConfig

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
        n_bootstrap: resamples for an interval.
        measurement: on every model.
    """

    steps: int = 700
    n_bootstrap: int = 2000
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
    "paper": StackUseScale(name="paper", seeds=40, n_bootstrap=4000),
}
