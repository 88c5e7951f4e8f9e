"""Where runs are carried out: in processes of this machine, on a cluster, or where you say.

Knows: how work gets to a cluster, and when there is no hope that anything comes back from it.
"""

from __future__ import annotations

import contextlib
import logging
import pickle
import time
from collections.abc import Callable, Iterator
from concurrent.futures import BrokenExecutor, Future
from contextlib import AbstractContextManager
from dataclasses import dataclass
from functools import partial
from typing import Any, final

from tl_dyck.kit.check import check_integer
from tl_dyck.kit.errors import needed
from tl_dyck.kit.processes import Sent
from tl_dyck.kit.registry import Registry
from tl_dyck.kit.workers import WorkerDiedError, Workers, check_jobs, workers_here
from tl_dyck.runs.spec import SweepError

#: A backend is a context manager of the number of workers that is asked for (None: as many as
#: may be) and of a scheduler's address (None: there is none yet); it gives `Workers`. Its attribute
#: ``deaths``, if it has one, names the errors which say that a worker died with its work, and
#: ``here`` is True if its workers are processes of this machine.
Backend = Callable[[int | None, str | None], AbstractContextManager[Workers]]

backends: Registry[Backend] = Registry("backend", "tl_dyck.backends")
register_backend = backends.register
"""Decorator that registers a backend of your own: see `Registry.register`."""


_PATIENCE = 60.0  # seconds without a scheduler or a worker, after which a sweep gives up
_ANSWER = 10.0  # seconds that a cluster has to answer a question
_LOOK = 2.0  # seconds between two questions
_KEPT = "what is done is kept, and the same command goes on with the rest"


def open_workers(
    backend: str, n_jobs: int | None, address: str | None
) -> AbstractContextManager[Workers]:
    """Workers of this machine or of a cluster.

    Raises:
        UnknownNameError: no such backend.
        MissingPackageError: its library is not installed.
        SweepError: it cannot be reached, or has no workers, within a minute.
        WrongValueError: `n_jobs` is too small, or too large for this machine.
    """
    return backends.get(backend)(n_jobs, address)


def is_death(backend: str, error: Exception) -> bool:
    """Whether an error says that a worker died with its work, as far as the backend can tell."""
    return type(error).__name__ in getattr(backends.get(backend), "deaths", ())


def is_here(backend: str) -> bool:
    """Whether a backend's workers are processes of this machine, as far as it says."""
    return bool(getattr(backends.get(backend), "here", False))


@final
@dataclass
class ExecutorWorkers:
    """`Workers` of whatever has a method ``submit`` as executors of `concurrent.futures` have.

    Attributes:
        executor: takes functions and arguments that can be pickled, and returns futures.
        size: how many calls it makes at a time.
        anew: makes another executor, where one takes no more work once a worker was killed, as a
            `ProcessPoolExecutor`; without it a sweep ends there with a `WorkerDiedError`.
    """

    executor: Any
    size: int
    anew: Callable[[], Any] | None = None

    @property
    def ahead(self) -> int:
        """Two for each, so that none waits."""
        return 2 * self.size

    def send(self, function: Callable[..., Any]) -> Callable[..., Any]:
        """With what only this process has registered."""
        return Sent(function)

    def submit(self, function: Callable[..., Any], *arguments: Any) -> Future[Any]:
        """Have it called."""
        try:
            future: Future[Any] = self.executor.submit(function, *arguments)
        except BrokenExecutor as error:  # since the last call
            if self.anew is None:
                raise WorkerDiedError(
                    f"a worker was killed, and its executor takes no more work; {_KEPT}"
                ) from error
            self.executor = self.anew()
            future = self.executor.submit(function, *arguments)
        return future

    def look(self) -> None:
        """Whatever is lost is raised by its future."""


@final
@dataclass(frozen=True)
class _Ours:
    """A backend with the errors of its library, and whether its workers are of this machine."""

    open: Callable[[int | None, str | None], AbstractContextManager[Workers]]
    deaths: tuple[str, ...]
    here: bool

    def __call__(self, n_jobs: int | None, address: str | None) -> AbstractContextManager[Workers]:
        return self.open(n_jobs, address)


def _here(n_jobs: int | None, address: str | None) -> AbstractContextManager[Workers]:
    return workers_here(check_jobs(n_jobs))


@contextlib.contextmanager
def _cluster(n_jobs: int | None, address: str | None) -> Iterator[Workers]:
    most = None
    if address is None:
        n_jobs = check_jobs(n_jobs)
    elif n_jobs is not None:
        most = check_integer("n_jobs", n_jobs, 1)
    with _dask(address, n_jobs) as found:
        yield _Cluster(found, most)


class _Cluster:
    """Workers that may come, go, and be lost."""

    def __init__(self, library: _Dask, most: int | None) -> None:
        self._library, self._most = library, most
        self._cores, self._next, self._seen = 0, 0.0, time.monotonic()
        self.look()
        # `look` gives up after `_PATIENCE`, so that this ends
        while not self._cores:
            time.sleep(_LOOK)
            self.look()

    @property
    def size(self) -> int:
        # at least 1: workers may have gone, and come again
        return max(1, min(self._cores, self._most or self._cores))

    @property
    def ahead(self) -> int:
        return self._most or 2 * self.size

    def send(self, function: Callable[..., Any]) -> Callable[..., Any]:
        return Sent(function)

    def submit(self, function: Callable[..., Any], *arguments: Any) -> Future[Any]:
        future: Future[Any] = Future()
        task = pickle.dumps((function, arguments))  # dask looks into what is not bytes
        try:
            self._library.submit(task, future)
        except Exception as error:  # whatever dask raises when it has lost its cluster
            raise SweepError(
                f"{self._library.name} takes no more work ({error}); {_KEPT}"
            ) from error
        return future

    def look(self) -> None:
        """Ask how many workers there are.

        Raises:
            SweepError: there has been no answer, or none but "none", for a minute.
        """
        if time.monotonic() < self._next:
            return
        wrong = "has no workers"
        try:
            self._cores = self._library.cores()
        except Exception as error:  # whatever dask raises when it has lost its cluster
            self._cores, wrong = 0, f"does not answer ({type(error).__name__}: {error})"
        now = time.monotonic()
        self._next = now + _LOOK
        if self._cores:
            self._seen = now
        elif self._library.is_closed() or now - self._seen > _PATIENCE:
            raise SweepError(
                f"{self._library.name} {wrong}, for {now - self._seen:.0f} s now; {_KEPT}"
            )


def _run(task: bytes) -> Any:
    """Called by a worker of a cluster."""
    function, arguments = pickle.loads(task)
    return function(*arguments)


def _tell(future: Future[Any], theirs: Any) -> None:
    """Tell a future what has come of dask's; nothing can keep it waiting."""
    try:
        # it is done when this is called: a moment should do, and nobody may wait for ever
        result = theirs.result(timeout=_PATIENCE)
    except BaseException as error:  # some that say "cancelled" are no Exception
        lost = SweepError(f"the cluster lost a task ({type(error).__name__}: {error})")
        future.set_exception(error if isinstance(error, Exception) else lost)
    else:
        future.set_result(result)


class _Dask:
    def __init__(self, client: Any, address: str) -> None:
        self.name, self._client = f"the dask scheduler at {address!r}", client

    def cores(self) -> int:
        ask = self._client.scheduler.ncores
        return sum(self._client.sync(ask, callback_timeout=_ANSWER).values())

    def is_closed(self) -> bool:
        return bool(self._client.status == "closed")

    def submit(self, task: bytes, future: Future[Any]) -> None:
        # not pure: dask would take a run that is asked for again for the one that was lost
        theirs = self._client.submit(_run, task, pure=False)
        future.theirs = theirs  # type: ignore[attr-defined]  # dask forgets what nobody holds
        theirs.add_done_callback(partial(_tell, future))


@contextlib.contextmanager
def _dask(address: str | None, n_workers: int | None) -> Iterator[_Dask]:
    distributed = needed("dask.distributed", "the dask backend", "dask")
    log = logging.getLogger("distributed.client")  # its tracebacks of what we say in one line
    level = log.level
    with contextlib.ExitStack() as stack:
        if address is None:
            cluster = distributed.LocalCluster(
                # one thread, as on this machine; port 0 is any that is free: several sweeps may run
                n_workers=n_workers,
                threads_per_worker=1,
                processes=True,
                dashboard_address=":0",
            )
            address = stack.enter_context(cluster).scheduler_address
        try:
            client = distributed.Client(address, timeout="20s", set_as_default=False)
        except (OSError, ValueError) as error:
            raise SweepError(f"no dask scheduler answers at {address!r}: {error}") from error
        try:
            log.setLevel(logging.CRITICAL)
            yield _Dask(client, address)
        finally:
            with contextlib.suppress(Exception):  # nobody may be there to say goodbye to
                client.close(timeout=_ANSWER)
            log.setLevel(level)


_HERE = _Ours(_here, ("BrokenProcessPool", "TerminatedWorkerError"), here=True)
backends.include("loky", _HERE, "Processes of this machine.")
backends.include("dask", _Ours(_cluster, ("KilledWorker",), here=False), "A dask cluster.")
