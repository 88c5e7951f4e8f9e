"""Locks that no two hold, records that are whole or absent, and folders of other versions."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import json
import os
import signal
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tl_dyck.kit.files import CorruptFileError
from tl_dyck.kit.records import sealed
from tl_dyck.runs import Sweep
from tl_dyck.runs.store import Store, describe, point_id, run_id

POINT = point_id("mine", {"x": 1})
RUN = run_id(POINT, 0)
RECORD: dict[str, Any] = {
    "id": RUN,
    "point": POINT,
    "experiment": "mine",
    "parameters": {"x": 1},
    "seed": 0,
    "started": "2026-01-01T00:00:00+00:00",
    "environment": {"host": "here"},
    "seconds": 0.1,
    "metrics": {"score": 0.5, "name": "é"},
}


@pytest.fixture
def store(tmp_path) -> Store:
    store = Store.create(
        tmp_path / "sweep", Sweep(common={"x": 1}, experiment="mine").to_dict(), (POINT,)
    )
    store.start(RUN)
    return store


@pytest.mark.parametrize("number", [errno.ENOLCK, errno.EIO])
def test_a_lock_that_cannot_be_had_is_an_error_and_not_held(store, monkeypatch, number):
    def fail(descriptor: int, flags: int, *_: Any) -> None:
        if flags != fcntl.LOCK_UN:  # else that would be the error that is seen
            raise OSError(number, os.strerror(number))

    monkeypatch.setattr("fcntl.lockf", fail)
    with pytest.raises(OSError, match=os.strerror(number)), store.claim(RUN):
        pytest.fail("the run counts as claimed")
    monkeypatch.undo()
    with store.claim(RUN) as mine:  # nor is it kept in mind as held
        assert mine


def locker(folder: Path) -> subprocess.Popen[str]:
    """Another process that takes and returns the lock as told, importing nothing heavy."""
    code = (
        "import fcntl, os, sys\n"
        f"file = os.open({str(folder / 'locks')!r}, os.O_RDWR)\n"
        f"byte = int({RUN[:15]!r}, 16)\n"
        "for line in sys.stdin:\n"
        "    try:\n"
        "        fcntl.lockf(file, fcntl.LOCK_UN if line == 'free\\n' else fcntl.LOCK_EX | "
        "fcntl.LOCK_NB, 1, byte)\n"
        "        print('yes', flush=True)\n"
        "    except OSError:\n"
        "        print('no', flush=True)\n"
    )
    return subprocess.Popen(
        [sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )


def ask(process: subprocess.Popen[str], what: str) -> str:
    assert process.stdin is not None
    assert process.stdout is not None
    process.stdin.write(f"{what}\n")
    process.stdin.flush()
    return process.stdout.readline().strip()


# --- locks ----------------------------------------------------------------------------------------


def test_lock_between_processes(store):
    (store.folder / "locks").unlink()
    assert not store.is_claimed(RUN)  # which writes nothing
    assert not (store.folder / "locks").exists()
    with store.claim(RUN) as mine:
        assert mine
    with locker(store.folder) as other:
        with store.claim(RUN) as mine:
            assert mine
            assert ask(other, "take") == "no"
        assert ask(other, "take") == "yes"
        assert store.is_claimed(RUN)
        with store.claim(RUN) as mine:
            assert not mine
        with store.claim(run_id(POINT, 1)) as mine:  # another run is free
            assert mine
        assert ask(other, "free") == "yes"
        with store.claim(RUN) as mine:
            assert mine
            # looking at the folder must not drop the lock, as closing the file would
            Store.create(
                store.folder, Sweep(common={"x": 2}, experiment="mine").to_dict(), (POINT,)
            )
            assert store.is_claimed(RUN)
            assert ask(other, "take") == "no"
        assert ask(other, "take") == "yes"
        os.kill(other.pid, signal.SIGKILL)
        other.wait()
        assert not store.is_claimed(RUN)  # the kernel has taken it back


def test_lock_between_threads(store):
    found = []

    def ask_here() -> None:
        with store.claim(RUN) as mine:
            found.append(mine)

    for held in (contextlib.nullcontext(), store.claim(RUN), contextlib.nullcontext()):
        with held:
            thread = threading.Thread(target=ask_here)
            thread.start()
            thread.join()
    assert found == [True, False, True]
    assert not store.is_claimed(RUN)


# --- records --------------------------------------------------------------------------------------


def test_record_there_and_back(store):
    assert store.ended(RUN) == ""
    store.write_failure(
        RUN, {key: RECORD[key] for key in RECORD if key != "metrics"}, "line", "trace", took=0.0
    )
    assert store.ended(RUN) == "failed"
    assert store.read(store.path(RUN, ".failed.json"))["traceback"] == "trace"
    store.write_record(RUN, RECORD, took=1.0)
    assert store.ended(RUN) == "done"
    assert store.read(store.path(RUN, ".json")) == RECORD
    assert not store.path(RUN, ".failed.json").exists()
    assert dict(store.names()) == {RUN: "done"}


@settings(max_examples=60)
@given(data=st.data())
def test_no_altered_record_is_read(tmp_path_factory, data):
    """Any change of any byte that changes the content is noticed; so is any truncation."""
    store = Store(tmp_path_factory.getbasetemp() / "altered")
    path = store.path(RUN, ".json")
    path.parent.mkdir(parents=True, exist_ok=True)
    store.write_record(RUN, RECORD, took=0.0)
    whole = bytearray(path.read_bytes())
    place = data.draw(st.integers(0, len(whole) - 1))
    if data.draw(st.booleans()):
        whole[place] = data.draw(st.integers(0, 255))
    else:
        del whole[place:]
    path.write_bytes(whole)
    try:
        same = {
            name: value for name, value in json.loads(whole).items() if name != "digest"
        } == RECORD
    except ValueError:
        same = False
    if same:
        return
    with pytest.raises(CorruptFileError):
        store.read(path)
    assert store.ended(RUN) == ""


HOSTILE = {
    "no digest": json.dumps(RECORD).encode(),
    "of another run": sealed(RECORD, run_id(POINT, 1)),
}


@pytest.mark.parametrize("case", HOSTILE)
def test_hostile_records(store, case):
    path = store.path(RUN, ".json")
    path.write_bytes(HOSTILE[case])
    with pytest.raises(CorruptFileError, match=path.name):
        store.read(path)
    assert store.ended(RUN) == ""
    assert path.exists()  # only who holds the lock may move it
    assert store.ended(RUN, aside=True) == ""
    assert not path.exists()
    (aside,) = path.parent.glob("*.corrupt")
    assert aside.read_bytes() == HOSTILE[case]
    # another one later does not replace it
    path.write_bytes(b"again")
    store.ended(RUN, aside=True)
    assert len(list(path.parent.glob("*.corrupt"))) == 2


def test_corrupt_record_beside_a_failure(store):
    store.write_failure(
        RUN, {key: RECORD[key] for key in RECORD if key != "metrics"}, "line", "trace", took=0.0
    )
    store.path(RUN, ".json").write_bytes(b"{")
    assert store.ended(RUN) == "failed"


@pytest.mark.parametrize(
    ("error", "line"),
    [
        (ValueError("x is 3"), "ValueError: x is 3"),
        (ValueError("two\nlines"), "ValueError: two"),
        (SystemExit(3), "SystemExit: 3"),
        (FileNotFoundError(2, "none", "\udcff"), r"FileNotFoundError: [Errno 2] none: '\udcff'"),
        (ValueError("x" * 10_000), "ValueError: " + "x" * 488),
    ],
)
def test_errors_in_a_line(error, line):
    try:
        raise error
    except BaseException as caught:
        found, trace = describe(caught)
    assert found == line
    assert len(trace) <= 20_000
    assert "test_store.py" in trace or len(str(error)) > 1000
    (found + trace).encode()


# --- the folder -----------------------------------------------------------------------------------


def test_plan_there_and_back(store):
    sweep = Sweep(grid={"x": [1, "1", 1.0, [1], None]}, seeds=[5, 3], experiment="mine")
    again = Store.create(store.folder, sweep.to_dict(), "abcde")
    plan, points = again.plan()
    assert plan == sweep
    assert repr(plan.grid) == repr(sweep.grid)
    assert points == tuple("abcde")


def test_where_there_are_no_locks(store, monkeypatch):
    """One process still does nothing twice."""
    monkeypatch.setattr("tl_dyck.runs.locks.fcntl", None)
    with store.claim(RUN) as mine, store.claim(RUN) as again:
        assert (mine, again) == (True, False)
    with store.claim(RUN) as mine:
        assert mine
