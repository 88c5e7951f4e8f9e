"""Run a sweep: find what is left to do, hand it out, and go on when workers die."""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, TypedDict

from tl_dyck.kit.arguments import checked
from tl_dyck.kit.check import check_integer
from tl_dyck.kit.environment import default_jobs
from tl_dyck.kit.errors import DyckError
from tl_dyck.kit.workers import WorkerDiedError, Workers, check_jobs, each_done
from tl_dyck.runs.backends import backends, is_death, is_here, open_workers
from tl_dyck.runs.experiments import Experiment, Points, as_experiment, check_points
from tl_dyck.runs.progress import SweepProgress
from tl_dyck.runs.spec import Sweep, load_sweep
from tl_dyck.runs.status import SweepStatus, sweep_status
from tl_dyck.runs.store import Store, row_of, run_id
from tl_dyck.runs.worker import Assignment, Outcome, Parcel, Worker

_POLL = 1.0  # seconds between two looks at what other processes are doing
_TRIES = 3  # of a run that was lost, alone, by a cluster that does not say that its worker died


class RunOptions(TypedDict, total=False):
    """Options of everything that is many runs, see `run_sweep`."""

    n_jobs: int | None
    backend: str
    address: str | None
    retry_failed: bool
    keep_files: bool
    wait: bool
    limit: int | None
    on_result: Callable[[dict[str, Any]], None] | None
    progress: bool


@checked
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
    limit: int | None = None,
    device: str | None = None,
    on_result: Callable[[dict[str, Any]], None] | None = None,
    progress: bool = True,
) -> SweepStatus:
    """Carry out every run of a sweep that is not done yet.

    It may be started again after any interruption, and in any number of processes on one folder at
    a time: every run is done once. A run that raises is kept with its traceback, and the others go
    on.

    Args:
        sweep: a `Sweep`, a mapping like one, or a YAML or JSON file.
        folder: where everything is kept; with more than one machine, one that all of them see.
        experiment: what to do at each point, instead of what the sweep names: a registered name, a
            function ``(point, seed, folder) -> metrics``, or an `Experiment`.
        n_jobs: worker processes of one torch thread each, at most eight per core; None for one per
            core (for one, if the experiment's models are on a GPU), or for all of a cluster. With
            1, runs are done in this process.
        backend: "loky" for worker processes on this machine; "dask" for a cluster; or one that is
            registered, see `tl_dyck.runs.backends`.
        address: of the cluster's scheduler; None for one that is made here.
        retry_failed: whether to try runs again that failed before.
        keep_files: whether to keep what runs leave in their folders (models, patterns), or their
            records only.
        wait: whether to wait for runs that other processes are doing (and to take them over if
            those die), or return.
        limit: how many runs this call begins at most; None for all that are left. It does not wait
            for others then.
        device: of the models, for experiments that have some.
        on_result: called here with a row of the table of results for every run that this call did.
        progress: whether to show a progress bar.

    Returns:
        How the sweep stands after it, with what was made, and in how many seconds.

    Raises:
        SweepError: the sweep, or one of its points, is not valid: nothing was run. Or a cluster is
            gone or without workers for a minute: what is done is kept.
        NotSentError: the experiment cannot be sent to workers, or not be loaded by them.
        UnknownNameError: no such backend, experiment, task, family or parameter. Nothing was run.
        CorruptFileError: the folder holds a sweep of another version.
        MissingPackageError: the backend is not installed.
        OSError: the folder cannot be written, the disk is full; everything that is done is kept.
    """
    started = time.perf_counter()
    sweep = load_sweep(sweep)
    backends.get(backend)
    if limit is not None:
        limit = check_integer("limit", limit, 1)
    name, what = as_experiment(experiment or sweep.experiment, device)
    n_jobs = _processes(n_jobs, backend, address, what)
    points = check_points(sweep, name, what)
    asked = {**sweep.to_dict(), "experiment": name}
    notes = {point: note for point, (note, *_) in points.items()}
    store = Store.create(folder, asked, tuple(points), notes)
    store.tidy()
    worker = Worker(store, name, what, keep_files, retry_failed)
    wanted = {run_id(point, seed) for point, (*_, seeds) in points.items() for seed in seeds}
    kept = ("done",) if retry_failed else ("done", "failed")  # what counts as ended
    total, before = len(wanted), sum(run in wanted and how in kept for run, how in store.names())
    with (
        open_workers(backend, n_jobs, address) as workers,
        SweepProgress(total, before=before, limit=limit, enabled=progress) as bar,
    ):
        made = 0

        def say(outcome: Outcome) -> None:
            nonlocal made
            made += outcome.made
            bar.add(outcome.status, outcome.run, outcome.error, made=outcome.made)
            if outcome.made and on_result is not None and outcome.row is not None:
                on_result(outcome.row)

        # no worker goes without, however many runs an experiment does together
        most = max(1, total // workers.size)
        parcels: Iterable[Parcel] = _todo(worker, points, most, say)
        if limit is not None:
            parcels, wait = _first(parcels, limit), False
        while True:
            elsewhere = _carry_out(worker, workers, parcels, say, backend)
            if not elsewhere or not wait:
                break
            time.sleep(_POLL)
            parcels = [(task,) for task in elsewhere]  # one by one: some are done by now
    seconds = time.perf_counter() - started
    return replace(sweep_status(store.folder), made=made, seconds=seconds)


def _processes(
    n_jobs: int | None, backend: str, address: str | None, what: Experiment
) -> int | None:
    """How many workers are asked for; None for as many as there may be."""
    if n_jobs is not None:  # of a cluster, more than this machine has
        return check_integer("n_jobs", n_jobs, 1) if address else check_jobs(n_jobs)
    if is_here(backend) and hasattr(what, "device"):
        return default_jobs(what.device)
    return None


def _todo(
    worker: Worker,
    points: Points,
    most: int,
    say: Callable[[Outcome], None],
) -> Iterator[Parcel]:
    """List the runs that are left: first those that nobody has begun.

    So a run that kills its process comes after the others.

    Seeds of one point that the experiment does sooner together are handed out together, `most` at
    most.
    """
    begun: list[Assignment] = []
    for point, (note, pack, seeds) in points.items():
        # a pack of 0 is none
        size = max(1, min(most, pack))
        fresh: list[Assignment] = []
        for seed in seeds:
            task = Assignment(run_id(point, seed), point, note["parameters"], seed)
            ended = worker.store.ended(task.run)
            if worker.is_over(ended):
                say(Outcome(task.run, ended))
            elif worker.store.is_started(task.run):
                begun.append(task)
            else:
                fresh.append(task)
            if len(fresh) == size:
                yield tuple(fresh)
                fresh = []
        if fresh:
            yield tuple(fresh)
    for task in begun:
        yield (task,)


def _first(parcels: Iterable[Parcel], limit: int) -> Iterator[Parcel]:
    """Parcels of so many runs in all."""
    for parcel in parcels:
        # the last parcel may be cut
        yield parcel[:limit]
        limit -= len(parcel)
        if limit <= 0:
            return


# --- dispatching ----------------------------------------------------------------------------------


def _carry_out(
    worker: Worker,
    workers: Workers,
    parcels: Iterable[Parcel],
    say: Callable[[Outcome], None],
    backend: str,
) -> list[Assignment]:
    """Have everything done; returns what other processes were doing.

    What had been begun by a process that died, and is not finished, is done again, one run at a
    time: a run that kills its worker again has failed, for no other can be to blame. (A pool of
    processes on this machine dies with any of them. Of a cluster that says no more than that it
    lost the run, it is asked some times: that can be a connection.)
    """
    store = worker.store
    elsewhere: list[Assignment] = []
    once_lost: set[str] = set()

    def heard(outcome: Outcome) -> None:
        """A lost run that is found done was done by the worker that was taken for dead."""
        if outcome.run in once_lost and outcome.status == "done" and outcome.row is None:
            record = store.read(store.path(outcome.run, ".json"))
            outcome = Outcome(outcome.run, "done", True, row=row_of(record, "done"))
        say(outcome)

    left = iter(parcels)
    while lost := _hear(worker, workers, left, elsewhere, heard):
        tasks = [task for parcel, _ in lost for task in parcel]
        once_lost.update(task.run for task in tasks)
        ended = [task for task in tasks if store.is_done(task.run)]
        suspects = [task for task in tasks if task not in ended and store.is_started(task.run)]
        rest = [task for task in tasks if task not in ended and task not in suspects]
        # no run was begun: to hand them out again would lose them again
        if not suspects and not ended:
            raise _nobodys_fault(lost[0][1])
        for task in ended:  # done in a parcel whose end was not reached
            heard(Outcome(task.run, "done"))
        for task in suspects:
            for _ in range(_TRIES):
                again = _hear(worker, workers, iter([(task,)]), elsewhere, heard)
                if not again or is_death(backend, again[0][1]):
                    break
            for _, error in again:
                outcome = worker.died(task, error)
                if outcome.status == "elsewhere":
                    elsewhere.append(task)
                else:
                    heard(outcome)
        left = itertools.chain([(task,) for task in rest], left)
    return elsewhere


def _nobodys_fault(error: Exception) -> DyckError:
    """What to say if work came back undone before it was begun."""
    if isinstance(error, DyckError):
        return error
    line = (str(error).splitlines() or [""])[0]
    return WorkerDiedError(
        "workers ended, or lost their work, before they had begun anything "
        f"({type(error).__name__}: {line}); what is done is kept"
    )


def _hear(
    worker: Worker,
    workers: Workers,
    parcels: Iterator[Parcel],
    elsewhere: list[Assignment],
    say: Callable[[Outcome], None],
) -> list[tuple[Parcel, Exception]]:
    """Hand out parcels, and say what comes; returns those that were lost, with what was raised.

    Once one is lost, or the disk is full, or `say` raises, nothing more is handed out: what is left
    stays in `parcels`. What has been handed out ends, and counts, before such an error is raised.
    """
    lost: list[tuple[Parcel, Exception]] = []
    stopped: list[Exception] = []

    def handed_out() -> Iterator[Parcel]:
        while not lost and not stopped:
            try:
                yield next(parcels)
            except StopIteration:
                return
            except Exception as error:
                stopped.append(error)

    for parcel, future in each_done(workers, worker, handed_out()):
        try:
            outcomes: list[Outcome] = future.result()
        except Exception as error:
            lost.append((parcel, error))
            continue
        of = {task.run: task for task in parcel}
        for outcome in outcomes:
            try:
                if outcome.status == "stopped":
                    # with its number: callers tell a full disk by it
                    raise OSError(outcome.errno, outcome.error)
                if outcome.status == "elsewhere":
                    elsewhere.append(of[outcome.run])
                else:
                    say(outcome)
            except Exception as error:
                stopped.append(error)
    if stopped:
        raise stopped[0]
    return lost
