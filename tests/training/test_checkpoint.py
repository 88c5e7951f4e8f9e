"""Whatever happens to a run, it goes on to the same end, or says what is wrong with its folder."""

from __future__ import annotations

import hashlib
import shutil
import signal
import threading
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file

from tests.hostile.tools import alter
from tests.kills import Killed, kill
from tl_dyck.models import get_config
from tl_dyck.tasks import DyckTask
from tl_dyck.training import CheckpointError, TrainConfig, load_result
from tl_dyck.training import loop as loop_module

RESULT_FILES = ["config.json", "model.safetensors", "result.json"]
CHECKPOINT_FILES = ["checkpoint.json", "state-3.safetensors"]


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


@pytest.fixture(scope="module")
def stopped_at_3(tiny, tmp_path_factory) -> Path:
    """The folder of a run (seed 1) killed after step 4, which has a checkpoint of step 3."""
    folder = tmp_path_factory.mktemp("stopped")

    with pytest.raises(Killed):
        tiny.train(seed=1, folder=folder, on_check=kill)
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


# --- finished runs --------------------------------------------------------------------------------


def test_a_finished_run_is_loaded_not_made_again(tiny, done, uninterrupted, same_run, monkeypatch):
    monkeypatch.setattr(loop_module, "SeedGroup", None)
    result = tiny.train(seed=1, folder=done)
    same_run(result, uninterrupted)
    assert result.seconds == load_result(done).seconds > 0
    same_run(load_result(str(done)), uninterrupted)
    assert names(done) == RESULT_FILES


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
