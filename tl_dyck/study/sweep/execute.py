"""Run a sweep: worker processes on one machine, or on a cluster through joblib's own backends."""

from __future__ import annotations

import contextlib
import functools
import math
import platform
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime, timezone
from pathlib import Path
from typing import Any, final

from joblib import Parallel, cpu_count, delayed, parallel_config

from tl_dyck.files import CorruptFileError
from tl_dyck.study.sweep.experiments import Experiment, as_experiment
from tl_dyck.study.sweep.progress import SweepProgress
from tl_dyck.study.sweep.spec import Point, Sweep, SweepError, load_sweep
from tl_dyck.study.sweep.store import RESERVED, STOPPERS, Store, describe, point_id, run_id

__all__ = ["BACKENDS", "MissingBackendError", "SweepReport", "check_points", "row_of", "run_sweep"]

#: How runs are carried out.
BACKENDS = ("loky", "dask", "ray")

_POLL = 1.0  # seconds between two looks at what other processes are doing
_WAVE = 200  # runs a worker that are handed at once to a backend that returns everything at the end


class MissingBackendError(ImportError):
    """What carries runs to other machines is not installed; the message says how to install it."""


@final
@dataclass(frozen=True, kw_only=True)
class SweepReport:
    """How a sweep stands.

    Attributes:
        folder: where it is.
        total: runs of the sweep.
        done: with a record.
        failed: that raised, and were not tried again.
        elsewhere: left to other processes that had them at the time.
        made: runs that were carried out by this call, failed ones included.
        seconds: that this call took.
    """

    folder: Path
    total: int
    done: int
    failed: int
    elsewhere: int
    made: int
    seconds: float


@final
@dataclass(frozen=True)
class _Task:
    run: str
    point: str
    parameters: Point
    seed: int


@final
@dataclass(frozen=True)
class _Outcome:
    """What a worker says: "done", "failed", "elsewhere", "stopped"; and by whom: this call or one before."""

    run: str
    status: str
    made: bool = False
    error: str = ""
    row: dict[str, Any] | None = None


def run_sweep(
    sweep: Sweep | Mapping[str, Any] | str | Path,
    folder: str | Path = "results/sweep",
    *,
    experiment: str | Experiment | Callable[..., Any] | None = None,
    n_jobs: int | None = None,
    backend: str = "loky",
    address: str | None = None,
    retry_failed: bool = False,
    keep_files: bool = True,
    wait: bool = True,
    device: str | None = None,
    on_result: Callable[[dict[str, Any]], None] | None = None,
    progress: bool = True,
) -> SweepReport:
    """Carry out every run of a sweep that is not done yet.

    It may be started again after any interruption, and in any number of processes on one folder at a time: every run is
    done once. A run that raises is kept with its traceback, and the others go on.

    Args:
        sweep: a `Sweep`, a mapping like one, or a YAML or JSON file.
        folder: where everything is kept; with more than one machine, one that all of them see.
        experiment: what to do at each point, instead of what the sweep names: a registered name, a function
            ``(point, seed, folder) -> metrics``, or an `Experiment`.
        n_jobs: worker processes of one torch thread each; None for one per core, or for all of a cluster. With 1, runs
            are done in this process.
        backend: "loky" for worker processes on this machine; "dask" or "ray" for a cluster.
        address: of the cluster's scheduler; None for one that is made here.
        retry_failed: whether to try runs again that failed before.
        keep_files: whether to keep what runs leave in their folders (models, patterns), or their records only.
        wait: whether to wait for runs that other processes are doing (and to take them over if those die), or return.
        device: of the models, for experiments that have some.
        on_result: called here with a row of the table of results for every run that this call did.
        progress: whether to show a progress bar.

    Returns:
        How the sweep stands.

    Raises:
        SweepError: the sweep, or one of its points, is not valid. Nothing was run.
        UnknownNameError: no such experiment, task, family or parameter. Nothing was run.
        CorruptFileError: the folder holds a sweep of another version.
        MissingBackendError: the backend is not installed.
        OSError: the folder cannot be written, the disk is full; everything that is done is kept.
    """
    started = time.perf_counter()
    sweep = load_sweep(sweep)
    if backend not in BACKENDS:
        raise SweepError(f"backend must be one of {', '.join(BACKENDS)}, not {backend!r}")
    if n_jobs is not None and n_jobs < 1:
        raise SweepError(f"n_jobs must be at least 1, or None for as many as there are cores, not {n_jobs}")
    name, what = as_experiment(experiment or sweep.experiment, device)
    points = check_points(sweep, name, what)
    sweep = replace(sweep, experiment=name)
    store = Store.create(folder, sweep, tuple(points))
    for point, (parameters, identity) in points.items():
        store.note_point(point, name, parameters, identity)
    work = functools.partial(_work, store, name, what, keep_files, retry_failed)
    total = len(points) * len(sweep.all_seeds)
    with _workers(backend, n_jobs, address) as workers, SweepProgress(total, enabled=progress) as bar:
        counts: Counter[str] = Counter()
        guard = threading.Lock()

        def say(outcome: _Outcome) -> None:
            with guard:  # what was done before is found by the threads that hand out the rest
                counts[outcome.status] += 1
                counts["made"] += outcome.made
                bar.add(outcome.status, outcome.run, outcome.error)
            if outcome.made and on_result is not None and outcome.row is not None:
                on_result(outcome.row)

        queue: Iterable[_Task] = _todo(store, points, sweep.all_seeds, retry_failed, say)
        while True:
            elsewhere = _carry_out(store, name, workers, work, queue, say)
            if not elsewhere or not wait:
                break
            time.sleep(_POLL)
            queue = elsewhere
    return SweepReport(
        folder=store.folder,
        total=total,
        done=counts["done"],
        failed=counts["failed"],
        elsewhere=len(elsewhere),
        made=counts["made"],
        seconds=time.perf_counter() - started,
    )


def check_points(sweep: Sweep, name: str, experiment: Experiment) -> dict[str, tuple[Point, Mapping[str, Any]]]:
    """Every point by its id, before anything is run."""
    points: dict[str, tuple[Point, Mapping[str, Any]]] = {}
    for parameters in sweep.points():
        for reserved in RESERVED:
            if reserved in parameters:
                raise SweepError(f"a parameter cannot be called {reserved!r}, which the table of results has already")
        identity = experiment.identity(parameters)
        point = point_id(name, identity)
        if point in points:
            raise SweepError(f"these are the same point: {points[point][0]} and {parameters}")
        points[point] = (parameters, identity)
    return points


def _todo(
    store: Store,
    points: Mapping[str, tuple[Point, Mapping[str, Any]]],
    seeds: tuple[int, ...],
    retry_failed: bool,
    say: Callable[[_Outcome], None],
) -> Iterator[_Task]:
    """What is left to do: first what nobody has begun, so that a run that kills its process comes after the others."""
    begun = []
    for point, (parameters, _) in points.items():
        for seed in seeds:
            task = _Task(run_id(point, seed), point, parameters, seed)
            if _is_recorded(store, task.run):
                say(_Outcome(task.run, "done"))
            elif store.has_failed(task.run) and not retry_failed:
                say(_Outcome(task.run, "failed"))
            elif store.is_started(task.run):
                begun.append(task)
            else:
                yield task
    yield from begun


def _is_recorded(store: Store, run: str) -> bool:
    """Whether there is a record, and a sound one; others are set aside."""
    if not store.is_done(run):
        return False
    try:
        store.read(store.path(run, ".json"))
    except CorruptFileError:
        store.set_aside(store.path(run, ".json"))
        return False
    return True


# --- in a worker -----------------------------------------------------------------------------------------------------


def _work(
    store: Store, name: str, experiment: Experiment, keep_files: bool, retry_failed: bool, task: _Task
) -> _Outcome:
    """Do one run, unless someone else does or did."""
    from tl_dyck.training.seeds import one_thread

    try:
        with store.claim(task.run) as mine:
            if not mine:
                return _Outcome(task.run, "elsewhere")
            if store.is_done(task.run):
                return _Outcome(task.run, "done")
            if store.has_failed(task.run) and not retry_failed:
                return _Outcome(task.run, "failed")
            with one_thread():
                return _attempt(store, name, experiment, keep_files, task)
    except OSError as error:  # of the sweep's own files; those of the experiment are caught below
        return _Outcome(task.run, "stopped", error=_disk(store, error))


def _attempt(store: Store, name: str, experiment: Experiment, keep_files: bool, task: _Task) -> _Outcome:
    record: dict[str, Any] = {
        "id": task.run,
        "point": task.point,
        "experiment": name,
        "parameters": task.parameters,
        "seed": task.seed,
        "started": datetime.now(timezone.utc).isoformat(timespec="seconds"),
        "environment": dict(_environment()),
    }
    folder = store.start(task.run)
    started = time.perf_counter()
    try:
        metrics = _plain(experiment.run(dict(task.parameters), task.seed, folder), task.parameters)
    except Exception as error:
        if isinstance(error, OSError) and error.errno in STOPPERS:
            raise
        line, trace = describe(error)
        took = time.perf_counter() - started
        record["seconds"] = took
        store.write_failure(task.run, record, line, trace, took=took)
        return _Outcome(task.run, "failed", True, line, row_of({**record, "error": line}, "failed"))
    took = time.perf_counter() - started
    record |= {"seconds": took, "metrics": metrics}
    store.write_record(task.run, record, took=took)
    if not keep_files:
        store.drop_files(task.run)
    return _Outcome(task.run, "done", True, "", row_of(record, "done"))


def _plain(metrics: Any, parameters: Point) -> dict[str, Any]:
    """Metrics as JSON values; numbers that are not finite become None."""
    if not isinstance(metrics, Mapping):
        raise TypeError(f"an experiment returns metrics, names to numbers or strings, not {metrics!r:.80}")
    plain: dict[str, Any] = {}
    for key, value in metrics.items():
        if not isinstance(key, str) or key in RESERVED or key in parameters:
            raise TypeError(f"a metric cannot be called {key!r}: a parameter or column of the results has that name")
        if hasattr(value, "item"):  # of numpy or torch
            value = value.item()
        if isinstance(value, float) and not math.isfinite(value):
            value = None
        if value is not None and not isinstance(value, (bool, int, float, str)):
            raise TypeError(f"metric {key!r} is a number, a string, a boolean or None, not {value!r:.80}")
        plain[key] = value
    return plain


def row_of(record: Mapping[str, Any], status: str) -> dict[str, Any]:
    """A record as a row of the table of results."""
    return {
        "id": record["id"],
        "point": record["point"],
        "experiment": record["experiment"],
        **record["parameters"],
        "seed": record["seed"],
        "status": status,
        **record.get("metrics", {}),
        "error": record.get("error"),
        "seconds": record["seconds"],
        "started": record["started"],
        **record["environment"],
    }


@functools.lru_cache(maxsize=1)
def _environment() -> Mapping[str, Any]:
    """Versions and hardware, flat."""
    from tl_dyck.study.results import environment

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


def _disk(store: Store, error: OSError) -> str:
    return f"cannot write to {str(store.folder)!r}: {error.strerror or error}; what was done is kept"


# --- dispatching -----------------------------------------------------------------------------------------------------


@dataclass
class _Queue:
    """An iterator that remembers what was handed out and not heard of since; joblib takes from it in its threads."""

    tasks: Iterator[_Task]
    out: dict[str, _Task] = field(default_factory=dict)
    lock: threading.Lock = field(default_factory=threading.Lock)

    def __iter__(self) -> Iterator[_Task]:
        while True:
            with self.lock:
                task = next(self.tasks, None)
                if task is None:
                    return
                self.out[task.run] = task
            yield task


def _carry_out(
    store: Store,
    name: str,
    workers: Callable[..., Iterator[_Outcome]],
    work: Callable[[_Task], _Outcome],
    tasks: Iterable[_Task],
    say: Callable[[_Outcome], None],
) -> list[_Task]:
    """Have the tasks done; returns those that other processes were doing.

    If a worker is killed, its pool dies with it. Then what had been begun and not finished is done again, one run at a
    time: a run that kills its worker again has failed, for no other can be to blame.
    """
    elsewhere: list[_Task] = []
    queue = _Queue(iter(tasks))

    def hear(outcomes: Iterator[_Outcome]) -> None:
        for outcome in outcomes:
            task = queue.out.pop(outcome.run)
            if outcome.status == "stopped":
                raise OSError(outcome.error)
            if outcome.status == "elsewhere":
                elsewhere.append(task)
            else:
                say(outcome)

    while True:
        try:
            hear(workers(work, queue))
            return elsewhere
        except OSError:
            raise
        except Exception as error:
            lost = list(queue.out.values())
            suspects = [task for task in lost if store.is_started(task.run) and not store.is_done(task.run)]
            if not suspects:
                raise  # it was no run's fault: what is to be done cannot be sent, the cluster is gone
            queue.out.clear()
            for suspect in suspects:
                queue.out[suspect.run] = suspect
                try:
                    hear(workers(work, iter([suspect])))
                except OSError:
                    raise
                except Exception as again:
                    say(_died(store, name, queue.out.pop(suspect.run), again or error))
            rest = [task for task in lost if task not in suspects]
            queue.tasks = _chain(rest, queue.tasks)


def _chain(first: list[_Task], rest: Iterator[_Task]) -> Iterator[_Task]:
    yield from first
    yield from rest


def _died(store: Store, name: str, task: _Task, error: BaseException) -> _Outcome:
    """Write down that a run took its worker with it, twice."""
    line = f"the process that ran it died, twice: killed, or out of memory? ({type(error).__name__})"
    record = {
        "id": task.run,
        "point": task.point,
        "experiment": name,
        "parameters": task.parameters,
        "seed": task.seed,
        "started": datetime.now(timezone.utc).isoformat(timespec="seconds"),
        "environment": dict(_environment()),
        "seconds": 0.0,
    }
    with store.claim(task.run) as mine:
        if not mine or store.is_done(task.run):
            return _Outcome(task.run, "done" if store.is_done(task.run) else "failed")
        store.write_failure(task.run, record, line, f"{line}\n{error}", took=math.inf)
    return _Outcome(task.run, "failed", True, line, row_of({**record, "error": line}, "failed"))


@contextlib.contextmanager
def _workers(backend: str, n_jobs: int | None, address: str | None) -> Iterator[Callable[..., Iterator[_Outcome]]]:
    """A function that has tasks done and yields outcomes as they come."""
    with contextlib.ExitStack() as stack:
        options: dict[str, Any] = {"backend": backend}
        jobs = -1 if n_jobs is None else n_jobs
        if backend == "loky":
            jobs = n_jobs or cpu_count()
            options["inner_max_num_threads"] = 1
        elif backend == "dask":
            options["client"] = stack.enter_context(_dask_client(address, n_jobs))
        else:
            stack.enter_context(_ray(address, n_jobs))

        def workers(work: Callable[[_Task], _Outcome], tasks: Iterable[_Task]) -> Iterator[_Outcome]:
            with parallel_config(**options):
                if backend != "ray":
                    parallel = Parallel(n_jobs=jobs, return_as="generator_unordered")
                    yield from parallel(delayed(work)(task) for task in tasks)
                    return
                iterator = iter(tasks)  # this backend returns lists
                while wave := [task for task, _ in zip(iterator, range(_WAVE * cpu_count()), strict=False)]:
                    yield from Parallel(n_jobs=jobs)(delayed(work)(task) for task in wave)

        yield workers


@contextlib.contextmanager
def _dask_client(address: str | None, n_jobs: int | None) -> Iterator[Any]:
    try:
        from dask.distributed import Client, LocalCluster
    except ImportError as error:
        raise MissingBackendError("the dask backend needs dask: pip install 'tl-dyck[dask]'") from error
    with contextlib.ExitStack() as stack:
        if address is None:
            cluster = LocalCluster(n_workers=n_jobs, threads_per_worker=1, processes=True, dashboard_address=None)
            address = stack.enter_context(cluster).scheduler_address
        try:
            client = stack.enter_context(Client(address, timeout="20s", set_as_default=False))
        except (OSError, ValueError) as error:
            raise SweepError(f"no dask scheduler answers at {address!r}: {error}") from error
        yield client


@contextlib.contextmanager
def _ray(address: str | None, n_jobs: int | None) -> Iterator[None]:
    try:
        import ray
        from ray.util.joblib import register_ray
    except ImportError as error:
        raise MissingBackendError("the ray backend needs ray: pip install 'tl-dyck[ray]'") from error
    mine = not ray.is_initialized()
    if mine:
        try:
            ray.init(address=address, num_cpus=n_jobs if address is None else None, include_dashboard=False)
        except (ConnectionError, ValueError) as error:
            raise SweepError(f"no ray cluster answers at {address!r}: {error}") from error
    register_ray()
    try:
        yield
    finally:
        if mine:
            ray.shutdown()
