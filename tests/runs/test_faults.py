"""Full disks, forbidden folders, damaged files, dead workers, wrong clocks, odd experiments."""

from __future__ import annotations

import contextlib
import errno
import json
import math
import os
import random
import tempfile
from collections import Counter
from concurrent.futures import Future
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from tests.runs import toys
from tests.runs.test_execute import go
from tests.runs.test_store import HOSTILE as HOSTILE_RECORDS
from tl_dyck.runs import execute, load_results, sweep_status
from tl_dyck.runs.store import Store

N = 12


@pytest.fixture
def log(tmp_path) -> Path:
    return tmp_path / "log"


@pytest.fixture
def sweep(log) -> dict[str, Any]:
    return {"common": {"log": str(log)}, "grid": {"x": [0, 1, 2]}, "seeds": N // 3}


@pytest.fixture
def folder(tmp_path) -> Path:
    return tmp_path / "sweep"


def check_whole(folder: Path) -> None:
    """Everything is done, and says what it should."""
    table = load_results(folder)
    assert len(table) == N
    for row in table.to_dict("records"):
        wanted = toys.expected(row["x"], row["seed"])
        assert {name: row[name] for name in wanted} == wanted
    assert sweep_status(folder).counts["done"] == N


# --- disks ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("number", range(3))
def test_disk_full_at_any_call(sweep, folder, log, monkeypatch, number):
    """The disk is full from some call on, any that needs space; then there is space again."""
    rng = random.Random(number)
    fatal = rng.randrange(1, 40)
    calls = 0

    def failing(real: Any) -> Any:
        def call(*args: Any, **kwargs: Any) -> Any:
            nonlocal calls
            calls += 1
            if calls >= fatal:
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
            return real(*args, **kwargs)

        return call

    with monkeypatch.context() as full:
        full.setattr(os, "mkdir", failing(os.mkdir))
        full.setattr(os, "replace", failing(os.replace))
        full.setattr(tempfile, "mkstemp", failing(tempfile.mkstemp))
        with pytest.raises(OSError, match=os.strerror(errno.ENOSPC)) as caught:
            go(sweep, folder)
        assert caught.value.errno == errno.ENOSPC
        assert str(folder) in str(caught.value) or calls == fatal
    done = {run for run, how in Store(folder).names() if how == "done"}
    assert "failed" not in dict(Store(folder).names()).values()
    before = len(toys.noted(log))
    again = go(sweep, folder)
    assert (again.done, again.failed, again.made) == (N, 0, N - len(done))
    assert len(toys.noted(log)) == before + 2 * again.made  # what has a record is not made again
    check_whole(folder)


def test_disk_full_in_the_experiment_is_no_failure(folder, log, monkeypatch):
    number = errno.EDQUOT
    real = toys.expected

    def full(x: int, seed: int) -> dict[str, Any]:
        if x == 1 and seed == 2:
            raise OSError(number, os.strerror(number))
        return real(x, seed)

    sweep = {"common": {"log": str(log)}, "grid": {"x": [0, 1, 2]}, "seeds": N // 3}
    with monkeypatch.context() as context:
        context.setattr(toys, "expected", full)
        with pytest.raises(
            OSError, match=f"cannot write to .*{os.strerror(number)}; what was done is kept"
        ):
            go(sweep, folder)
    assert sweep_status(folder).counts == {
        "done": 6,
        "failed": 0,
        "running": 0,
        "interrupted": 1,
        "waiting": 5,
    }
    assert go(sweep, folder).made == 6
    check_whole(folder)


def test_a_folder_that_cannot_be_written(sweep, folder, monkeypatch):
    """What is in it can be read all the same."""
    go(sweep, folder)

    def refuse(*args: Any, **kwargs: Any) -> Any:
        raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))

    monkeypatch.setattr(tempfile, "mkstemp", refuse)
    check_whole(folder)
    with pytest.raises(PermissionError, match="cannot write to the folder"):
        go(sweep, folder)


# --- damaged files --------------------------------------------------------------------------------


def test_damaged_records_are_made_again(sweep, folder, log):  # more: tests/runs/test_store.py
    case = "of another run"
    go(sweep, folder)
    path = sorted(folder.glob("runs/*/*.json"))[5]
    path.write_bytes(HOSTILE_RECORDS[case])
    table = load_results(folder)
    assert len(table) == N - 1  # not misread
    assert path.stem not in set(table["id"])
    again = go(sweep, folder)
    assert (again.done, again.made) == (N, 1)
    assert len(toys.noted(log)) == 2 * (N + 1)
    check_whole(folder)
    assert sweep_status(folder).corrupt == 1
    (aside,) = folder.rglob("*.corrupt")
    assert aside.read_bytes() == HOSTILE_RECORDS[case]


# --- workers that die -----------------------------------------------------------------------------


@pytest.mark.usefixtures("forked_workers")
def test_runs_that_kill_their_worker(folder, log):
    """One does so whenever it is tried, one once; those that died with them are innocent."""
    sweep = {"common": {"log": str(log), "once": [1], "always": [2]}, "seeds": 3}
    rows: list[dict[str, Any]] = []
    done = go(sweep, folder, toys.dies, n_jobs=2, on_result=rows.append)
    assert (done.done, done.failed, done.elsewhere, done.total) == (2, 1, 0, 3)
    assert Counter(row["seed"] for row in rows) == Counter(range(3))
    table = load_results(folder).set_index("seed")
    assert list(table["status"]) == ["done", "done", "failed"]
    assert "the process that ran it died, twice" in table.loc[2, "error"]
    assert list(table["score"].dropna()) == [0, 1]
    tries = Counter(toys.noted(log))
    assert tries["1"] in (2, 3)  # killed by itself, killed by the other, done
    # a third time if a worker began it that was about to be killed: then nobody had seen it begin
    assert tries["2"] in (2, 3)
    again = go(sweep, folder, toys.dies)  # in this process, which would not survive it
    assert (again.made, again.failed) == (0, 1)


class Losing:
    """A cluster that loses its first calls, when their runs have begun."""

    size = ahead = 1

    def __init__(self, folder: Path, losses: int, error: Exception) -> None:
        self.folder, self.losses, self.error = folder, losses, error

    def send(self, function):
        return function

    def submit(self, work, parcel):
        future: Future[Any] = Future()
        if self.losses:
            self.losses -= 1
            for task in parcel:
                Store(self.folder).start(task.run)
            future.set_exception(self.error)
        else:
            future.set_result(work(parcel))
        return future

    def look(self):
        pass


@pytest.mark.parametrize(
    ("losses", "error", "failed"),
    [(3, "TimeoutError", 0), (4, "TimeoutError", 1), (2, "KilledWorker", 1)],
)
def test_a_lost_connection_is_no_death(folder, log, monkeypatch, losses, error, failed):
    cluster = Losing(folder, losses, type(error, (Exception,), {})())
    monkeypatch.setattr(execute, "open_workers", lambda *_: contextlib.nullcontext(cluster))
    done = go({"common": {"log": str(log)}, "grid": {"x": [0]}, "seeds": 1}, folder, backend="dask")
    assert (done.done, done.failed, cluster.losses) == (1 - failed, failed, 0)


class Late(Losing):
    """One whose lost call goes on, and is done before it is made again."""

    def submit(self, work, parcel):
        if not self.losses:
            work(parcel)
        return super().submit(work, parcel)


def test_a_run_that_was_lost_and_is_done_after_all_is_told(folder, log, monkeypatch):
    cluster, rows = Late(folder, 1, type("KilledWorker", (Exception,), {})()), []
    monkeypatch.setattr(execute, "open_workers", lambda *_: contextlib.nullcontext(cluster))
    sweep = {"common": {"log": str(log)}, "grid": {"x": [0]}, "seeds": 1}
    done = go(sweep, folder, backend="dask", on_result=rows.append)
    assert (done.done, done.made) == (1, 1)
    assert [(row["seed"], row["status"]) for row in rows] == [(0, "done")]


# --- what experiments return ----------------------------------------------------------------------


def returns(point: dict[str, Any], seed: int, folder: Path) -> Any:
    found = RETURNED[point["x"]]
    if isinstance(found, BaseException):
        raise found
    return found


RETURNED: dict[str, Any] = {}


@pytest.mark.parametrize(
    ("found", "wanted"),
    [
        (
            {"a": 1, "b": 2.5, "c": True, "d": "text", "e": None},
            {"a": 1, "b": 2.5, "c": True, "d": "text", "e": None},
        ),
        (
            {"a": math.nan, "b": -math.inf, "c": np.float32("nan")},
            {"a": None, "b": None, "c": None},
        ),
        (
            {
                "a": np.float64(0.5),
                "b": np.int32(3),
                "c": np.bool_(True),
                "d": np.array(2.0),
                "e": np.str_("x"),
            },
            {"a": 0.5, "b": 3, "c": True, "d": 2.0, "e": "x"},
        ),
        (
            {"a": torch.tensor(0.5), "b": torch.tensor([3]), "c": torch.tensor(True)},
            {"a": 0.5, "b": 3, "c": True},
        ),
        ({"a": "\udcff", "\ud800": 1}, {"a": "\\udcff", "\\ud800": 1}),
        ({"a": 2**63 - 1, "b": -(2**63)}, {"a": 2**63 - 1, "b": -(2**63)}),
    ],
)
def test_metrics_of_any_kind(folder, found, wanted):
    RETURNED["this"] = found
    assert go({"common": {"x": "this"}, "seeds": 1}, folder, returns).done == 1
    (path,) = folder.glob("runs/*/*.json")
    metrics = json.loads(path.read_text())["metrics"]
    assert metrics == wanted
    assert [type(value) for value in metrics.values()] == [type(value) for value in wanted.values()]
    assert len(load_results(folder)) == 1


@pytest.mark.parametrize(
    ("found", "message"),
    [
        (None, "TypeError: an experiment returns metrics"),
        ({"a": [1]}, "metric 'a' is a number"),
        ({"a": np.arange(3)}, "ValueError: can only convert"),
        ({"a": 2**63}, "64 bits"),
        ({1: 2}, "cannot be called 1"),
        ({"status": "fine"}, "cannot be called 'status'"),
        ({"x": 1}, "cannot be called 'x'"),
        (SystemExit("enough"), "SystemExit: enough"),
        (OSError(errno.ENOENT, "no such file"), "FileNotFoundError"),
        (ValueError("\udcff"), r"ValueError: \udcff"),
        (GeneratorExit("odd"), None),
        (KeyboardInterrupt("by hand"), None),
    ],
)
def test_nonsense_is_a_failure(folder, found, message):
    RETURNED.update(this=found, other={"a": 1})
    sweep = {"grid": {"x": ["this", "other"]}, "seeds": 1}
    if message is None:
        with pytest.raises(type(found)):
            go(sweep, folder, returns)
        assert sweep_status(folder).counts["failed"] == 0
        return
    done = go(sweep, folder, returns)
    assert (done.done, done.failed) == (1, 1)
    (error,) = load_results(folder)["error"].dropna()
    assert message in error


def test_the_experiment_gets_a_copy_of_the_point(folder):
    go({"common": {"x": [1, 2]}, "seeds": 2}, folder, changes)
    assert load_results(folder)["x"].tolist() == ["[1, 2]", "[1, 2]"]


def changes(point: dict[str, Any], seed: int, folder: Path) -> dict[str, Any]:
    assert point.pop("x") == [1, 2]
    return {"a": seed}
