"""Workers do what they are given, each thing once; they end with their parent, whenever it dies."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from functools import partial
from pathlib import Path

import numpy as np
import pytest
from joblib import cpu_count

from tl_dyck.kit import workers
from tl_dyck.kit.errors import DyckError
from tl_dyck.kit.processes import FolderBusyError, FolderLock, NotSentError
from tl_dyck.kit.workers import WorkerDiedError, check_jobs, spread

# the pool of workers outlives a call, and its threads and pipes are closed when Python ends
pytestmark = [
    pytest.mark.filterwarnings("ignore::ResourceWarning"),
    pytest.mark.skipif(sys.platform == "win32", reason="signals of POSIX"),
]
needs_proc = pytest.mark.skipif(
    not Path("/proc/self/stat").exists(), reason="processes are looked up in /proc"
)


def alive(pid: int) -> bool:
    """Whether a process runs; one that nobody has buried yet does not."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] != "Z"
    except (FileNotFoundError, ProcessLookupError):
        return False


def wait_for(condition, seconds: float = 600.0) -> bool:
    """On a machine however busy."""
    for _ in range(int(seconds / 0.05)):
        if condition():
            return True
        time.sleep(0.05)
    return False


def is_free(folder: Path) -> bool:
    """Whether nobody has the lock; a process lets go of it a moment after it has died."""
    try:
        FolderLock(folder).release()
    except FolderBusyError:
        return False
    return True


# --- what they do ---------------------------------------------------------------------------------


def slowly(number, delay=0.0):
    time.sleep(delay)
    return number, os.getpid()


def last(number, file):
    """The first call ends when there is a file."""
    assert number or wait_for(file.exists)
    return number


def test_results_come_in_order_or_as_they_come(tmp_path):
    calls = [(number, tmp_path / "go") for number in range(4)]
    coming = spread(last, calls, 2, ordered=False)
    # one worker does the others, each after the one before
    soon = [next(coming) for _ in range(3)]
    (tmp_path / "go").touch()
    assert sorted(soon) == [1, 2, 3]
    assert [*coming] == [0]
    assert [*spread(last, calls, 2)] == [0, 1, 2, 3]


def test_one_job_is_this_process_and_takes_calls_one_by_one():
    taken = []
    calls = (taken.append(n) or (n,) for n in range(3))
    results = spread(slowly, calls, 1)
    assert taken == []
    assert next(results) == (0, os.getpid())
    assert taken == [0]
    assert list(results) == [(1, os.getpid()), (2, os.getpid())]


def test_workers_are_kept_for_the_next_who_asks_for_as_many():
    first, second = (
        {pid for _, pid in spread(slowly, [(n, 0.2) for n in range(6)], 2)} for _ in "ab"
    )
    assert len(first) == 2
    assert first == second
    assert os.getpid() not in first


class Counted:
    """Says how often it has been read from bytes, in this process."""

    def __init__(self, value):
        self.value, self.read = value, 0

    def __setstate__(self, state):
        global times_read
        times_read += 1
        self.__dict__ = {**state, "read": times_read}


times_read = 0


def use(counted, index):
    return counted.value[index], counted.read, os.getpid()


def test_what_is_bound_to_a_function_is_read_once_by_each_worker():
    counted = Counted(list(range(1_000)))
    found = list(spread(partial(use, counted), [(index,) for index in range(12)], 2))
    assert [value for value, _, _ in found] == list(range(12))
    by_worker = {pid: {read for _, read, who in found if who == pid} for _, _, pid in found}
    assert os.getpid() not in by_worker
    assert all(len(read) == 1 for read in by_worker.values())


def threads_of(_):
    import torch

    return torch.get_num_threads(), {
        name: value for name, value in os.environ.items() if name.endswith("_NUM_THREADS")
    }


def test_a_worker_has_one_thread(monkeypatch):
    monkeypatch.setenv("OMP_NUM_THREADS", "2")
    monkeypatch.setattr(workers, "_idle", {})
    (found, values), *_ = spread(threads_of, [(0,)], 2)
    assert found == 1
    assert set(values.values()) == {"1"}
    assert {"OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS"} <= values.keys()


def raises(number):
    raise ValueError(f"{number} is odd")


def dies(number):
    if number == 1:
        os.kill(os.getpid(), signal.SIGKILL)
    time.sleep(0.1)
    return number


def test_an_exception_and_a_death_are_told_and_the_next_call_has_workers():
    with pytest.raises(ValueError, match="1 is odd"):
        list(spread(raises, [(1,)], 2))
    with pytest.raises(WorkerDiedError, match="killed, perhaps for want of memory") as caught:
        list(spread(dies, [(n,) for n in range(6)], 2))
    assert isinstance(caught.value, DyckError)
    assert list(spread(dies, [(0,), (2,)], 2)) == [0, 2]


@needs_proc
def test_who_does_not_hear_the_end_stops_the_workers():
    results = spread(slowly, [(0, 0), (1, 600), (2, 600)], 2)
    _, first = next(results)
    results.close()
    assert wait_for(lambda: not alive(first))


@pytest.mark.usefixtures("forked_workers")
def test_workers_are_stopped_while_the_pool_still_hands_out_work():
    """A thread of the pool's would die of it, now and then; that fails a test here."""
    for _ in range(5):
        with workers.workers_here(2) as pool:
            assert pool.submit(abs, -1).result() == 1  # of Python's own: workers import no more
            for _ in range(3):
                pool.submit(time.sleep, 600)


def test_what_cannot_be_sent_is_one_line():
    with pytest.raises(NotSentError, match="what is to be done cannot be sent to worker processes"):
        list(spread(partial(use, threading.Lock()), [(0,)], 2))


class Elsewhere:
    """Can be sent, and not be read."""

    def __reduce__(self):
        return nowhere, ()


def nowhere():
    raise ImportError("no such module here")


def test_what_a_worker_cannot_load_is_one_line():
    with pytest.raises(NotSentError, match=r"cannot be loaded by the worker .*no such module here"):
        list(spread(partial(use, Elsewhere()), [(0,)], 2))


# --- how many -------------------------------------------------------------------------------------


def test_how_many_there_may_be():
    most = 8 * cpu_count()
    assert [check_jobs(n) for n in (None, 1, np.int64(3), most)] == [cpu_count(), 1, 3, most]
    for wrong in (0, -1):
        with pytest.raises(ValueError, match=f"n_jobs must be at least 1, got {wrong}"):
            check_jobs(wrong)
    with pytest.raises(ValueError, match=f"the {cpu_count()} cores .*, got 99999"):
        check_jobs(99999)
    for odd in (2.0, "2", True):
        with pytest.raises(TypeError, match="n_jobs must be an integer"):
            check_jobs(odd)


# --- orphans --------------------------------------------------------------------------------------


@needs_proc
def test_workers_end_with_their_parent(tmp_path):
    """As the out-of-memory killer would have it: the parent alone, and without warning."""
    script = Path(__file__).parent / "work_for_ever.py"
    with subprocess.Popen([sys.executable, script, tmp_path]) as parent:
        assert wait_for(lambda: len(list(tmp_path.glob("*/worker"))) == 2)
        found = [int(path.read_text()) for path in tmp_path.glob("*/worker")]
        assert all(alive(worker) for worker in found)
        assert parent.pid not in found
        parent.send_signal(signal.SIGKILL)
    assert wait_for(lambda: not any(alive(worker) for worker in found))
    assert wait_for(lambda: all(map(is_free, tmp_path.glob("folder-*"))))


def descendants(mark: str) -> set[int]:
    """Processes whose environment has a mark: it is inherited, whoever their parent is by now."""
    found = set()
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            if mark.encode() in (folder / "environ").read_bytes():
                found.add(int(folder.name))
        except OSError:
            continue
    return {pid for pid in found if alive(pid)}


@needs_proc
def test_no_worker_survives_a_parent_that_dies_while_they_start(tmp_path):
    """Some are not there yet, some import, some have read what they shall do."""
    script = Path(__file__).parent / "work_for_ever.py"
    mark = f"TL_DYCK_TEST_MARK={os.getpid()}"
    name, _, value = mark.partition("=")
    environment = {**os.environ, name: value}
    with subprocess.Popen(
        [sys.executable, script, tmp_path], env=environment, stderr=subprocess.DEVNULL
    ) as parent:
        # from the moment that the first of them is there
        assert wait_for(lambda: len(descendants(mark)) > 1)
        time.sleep(0.3)
        parent.kill()
    assert wait_for(lambda: not descendants(mark))


def test_a_worker_that_starts_after_its_parent_died_ends_at_once():
    code = "from tl_dyck.kit.workers import end_with; end_with(1 << 30); print('still here')"
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert (found.returncode, found.stdout) == (1, "")
