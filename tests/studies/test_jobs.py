"""Whatever is many runs survives a kill, is shared by machines, is tried again, and grows."""

from __future__ import annotations

import multiprocessing
import time
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from tests.patience import PATIENCE
from tests.studies.jobs import JOBS, STEPS, main
from tl_dyck.runs import FailedRunsError, merge_sweeps, run_sweep, sweep_status
from tl_dyck.studies import Measurement
from tl_dyck.studies.heads import AblateConfig
from tl_dyck_papers.wen_2023.measure import PaperMeasurement

pytestmark = pytest.mark.filterwarnings(
    "ignore::ResourceWarning"
)  # joblib's pool of workers outlives a call


@pytest.fixture(params=["study", "ablation"])
def name(request: pytest.FixtureRequest) -> str:
    return str(request.param)


def job(name: str, folder: Path, seeds: tuple[int, ...] = (0, 1), **how: Any) -> pd.DataFrame:
    found = JOBS[name](folder, seeds, n_jobs=1, progress=False, **how)
    return found.drop(columns=[column for column in ("id", "folder") if column in found])


def counting(monkeypatch: pytest.MonkeyPatch, name: str, fail: int = 0) -> list[int]:
    """Count the runs that are carried out; the first `fail` of them raise."""
    place, attribute = STEPS[name]
    step, calls = getattr(place, attribute), []

    def counted(*arguments: Any, **options: Any) -> Any:
        calls.append(len(calls))
        if len(calls) <= fail:
            raise RuntimeError("the dog ate it")
        return step(*arguments, **options)

    monkeypatch.setattr(place, attribute, counted)
    return calls


@pytest.mark.skipif("fork" not in multiprocessing.get_all_start_methods(), reason="needs fork")
@pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")
@pytest.mark.parametrize("name", ["study", "table"])
def test_killed_and_shared(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Two processes on one folder; one is killed as soon as anything is done."""
    folder, log = tmp_path / "job", tmp_path / "log"
    context = multiprocessing.get_context("fork")
    processes = [context.Process(target=main, args=(name, str(folder), str(log))) for _ in range(2)]
    for process in processes:
        process.start()
    deadline = time.monotonic() + PATIENCE
    log.touch()
    while (
        not log.read_text()
        and any(process.is_alive() for process in processes)
        and time.monotonic() < deadline
    ):
        time.sleep(0.01)
    first = int(log.read_text().split()[0])
    killed, left = sorted(processes, key=lambda process: process.pid != first)
    assert killed.pid == first
    killed.kill()
    left.join(PATIENCE)
    assert left.exitcode == 0
    assert len(log.read_text().split()) in (3, 4)  # nothing twice but what was cut short
    assert sweep_status(folder).counts["done"] == 3
    calls = counting(monkeypatch, name)
    again = job(name, folder, (0, 1, 2))
    assert calls == []
    pd.testing.assert_frame_equal(again, job(name, tmp_path / "alone", (0, 1, 2)))


def test_merged_and_grown(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Seeds from two machines, and one more later."""
    one, other = (tmp_path / where for where in ("one", "other"))
    job(name, one, (0,))
    job(name, other, (0, 1))
    report = merge_sweeps(tmp_path / "both", [one, other])
    assert (report.copied, report.unchanged, report.conflicts) == (2, 1, ())
    calls = counting(monkeypatch, name)
    both = job(name, tmp_path / "both", (0, 1))
    assert calls == []
    pd.testing.assert_frame_equal(both, job(name, other, (0, 1)))
    job(name, tmp_path / "both", (0, 1, 2))
    assert len(calls) == 1


def test_failures_are_kept_and_tried_again(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls = counting(monkeypatch, name, fail=1)
    with pytest.raises(
        FailedRunsError,
        match=r"1 of 2 runs failed: 1 × RuntimeError: the dog ate it\. The others are",
    ):
        job(name, tmp_path)
    assert sweep_status(tmp_path).counts == {
        "done": 1,
        "failed": 1,
        "running": 0,
        "interrupted": 0,
        "waiting": 0,
    }
    with pytest.raises(FailedRunsError, match="--retry-failed tries again"):
        job(name, tmp_path)
    assert len(calls) == 2
    assert len(job(name, tmp_path, retry_failed=True)) > 0
    assert len(calls) == 3


def test_a_sweep_goes_on_by_its_name_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What ``tl-dyck sweep resume`` does with the folder of a study and the like."""
    for name in ("study", "paper", "ablation"):
        job(name, tmp_path / name)
        sweep = sweep_status(tmp_path / name)
        assert sweep.total == 2
        done = run_sweep(_plan(tmp_path / name), tmp_path / name, n_jobs=1, progress=False)
        assert (done.done, done.made) == (2, 0)


def _plan(folder: Path) -> Any:
    from tl_dyck.runs.store import Store

    return Store.at(folder).plan()[0]


@pytest.mark.parametrize(
    ("name", "measurement"),
    [("study", Measurement), ("paper", PaperMeasurement), ("ablation", AblateConfig)],
)
def test_what_was_measured_by_other_code_is_done_again(name, measurement, tmp_path, monkeypatch):
    """A record of equal parameters says nothing about a version that measures otherwise."""
    calls, sizes = counting(monkeypatch, name), set()
    for code in (1, 1, 2):
        monkeypatch.setattr(measurement, "code", code)
        sizes.add(len(job(name, tmp_path, (0,))))
    assert len(sizes) == 1  # what other code measured stays in the folder, and counts for nothing
    once = sweep_status(tmp_path).total
    assert len(calls) == 2 * once
