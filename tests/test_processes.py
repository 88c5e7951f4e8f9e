"""Locks on folders, and workers whose parent is killed."""

import errno
import os
import pickle
import signal
import subprocess
import sys
import time
from pathlib import Path

import joblib
import pytest

from tl_dyck import processes
from tl_dyck.processes import FolderBusyError, FolderLock, Sent, Watched

fcntl = pytest.importorskip("fcntl", reason="locks and signals of POSIX")


def alive(pid: int) -> bool:
    """Whether a process runs; one that nobody has buried yet does not."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] != "Z"
    except FileNotFoundError:
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


def test_one_at_a_time(tmp_path):
    first = FolderLock(tmp_path)
    with pytest.raises(FolderBusyError, match="another process is at work in"):
        FolderLock(tmp_path)
    first.release()
    first.release()
    assert list(tmp_path.iterdir()) == []
    second = FolderLock(tmp_path)
    first.release()  # not its own any more
    with pytest.raises(FolderBusyError):
        FolderLock(tmp_path)
    second.release()


def test_a_lock_whose_file_was_removed_meanwhile_is_taken_again(tmp_path, monkeypatch):
    flock, removed = fcntl.flock, []

    def removing(descriptor, operation):
        flock(descriptor, operation)
        if not removed:
            removed.append(os.unlink(tmp_path / ".lock"))

    monkeypatch.setattr(fcntl, "flock", removing)
    lock = FolderLock(tmp_path)
    with pytest.raises(FolderBusyError):
        FolderLock(tmp_path)
    lock.release()


def test_the_kernel_takes_it_back(tmp_path):
    code = "import sys, time; from pathlib import Path; from tl_dyck.processes import FolderLock\n"
    code += "lock = FolderLock(Path(sys.argv[1])); print('locked', flush=True); time.sleep(600)"
    with subprocess.Popen([sys.executable, "-c", code, tmp_path], stdout=subprocess.PIPE) as child:
        assert child.stdout is not None
        assert child.stdout.readline() == b"locked\n"
        with pytest.raises(FolderBusyError):
            FolderLock(tmp_path)
        child.kill()
    FolderLock(tmp_path).release()


@pytest.mark.parametrize("number", [errno.ENOLCK, errno.EIO])
def test_a_lock_that_fails_is_not_held(tmp_path, monkeypatch, number):
    def broken(descriptor, operation):
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(fcntl, "flock", broken)
    with pytest.raises(OSError, match=r"cannot lock .*choose another folder") as caught:
        FolderLock(tmp_path)
    assert not isinstance(caught.value, FolderBusyError)


def test_where_there_are_no_locks(tmp_path, monkeypatch):
    monkeypatch.setattr(processes, "fcntl", None)
    locks = [FolderLock(tmp_path), FolderLock(tmp_path)]
    for lock in locks:
        lock.release()
    assert list(tmp_path.iterdir()) == []


def test_only_a_child_is_watched(monkeypatch):
    started = []
    monkeypatch.setattr(processes.threading.Thread, "start", lambda self: started.append(self))
    monkeypatch.setattr(processes, "_watched", set())
    assert Watched.by_this_process(max)(1, 2) == 2  # no child of itself
    assert started == []
    assert [Watched(max, os.getppid())(1, 2) for _ in range(3)] == [2, 2, 2]
    assert len(started) == 1


@pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="processes are looked up in /proc")
def test_workers_end_with_their_parent(tmp_path):
    """As the out-of-memory killer would have it: the parent alone, and without warning."""
    script = Path(__file__).parent / "work_for_ever.py"
    with subprocess.Popen([sys.executable, script, tmp_path]) as parent:
        assert wait_for(lambda: len(list(tmp_path.glob("*/worker"))) == 2)
        workers = [int(path.read_text()) for path in tmp_path.glob("*/worker")]
        assert all(alive(worker) for worker in workers)
        assert parent.pid not in workers
        parent.send_signal(signal.SIGKILL)
    assert wait_for(lambda: not any(alive(worker) for worker in workers))
    assert wait_for(lambda: all(map(is_free, tmp_path.glob("folder-*"))))


class Counted:
    """Says how often it has been read from bytes, in this process."""

    def __init__(self, value):
        self.value, self.read = value, 0

    def __setstate__(self, state):
        global times_read
        times_read += 1
        self.__dict__ = {**state, "read": times_read}


times_read = 0


def use(sent, index):
    """For a worker: what it was sent, how often it has read it, and who it is."""
    return sent.value.value[index], sent.value.read, os.getpid()


@pytest.mark.parametrize("size", [12, 1_000_000])  # sent with every task, and shared
def test_a_value_is_read_once_by_each_worker(size):
    sent = Sent(Counted(list(range(size))))
    with joblib.parallel_config(backend="loky"):
        found = joblib.Parallel(n_jobs=2, batch_size=1)(
            joblib.delayed(use)(sent, index) for index in range(12)
        )
    assert [value for value, _, _ in found] == list(range(12))
    by_worker = {pid: {read for _, read, who in found if who == pid} for _, _, pid in found}
    assert os.getpid() not in by_worker
    assert all(len(read) == 1 for read in by_worker.values())


def test_another_value_is_not_taken_for_the_one_before():
    first, second = Sent("first"), Sent("second")
    assert [first.value, second.value, first.value, second.value] == ["first", "second"] * 2
    assert first.value is first.value


def test_what_only_this_script_knows_is_sent_too():
    class Here:
        answer = 42

    assert pickle.loads(pickle.dumps(Sent(Here()))).value.answer == 42
