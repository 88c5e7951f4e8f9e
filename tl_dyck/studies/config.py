"""What a study is asked to do."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import final

from tl_dyck.kit.check import WrongTypeError, check_distinct, check_seed
from tl_dyck.kit.configuration import Configuration, drawn, parameters_of
from tl_dyck.runs.spec import Sweep
from tl_dyck.studies.measurement import Measurement
from tl_dyck.training import TrainConfig


@final
@dataclass(frozen=True, kw_only=True)
class StudyConfig(Configuration):
    """Families × seeds on one task, and how closely to measure them.

    Attributes:
        task: name of a registered task.
        families: names of registered model families.
        seeds: one model per family and seed.
        training: how to train.
        measurement: how closely to look at each.
        n_bootstrap: resamples for the interval of a correlation.

    Raises:
        ValueError: nothing to do, or a name twice.
    """

    task: str = "dyck-2-4"
    families: tuple[str, ...] = ("gpt", "gpt-linear", "minimal-onehot")
    seeds: tuple[int, ...] = tuple(range(8))
    training: TrainConfig = field(default_factory=lambda: TrainConfig(min_steps=500))
    measurement: Measurement = field(default_factory=Measurement)
    n_bootstrap: int = drawn(2000)

    def __post_init__(self) -> None:
        super().__post_init__()
        for family in self.families:
            if not isinstance(family, str):
                raise WrongTypeError(f"a family must be a name, got {family!r:.80}")
        object.__setattr__(self, "seeds", tuple(check_seed(seed) for seed in self.seeds))
        for name in ("families", "seeds"):
            object.__setattr__(self, name, check_distinct(name, getattr(self, name)))

    def sweep(self) -> Sweep:
        """The runs of the study: a point for each family."""
        return Sweep(
            grid={"model": self.families},
            common={
                "task": self.task,
                **parameters_of("training", self.training),
                **parameters_of("measure", self.measurement),
            },
            seeds=self.seeds,
        )
