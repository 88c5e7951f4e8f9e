"""A cluster does what one machine does, also when a worker of it is killed."""

from __future__ import annotations

import contextlib
import hashlib
import itertools
import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from tests.kit.test_workers import Elsewhere
from tests.patience import PATIENCE
from tests.runs import toys
from tests.runs.test_execute import go, until
from tl_dyck.kit.processes import NotSentError
from tl_dyck.kit.workers import each_done
from tl_dyck.runs import SweepError, backends, load_results, run_sweep

# what these libraries leave open when they end, and their own deprecations, are not ours
pytestmark = [
    pytest.mark.filterwarnings("ignore::ResourceWarning"),
    pytest.mark.filterwarnings("ignore::DeprecationWarning:distributed"),
]


ROOT = Path(__file__).parents[2]
DASK = [sys.executable, "-m", "dask"]


def environment() -> dict[str, str]:
    """For processes that import this package, and its tests."""
    paths = [str(ROOT), str(ROOT / "hooks"), os.environ.get("PYTHONPATH", "")]
    return {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, paths))}


@contextlib.contextmanager
def running(*commands: list[str], method: str = "spawn") -> Iterator[list[subprocess.Popen[bytes]]]:
    """Commands as a user would start them, until the end."""
    own = {**environment(), "DASK_DISTRIBUTED__WORKER__MULTIPROCESSING_METHOD": method}
    own["DASK_DISTRIBUTED__COMM__TIMEOUTS__CONNECT"] = f"{PATIENCE} s"
    quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL, "env": own}
    children = [subprocess.Popen(command, cwd="/", **quiet) for command in commands]
    try:
        yield children
    finally:
        for child in reversed(children):
            child.terminate()
        for child in children:
            try:
                child.wait(20)
            except subprocess.TimeoutExpired:
                child.kill()
                child.wait()


# What workers import is imported once, in a process of one thread of which they are forks: also one
# that is begun again after it was killed.
CLUSTER = """
import signal, sys
from pathlib import Path
from dask.distributed import LocalCluster
from distributed.utils import get_mp_context

if __name__ == "__main__":
    signal.signal(signal.SIGTERM, lambda *_: sys.exit())
    get_mp_context().set_forkserver_preload(["distributed", "tl_dyck.studies", "tl_dyck.cli"])
    how = {"host": "127.0.0.1", "dashboard_address": None, "threads_per_worker": 1}
    with LocalCluster(n_workers=2, **how) as cluster:
        Path(sys.argv[1]).write_text(cluster.scheduler_address + "\\n")
        signal.pause()
"""


@pytest.fixture(scope="module")
def address(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A scheduler and two worker processes, each of which is begun again when it is killed."""
    pytest.importorskip("dask.distributed")
    file = tmp_path_factory.mktemp("dask") / "address"
    script = file.with_name("cluster.py")
    script.write_text(CLUSTER)
    with running([sys.executable, str(script), str(file)], method="forkserver"):
        until(lambda: file.exists() and file.read_text().endswith("\n"))
        yield file.read_text().strip()


@pytest.fixture
def on_dask(address: str, monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """Options of a sweep; on a busy machine a cluster may take long to answer."""
    monkeypatch.setattr(backends, "_PATIENCE", float(PATIENCE))
    return {"backend": "dask", "address": address, "n_jobs": None, "progress": False}


def test_a_cluster_does_what_one_machine_does(on_dask, tmp_path):
    log = tmp_path / "log"
    sweep = {"common": {"log": str(log), "begun": 2}, "grid": {"x": list(range(5))}, "seeds": 3}
    rows: list[dict[str, Any]] = []
    done = go(sweep, tmp_path / "there", **on_dask, on_result=rows.append)
    assert (done.done, done.failed, done.made, len(rows)) == (15, 0, 15, 15)
    pids = {line.split()[-1] for line in toys.noted(log)} - {str(os.getpid())}
    assert len(pids) == 2  # both workers did some
    go(sweep, tmp_path / "here")
    one, other = (
        load_results(tmp_path / folder).drop(columns=["seconds", "started"])
        for folder in ("there", "here")
    )
    assert len(one)
    assert one.equals(other)
    again = go(sweep, tmp_path / "there", **on_dask)
    assert (again.done, again.made) == (15, 0)


# --- our experiments ------------------------------------------------------------------------------

TRAIN = {
    "experiment": "train",
    "grid": {"model": ["gpt"]},
    "common": {
        "task": "dyck-2-4",
        "model.n_layers": 1,
        "training": {"steps": 30, "batch_size": 8, "check_every": 10, "check_size": 50},
        "measure": {"n_accuracy": 50, "n_long": 5, "n_strings": 50},
    },
    "seeds": 4,
}


def weights(folder: Path) -> dict[str, str]:
    """Digests of all models and patterns."""
    return {
        path.relative_to(folder).as_posix(): hashlib.sha256(path.read_bytes()).hexdigest()
        for path in folder.rglob("*.safetensors")
    }


def test_training_survives_the_death_of_a_worker_and_of_who_asked(on_dask, tmp_path):
    """The command is killed too, and begun again; what comes of it is what one machine makes."""
    file, folder = tmp_path / "train.yaml", tmp_path / "dask"
    file.write_text(json.dumps(TRAIN))
    words = ["sweep", "run", str(file), "--out", str(folder), "--backend", "dask"]
    command = [sys.executable, "-m", "tl_dyck", *words, "--address", on_dask["address"]]
    with running(command) as (client,):
        until(lambda: [*folder.glob("runs/*/*/*")] or client.poll() is not None)
        for pid in pids_of_workers(on_dask["address"])[:1]:
            os.kill(pid, signal.SIGKILL)
        time.sleep(0.5)
        client.kill()
    done = run_sweep(TRAIN, folder, **on_dask)
    failed = [path.read_text() for path in folder.glob("runs/*/*.failed.json")]
    assert (done.done, failed, done.elsewhere) == (4, [], 0)
    here = tmp_path / "here"
    run_sweep(TRAIN, here, n_jobs=1, progress=False)
    one, other = (
        load_results(each).drop(columns=["seconds", "started", "train_seconds"])
        for each in (folder, here)
    )
    pd.testing.assert_frame_equal(one, other)
    assert weights(folder) == weights(here) != {}


def pids_of_workers(address: str) -> list[int]:
    from dask.distributed import Client

    with Client(address, set_as_default=False) as client:
        return list(client.run(os.getpid).values())


# --- what only a script knows ---------------------------------------------------------------------

SCRIPT = '''
"""Everything that can be registered, in no module that a worker could import."""
import json, os, sys
import tl_dyck
from tl_dyck.certify import certifiers
from tl_dyck.certify.space_parser import transformations
from tl_dyck.judge import methods
from tl_dyck.models.families import models
from tl_dyck.probes import probes
from tl_dyck.runs import experiments, load_results, run_sweep
from tl_dyck.tasks import DyckTask, tasks

EVERY = dict(task=tasks, model=models, probe=probes, certifier=certifiers,
             transformation=transformations, experiment=experiments, method=methods)


class Answer:
    def __init__(self, kind):
        self.kind = kind

    def __call__(self, model=None):
        return f"my {self.kind}"


tl_dyck.register_task("mine")(DyckTask(name="mine", n_types=2, max_depth=3))
for kind in EVERY.keys() - {"task", "experiment"}:
    getattr(tl_dyck, f"register_{kind}")("mine", "My own.")(Answer(kind))


@tl_dyck.register_experiment("mine")
def mine(point, seed, folder):
    answers = {kind: EVERY[kind].get("mine")() for kind in EVERY.keys() - {"task", "experiment"}}
    return {**answers, "task": tasks.get("mine").name, "pid": os.getpid(),
            "experiment-there": experiments.get("mine").__name__}


for place in sys.argv[2:]:
    backend, _, address = place.partition("=")
    folder = os.path.join(sys.argv[1], backend)
    run_sweep({"experiment": "mine", "seeds": 2}, folder, backend=backend,
              address=address or None, n_jobs=2, progress=False)
    rows = load_results(folder)
    assert (rows["status"] == "done").all(), list(rows["error"])
    for kind in EVERY.keys() - {"task", "experiment"}:
        assert set(rows[kind]) == {f"my {kind}"}
    assert set(rows["task"]) == {"mine"} and set(rows["experiment-there"]) == {"mine"}
    assert os.getpid() not in set(rows["pid"])
'''


def script(tmp_path: Path, *places: str) -> None:
    (tmp_path / "script.py").write_text(SCRIPT)
    command = [sys.executable, tmp_path / "script.py", tmp_path / "sweep", *places]
    done = subprocess.run(
        command, capture_output=True, text=True, env=environment(), timeout=PATIENCE
    )
    assert done.returncode == 0, done.stderr


def test_workers_know_what_the_script_registered(address, tmp_path):
    script(tmp_path, f"dask={address}")  # loky: tests/judge/test_code.py


# --- what cannot go on ----------------------------------------------------------------------------


def test_a_scheduler_that_is_killed_or_has_no_workers(tmp_path, monkeypatch):
    pytest.importorskip("dask.distributed")
    monkeypatch.setattr(backends, "_PATIENCE", 1.0)
    monkeypatch.setattr(backends, "_LOOK", 0.2)
    monkeypatch.setattr(backends, "_ANSWER", 60.0)  # a slow scheduler is none that is away
    file = tmp_path / "scheduler.json"
    shared = ["--scheduler-file", str(file), "--no-dashboard"]
    scheduler = [*DASK, "scheduler", "--host", "127.0.0.1", "--port", "0", *shared]
    with running(scheduler) as (process,):
        until(lambda: file.exists() and file.read_text().endswith("}"))
        sweep = {"common": {"x": 1}, "seeds": 1}
        there = {"backend": "dask", "address": json.loads(file.read_text())["address"]}
        no_workers = r"has no workers, for \d+ s now; what is done is kept"
        with pytest.raises(SweepError, match=no_workers):
            go(sweep, tmp_path / "sweep", toys.nothing, **there)
        with backends._dask(there["address"], None) as library:
            monkeypatch.setattr(library, "cores", lambda ask=library.cores: ask() + 1)
            workers = backends._Cluster(library, None)
            monkeypatch.setattr(backends, "_ANSWER", 1.0)
            # dask may call a task lost before nobody has answered for long enough, so there is
            # always another one to hand out
            waiting = each_done(workers, toys.expected, itertools.repeat(1))
            threading.Timer(0.3, process.kill).start()
            with pytest.raises(SweepError, match=r"does not answer|takes no more work"):
                assert all(lost.exception() is not None for _, lost in waiting)


class Fake:
    """A cluster of which one decides what it does."""

    name = "the fake cluster"

    def __init__(self, *cores: int | Exception, closed: bool = False) -> None:
        self.found, self.closed = list(cores), closed

    def cores(self) -> int:
        found = self.found.pop(0) if len(self.found) > 1 else self.found[0]
        if isinstance(found, Exception):
            raise found
        return found

    def is_closed(self) -> bool:
        return self.closed

    def submit(self, task: bytes, future: Any) -> None:
        raise ConnectionError("gone")


def test_patience_has_an_end(monkeypatch):
    monkeypatch.setattr(backends, "_PATIENCE", 0.3)
    monkeypatch.setattr(backends, "_LOOK", 0.05)
    workers = backends._Cluster(Fake(0, 0, 3, TimeoutError(), 4, 0), None)
    assert (workers.size, workers.ahead) == (3, 6)  # it waited for them
    until(lambda: workers.look() or workers.size == 4)  # no answer at once is no disaster
    with pytest.raises(SweepError, match="the fake cluster has no workers"):
        until(workers.look)
    monkeypatch.setattr(backends, "_PATIENCE", 600)
    with pytest.raises(SweepError, match=r"does not answer \(OSError: away\)"):
        backends._Cluster(Fake(OSError("away"), closed=True), None)
    few = backends._Cluster(Fake(8), 2)
    assert (few.size, few.ahead) == (2, 2)
    with pytest.raises(SweepError, match=r"takes no more work \(gone\); what is done is kept"):
        few.submit(len, "abc")


def test_what_a_cluster_cannot_be_sent_or_cannot_load_is_one_line(on_dask, tmp_path):
    sweep = {"common": {"x": 1}, "seeds": 1}
    with pytest.raises(NotSentError, match="cannot be sent to worker processes"):
        go(sweep, tmp_path / "sent", Odd(threading.Lock()), **on_dask)
    with pytest.raises(NotSentError, match=r"cannot be loaded .*no such module here"):
        go(sweep, tmp_path / "loaded", Odd(Elsewhere()), **on_dask)


class Odd(toys.OnDevice):
    """An experiment that holds something."""

    def __init__(self, held: object) -> None:
        object.__setattr__(self, "held", held)
