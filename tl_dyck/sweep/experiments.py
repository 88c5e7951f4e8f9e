"""What is done at a point with a seed: the experiments that a sweep can name, and functions of one's own.

An experiment is a function ``(point, seed, folder) -> metrics``: parameters as a dictionary, an integer, and a folder
of the run's own to write into; it returns numbers, strings or booleans by name. It is called again, with the same
folder, if the process before died half-way, so what can go on from files in the folder does.

Register one under a name that sweep files can use by decorator, ``@experiments.register("mine")``, or by entry point
in the group ``tl_dyck.experiments``. One that wants to say which points are valid, or that fills in defaults which
define the run, is an object with two methods instead, see `Experiment`.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol, final, runtime_checkable

from tl_dyck.registry import Registry, unknown_name
from tl_dyck.sweep.spec import Point, SweepError

__all__ = ["Experiment", "PackedExperiment", "TrainExperiment", "as_experiment", "experiments"]


@runtime_checkable
class Experiment(Protocol):
    """What a sweep does with every point and seed; it must be picklable."""

    def identity(self, point: Point) -> Mapping[str, Any]:
        """Everything that defines a run at this point but its seed, as JSON values, defaults included.

        Two runs of equal identity and seed are the same run, which is done once.

        Raises:
            ValueError: the point is not valid; all points are checked before anything runs.
        """

    def run(self, point: Point, seed: int, folder: Path) -> Mapping[str, Any]:
        """Do it; returns metrics: names to numbers, strings, booleans or None."""


@runtime_checkable
class PackedExperiment(Experiment, Protocol):
    """An experiment that does several seeds of a point together sooner than one by one."""

    def pack(self, point: Point) -> int:
        """How many seeds at most it should be given at once."""

    def run_together(
        self,
        point: Point,
        folders: Mapping[int, Path],
        ended: Callable[[int, Mapping[str, Any] | BaseException, float], None],
    ) -> None:
        """Do several seeds, each with a folder of its own.

        Args:
            point: the parameters.
            folders: seed to folder.
            ended: to be called as soon as a seed has ended, with its metrics or with what was raised, and the seconds
                that it took (of what was done together, its share).
        """


experiments: Registry[Any] = Registry("experiment", "tl_dyck.experiments")


def as_experiment(given: str | Experiment | Callable[..., Any], device: str | None = None) -> tuple[str, Experiment]:
    """Name and object of an experiment.

    Args:
        given: a registered name, a function ``(point, seed, folder) -> metrics``, or an `Experiment`.
        device: for experiments that train models.

    Raises:
        UnknownNameError: no such name.
        SweepError: a function without a name of its own, or something that is no experiment.
    """
    name = given if isinstance(given, str) else ""
    found: Any = experiments.get(name) if name else given
    if isinstance(found, type):
        found = found()
    if isinstance(found, TrainExperiment) and device is not None:
        found = TrainExperiment(device=device)
    if isinstance(found, Experiment):
        return name or type(found).__qualname__, found
    if not callable(found):
        raise SweepError(f"{given!r} is neither the name of an experiment, nor a function, nor an Experiment")
    own = getattr(found, "__qualname__", "")
    if not name and ("<" in own or not own):
        raise SweepError(
            f"{found!r} has no name by which its runs could be found again: define the function at the top of a module"
        )
    return name or f"{found.__module__}.{own}", _Function(found)


@dataclass(frozen=True)
class _Function:
    """A function as an experiment: every parameter is part of the identity, and nothing else is."""

    function: Callable[..., Any]

    def identity(self, point: Point) -> Mapping[str, Any]:
        return point

    def run(self, point: Point, seed: int, folder: Path) -> Any:
        return self.function(point, seed, folder)


@final
@dataclass(frozen=True, kw_only=True)
class TrainExperiment:
    """Train a model and measure it as a study does.

    Parameters of a point:

    - ``task``: name of a task; ``model``: name of a family; both are needed;
    - ``model.<field>``: a field of the model's configuration, as `get_config` takes it;
    - ``training.<field>``: of `TrainConfig`;
    - ``measure.<field>``: of `StudyConfig`: n_accuracy, n_long, n_strings, n_certified (0, unlike there), n_inserted,
      data_seed.

    Metrics: outcome (a key of `STATUSES`), learned, steps, train_seconds, accuracy, long_accuracy, loss, entropy_gap,
    balance_violation, … as in the table ``models`` of a study, and stack_likeness, the largest share of closing
    brackets at which a head attends most to the top of the stack. The run's folder holds the model (`load_model`), its
    history and its attention patterns.

    Attributes:
        device: of the models; None for TransformerLens' default. Not part of a run's identity.
    """

    device: str | None = None

    def identity(self, point: Point) -> dict[str, Any]:
        """Task, model, options and how it is measured, in full."""
        from tl_dyck.training.config import run_identity

        config, task, options, study = self._read(point)
        identity = run_identity(config.to_saved(), task, options, 0)
        del identity["seed"]
        return {**identity, "measure": {name: getattr(study, name) for name in _MEASURE}}

    def run(self, point: Point, seed: int, folder: Path) -> dict[str, Any]:
        """Train, or go on from the checkpoint in the folder, and measure."""
        from tl_dyck.training import train

        config, task, options, study = self._read(point)
        result = train(config, task, seed=seed, options=options, folder=folder, progress=False)
        return self._metrics(result, folder, study)

    def pack(self, point: Point) -> int:
        """As many seeds as `train_seeds` trains together."""
        from tl_dyck.training.seeds import most_together

        return most_together(self._read(point)[0])

    def run_together(
        self,
        point: Point,
        folders: Mapping[int, Path],
        ended: Callable[[int, Mapping[str, Any] | BaseException, float], None],
    ) -> None:
        """Train several seeds, each to the same model as alone (see `train_seeds`), and measure them."""
        from tl_dyck.training.together import train_together

        config, task, options, study = self._read(point)

        def on_result(result: Any, folder: Path | None) -> None:
            started = time.perf_counter()
            metrics = self._metrics(result, folders[result.seed], study)
            ended(result.seed, metrics, result.seconds + time.perf_counter() - started)

        seeds, places = list(folders), list(folders.values())
        outcomes = train_together(config, task, seeds, options=options, folders=places, on_result=on_result)
        for seed, outcome in outcomes.items():
            if isinstance(outcome, Exception):
                ended(seed, outcome, 0.0)

    def _metrics(self, result: Any, folder: Path, study: Any) -> dict[str, Any]:
        from tl_dyck.files import read_json
        from tl_dyck.study.measure import measure

        measure(result, folder, study)
        measured = read_json(folder / "measures.json")
        row = measured["row"]
        return {
            "outcome": row.pop("status"),
            "learned": result.learned,
            "steps": row.pop("steps"),
            "train_seconds": row.pop("seconds"),
            **{name: value for name, value in row.items() if name not in ("family", "seed")},
            "stack_likeness": max(
                (head["argmax_at_closing"] for head in measured["heads"] if head["argmax_at_closing"] is not None),
                default=None,
            ),
        }

    def _read(self, point: Point) -> tuple[Any, Any, Any, Any]:
        """Configuration, task, options of training and of measurement; errors name the parameter."""
        from dataclasses import fields

        from tl_dyck.models import get_config
        from tl_dyck.study.config import StudyConfig
        from tl_dyck.tasks import load_task
        from tl_dyck.training import TrainConfig

        parts: dict[str, dict[str, Any]] = {"model": {}, "training": {}, "measure": {}}
        for name, value in point.items():
            part, _, key = name.partition(".")
            if name in ("task", "model"):
                continue
            if part not in parts or not key:
                raise SweepError(str(unknown_name("parameter", name, _KNOWN)))
            parts[part][key] = value
        for name in ("task", "model"):
            if not isinstance(point.get(name), str):
                raise SweepError(f"the experiment 'train' needs the parameter {name!r}, the name of a {name}")
        known = {"training": [field.name for field in fields(TrainConfig)], "measure": list(_MEASURE)}
        for part, names in known.items():
            for key in parts[part]:
                if key not in names:
                    raise SweepError(
                        str(unknown_name("parameter", f"{part}.{key}", [f"{part}.{name}" for name in names]))
                    )
        for field in fields(TrainConfig):
            value = parts["training"].get(field.name)
            if "float" in str(field.type) and type(value) is int:  # 1 and 1.0 are the same here, and the same run
                parts["training"][field.name] = float(value)
        task = load_task(point["task"])
        try:
            config = get_config(point["model"], task, device=self.device, **parts["model"])
            options = TrainConfig(**parts["training"])
            study = StudyConfig(
                task=point["task"], families=(point["model"],), **{"n_certified": 0, **parts["measure"]}
            )
        except TypeError as error:
            raise SweepError(f"{error}; the point is {point}") from error
        return config, task, options, study


_MEASURE = ("n_accuracy", "n_long", "n_strings", "n_certified", "n_inserted", "data_seed")
_KNOWN = ("task", "model", "model.<field>", "training.<field>", *(f"measure.{name}" for name in _MEASURE))
