"""Backends are registered by name; what says that a worker died is the backend's own."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from concurrent.futures import Future
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from tl_dyck.kit.registry import UnknownNameError
from tl_dyck.kit.workers import WorkerDiedError
from tl_dyck.runs import execute, experiments, load_results, run_sweep
from tl_dyck.runs.backends import ExecutorWorkers, backends, is_death, is_here, register_backend


def cube(point: Any, seed: int, folder: Path) -> dict[str, int]:
    return {"cube": seed**3}


class Executor:
    """Calls at once."""

    def submit(self, function: Any, *given: Any) -> Future[Any]:
        future: Future[Any] = Future()
        future.set_result(function(*given))
        return future


class Breaks(Executor):
    """Takes no more work once a worker was killed, as a `ProcessPoolExecutor` does."""

    broken = False

    def submit(self, function: Any, *given: Any) -> Future[Any]:
        if self.broken:
            raise BrokenProcessPool
        try:
            return super().submit(function, *given)
        except KeyboardInterrupt:
            self.broken, future = True, Future[Any]()
            future.set_exception(BrokenProcessPool("a process was terminated abruptly"))
            return future


def killed_once(point: Any, seed: int, folder: Path) -> dict[str, int]:
    if seed == 1 and not (folder.parent / "died").exists():
        (folder.parent / "died").touch()
        raise KeyboardInterrupt
    return cube(point, seed, folder)


@pytest.fixture
def breaking() -> Iterator[Any]:
    """To be called with whether a broken executor is made again."""

    def register(again: bool) -> None:
        @register_backend("breaking")
        @contextmanager
        def opened(n_jobs: int | None, address: str | None) -> Iterator[ExecutorWorkers]:
            yield ExecutorWorkers(Breaks(), 2, Breaks if again else None)

        opened.deaths = ("BrokenProcessPool",)  # type: ignore[attr-defined]

    yield register
    backends.unregister("breaking")


@pytest.mark.parametrize("again", [True, False])
def test_an_executor_that_breaks(breaking: Any, tmp_path: Path, again: bool) -> None:
    breaking(again)
    how: dict[str, Any] = {"experiment": killed_once, "progress": False, "backend": "breaking"}
    if not again:
        with pytest.raises(WorkerDiedError, match="takes no more work; what is done is kept"):
            run_sweep({"seeds": 5}, tmp_path, **how)
    assert run_sweep({"seeds": 5}, tmp_path, **how).counts["done"] == 5
    assert load_results(tmp_path)["cube"].tolist() == [0, 1, 8, 27, 64]


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
    assert backends.names() == ["at-once", "dask", "loky"]
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
        ("at-once", "LostOne", False),
    ],
)
def test_what_says_that_a_worker_died(
    at_once: list[Any], backend: str, name: str, died: bool
) -> None:
    assert is_death(backend, type(name, (Exception,), {})()) is died


def test_which_are_of_this_machine(at_once: list[Any], monkeypatch: pytest.MonkeyPatch) -> None:
    assert [is_here(name) for name in ("loky", "dask", "at-once")] == [True, False, False]
    monkeypatch.setattr(backends.get("at-once"), "here", True, raising=False)
    assert is_here("at-once")
    # so whatever asks for "this machine" asks the backend: models on a GPU have one worker
    what: Any = SimpleNamespace(device="cuda")
    monkeypatch.setattr(execute, "default_jobs", lambda device: 1)
    assert execute._processes(None, "at-once", None, what) == 1
    assert execute._processes(None, "dask", None, what) is None


class Submitted:
    """A job of submitit, which has `result` and no more of a future."""

    def __init__(self, function: Any, given: tuple[Any, ...]) -> None:
        self.function, self.given = function, given

    def result(self) -> Any:
        try:
            return self.function(*self.given)
        except KeyboardInterrupt as error:  # whatever ends a process
            raise type("UncompletedJobError", (RuntimeError,), {})("the job is gone") from error


class AutoExecutor:
    """submitit's, which tests do not install."""

    def __init__(self, folder: str, cluster: str) -> None:
        assert (folder, cluster) == ("jobs", "slurm")

    def update_parameters(self, timeout_min: int) -> None:
        assert timeout_min == 240

    def submit(self, function: Any, *given: Any) -> Submitted:
        return Submitted(function, given)


def test_the_one_that_the_page_shows(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    page = Path(__file__).parents[2] / "docs" / "api" / "registry.md"
    (block,) = re.findall(
        r"<!-- run by tests/runs/test_backends.py -->\n\n```python\n(.*?)```",
        page.read_text(encoding="utf-8"),
        re.DOTALL,
    )
    monkeypatch.chdir(tmp_path)
    monkeypatch.setitem(sys.modules, "submitit", SimpleNamespace(AutoExecutor=AutoExecutor))
    Path("depth.yaml").write_text("{experiment: cubes, seeds: 3}")
    begun = tmp_path / "begun"
    begun.mkdir()

    @experiments.register("cubes")
    def cubes(point: Any, seed: int, folder: Path) -> dict[str, int]:
        # Jobs run in threads at once: which of them is the first, one call of the system decides.
        try:
            (begun / "first").touch(exist_ok=False)
        except FileExistsError:
            (begun / str(seed)).touch(exist_ok=False)  # each seed is run to its end once
        else:
            raise KeyboardInterrupt
        return cube(point, seed, folder)

    try:
        exec(compile(block, page.name, "exec"), {"__name__": "page"})
    finally:
        experiments.unregister("cubes")
        backends.unregister("submitit")
    assert load_results("depth")["cube"].tolist() == [0, 1, 8]
    assert sorted(path.name for path in begun.iterdir()) == ["0", "1", "2", "first"]
