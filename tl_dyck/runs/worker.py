"""What a worker does with runs: claim them, have them done, write down what came of it."""

from __future__ import annotations

import contextlib
import errno
import functools
import math
import platform
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timezone
from typing import Any, final

from tl_dyck.kit.environment import environment, one_thread
from tl_dyck.runs.experiments import Experiment, PackedJob
from tl_dyck.runs.spec import Point
from tl_dyck.runs.store import RESERVED, STOPPERS, Store, describe, row_of


@final
@dataclass(frozen=True)
class Assignment:
    """A run that is to be done."""

    run: str
    point: str
    parameters: Point
    seed: int


#: Runs of one point that are handed to a worker together.
Parcel = tuple[Assignment, ...]


@final
@dataclass(frozen=True)
class Outcome:
    """Report of a worker on a run, and whether the run was done by it.

    It says "done", "failed", "elsewhere" or "stopped".
    """

    run: str
    status: str
    made: bool = False
    error: str = ""
    errno: int = 0
    row: dict[str, Any] | None = None


@final
@dataclass(frozen=True)
class Worker:
    """A function of parcels that can be sent to another process.

    Attributes:
        store: where everything is kept.
        name: of the experiment.
        experiment: what to do.
        keep_files: whether to keep what runs leave in their folders.
        retry_failed: whether to do runs that failed before.
    """

    store: Store
    name: str
    experiment: Experiment
    keep_files: bool = True
    retry_failed: bool = False

    def is_over(self, ended: str) -> bool:
        """Whether a run that ended so is not done again."""
        return ended == "done" or (ended == "failed" and not self.retry_failed)

    def __call__(self, parcel: Parcel) -> list[Outcome]:
        """Do the runs, unless someone else does or did."""
        outcomes: dict[str, Outcome] = {}
        try:
            with contextlib.ExitStack() as claims:
                mine = []
                for task in parcel:
                    if not claims.enter_context(self.store.claim(task.run)):
                        outcomes[task.run] = Outcome(task.run, "elsewhere")
                        continue
                    ended = self.store.ended(task.run, aside=True)
                    if self.is_over(ended):
                        outcomes[task.run] = Outcome(task.run, ended)
                        continue
                    mine.append(task)
                with one_thread():
                    self._do(mine, outcomes)
        except OSError as error:
            # of the sweep's own files, or a full disk; what else experiments raise is caught
            line = (
                f"cannot write to {str(self.store.folder)!r}: {error.strerror or error}; "
                "what was done is kept"
            )
            for task in parcel:
                stopped = Outcome(task.run, "stopped", error=line, errno=error.errno or errno.EIO)
                outcomes.setdefault(task.run, stopped)
        return [outcomes[task.run] for task in parcel]

    def _do(self, tasks: Sequence[Assignment], outcomes: dict[str, Outcome]) -> None:
        """Do runs that are claimed, together if there are several."""
        if len(tasks) > 1:
            self._do_together(tasks, outcomes)
            return
        for task in tasks:
            begun, folder = self.record(task), self.store.start(task.run)
            started = time.perf_counter()
            try:
                job = self.experiment.prepare(dict(task.parameters))
                found: Any = job.run(task.seed, folder)
            except (Exception, SystemExit) as error:  # one run that gives up does not end the sweep
                found = error
            outcomes[task.run] = self._ended(task, begun, found, time.perf_counter() - started)

    def _do_together(self, tasks: Sequence[Assignment], outcomes: dict[str, Outcome]) -> None:
        by_seed = {task.seed: task for task in tasks}
        begun = {task.seed: self.record(task) for task in tasks}
        folders = {task.seed: self.store.start(task.run) for task in tasks}
        trouble: list[OSError] = []

        def ended(seed: int, found: Mapping[str, Any] | BaseException, seconds: float) -> None:
            task = by_seed[seed]
            try:
                outcomes[task.run] = self._ended(task, begun[seed], found, seconds)
            except OSError as error:  # the experiment, which is calling, has nothing to do with it
                trouble.append(error)

        started = time.perf_counter()
        broken: BaseException = RuntimeError("the experiment said nothing of this run")
        try:
            job = self.experiment.prepare(dict(tasks[0].parameters))
            assert isinstance(job, PackedJob)
            job.run_together(folders, ended)
        except (Exception, SystemExit) as error:
            broken = error
        if trouble:
            raise trouble[0]
        for seed, task in by_seed.items():
            if task.run not in outcomes:
                share = (time.perf_counter() - started) / len(tasks)
                outcomes[task.run] = self._ended(task, begun[seed], broken, share)

    def _ended(
        self, task: Assignment, record: dict[str, Any], found: Any, seconds: float
    ) -> Outcome:
        """Write down metrics, or what was raised."""
        record = {**record, "seconds": seconds}
        metrics: dict[str, Any] = {}
        if not isinstance(found, BaseException):
            try:
                metrics = _plain(found, task.parameters)
            except Exception as error:  # a metric can be any object, and raise when it is read
                found = error
        if isinstance(found, BaseException):
            if isinstance(found, OSError) and found.errno in STOPPERS:
                raise found
            return self._failed(task, record, *describe(found), took=seconds)
        record["metrics"] = metrics
        self.store.write_record(task.run, record, took=seconds)
        if not self.keep_files:
            self.store.drop_files(task.run)
        return Outcome(task.run, "done", True, row=row_of(record, "done"))

    def record(self, task: Assignment) -> dict[str, Any]:
        """Return the part of a run's record that is known before it is done."""
        return {
            "id": task.run,
            "point": task.point,
            "experiment": self.name,
            "parameters": task.parameters,
            "seed": task.seed,
            "started": datetime.now(timezone.utc).isoformat(timespec="seconds"),
            "environment": dict(_environment()),
        }

    def died(self, task: Assignment, error: BaseException) -> Outcome:
        """Write down that a run took its worker with it, twice."""
        line = (
            "the process that ran it died, twice: killed, "
            f"or out of memory? ({type(error).__name__})"
        )
        record = {**self.record(task), "seconds": 0.0}
        with self.store.claim(task.run) as mine:
            if not mine:
                return Outcome(task.run, "elsewhere")
            if self.store.is_done(task.run):
                return Outcome(task.run, "done")
            return self._failed(task, record, line, f"{line}\n{error}", took=math.inf)

    def _failed(
        self, task: Assignment, record: dict[str, Any], line: str, trace: str, *, took: float
    ) -> Outcome:
        self.store.write_failure(task.run, record, line, trace, took=took)
        row = row_of({**record, "error": line}, "failed")
        return Outcome(task.run, "failed", True, line, row=row)


def _plain(metrics: Any, parameters: Point) -> dict[str, Any]:
    """Metrics as JSON values; numbers that are not finite become None."""
    if not isinstance(metrics, Mapping):
        raise TypeError(
            f"an experiment returns metrics, names to numbers or strings, not {metrics!r:.80}"
        )
    plain: dict[str, Any] = {}
    for key, value in metrics.items():
        if not isinstance(key, str) or not key or key in RESERVED or key in parameters:
            raise TypeError(
                f"a metric cannot be called {key!r}: "
                "a parameter or column of the results has that name"
            )
        if hasattr(value, "item"):  # of numpy or torch
            value = value.item()
        if isinstance(value, float) and not math.isfinite(value):
            value = None
        if value is not None and not isinstance(value, (bool, int, float, str)):
            raise TypeError(
                f"metric {key!r} is a number, a string, a boolean or None, not {value!r:.80}"
            )
        # what a column of integers holds: a table of results has no longer ones
        if isinstance(value, int) and not -(2**63) <= value < 2**63:
            raise TypeError(f"metric {key!r} is an integer of more than 64 bits; return a float")
        plain[_unicode(key)] = _unicode(value) if isinstance(value, str) else value
    return plain


def _unicode(text: str) -> str:
    """Text that can be written as UTF-8; what is not Unicode (names can be so) is escaped."""
    return text.encode(errors="backslashreplace").decode()


@functools.lru_cache(maxsize=1)
def _environment() -> Mapping[str, Any]:
    """Versions and hardware, flat."""
    found = environment()
    versions = found["versions"]
    return {
        "host": platform.node(),
        "cpu_cores": found["cpu_cores"],
        "gpu": found["gpu"],
        "python": found["python"],
        "platform": found["platform"],
        "tl_dyck": versions["tl-dyck"],
        "torch": versions["torch"],
        "transformer_lens": versions["transformer_lens"],
    }
