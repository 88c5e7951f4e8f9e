"""The experiment "train": train a model and measure it.

What is measured is a part that can be exchanged.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields, replace
from functools import partial
from pathlib import Path
from typing import Any, final

import pandas as pd

from tl_dyck.kit.arguments import checked
from tl_dyck.kit.configuration import nested
from tl_dyck.kit.registry import Registry, UnknownNameError, unknown_name
from tl_dyck.models import DyckTransformer, DyckTransformerConfig, get_config, models
from tl_dyck.runs.experiments import Job
from tl_dyck.runs.results import columns_of
from tl_dyck.runs.spec import Point, SweepError
from tl_dyck.studies.measurement import Measurement, Measures
from tl_dyck.tasks import Task, tasks
from tl_dyck.tasks.names import task_fields
from tl_dyck.training import TrainConfig, TrainResult
from tl_dyck.training.config import run_identity
from tl_dyck.training.loop import train_together
from tl_dyck.training.seeds import most_together


@checked
@dataclass(frozen=True, kw_only=True)
class TrainExperiment:
    """Train a model and measure it.

    Parameters of a point:

    - ``task``: name of a task; ``model``: name of a family; both are needed;
    - ``task.<field>``: of `DyckTask`, in place of the task's own; of another task ``train_lengths``
      and ``long_lengths``;
    - ``model.<field>``: of the model's configuration, as `get_config` takes it;
    - ``training.<field>``: of `TrainConfig`;
    - ``measure.<field>``: of the measurement, which is `Measurement` unless told otherwise (with
      n_certified and decided_length 0);
    - ``group``: what to call these models in tables; it defines nothing.

    Metrics: outcome (a key of `STATUSES`), learned, steps, train_seconds, and those of the
    measurement. The run's folder holds the model (`load_model`), its history, and what the
    measurement leaves there.

    Attributes:
        name: under which its runs are kept.
        device: of the models; None for TransformerLens' default. Not part of a run's identity.
        measurement: a dataclass, see `Measures`.
        defaults: of its fields, in place of its own.
        plugs: tasks and families by kind and name, as this process knows them: a worker that does
            not is told.
    """

    name: str = "train"
    device: str | None = None
    measurement: type[Measures] = Measurement
    defaults: Mapping[str, Any] = field(
        default_factory=lambda: {"n_certified": 0, "decided_length": 0}
    )
    plugs: dict[tuple[str, str], Any] = field(default_factory=dict, compare=False, repr=False)

    @checked
    def prepare(self, point: Point) -> Job:
        """Configuration, task, training and measurement options; errors name the parameter."""
        parts: dict[str, dict[str, Any]] = {"task": {}, "model": {}, "training": {}, "measure": {}}
        named = {
            name: value for name, value in point.items() if name not in ("task", "model", "group")
        }
        for name in named:
            if "." not in name or name.partition(".")[0] not in parts:
                raise SweepError(str(unknown_name("parameter", name, self._known())))
        parts |= nested(named)
        for name in ("task", "model"):
            if not isinstance(point.get(name), str):
                raise SweepError(
                    f"the experiment 'train' needs the parameter {name!r}, the name of a {name}"
                )
        task = plugged(tasks, point["task"], self.plugs)
        for key in parts["task"]:
            if key not in task_fields(task):
                among = [f"task.{name}" for name in task_fields(task)]
                raise SweepError(str(unknown_name("parameter", f"task.{key}", among)))
        plugged(models, point["model"], self.plugs)
        try:
            task = replace(task, **parts["task"]) if parts["task"] else task
            config = get_config(point["model"], task, device=self.device, **parts["model"])
            options = TrainConfig.from_dict(parts["training"], "training.")
            measured = {**self.defaults, **parts["measure"]}
            measures = self.measurement.from_dict(measured, "measure.")
        except TypeError as error:
            raise SweepError(f"{error}; the point is {point}") from error
        return TrainJob(config, task, options, measures)

    def _known(self) -> tuple[str, ...]:
        parts = ("task.<field>", "model.<field>", "training.<field>")
        measured = (f"measure.{entry.name}" for entry in fields(self.measurement))
        return ("task", "model", "group", *parts, *measured)


@final
@dataclass(frozen=True)
class TrainJob:
    """A point of `TrainExperiment`, read."""

    config: DyckTransformerConfig
    task: Task
    options: TrainConfig
    measures: Measures

    def identity(self) -> dict[str, Any]:
        """Task, model, options and how it is measured, in full."""
        # any seed: it goes at once, since a point has many
        identity = run_identity(self.config.to_saved(), self.task, self.options, 0)
        del identity["seed"]
        return {**identity, "measure": identity_of(self.measures)}

    @checked
    def run(self, seed: int, folder: Path) -> dict[str, Any]:
        """Train, or go on from the checkpoint in the folder, and measure."""
        ended: list[Mapping[str, Any] | BaseException] = []
        self.run_together({seed: folder}, lambda seed, found, seconds: ended.append(found))
        (outcome,) = ended
        if isinstance(outcome, BaseException):
            raise outcome
        return dict(outcome)

    def pack(self) -> int:
        """As many seeds as `train_seeds` trains together."""
        return most_together(self.config)

    @checked
    def run_together(
        self,
        folders: Mapping[int, Path],
        ended: Callable[[int, Mapping[str, Any] | BaseException, float], None],
    ) -> None:
        """Train several seeds, each as if alone (see `train_seeds`), and measure the models."""

        def on_result(result: TrainResult, folder: Path | None) -> None:
            started = time.perf_counter()
            metrics = {
                "outcome": result.status,
                "learned": result.learned,
                "steps": result.steps,
                "train_seconds": result.seconds,
                **self.measures.measure(result, folders[result.seed]),
            }
            ended(result.seed, metrics, result.seconds + time.perf_counter() - started)

        seeds, places = list(folders), list(folders.values())
        watch = getattr(self.measures, "on_model", None)
        on_model: Callable[[int, DyckTransformer, Any], None] | None = watch and partial(
            watch, self.task
        )
        outcomes = train_together(
            self.config,
            self.task,
            seeds,
            options=self.options,
            folders=places,
            on_model=on_model,
            on_result=on_result,
        )
        for seed, outcome in outcomes.items():
            if isinstance(outcome, Exception):
                # no seconds: a run that raised has no share of what was done together
                ended(seed, outcome, 0.0)


def models_of(runs: pd.DataFrame, keys: Mapping[str, str]) -> pd.DataFrame:
    """A row for each trained model: its keys, id, status, steps, seconds, and what was measured."""
    known = (*keys, "outcome", "learned", "train_seconds")
    measured = {name: name for name in columns_of(runs)[1] if name not in known}
    names = {**keys, "id": "id", "outcome": "status", "train_seconds": "seconds", **measured}
    return with_numbers(runs[[*names]].set_axis([*names.values()], axis=1))


def with_numbers(table: pd.DataFrame) -> pd.DataFrame:
    """A table whose columns of nulls only are of numbers, as they were before JSON had them."""
    numbers = table.astype({name: float for name in table if table[name].isna().all()})
    return numbers.copy()  # in one piece: columns may be added


def plugged(registry: Registry[Any], name: str, plugs: dict[tuple[str, str], Any]) -> Any:
    """Return the plug with that name here, or in the process that sent the work.

    The latter if this is a worker that does not know it.
    """
    key = (registry.kind, name)
    try:
        found = registry.get(name)
    except UnknownNameError:
        if key not in plugs:
            raise
        # a worker: registered here once, it is found by all that follows
        return registry.register(name)(plugs[key])
    plugs[key] = found
    return found


def identity_of(measures: Measures) -> dict[str, Any]:
    """Return everything that defines a measurement: its fields, and its code's number from 2 on."""
    return {**measures.to_dict(), **({"code": measures.code} if measures.code != 1 else {})}
