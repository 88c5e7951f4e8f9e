"""Every run is done once: started twice, by threads, by processes at once, under kill -9."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from joblib import cpu_count

from tests.patience import PATIENCE
from tests.runs import toys
from tl_dyck.kit import environment
from tl_dyck.kit.environment import default_jobs
from tl_dyck.runs import SweepStatus, load_results, run_sweep, sweep_status
from tl_dyck.runs import execute as module
from tl_dyck.runs.store import Store, run_id

ROOT = Path(__file__).resolve().parents[3]


def go(
    sweep: dict[str, Any], folder: Path, experiment: Any = toys.count, **options: Any
) -> SweepStatus:
    return run_sweep(
        sweep, folder, experiment=experiment, **{"n_jobs": 1, "progress": False, **options}
    )


@pytest.fixture
def log(tmp_path) -> Path:
    return tmp_path / "log"


@pytest.fixture
def sweep(log) -> dict[str, Any]:
    return {"common": {"log": str(log)}, "grid": {"x": [0, 1, 2]}, "seeds": [0, 3]}


@pytest.fixture
def folder(tmp_path) -> Path:
    return tmp_path / "sweep"


@contextlib.contextmanager
def process(code: str) -> Iterator[subprocess.Popen[str]]:
    """A Python process of its own, which ends with the test."""
    text = f"import sys\nsys.path.insert(0, {str(ROOT)!r})\nfrom tests.runs import toys\n{code}"
    child = subprocess.Popen(
        [sys.executable, "-c", text], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    try:
        yield child
    finally:
        child.kill()
        child.communicate()


def until(condition: Any, child: subprocess.Popen[str] | None = None) -> None:
    """Wait for something that other processes do."""
    for _ in range(100 * PATIENCE):
        if condition():
            return
        assert child is None or child.poll() is None, child.communicate()[1]
        time.sleep(0.01)
    raise TimeoutError


def starts(log: Path) -> Counter[str]:
    return Counter(
        " ".join(line.split()[1:3]) for line in toys.noted(log) if line.startswith("start")
    )


EVERY = {f"{x} {seed}": 1 for x in (0, 1, 2) for seed in (0, 3)}


# --- in one process -------------------------------------------------------------------------------


def test_everything_is_done_and_kept(sweep, folder, log):
    rows: list[dict[str, Any]] = []
    done = go(sweep, folder, on_result=rows.append)
    assert (done.total, done.done, done.failed, done.elsewhere, done.made) == (6, 6, 0, 0, 6)
    assert done.folder == folder.resolve()
    assert starts(log) == EVERY
    assert {(row["x"], row["seed"]) for row in rows} == {
        (x, seed) for x in (0, 1, 2) for seed in (0, 3)
    }
    for row in rows:
        assert {name: row[name] for name in ("score", "even", "name")} == toys.expected(
            row["x"], row["seed"]
        )
        kept = folder / "runs" / row["id"][:2] / row["id"]
        assert (kept / "file.txt").read_text() == f"{row['x']} {row['seed']}"
        record = json.loads(kept.with_name(f"{row['id']}.json").read_text())
        assert record["parameters"] == {"log": str(log), "x": row["x"]}
        assert record["metrics"] == toys.expected(row["x"], row["seed"])
        assert record["environment"]["tl_dyck"]
        noted = json.loads((folder / "points" / f"{row['point']}.json").read_text())
        assert noted["identity"] == noted["parameters"] == record["parameters"]
        assert row["id"] == run_id(row["point"], row["seed"])


def test_started_again_nothing_is_done(sweep, folder, log):
    go(sweep, folder)
    rows: list[Any] = []
    again = go(sweep, folder, on_result=rows.append)
    assert (again.done, again.made, rows) == (6, 0, [])
    more = go(
        {**sweep, "grid": {"x": [2, 1, 7]}, "seeds": [3, 0, 1]}, folder
    )  # another sweep, same folder
    assert (more.total, more.done, more.made) == (9, 9, 5)
    assert starts(log) == {**EVERY, "7 0": 1, "7 1": 1, "7 3": 1, "2 1": 1, "1 1": 1}
    status = sweep_status(folder)
    assert (status.total, status.counts["done"], status.others) == (9, 9, 2)


@pytest.mark.usefixtures("forked_workers")
def test_workers_do_the_same(sweep, folder, tmp_path, log):
    one = go(sweep, tmp_path / "one")
    two = go(sweep, folder, n_jobs=2)
    assert (two.done, two.made, one.made) == (6, 6, 6)
    assert len({line.split()[-1] for line in toys.noted(log)} - {str(os.getpid())}) in (1, 2)
    same = ["id", "point", "x", "seed", "status", "score", "even", "name", "tl_dyck", "host"]
    assert load_results(folder)[same].equals(load_results(tmp_path / "one")[same])


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"n_jobs": 99999}, f"at most {8 * cpu_count()}, 8 for each of the {cpu_count()} cores"),
        ({"n_jobs": 0, "backend": "dask", "address": "tcp://there:1"}, "at least 1"),
    ],
)
def test_bad_options(sweep, folder, options, message):
    with pytest.raises(ValueError, match=message):
        go(sweep, folder, **options)
    assert not folder.exists()


@pytest.mark.parametrize(
    ("device", "given", "wanted"),
    [("cpu", None, cpu_count()), ("cuda:1", None, 1), ("cuda", 3, 3), (None, None, cpu_count())],
)
def test_models_on_a_gpu_share_one_process(sweep, folder, monkeypatch, device, given, wanted):
    """Unless the user says how many; without a GPU, models without a device are on the CPU."""
    asked = []

    def workers(backend, n_jobs, address):
        asked.append(n_jobs)
        raise KeyboardInterrupt

    monkeypatch.setattr(module, "open_workers", workers)
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    monkeypatch.setattr(environment, "check_device", lambda name: name)
    with pytest.raises(KeyboardInterrupt):
        go(sweep, folder, toys.OnDevice(), device=device, n_jobs=given)
    assert asked == [wanted]
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    assert default_jobs(None) == 1


# --- errors ---------------------------------------------------------------------------------------


def test_failures_are_kept_and_retried_on_request_only(folder, log, tmp_path, capsys):
    sweep = {
        "common": {"log": str(log), "repaired": str(tmp_path / "repaired")},
        "grid": {"x": [1]},
        "seeds": 4,
    }
    rows: list[dict[str, Any]] = []
    done = go(sweep, folder, toys.raises, on_result=rows.append)
    assert capsys.readouterr().out == ""  # asked for no progress
    assert (done.done, done.failed, done.made) == (2, 2, 4)
    assert {row["seed"]: row["error"] for row in rows if row["status"] == "failed"} == {
        1: "ValueError: seed 1 is odd",
        3: "ValueError: seed 3 is odd",
    }
    (path,) = [path for path in folder.rglob("*.failed.json") if "seed 1 " in path.read_text()]
    trace = json.loads(path.read_text())["traceback"]
    assert "in raises" in trace
    assert "toys.py" in trace
    assert "raise ValueError" in trace
    again = go(sweep, folder, toys.raises)
    assert (again.done, again.failed, again.made) == (2, 2, 0)
    assert len(toys.noted(log)) == 4
    (tmp_path / "repaired").touch()
    repaired = go(sweep, folder, toys.raises, retry_failed=True)
    assert (repaired.done, repaired.failed, repaired.made) == (4, 0, 2)
    assert Counter(toys.noted(log)) == {"1 0": 1, "1 1": 2, "1 2": 1, "1 3": 2}
    table = load_results(folder)
    assert list(table["status"]) == ["done"] * 4
    assert table["error"].isna().all()
    assert sweep_status(folder).counts["failed"] == 0
    assert not list(folder.rglob("*.failed.json"))


@pytest.mark.usefixtures("forked_workers")
def test_an_error_of_the_callback_is_not_swallowed(sweep, folder, log):
    for options in ({"n_jobs": 1}, {"n_jobs": 2}):
        calls: list[Any] = []

        def on_result(row: dict[str, Any], calls: list[Any] = calls) -> None:
            calls.append(row)
            raise RuntimeError("the tracker is away")

        with pytest.raises(RuntimeError, match="the tracker is away"):
            go({**sweep, "grid": {"x": list(range(20))}}, folder, on_result=on_result, **options)
        assert calls
    assert max(starts(log).values()) == 1
    assert go({**sweep, "grid": {"x": list(range(20))}}, folder).done == 40
    assert max(starts(log).values()) == 1


@pytest.mark.usefixtures("forked_workers")
def test_an_error_while_handing_out_does_not_hang(sweep, folder, monkeypatch):
    """Joblib takes tasks in a thread of its own, where an exception would be lost."""
    sweep = {**sweep, "grid": {"x": list(range(30))}, "common": {**sweep["common"], "sleep": 0.01}}
    go({**sweep, "grid": {"x": [25]}}, folder)
    read = Store.read

    def broken(self: Store, path: Path) -> dict[str, Any]:
        raise OSError(5, "Input/output error", str(path))

    monkeypatch.setattr(Store, "read", broken)
    for options in ({"n_jobs": 1}, {"n_jobs": 2}):
        with pytest.raises(OSError, match="Input/output error"):
            go(sweep, folder, **options)
    monkeypatch.setattr(Store, "read", read)
    assert go(sweep, folder).done == 60


# --- several processes ----------------------------------------------------------------------------


def test_runs_of_others_are_left_or_waited_for_or_taken_over(folder, log, tmp_path, monkeypatch):
    monkeypatch.setattr(module, "_POLL", 0.02)
    sweep = {"common": {"log": str(log), "go": str(tmp_path / "go")}, "seeds": 2}
    code = f"""
from tl_dyck.runs import run_sweep
run_sweep({sweep!r}, {str(folder)!r}, experiment=toys.slow, n_jobs=1, progress=False)
"""
    with process(code) as child:
        until(lambda: any(line.startswith("start 0") for line in toys.noted(log)), child)
        left = go(sweep, folder, toys.slow, wait=False)
        assert (left.total, left.done, left.elsewhere, left.made) == (2, 1, 1, 1)
        counts = sweep_status(folder).counts
        assert (counts["running"], counts["done"], counts["interrupted"]) == (1, 1, 0)
        reports: list[SweepStatus] = []
        waiting = threading.Thread(target=lambda: reports.append(go(sweep, folder, toys.slow)))
        waiting.start()
        time.sleep(0.2)
        assert not reports  # it waits
        os.kill(child.pid, signal.SIGKILL)
        child.wait()
        until(
            lambda: sum(line.startswith("start 0") for line in toys.noted(log)) == 2
        )  # and takes over
        assert not reports
        (tmp_path / "go").touch()
        waiting.join()
    assert (reports[0].done, reports[0].made, reports[0].elsewhere) == (2, 1, 0)
    assert sweep_status(folder).counts["done"] == 2


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
@pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")
def test_kill_9(tmp_path):
    """Writers killed at 6 random moments, and 6 pairs; ``tools/fuzz_sweep.py`` does hundreds."""

    def storms() -> None:
        for writers in (1, 2):
            how = {"kills": 6, "n_points": 3, "n_seeds": 30, "seed": writers}
            hit = toys.storm(tmp_path / f"storm-{writers}", writers=writers, **how)
            assert hit > writers, hit  # 90 runs of 5 ms are not done in the 50 ms before a kill

    assert os.waitpid(toys.in_child(storms), 0)[1] == 0
