"""Whatever happens to a run, it goes on to the same end, or says what is wrong with its folder."""

from __future__ import annotations

import errno
import hashlib
import itertools
import json
import math
import os
import random
import shutil
import signal
import sys
import tempfile
import threading
from collections.abc import Callable
from pathlib import Path
from types import FrameType

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from safetensors.torch import load_file, save_file

from tests.hostile.tools import alter
from tl_dyck.files import read_json
from tl_dyck.models import get_config
from tl_dyck.tasks import DyckTask
from tl_dyck.training import CheckpointError, TrainConfig, load_result
from tl_dyck.training import loop as loop_module
from tl_dyck.training.checkpoint import read_checkpoint

RESULT_FILES = ["config.json", "model.safetensors", "result.json"]
CHECKPOINT_FILES = ["checkpoint.json", "state-3.safetensors"]


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


class Killed(BaseException):
    """The process ends here."""


@pytest.fixture(scope="module")
def stopped_at_3(tiny, tmp_path_factory) -> Path:
    """The folder of a run (seed 1) killed after step 4, which has a checkpoint of step 3."""
    folder = tmp_path_factory.mktemp("stopped")

    def stop(row):
        raise Killed

    with pytest.raises(Killed):
        tiny.train(seed=1, folder=folder, on_check=stop)
    assert names(folder) == CHECKPOINT_FILES
    return folder


@pytest.fixture
def folder(stopped_at_3, tmp_path) -> Path:
    return Path(shutil.copytree(stopped_at_3, tmp_path / "run"))


@pytest.fixture(scope="module")
def finished(tiny, tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("finished")
    tiny.train(seed=1, folder=folder)
    return folder


@pytest.fixture
def done(finished, tmp_path) -> Path:
    return Path(shutil.copytree(finished, tmp_path / "run"))


# --- kills ----------------------------------------------------------------------------------------


def test_resuming(tiny, folder, uninterrupted, same_run):
    rows = []
    same_run(tiny.train(seed=1, folder=folder, on_check=rows.append), uninterrupted)
    assert [row["step"] for row in rows] == [4, 8, 10]  # step 4 was made again
    assert names(folder) == RESULT_FILES


@pytest.mark.parametrize("weight", ["contrastive_weight", "drift_weight"])
def test_resuming_with_a_regularisation(tiny, same_run, tmp_path, weight):
    config = get_config("minimal-onehot", tiny.task, d_model=10, d_mlp=4, n_ctx=16)
    options = TrainConfig(**{**vars(tiny.options), weight: 0.5})
    whole = tiny.train(config=config, seed=1, options=options)

    def stop(row):
        raise Killed

    with pytest.raises(Killed):
        tiny.train(config=config, seed=1, options=options, folder=tmp_path, on_check=stop)
    same_run(tiny.train(config=config, seed=1, options=options, folder=tmp_path), whole)
    same_run(load_result(tmp_path), whole)
    assert not torch.equal(tiny.train(config=config, seed=1).model.W_U, whole.model.W_U)
    with pytest.raises(CheckpointError, match=rf"{weight} \(0.5 there, None asked for\)"):
        tiny.train(config=config, seed=1, folder=tmp_path)


def test_a_kill_between_any_two_file_operations(tiny, same_run, tmp_path, monkeypatch):
    """After it no operation succeeds, tidying up included, as with a process that is gone."""
    options = TrainConfig(
        steps=5, batch_size=2, check_every=3, check_size=5, checkpoint_every=2, target=None
    )
    whole = tiny.train(seed=1, options=options)
    left = [0]

    def mortal(function):
        def call(*args, **kwargs):
            if left[0] <= 0:
                raise Killed
            left[0] -= 1
            return function(*args, **kwargs)

        return call

    for module, name in [
        *[(os, name) for name in ("replace", "unlink", "fsync", "chmod", "mkdir")],
        (tempfile, "mkstemp"),
        (Path, "unlink"),
    ]:
        monkeypatch.setattr(module, name, mortal(getattr(module, name)))
    kills = 0
    while True:
        folder = tmp_path / f"run-{kills}"
        left[0] = kills
        try:
            tiny.train(seed=1, options=options, folder=folder)
        except Killed:
            left[0] = 10**9
            same_run(tiny.train(seed=1, options=options, folder=folder), whole)
            assert set(RESULT_FILES) <= set(names(folder))
            assert not list(folder.glob(".*.tmp"))
            kills += 1
        else:
            break
    assert kills > 30


class Countdown:
    """Counts calls and returns of functions and acts at a given one: a moment without a clock.

    Not within the type checker of the tests, but after it, for it would be left with its locks
    held.
    """

    def __init__(self, moment: float, act: Callable[[], object]) -> None:
        self.count, self.moment, self.act = 0, moment, act

    def __call__(self, frame: FrameType, event: str, argument: object) -> None:
        self.count += 1
        if self.moment > 0 and self.count >= self.moment and not checks_types(frame):
            self.moment = -1
            self.act()

    def __enter__(self) -> Countdown:
        sys.setprofile(self)
        return self

    def __exit__(self, *error: object) -> None:
        sys.setprofile(None)


def checks_types(frame: FrameType | None) -> bool:
    while frame is not None:
        if str(frame.f_globals.get("__name__")).startswith("beartype"):
            return True
        frame = frame.f_back
    return False


LONGER = TrainConfig(
    steps=30, batch_size=3, check_every=4, check_size=9, checkpoint_every=2, target=None
)


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
@pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")
def test_kill_9_at_random_moments(tiny, same_run, tmp_path):
    with Countdown(-1, print) as counter:
        whole = tiny.train(seed=2, options=LONGER, folder=tmp_path / "whole")
    folder, chance, killed = tmp_path / "killed", random.Random(0), 0
    for _ in range(6):
        child = os.fork()
        if child == 0:
            try:
                moment = int(counter.count * chance.uniform(0.1, 0.3))
                with Countdown(moment, lambda: os.kill(os.getpid(), signal.SIGKILL)):
                    tiny.train(seed=2, options=LONGER, folder=folder)
            finally:
                os._exit(0)
        chance.random()
        killed += os.WTERMSIG(os.waitpid(child, 0)[1]) == signal.SIGKILL
    same_run(tiny.train(seed=2, options=LONGER, folder=folder), whole)
    assert killed > 2
    assert names(folder) == RESULT_FILES


@pytest.fixture
def ctrl_c():
    """The usual handler of Ctrl-C, which a test runner's workers may have replaced."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield lambda *_: signal.raise_signal(signal.SIGINT)
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
    signal.signal(signal.SIGINT, before)


@pytest.mark.parametrize("row", [0, 1, 2])
def test_ctrl_c_writes_a_checkpoint(tiny, ctrl_c, uninterrupted, same_run, tmp_path, row):
    """In the last row, the run has ended: its result is written, and Ctrl-C is heard as well."""
    seen = []

    def press(found):
        seen.append(found)
        if len(seen) == row + 1:
            ctrl_c()

    with pytest.raises(KeyboardInterrupt):
        tiny.train(seed=1, folder=tmp_path, on_check=press)
    step = [4, 8, 10][row]
    checkpoint = ["checkpoint.json", f"state-{step}.safetensors"]
    assert names(tmp_path) == (
        checkpoint if step < 10 else ["config.json", "model.safetensors", "result.json"]
    )
    more = []
    same_run(tiny.train(seed=1, folder=tmp_path, on_check=more.append), uninterrupted)
    assert [found["step"] for found in seen + more] == [4, 8, 10]


def test_ctrl_c_when_the_target_was_just_reached(tiny, ctrl_c, same_run, tmp_path):
    """A run that is resumed does not go on where an uninterrupted one would have stopped."""
    options = TrainConfig(
        steps=10, batch_size=3, check_every=2, check_size=9, target=0.01, warmup_steps=0
    )
    whole = tiny.train(seed=1, options=options)
    assert whole.status == "reached"
    assert whole.steps < 10

    def press(row):
        if row["step"] == whole.steps:
            ctrl_c()

    with pytest.raises(KeyboardInterrupt):
        tiny.train(seed=1, options=options, folder=tmp_path, on_check=press)
    same_run(tiny.train(seed=1, options=options, folder=tmp_path), whole)


def test_ctrl_c_at_random_moments(tiny, ctrl_c, same_run, tmp_path):
    """Nothing but Ctrl-C writes a checkpoint here."""
    options = TrainConfig(**{**vars(LONGER), "checkpoint_every": 100})
    with Countdown(-1, print) as counter:
        whole = tiny.train(seed=2, options=options)
    chance, pressed, result = random.Random(1), 0, None
    while result is None:
        try:
            with Countdown(int(counter.count * chance.uniform(0.05, 0.3)), ctrl_c):
                result = tiny.train(seed=2, options=options, folder=tmp_path)
        except KeyboardInterrupt:
            pressed += 1
            torch.set_grad_enabled(True)  # as torch.no_grad leaves it if it is interrupted itself
    assert pressed > 2
    same_run(result, whole)


def test_the_second_ctrl_c_does_not_wait(tiny, ctrl_c, folder, uninterrupted, same_run):
    reached = []

    def press(row):
        ctrl_c()
        ctrl_c()
        reached.append(row)

    with pytest.raises(KeyboardInterrupt):
        tiny.train(seed=1, folder=folder, on_check=press)
    assert reached == []
    assert names(folder) == CHECKPOINT_FILES
    same_run(tiny.train(seed=1, folder=folder), uninterrupted)


def test_a_handler_of_the_users_own_is_left_alone(tiny, uninterrupted, same_run):
    def mine(number, frame):
        pass

    before = signal.signal(signal.SIGINT, mine)
    try:
        seen = []
        tiny.train(seed=1, on_check=lambda row: seen.append(signal.getsignal(signal.SIGINT)))
        assert seen == [mine, mine, mine]
    finally:
        signal.signal(signal.SIGINT, before)
    results = []
    thread = threading.Thread(target=lambda: results.append(tiny.train(seed=1)))
    thread.start()
    thread.join()
    same_run(results[0], uninterrupted)


def test_a_full_disk_leaves_the_old_checkpoint(tiny, folder, uninterrupted, same_run, monkeypatch):
    before = {path.name: path.read_bytes() for path in folder.iterdir()}

    def full(descriptor):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError, match="No space left"):
        tiny.train(seed=1, folder=folder)
    assert {path.name: path.read_bytes() for path in folder.iterdir()} == before
    monkeypatch.undo()
    same_run(tiny.train(seed=1, folder=folder), uninterrupted)


# --- finished runs --------------------------------------------------------------------------------


def test_a_finished_run_is_loaded_not_made_again(tiny, done, uninterrupted, same_run, monkeypatch):
    monkeypatch.setattr(loop_module, "SeedGroup", None)
    result = tiny.train(seed=1, folder=done)
    same_run(result, uninterrupted)
    assert result.seconds == load_result(done).seconds > 0
    same_run(load_result(str(done)), uninterrupted)
    assert names(done) == RESULT_FILES


def test_unfinished_files_of_a_killed_process_are_removed(tiny, folder):
    (folder / ".tl_dyck-abc.tmp").write_text("half")
    (folder / "notes.tmp").write_text("mine")
    (folder / ".hidden").write_text("mine")
    tiny.train(seed=1, folder=folder)
    assert names(folder) == sorted([*RESULT_FILES, "notes.tmp", ".hidden"])


def test_unwritable_folders(tiny, tmp_path):
    (tmp_path / "file").write_text("x")
    for folder in (tmp_path / "file", tmp_path / "file" / "below", Path("/proc/nowhere")):
        with pytest.raises(OSError, match=r"cannot write to the folder .* choose another one"):
            tiny.train(folder=folder)


# --- folders of other runs ------------------------------------------------------------------------


@pytest.mark.parametrize("which", ["folder", "done"])
def test_a_folder_of_another_run_is_refused_and_kept(tiny, which, request):
    path = request.getfixturevalue(which)
    before = {file.name: file.read_bytes() for file in path.iterdir()}
    more_steps = TrainConfig(**{**vars(tiny.options), "steps": 11})
    other_task = DyckTask(
        name="tiny", n_types=2, max_depth=2, q=0.25, train_lengths=(2, 4, 6), long_lengths=(8, 9)
    )
    renamed = DyckTask(
        name="other", n_types=2, max_depth=2, train_lengths=(2, 4, 6), long_lengths=(8, 9)
    )
    wider = get_config("minimal-onehot", tiny.task, d_model=12, d_mlp=4)
    for change, message in [
        ({"seed": 2}, r"holds another run; it differs in seed \(1 there, 2 asked for\)"),
        ({"seed": 1, "options": more_steps}, r"options.steps \(10 there, 11 asked for\)"),
        ({"seed": 1, "task": other_task}, r"task.q \(0.5 there, 0.25 asked for\)"),
        ({"seed": 1, "task": renamed}, r"task.name \('tiny' there, 'other' asked for\)"),
        ({"seed": 1, "config": wider}, r"model.d_model \(10 there, 12 asked for\)"),
        (
            {"seed": 3, "options": more_steps},
            r"options.steps .*; seed .*Choose another folder",
        ),
    ]:
        with pytest.raises(CheckpointError, match=message):
            tiny.train(folder=path, **change)
    assert {file.name: file.read_bytes() for file in path.iterdir()} == before


# --- damage ---------------------------------------------------------------------------------------


@settings(max_examples=25, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_any_damage_to_the_tensors_is_noticed(tiny, stopped_at_3, data):
    path = stopped_at_3 / "state-3.safetensors"
    original = path.read_bytes()
    position = data.draw(st.integers(0, len(original) - 1))
    flipped = (
        original[:position]
        + bytes([original[position] ^ (1 << position % 8)])
        + original[position + 1 :]
    )
    try:
        for damaged in (flipped, original[:position], original + b"\0"):
            path.write_bytes(damaged)
            with pytest.raises(
                CheckpointError, match=r"truncated or was altered.*Delete .* to train again"
            ):
                tiny.train(seed=1, folder=stopped_at_3)
    finally:
        path.write_bytes(original)


#: Of a checkpoint or a result: where, and what must not stand there (... for nothing at all).
HOSTILE_CHECKPOINTS = {
    "tensors": ("../state-3.safetensors", "/etc/passwd", "..", "", "a\0b", 5, None,
                "state-4.safetensors", "checkpoint.json", ...),
    "sha256": ("0" * 64, "", None, ...),
    "step": (-1, 4, 10**9, 2.0, "3", True, ...),
    "status": ("great", [], ...),
    "seconds": ("1", math.nan, math.inf, -1.0, True, ...),
    "history": (5, "abc", [5], [[]], [{"step": 1}], ...),
    "identity": (5, {}, "x", ...),
    "identity task": (5, {}, ...),
    "format": (5, "tl_dyck.run/0", ...),
}  # fmt: skip
HOSTILE_RESULTS = {
    "status": ("great", 5, ...),
    "step": (-1, "3", ...),
    "seconds": ("1", math.nan, -1.0, True, ...),
    "accuracy": (5, {"n": 1}, [], ...),
    "history": (5, [{"step": 1}], [[1]], ...),
    "history 0 loss": ("0.5", math.inf, ...),
    "history 0 accuracy": (math.inf, math.nan),
    "identity": (5, {}, ...),
    "identity task": (5, {"name": "x"}, ...),
    "identity task extra": (5,),
    "identity task q": (2.0, -1.0),
    "identity options": (5, {"step": 1}, ...),
    "identity options steps": (0, "10", 2.5),
    "identity seed": (..., "1"),
    "identity model d_model": (11,),
    "format": (5, "tl_dyck.run/0", ...),
}  # fmt: skip


def cases(table):
    return [
        ([int(key) if key.isdigit() else key for key in keys.split()], value)
        for keys, values in table.items()
        for value in values
    ]


@pytest.mark.parametrize(("keys", "value"), cases(HOSTILE_CHECKPOINTS))
def test_hostile_checkpoints(tiny, folder, keys, value):
    alter(folder / "checkpoint.json", *keys, value=value)
    with pytest.raises(
        CheckpointError, match=r"checkpoint.json|holds another run|truncated or was altered"
    ):
        tiny.train(seed=1, folder=folder)


@pytest.mark.parametrize(
    "text", ["", "{", "null", "[]", "5", '"x"', "NaN", "[" * 100_000, "{}", "\ufeff{}"]
)
@pytest.mark.parametrize("name", ["checkpoint.json", "result.json"])
def test_files_that_are_something_else(tiny, folder, name, text):
    (folder / name).write_text(text, encoding="utf-8")
    with pytest.raises(CheckpointError, match=name):
        tiny.train(seed=1, folder=folder)


def test_tensors_that_are_whole_but_do_not_fit(tiny, folder):
    path = folder / "state-3.safetensors"
    original = load_file(path)
    for change in (
        {"model.unembed.b_U": torch.zeros(4)},
        {"model.unembed.b_U": torch.zeros(5, dtype=torch.float64)},
        {"model.unembed.b_U": None},
        {"model.extra": torch.zeros(1)},
        {"adam.0.exp_avg": torch.zeros(1)},
        {"adam.0.exp_avg_sq": None},
        {"adam.1.step": torch.zeros(3)},
        {"losses": None},
        {"losses": torch.zeros(2, 2)},
    ):
        tensors = {
            name: value for name, value in {**original, **change}.items() if value is not None
        }
        save_file(tensors, path)
        alter(
            folder / "checkpoint.json",
            "sha256",
            value=hashlib.sha256(path.read_bytes()).hexdigest(),
        )
        with pytest.raises(CheckpointError, match="the checkpoint does not fit its run"):
            tiny.train(seed=1, folder=folder)


def test_a_missing_state(tiny, folder):
    (folder / "state-3.safetensors").unlink()
    with pytest.raises(
        CheckpointError, match=r"there is no file .*state-3.safetensors.*if none is, delete"
    ):
        tiny.train(seed=1, folder=folder)


def test_a_checkpoint_that_another_process_replaces_is_read_again(tiny, folder, monkeypatch):
    wanted = read_checkpoint(
        folder, json.loads((folder / "checkpoint.json").read_text())["identity"]
    )
    real, calls = read_json, []

    def stale(path, most):  # what was named when the JSON was read is gone when the state is read
        calls.append(path)
        saved = real(path, most)
        return {**saved, "step": 1, "tensors": "state-1.safetensors"} if len(calls) == 1 else saved

    monkeypatch.setattr("tl_dyck.records.read_json", stale)
    found = read_checkpoint(folder, real(folder / "checkpoint.json")["identity"])
    assert found is not None
    assert found[0] == wanted[0]
    assert len(calls) == 2


def test_a_checkpoint_that_is_replaced_all_the_time_is_not_said_to_be_lost(
    tiny, folder, monkeypatch
):
    steps = itertools.count(10)

    def restless(path, most):
        saved, step = read_json(path, most), next(steps)
        return {**saved, "step": step, "tensors": f"state-{step}.safetensors"}

    monkeypatch.setattr("tl_dyck.records.read_json", restless)
    with pytest.raises(CheckpointError, match="another process is training in") as caught:
        read_checkpoint(folder, read_json(folder / "checkpoint.json")["identity"])
    assert "elete" not in str(caught.value)


@pytest.mark.parametrize(("keys", "value"), cases(HOSTILE_RESULTS))
def test_hostile_results(done, keys, value):
    alter(done / "result.json", *keys, value=value)
    with pytest.raises(CheckpointError, match=r"result.json"):
        load_result(done)


def test_a_result_with_the_model_of_another_run(tiny, done, tmp_path):
    other = get_config("minimal-onehot", tiny.task, d_model=12, d_mlp=4)
    tiny.train(seed=1, config=other, folder=tmp_path / "other")
    for name in ("config.json", "model.safetensors"):
        shutil.copy(tmp_path / "other" / name, done / name)
    with pytest.raises(
        CheckpointError,
        match=r"not that of its result.json; it differs in .*model.d_model \(12 there",
    ):
        load_result(done)
    (done / "model.safetensors").write_bytes(b"")
    with pytest.raises(CheckpointError, match="truncated or was altered"):
        load_result(done)
    with pytest.raises(CheckpointError, match="there is no file"):
        load_result(tmp_path / "nowhere")
