"""A cluster does what one machine does, also when a worker of it is killed."""

from __future__ import annotations

import os
import signal
import threading
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.runs import toys
from tests.runs.test_execute import go, until
from tl_dyck.runs import SweepError, SweepReport, load_results

# what these libraries leave open when they end, and their own deprecations, are not ours
pytestmark = [
    pytest.mark.filterwarnings("ignore::ResourceWarning"),
    pytest.mark.filterwarnings("ignore::DeprecationWarning:distributed"),
    pytest.mark.filterwarnings("ignore::FutureWarning:ray"),
    pytest.mark.filterwarnings("ignore::DeprecationWarning:ray"),
]


@pytest.fixture(scope="module")
def address() -> Iterator[str]:
    """A scheduler and two worker processes."""
    distributed = pytest.importorskip("dask.distributed")
    with distributed.LocalCluster(
        n_workers=2, threads_per_worker=1, processes=True, dashboard_address=":0"
    ) as cluster:
        yield cluster.scheduler_address


def same_records(one: Path, other: Path) -> None:
    """But for times, and for where the runs were made."""
    mine, theirs = (
        load_results(folder).drop(columns=["seconds", "started"]) for folder in (one, other)
    )
    assert len(mine)
    assert mine.equals(theirs)


def test_dask_does_what_one_machine_does(address, tmp_path):
    log = tmp_path / "log"
    sweep = {"common": {"log": str(log)}, "grid": {"x": list(range(5))}, "seeds": 3}
    rows: list[dict[str, Any]] = []
    done = go(
        sweep,
        tmp_path / "dask",
        backend="dask",
        address=address,
        n_jobs=None,
        on_result=rows.append,
    )
    assert (done.done, done.failed, done.made, len(rows)) == (15, 0, 15, 15)
    assert (
        len({line.split()[-1] for line in toys.noted(log)} - {str(os.getpid())}) == 2
    )  # both workers did some
    go(sweep, tmp_path / "here")
    same_records(tmp_path / "dask", tmp_path / "here")
    again = go(sweep, tmp_path / "dask", backend="dask", address=address, n_jobs=None)
    assert (again.done, again.made) == (15, 0)


def test_a_dask_worker_that_is_killed(address, tmp_path):
    log = tmp_path / "log"
    sweep = {"common": {"log": str(log), "sleep": 0.1}, "grid": {"x": list(range(6))}, "seeds": 4}
    reports: list[SweepReport] = []
    sweeping = threading.Thread(
        target=lambda: reports.append(
            go(sweep, tmp_path / "dask", backend="dask", address=address, n_jobs=None)
        )
    )
    sweeping.start()
    until(lambda: len(toys.noted(log)) > 4)
    victim = int(toys.noted(log)[-1].split()[-1])
    assert victim != os.getpid()
    os.kill(victim, signal.SIGKILL)
    sweeping.join(timeout=300)
    assert [(report.done, report.failed, report.elsewhere) for report in reports] == [(24, 0, 0)]
    lines = [line.split() for line in toys.noted(log)]
    ends = Counter((x, seed) for event, x, seed, _ in lines if event == "end")
    assert len(ends) == 24
    assert (
        sum(ends.values()) <= 25
    )  # the one that was killed may have been between its end and its record
    starts = Counter((x, seed) for event, x, seed, _ in lines if event == "start")
    assert {run for run, number in starts.items() if number > 1} <= {
        (x, seed) for event, x, seed, pid in lines if event == "start" and int(pid) == victim
    }
    assert len(load_results(tmp_path / "dask")) == 24


def test_no_scheduler(tmp_path):
    pytest.importorskip("dask.distributed")
    with pytest.raises(SweepError, match="no dask scheduler answers at 'nonsense://x'"):
        go(
            {"grid": {"x": [1]}, "seeds": 1},
            tmp_path,
            toys.nothing,
            backend="dask",
            address="nonsense://x",
        )


def test_ray_does_what_one_machine_does(tmp_path):
    pytest.importorskip("ray")
    sweep = {"grid": {"x": list(range(5))}, "seeds": 3}
    rows: list[dict[str, Any]] = []
    done = go(sweep, tmp_path / "ray", toys.nothing, backend="ray", n_jobs=2, on_result=rows.append)
    assert (done.done, done.failed, done.made, len(rows)) == (15, 0, 15, 15)
    go(sweep, tmp_path / "here", toys.nothing)
    same_records(tmp_path / "ray", tmp_path / "here")
