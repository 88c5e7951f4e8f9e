"""What is done at a point with a seed: the experiments a sweep can name, and one's own functions.

An experiment is a function ``(point, seed, folder) -> metrics``: parameters as a dictionary, an
integer, and a folder of the run's own to write into; it returns numbers, strings or booleans by
name. It is called again, with the same folder, if the process before died half-way, so what can go
on from files in the folder does.

Register one under a name that sweep files can use by decorator, ``@experiments.register("mine")``,
or by entry point in the group ``tl_dyck.experiments``. One that wants to say which points are
valid, or that fills in defaults which define the run, is an object that makes jobs of points
instead, see `Experiment`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields, is_dataclass, replace
from pathlib import Path
from typing import Any, Protocol, runtime_checkable

from tl_dyck.kit.registry import Registry
from tl_dyck.runs.spec import Point, Sweep, SweepError
from tl_dyck.runs.store import RESERVED, point_id


class Job(Protocol):
    """What is to be done at a point, with any seed."""

    def identity(self) -> Mapping[str, Any]:
        """Everything that defines a run but its seed, as JSON, defaults included.

        Two runs of equal identity and seed are the same run, which is done once.
        """

    def run(self, seed: int, folder: Path) -> Mapping[str, Any]:
        """Do it; returns metrics: names to numbers, strings, booleans or None."""


@runtime_checkable
class PackedJob(Job, Protocol):
    """A job that does several seeds together sooner than one by one."""

    def pack(self) -> int:
        """Return the largest number of seeds that it should be given at once."""

    def run_together(
        self,
        folders: Mapping[int, Path],
        ended: Callable[[int, Mapping[str, Any] | BaseException, float], None],
    ) -> None:
        """Do several seeds, each with a folder of its own.

        Args:
            folders: seed to folder.
            ended: to be called as soon as a seed has ended, with its metrics or with what was
                raised, and the seconds that it took (of what was done together, its share).
        """


@runtime_checkable
class Experiment(Protocol):
    """Work of a sweep at every point and seed; it must be picklable (its jobs need not be).

    Its runs are kept under its attribute ``name``, if it has one, or under the name of its class.
    """

    def prepare(self, point: Point) -> Job:
        """Read a point, where the sweep is begun and again where its runs are done.

        Raises:
            ValueError: the point is not valid; all points are checked before anything runs.
        """


experiments: Registry[Any] = Registry("experiment", "tl_dyck.experiments")
register_experiment = experiments.register
"""Decorator that registers a experiment of your own: see `Registry.register`."""


def as_experiment(
    given: str | Experiment | Callable[..., Any], device: str | None = None
) -> tuple[str, Experiment]:
    """Name and object of an experiment.

    Args:
        given: a registered name, a function ``(point, seed, folder) -> metrics``, or an
            `Experiment`.
        device: for an experiment that is a dataclass with a field of that name: it trains models.

    Raises:
        UnknownNameError: no such name.
        SweepError: a function without a name of its own, or something that is no experiment.
    """
    name = given if isinstance(given, str) else ""
    found: Any = experiments.get(name) if name else given
    # a class was registered, or given: made with its defaults
    if isinstance(found, type):
        found = found()
    if (
        device is not None
        and is_dataclass(found)
        and any(field.name == "device" for field in fields(found))
    ):
        found = replace(found, device=device)  # type: ignore[type-var]
    if isinstance(found, Experiment):
        return name or getattr(found, "name", "") or type(found).__qualname__, found
    if not callable(found):
        raise SweepError(
            f"{given!r} is neither the name of an experiment, nor a function, nor an Experiment, "
            "which has a method prepare(point)"
        )
    own = getattr(found, "__qualname__", "")
    # "<lambda>" and "f.<locals>.g": another process could not find them
    if not name and ("<" in own or not own):
        raise SweepError(
            f"{found!r} has no name by which its runs could be found again: "
            "define the function at the top of a module"
        )
    return name or f"{found.__module__}.{own}", _Function(found)


#: What is written down of a point, how many of its seeds are done together, and its seeds.
Points = dict[str, tuple[dict[str, Any], int, tuple[int, ...]]]


def check_points(sweep: Sweep, name: str, experiment: Experiment) -> Points:
    """Every point by its id, before anything is run."""
    points: Points = {}
    for parameters, seeds in sweep.points_and_seeds():
        for reserved in RESERVED:
            if reserved in parameters:
                raise SweepError(
                    f"a parameter cannot be called {reserved!r}, "
                    "which the table of results has already"
                )
        job = experiment.prepare(parameters)
        identity = job.identity()
        point = point_id(name, identity)
        if point in points:
            other = points[point][0]["parameters"]
            raise SweepError(f"these are the same point: {other} and {parameters}")
        pack = job.pack() if isinstance(job, PackedJob) else 1
        note = {"experiment": name, "parameters": parameters, "identity": identity}
        points[point] = (note, pack, seeds)
    return points


@dataclass(frozen=True)
class _Function:
    """A function as an experiment."""

    function: Callable[..., Any]

    def prepare(self, point: Point) -> _Call:
        return _Call(self.function, point)


@dataclass(frozen=True)
class _Call:
    """Its job: every parameter is part of the identity, and nothing else is."""

    function: Callable[..., Any]
    point: Point

    def identity(self) -> Mapping[str, Any]:
        return self.point

    def run(self, seed: int, folder: Path) -> Any:
        return self.function(self.point, seed, folder)
