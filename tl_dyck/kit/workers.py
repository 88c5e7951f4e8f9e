"""Work for many processes: how many there may be, how they get it, and that they end with ours.

Knows: what a number of jobs means, what a worker does first, and how long to wait for a dead one.
"""

from __future__ import annotations

import contextlib
import functools
import itertools
import multiprocessing
import os
import threading
import time
import warnings
from collections.abc import Callable, Generator, Iterable
from concurrent.futures import FIRST_COMPLETED, BrokenExecutor, Future, wait
from typing import Any, Protocol, TypeVar

from tl_dyck.kit.check import WrongValueError, check_integer
from tl_dyck.kit.errors import DyckError
from tl_dyck.kit.processes import Sent

_PER_CORE = 8  # worker processes at most: each takes some 300 MB, and more of them do not help
_KEPT = 60.0  # seconds that idle worker processes wait for more to do
_WATCH = 0.5  # seconds between two looks at the parent
_PATIENCE = 10.0  # seconds for workers that were killed to be gone
_ONE_THREAD = dict.fromkeys(
    [
        *(f"{name}_NUM_THREADS" for name in ("OMP", "OPENBLAS", "MKL", "BLIS", "NUMBA", "NUMEXPR")),
        "VECLIB_MAXIMUM_THREADS",
    ],
    "1",
)

Item = TypeVar("Item")
Result = TypeVar("Result")


class WorkerDiedError(DyckError, RuntimeError):
    """A worker process was killed, and what it was doing is lost."""


def check_jobs(n_jobs: object) -> int:
    """How many workers are wanted: 1 to eight for each core; None for one per core."""
    jobs = None if n_jobs is None else check_integer("n_jobs", n_jobs, least=1)
    if jobs == 1:  # whose cores need not be counted
        return 1
    from joblib import cpu_count

    cores = int(cpu_count())
    if jobs is None:
        return cores
    if jobs > _PER_CORE * cores:
        raise WrongValueError(
            f"n_jobs must be at most {_PER_CORE * cores}, {_PER_CORE} for each of the {cores} "
            f"cores that this process may use, got {n_jobs}"
        )
    return jobs


class Workers(Protocol):
    """Whoever calls functions for this process: itself, processes beside it, a cluster."""

    @property
    def size(self) -> int:
        """How many calls are made at a time."""

    @property
    def ahead(self) -> int:
        """How many calls to hand out before the first has come back, so that none goes idle."""

    def send(self, function: Callable[..., Any]) -> Callable[..., Any]:
        """The function as it can be submitted, as often as one likes."""

    def submit(self, function: Callable[..., Any], *arguments: Any) -> Future[Any]:
        """Have it called."""

    def look(self) -> None:
        """Raise an error if there is no hope that anything comes back; asked again and again."""


def each_done(
    workers: Workers, function: Callable[[Item], Any], items: Iterable[Item]
) -> Generator[tuple[Item, Future[Any]], None, None]:
    """Have a function called with each item, and yield items with what came of them, as it comes.

    Items are taken one by one as there is need for them, in the thread of the caller.
    """
    waiting: dict[Future[Any], Item] = {}
    iterator, work = iter(items), workers.send(function)
    while True:
        for item in itertools.islice(iterator, max(0, workers.ahead - len(waiting))):
            waiting[workers.submit(work, item)] = item
        if not waiting:
            return
        done, _ = wait(waiting, timeout=1.0, return_when=FIRST_COMPLETED)
        for future in done:
            yield waiting.pop(future), future
        workers.look()


def spread(
    function: Callable[..., Result],
    calls: Iterable[tuple[Any, ...]],
    n_jobs: int,
    *,
    ordered: bool = True,
) -> Generator[Result, None, None]:
    """Call a function with many arguments, in worker processes of this machine.

    Who closes the generator before its end stops the workers.

    Args:
        function: what is the same for all calls is best bound to it (`functools.partial`): a worker
            reads it once.
        calls: arguments; taken as there is need for them.
        n_jobs: from `check_jobs`; with 1, everything is done here.
        ordered: whether results come in the order of the calls, or each as soon as it is there.

    Raises:
        WorkerDiedError: a worker was killed.
        NotSentError: the function cannot be sent to workers.
    """
    with workers_here(n_jobs) as workers:
        ready: dict[int, Result] = {}
        following = 0
        work = functools.partial(_call, function)
        for (number, _), future in each_done(workers, work, enumerate(calls)):
            try:
                result = future.result()
            except BrokenExecutor as error:
                raise WorkerDiedError(
                    f"a worker process was killed, perhaps for want of memory: {error}"
                ) from error
            if not ordered:
                yield result
                continue
            ready[number] = result
            while following in ready:
                yield ready.pop(following)
                following += 1


def _call(function: Callable[..., Any], numbered: tuple[int, tuple[Any, ...]]) -> Any:
    return function(*numbered[1])


def workers_here(n_jobs: int) -> contextlib.AbstractContextManager[Workers]:
    """Worker processes of one thread each, which end when this one does; with 1, itself."""
    if n_jobs == 1 or multiprocessing.current_process().daemon:  # which may have no children
        return contextlib.nullcontext(_ThisProcess())
    return _Processes(n_jobs)


class _ThisProcess:
    """Does at once what it is given, and raises what that raises."""

    size = ahead = 1

    def send(self, function: Callable[..., Any]) -> Callable[..., Any]:
        return function

    def submit(self, function: Callable[..., Any], *arguments: Any) -> Future[Any]:
        future: Future[Any] = Future()
        future.set_result(function(*arguments))
        return future

    def look(self) -> None:
        pass


class _Processes:
    """A pool of loky's. A worker that is killed takes the others along; then there is a new one.

    Workers that have nothing left to do in the end are kept for who next asks for as many; others
    are killed. Meanwhile nobody else has the pool, and its size does not change: loky would wait
    for ever for a worker that dies while it does.
    """

    def __init__(self, n_jobs: int) -> None:
        self.size, self.ahead = n_jobs, 2 * n_jobs
        self._out: set[Future[Any]] = set()
        self._pool = _idle.pop((os.getpid(), n_jobs), None)
        self._broken = False

    def __enter__(self) -> _Processes:
        return self

    def __exit__(self, *error: object) -> None:
        mine = os.getpid(), self.size
        if self._pool is None:
            return
        if self._broken or self._out or mine in _idle:
            self._kill()
        else:
            _idle[mine] = self._pool

    def send(self, function: Callable[..., Any]) -> Callable[..., Any]:
        return Sent(function)

    def submit(self, function: Callable[..., Any], *arguments: Any) -> Future[Any]:
        if self._broken:
            self._kill()
        if self._pool is None:
            from joblib.externals.loky import ProcessPoolExecutor

            # loky replaces workers that have grown, which is as it should be
            warnings.filterwarnings("ignore", "A worker stopped while some jobs", UserWarning)
            self._pool = ProcessPoolExecutor(
                self.size,
                timeout=_KEPT,
                initializer=end_with,
                initargs=(os.getpid(),),
                env=_ONE_THREAD,
            )
        try:
            future: Future[Any] = self._pool.submit(function, *arguments)
        except BrokenExecutor as error:  # since the last call
            future = Future()
            future.set_exception(error)
        self._out.add(future)
        future.add_done_callback(self._heard)
        return future

    def look(self) -> None:
        pass

    def _heard(self, future: Future[Any]) -> None:
        self._out.discard(future)
        if not future.cancelled() and isinstance(future.exception(), BrokenExecutor):
            self._broken = True

    def _kill(self) -> None:
        """Kill the workers, and wait until they are dead, but not for ever."""
        pool, self._pool, self._broken = self._pool, None, False

        def kill() -> None:
            # told to stop with work that it has not handed out yet, the pool's thread would die of
            # a KeyError, and leave its pipes open; it hands out all that we submit, in a moment
            end = time.monotonic() + _PATIENCE / 2
            while time.monotonic() < end and not all(
                future.running() or future.done() for future in self._out.copy()
            ):
                # a millisecond: short beside what a worker takes to die
                time.sleep(0.001)
            pool.shutdown(wait=True, kill_workers=True)

        killing = threading.Thread(target=kill, daemon=True)
        killing.start()
        killing.join(_PATIENCE)


_idle: dict[tuple[int, int], Any] = {}  # pools, by the process that made them, and size


def end_with(parent: int) -> None:
    """Called in a worker before anything else: end it as soon as its parent has ended.

    Whoever is killed without warning cannot stop its workers, and they would go on beside those of
    the next attempt. Files are written whole or not at all, so nothing is lost that a checkpoint
    does not have.
    """

    def watch() -> None:
        while os.getppid() == parent:
            time.sleep(_WATCH)
        os._exit(1)

    if os.getppid() != parent:
        os._exit(1)
    threading.Thread(target=watch, name=f"end with {parent}", daemon=True).start()
