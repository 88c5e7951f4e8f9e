"""Backends are registered by name; what says that a worker died is the backend's own."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import Future
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from tl_dyck.kit.registry import UnknownNameError
from tl_dyck.runs import load_results, run_sweep
from tl_dyck.runs.backends import ExecutorWorkers, backends, is_death, register_backend


def cube(point: Any, seed: int, folder: Path) -> dict[str, int]:
    return {"cube": seed**3}


class Executor:
    """Calls at once."""

    def submit(self, function: Any, *given: Any) -> Future[Any]:
        future: Future[Any] = Future()
        future.set_result(function(*given))
        return future


@pytest.fixture
def at_once() -> Iterator[list[tuple[int | None, str | None]]]:
    asked: list[tuple[int | None, str | None]] = []

    @register_backend("at-once")
    @contextmanager
    def open_at_once(n_jobs: int | None, address: str | None) -> Iterator[ExecutorWorkers]:
        asked.append((n_jobs, address))
        yield ExecutorWorkers(Executor(), 1)

    yield asked
    backends.unregister("at-once")


def test_a_backend_of_ones_own(at_once: list[Any], tmp_path: Path) -> None:
    how: dict[str, Any] = {"experiment": cube, "progress": False, "backend": "at-once"}
    run_sweep({"seeds": 3}, tmp_path, **how, n_jobs=2, address="here")
    assert load_results(tmp_path)["cube"].tolist() == [0, 1, 8]
    assert at_once == [(2, "here")]


def test_built_in_ones_stand_beside_it(at_once: list[Any]) -> None:
    assert backends.names() == ["at-once", "dask", "loky", "ray"]
    assert backends.summary("loky") == "Processes of this machine."


def test_an_unknown_one_is_refused_before_anything_is_written(tmp_path: Path) -> None:
    with pytest.raises(UnknownNameError, match="unknown backend 'slurm'"):
        run_sweep({"seeds": 1}, tmp_path / "none", experiment=cube, backend="slurm")
    assert not (tmp_path / "none").exists()


@pytest.mark.parametrize(
    ("backend", "name", "died"),
    [
        ("loky", "TerminatedWorkerError", True),
        ("loky", "KilledWorker", False),
        ("dask", "KilledWorker", True),
        ("ray", "WorkerCrashedError", True),
        ("at-once", "LostOne", False),
    ],
)
def test_what_says_that_a_worker_died(
    at_once: list[Any], backend: str, name: str, died: bool
) -> None:
    assert is_death(backend, type(name, (Exception,), {})()) is died
