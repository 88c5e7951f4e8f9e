"""What a study is asked to do."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from typing import Any, final

from tl_dyck.check import WrongTypeError, check_integer_fields, check_seed
from tl_dyck.runs.spec import Sweep
from tl_dyck.studies.measurement import Measurement
from tl_dyck.studies.train import parameters_of
from tl_dyck.training import TrainConfig


@final
@dataclass(frozen=True, kw_only=True)
class StudyConfig:
    """Families × seeds on one task, and how closely to measure them.

    Attributes:
        task: name of a registered task.
        families: names of registered model families.
        seeds: one model per family and seed.
        training: how to train.
        measurement: how closely to look at each.
        n_bootstrap: resamples for every interval.

    Raises:
        ValueError: nothing to do, or a name twice.
    """

    task: str = "dyck-2-4"
    families: tuple[str, ...] = ("gpt", "gpt-linear", "minimal-onehot")
    seeds: tuple[int, ...] = tuple(range(8))
    training: TrainConfig = field(default_factory=lambda: TrainConfig(min_steps=500))
    measurement: Measurement = field(default_factory=Measurement)
    n_bootstrap: int = 2000

    def __post_init__(self) -> None:
        for family in self.families:
            if not isinstance(family, str):
                raise WrongTypeError(f"a family must be a name, got {family!r:.80}")
        object.__setattr__(self, "seeds", tuple(check_seed(seed) for seed in self.seeds))
        for name in ("families", "seeds"):
            values = tuple(getattr(self, name))
            object.__setattr__(self, name, values)
            if not values or len(set(values)) < len(values):
                raise ValueError(
                    f"{name} must be different from each other and at least one, not {values}"
                )
        check_integer_fields(self, n_bootstrap=1)

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

    def to_dict(self) -> dict[str, Any]:
        """The fields as JSON values."""
        return {
            name: list(value) if isinstance(value, tuple) else value
            for name, value in asdict(self).items()
        }

    @classmethod
    def from_dict(cls, values: dict[str, Any]) -> StudyConfig:
        """The inverse of `to_dict`.

        Raises:
            TypeError: an unknown field.
        """
        if not isinstance(values, dict):
            raise WrongTypeError(f"a study's config must be an object, got {values!r:.80}")
        lists = {name: tuple(value) for name, value in values.items() if isinstance(value, list)}
        parts = {
            "training": TrainConfig(**values["training"]),
            "measurement": Measurement(**values["measurement"]),
        }
        return cls(**{**values, **lists, **parts})
