"""Run a sweep: worker processes on one machine, or on a cluster through joblib's own backends."""

from __future__ import annotations

import contextlib
import errno
import functools
import itertools
import math
import platform
import threading
import time
import warnings
from collections import Counter
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from datetime import datetime, timezone
from pathlib import Path
from typing import Any, final

from joblib import Parallel, cpu_count, delayed, parallel_config

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
    errno: int = 0
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
            ended = store.ended(task.run)
            if ended == "done" or (ended == "failed" and not retry_failed):
                say(_Outcome(task.run, ended))
            elif store.is_started(task.run):
                begun.append(task)
            else:
                yield task
    yield from begun


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
            ended = store.ended(task.run, aside=True)
            if ended == "done" or (ended == "failed" and not retry_failed):
                return _Outcome(task.run, ended)
            with one_thread():
                return _attempt(store, name, experiment, keep_files, task)
    except OSError as error:  # of the sweep's own files; those of the experiment are caught below
        return _Outcome(task.run, "stopped", error=_disk(store, error), errno=error.errno or errno.EIO)


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
    except (Exception, SystemExit) as error:  # one run that gives up does not end the sweep
        if isinstance(error, OSError) and error.errno in STOPPERS:
            raise
        line, trace = describe(error)
        took = time.perf_counter() - started
        record["seconds"] = took
        store.write_failure(task.run, record, line, trace, took=took)
        return _Outcome(task.run, "failed", True, line, row=row_of({**record, "error": line}, "failed"))
    took = time.perf_counter() - started
    record |= {"seconds": took, "metrics": metrics}
    store.write_record(task.run, record, took=took)
    if not keep_files:
        store.drop_files(task.run)
    return _Outcome(task.run, "done", True, row=row_of(record, "done"))


def _plain(metrics: Any, parameters: Point) -> dict[str, Any]:
    """Metrics as JSON values; numbers that are not finite become None."""
    if not isinstance(metrics, Mapping):
        raise TypeError(f"an experiment returns metrics, names to numbers or strings, not {metrics!r:.80}")
    plain: dict[str, Any] = {}
    for key, value in metrics.items():
        if not isinstance(key, str) or not key or key in RESERVED or key in parameters:
            raise TypeError(f"a metric cannot be called {key!r}: a parameter or column of the results has that name")
        if hasattr(value, "item"):  # of numpy or torch
            value = value.item()
        if isinstance(value, float) and not math.isfinite(value):
            value = None
        if value is not None and not isinstance(value, (bool, int, float, str)):
            raise TypeError(f"metric {key!r} is a number, a string, a boolean or None, not {value!r:.80}")
        if isinstance(value, int) and not -(2**63) <= value < 2**63:
            raise TypeError(f"metric {key!r} is an integer of more than 64 bits; return a float")
        plain[_unicode(key)] = _unicode(value) if isinstance(value, str) else value
    return plain


def _unicode(text: str) -> str:
    """Text that can be written as UTF-8; what is not Unicode (names of files can be so) is escaped."""
    return text.encode(errors="backslashreplace").decode()


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


@final
class _Queue:
    """Tasks for joblib, which takes them in its threads; remembers those that were handed out and not heard of since.

    Attributes:
        tasks: what is left.
        out: run to task, handed out.
        error: what `tasks` raised; joblib would wait for ever if it met that in a thread.
    """

    def __init__(self, tasks: Iterator[_Task]) -> None:
        self.tasks = tasks
        self.out: dict[str, _Task] = {}
        self.error: BaseException | None = None
        self._closed = False
        self._lock = threading.Lock()

    def __iter__(self) -> Iterator[_Task]:
        while True:
            with self._lock:
                try:
                    task = None if self._closed else next(self.tasks, None)
                except BaseException as error:
                    self.error, task = error, None
                if task is None:
                    return
                self.out[task.run] = task
            yield task

    def close(self) -> None:
        """Hand out nothing more; what is left stays in `tasks`."""
        with self._lock:
            self._closed = True


def _carry_out(
    store: Store,
    name: str,
    workers: Callable[..., Generator[_Outcome, None, None]],
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
    while True:
        broken = _hear(workers(work, queue), queue, elsewhere, say)
        if broken is None:
            return elsewhere
        queue.close()
        ended: list[_Task] = []
        suspects: list[_Task] = []
        rest: list[_Task] = []
        for task in queue.out.values():
            (ended if store.is_done(task.run) else suspects if store.is_started(task.run) else rest).append(task)
        if not suspects and not ended:
            raise broken  # it was no run's fault: what is to be done cannot be sent, the cluster is gone
        for task in ended:  # done in a parcel whose end was not reached
            record = store.read(store.path(task.run, ".json"))
            say(_Outcome(task.run, "done", True, row=row_of(record, "done")))
        for task in suspects:
            alone = _Queue(iter([task]))
            again = _hear(workers(work, alone), alone, elsewhere, say)
            if again is not None:
                outcome = _died(store, name, task, again)
                if outcome.status == "elsewhere":
                    elsewhere.append(task)
                else:
                    say(outcome)
        queue = _Queue(itertools.chain(rest, queue.tasks))


def _hear(
    outcomes: Generator[_Outcome, None, None],
    queue: _Queue,
    elsewhere: list[_Task],
    say: Callable[[_Outcome], None],
) -> Exception | None:
    """Say what comes; returns what broke the workers, if anything did.

    If the disk is full, or `say` raises, nothing more is handed out; what has been ends, and counts, before the error
    is raised.
    """
    stopped: BaseException | None = None
    try:
        while True:
            try:
                outcome = next(outcomes)
            except StopIteration:
                break
            except OSError:
                raise
            except Exception as error:
                if stopped is not None:
                    break
                return error
            task = queue.out.pop(outcome.run)
            try:
                if outcome.status == "stopped":
                    raise OSError(outcome.errno, outcome.error)
                if outcome.status == "elsewhere":
                    elsewhere.append(task)
                else:
                    say(outcome)
            except Exception as error:
                queue.close()
                stopped = stopped or error
    finally:
        with warnings.catch_warnings():  # that runs are abandoned, after Ctrl-C
            warnings.simplefilter("ignore")
            outcomes.close()
    stopped = stopped or queue.error
    if stopped is not None:
        raise stopped
    return None


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
        if not mine:
            return _Outcome(task.run, "elsewhere")
        if store.is_done(task.run):
            return _Outcome(task.run, "done")
        store.write_failure(task.run, record, line, f"{line}\n{error}", took=math.inf)
    return _Outcome(task.run, "failed", True, line, row=row_of({**record, "error": line}, "failed"))


@contextlib.contextmanager
def _workers(
    backend: str, n_jobs: int | None, address: str | None
) -> Iterator[Callable[..., Generator[_Outcome, None, None]]]:
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

        def workers(work: Callable[[_Task], _Outcome], tasks: Iterable[_Task]) -> Generator[_Outcome, None, None]:
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
