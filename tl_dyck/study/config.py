"""What a study is asked to do."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from typing import Any, final

from tl_dyck.training import TrainConfig

__all__ = ["StudyConfig"]


@final
@dataclass(frozen=True, kw_only=True)
class StudyConfig:
    """Families × seeds on one task, and how closely to measure them.

    Attributes:
        task: name of a registered task.
        families: names of registered model families.
        seeds: one model per family and seed.
        training: how to train.
        n_accuracy: prefixes for the closing accuracy in distribution.
        n_long: prefixes for the closing accuracy at long lengths.
        n_strings: strings for the cross-entropy and for stack-likeness.
        n_certified: prefixes on which one-layer models are certified against inserted matched pairs; 0 for none.
        n_inserted: blocks of nested pairs inserted into each at most.
        n_bootstrap: resamples for every interval.
        data_seed: of everything that is measured, so that all models see the same strings.

    Raises:
        ValueError: nothing to do, or a name twice.
    """

    task: str = "dyck-2-4"
    families: tuple[str, ...] = ("gpt", "gpt-linear", "minimal-onehot")
    seeds: tuple[int, ...] = tuple(range(8))
    training: TrainConfig = field(default_factory=lambda: TrainConfig(min_steps=500))
    n_accuracy: int = 2000
    n_long: int = 300
    n_strings: int = 2000
    n_certified: int = 8
    n_inserted: int = 2
    n_bootstrap: int = 2000
    data_seed: int = 1_000_003

    def __post_init__(self) -> None:
        for name in ("families", "seeds"):
            values = tuple(getattr(self, name))
            object.__setattr__(self, name, values)
            if not values or len(set(values)) < len(values):
                raise ValueError(f"{name} must be different from each other and at least one, not {values}")
        for name in ("n_accuracy", "n_long", "n_strings", "n_inserted", "n_bootstrap"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name} must be at least 1, not {getattr(self, name)}")
        if self.n_certified < 0:
            raise ValueError(f"n_certified must be at least 0, not {self.n_certified}")

    def to_dict(self) -> dict[str, Any]:
        """The fields as JSON values."""
        return {name: list(value) if isinstance(value, tuple) else value for name, value in asdict(self).items()}

    @classmethod
    def from_dict(cls, values: dict[str, Any]) -> StudyConfig:
        """The inverse of `to_dict`.

        Raises:
            TypeError: an unknown field.
        """
        lists = {name: tuple(value) for name, value in values.items() if isinstance(value, list)}
        return cls(**{**values, **lists, "training": TrainConfig(**values["training"])})
