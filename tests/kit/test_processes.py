"""Locks on folders, and what is sent to workers."""

import errno
import importlib
import os
import pickle
import re
import subprocess
import sys
import threading
from functools import partial

import pytest

from tl_dyck.kit import processes
from tl_dyck.kit.processes import FolderBusyError, FolderLock, Sent
from tl_dyck.kit.registry import Registry, RegistryError
from tl_dyck.kit.workers import spread

fcntl = pytest.importorskip("fcntl", reason="locks and signals of POSIX")


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
    code = (
        "import sys, time; from pathlib import Path; from tl_dyck.kit.processes import FolderLock\n"
    )
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


def test_another_value_is_not_taken_for_the_one_before():
    first, second = Sent("first"), Sent("second")
    assert [first.value, second.value, first.value, second.value] == ["first", "second"] * 2
    assert first.value is first.value


def test_what_only_this_script_knows_is_sent_too():
    class Here:
        answer = 42

    assert pickle.loads(pickle.dumps(Sent(Here()))).value.answer == 42


@pytest.fixture
def toys():
    registry = Registry("toy", "tl_dyck_test.sent")
    sys.modules[__name__].REGISTRY = registry
    return registry


def ask(group, name):
    """For a worker, which has a registry of its own: what a name stands for there, or why not."""
    registry = vars(sys.modules[__name__]).setdefault("REGISTRY", Registry("toy", group))
    try:
        found = registry.get(name)
    except RegistryError as error:
        return str(error)
    return found() if callable(found) else found, registry.names(), registry.summary(name)


def asked(group, *names):
    return list(spread(partial(ask, group), [(name,) for name in names], 2))


def test_workers_know_what_this_process_has_registered(toys):
    lock = threading.Lock()
    toys.register("mine", "my own")(lambda: f"by {lock is not None}")
    toys.register("number")(42)
    mine, number = asked(toys.group, "mine", "number")
    assert "cannot pickle '_thread.lock' object" in mine
    assert mine.startswith("toy 'mine': it cannot be sent to worker processes (TypeError: ")
    assert number == (42, ["mine", "number"], "")
    toys.register("mine", "another", replace=True)(lambda: "another")
    assert asked(toys.group, "mine") == [("another", ["mine", "number"], "another")]
    toys.unregister("mine")
    toys.register("mine")(lambda: "a third")
    assert asked(toys.group, "mine") == [("a third", ["mine", "number"], "")]


def test_a_worker_that_lacks_the_module_says_so(toys, tmp_path, monkeypatch):
    (tmp_path / "only_here.py").write_text("def mine():\n    return 1\n")
    with monkeypatch.context() as here:
        here.syspath_prepend(str(tmp_path))
        toys.register("mine")(importlib.import_module("only_here").mine)
    sent = Sent(toys.group)
    code = "import pickle, sys; sent = pickle.load(sys.stdin.buffer)\n"
    code += "from tl_dyck.kit.registry import Registry; toys = Registry('toy', sent.value)\n"
    code += "print(toys.names()); toys.get('mine')"
    found = subprocess.run(
        [sys.executable, "-c", code], input=pickle.dumps(sent), capture_output=True, cwd="/"
    )
    assert found.stdout == b"['mine']\n", found.stderr
    assert re.search(
        rb"RegistryError: toy 'mine': it cannot be loaded by the worker process on '.*' "
        rb"\(ModuleNotFoundError: No module named 'only_here'\); its Python needs the modules",
        found.stderr,
    )


def test_what_comes_from_this_process_changes_nothing_in_it(toys):
    mine = toys.register("mine", replace=True)(lambda: 1)
    assert Sent(1).value == pickle.loads(pickle.dumps(Sent(1))).value == 1
    assert toys.get("mine") is mine
    toys.unregister("mine")
    assert toys.names() == []


def test_what_a_process_knows_by_itself_it_does_not_take_from_work(toys, monkeypatch):
    """Two clients in a row, neither of whose own could be loaded here."""
    mine = toys.register("mine")(lambda: 1)
    for why in ("one", "another"):
        told = processes.Told(None, why, "", replace=False)
        monkeypatch.setitem(processes.told_here, (toys.group, "mine"), told)
        assert toys.get("mine") is mine
