"""Worker processes on this machine, or on a cluster through joblib's own backends."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Generator, Iterable, Iterator
from typing import Any

from joblib import Parallel, cpu_count, delayed, effective_n_jobs, parallel_config

from tl_dyck.errors import DyckError
from tl_dyck.processes import Watched
from tl_dyck.runs.spec import SweepError
from tl_dyck.runs.worker import Outcome, Parcel

__all__ = ["BACKENDS", "MissingBackendError", "Workers", "open_workers"]

#: How runs are carried out.
BACKENDS = ("loky", "dask", "ray")

_WAVE = (
    200  # parcels a worker that are handed at once to a backend that returns everything at the end
)

#: Has parcels done, and yields what came of each as it comes.
Workers = Callable[
    [Callable[[Parcel], list[Outcome]], Iterable[Parcel]], Generator[list[Outcome], None, None]
]


class MissingBackendError(DyckError, ImportError):
    """Missing library for runs on other machines; the message says how to install it."""


@contextlib.contextmanager
def open_workers(
    backend: str, n_jobs: int | None, address: str | None
) -> Iterator[tuple[Workers, int]]:
    """Workers, and how many there are."""
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

        def workers(
            work: Callable[[Parcel], list[Outcome]], parcels: Iterable[Parcel]
        ) -> Generator[list[Outcome], None, None]:
            watched = Watched.by_this_process(work)
            with parallel_config(**options):
                if backend != "ray":
                    parallel = Parallel(n_jobs=jobs, return_as="generator_unordered")
                    yield from parallel(delayed(watched)(parcel) for parcel in parcels)
                    return
                iterator = iter(parcels)  # this backend returns lists
                while wave := [
                    parcel for parcel, _ in zip(iterator, range(_WAVE * cpu_count()), strict=False)
                ]:
                    yield from Parallel(n_jobs=jobs)(delayed(watched)(parcel) for parcel in wave)

        with parallel_config(**options):
            n_workers = effective_n_jobs(jobs)
        yield workers, n_workers


@contextlib.contextmanager
def _dask_client(address: str | None, n_jobs: int | None) -> Iterator[Any]:
    try:
        from dask.distributed import Client, LocalCluster
    except ImportError as error:
        raise MissingBackendError(
            "the dask backend needs dask: pip install 'tl-dyck[dask]'"
        ) from error
    with contextlib.ExitStack() as stack:
        if address is None:
            cluster = LocalCluster(
                n_workers=n_jobs, threads_per_worker=1, processes=True, dashboard_address=":0"
            )
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
        raise MissingBackendError(
            "the ray backend needs ray: pip install 'tl-dyck[ray]'"
        ) from error
    mine = not ray.is_initialized()
    if mine:
        try:
            ray.init(
                address=address,
                num_cpus=n_jobs if address is None else None,
                include_dashboard=False,
            )
        except (ConnectionError, ValueError) as error:
            raise SweepError(f"no ray cluster answers at {address!r}: {error}") from error
    register_ray()
    try:
        yield
    finally:
        if mine:
            ray.shutdown()
