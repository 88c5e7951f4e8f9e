"""Many seeds in worker processes: each as it is alone; one that fails takes no other with it."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import threading

import pytest
import torch

from tl_dyck.training import load_result, train
from tl_dyck.training.seeds import TrainingFailedError

pytestmark = [
    # the pool of workers outlives a call, and its threads and pipes are closed when Python ends
    pytest.mark.filterwarnings("ignore::ResourceWarning"),
    pytest.mark.usefixtures("forked_workers", "hasty_ends"),
]


def test_each_seed_is_the_model_that_it_is_alone(tiny, same_run, tmp_path):
    """And the workers are of those that end with their parent."""

    def look(result, folder):
        names = [thread.name for thread in threading.enumerate()]
        (folder / "threads.json").write_text(json.dumps(names))

    results = tiny.seeds((3, 1, 2), on_result=look, folder=tmp_path, n_jobs=2)
    assert [result.seed for result in results] == [3, 1, 2]
    for result in results:
        names = json.loads((tmp_path / f"seed-{result.seed}" / "threads.json").read_text())
        assert f"end with {os.getpid()}" in names
        same_run(result, tiny.train(seed=result.seed))
        same_run(load_result(tmp_path / f"seed-{result.seed}"), result)
    again = tiny.seeds(range(1, 4), folder=tmp_path)
    assert [result.seconds for result in again] == [results[i].seconds for i in (1, 2, 0)]  # loaded


def test_without_a_folder_nothing_is_left(tiny, same_run, monkeypatch, tmp_path):
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    results = tiny.seeds([4])
    same_run(results[0], tiny.train(seed=4))
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("n_jobs", [1, 2])
def test_a_run_that_fails_is_reported_and_the_others_are_kept(tiny, tmp_path, n_jobs):
    (tmp_path / "seed-1").mkdir()
    (tmp_path / "seed-1" / "checkpoint.json").write_text("no JSON")
    with pytest.raises(TrainingFailedError, match="1 of 3 runs failed") as caught:
        tiny.seeds(range(3), folder=tmp_path, n_jobs=n_jobs)
    assert "minimal-onehot seed 1" in str(caught.value)
    assert "CheckpointError" in str(caught.value)
    assert [result.seed for result in caught.value.results] == [0, 2]
    assert sorted(path.parent.name for path in tmp_path.glob("*/result.json")) == [
        "seed-0",
        "seed-2",
    ]


def test_a_worker_that_is_killed(tiny, same_run, tmp_path):
    parent = os.getpid()

    def after(result, folder):
        if os.getpid() != parent and result.seed == 1:
            os.kill(os.getpid(), signal.SIGKILL)

    with pytest.raises(
        TrainingFailedError, match=r"worker process was killed(.|\n)*go on from their checkpoints"
    ):
        tiny.seeds(range(3), on_result=after, folder=tmp_path, n_jobs=2)
    same_run(load_result(tmp_path / "seed-1"), tiny.train(seed=1))
    results = tiny.seeds(range(3), folder=tmp_path)
    assert [result.seed for result in results] == [0, 1, 2]


def test_what_is_called_after_a_run_gets_result_and_folder(tiny, tmp_path):
    seen = []
    see = lambda result, folder: seen.append((result.seed, folder.name))  # noqa: E731
    tiny.seeds(range(2), folder=tmp_path, on_result=see)
    assert seen == [(0, "seed-0"), (1, "seed-1")]
    tiny.seeds(range(2), folder=tmp_path, on_result=lambda result, _: seen.append(result.status))
    assert seen[2:] == ["not reached"] * 2  # runs that have ended, too

    def fail(result, folder):
        raise RuntimeError("cannot measure")

    with pytest.raises(TrainingFailedError, match=r"2 of 2 runs failed(.|\n)*cannot measure"):
        tiny.seeds(range(2), folder=tmp_path, on_result=fail)


@pytest.mark.parametrize("fails", [False, True])
def test_train_too_has_one_thread_and_gives_the_others_back(tiny, fails):
    seen = []

    def see(row):
        seen.append(torch.get_num_threads())
        if fails:
            raise RuntimeError("of the user's own")

    before = torch.get_num_threads()
    torch.set_num_threads(3)
    try:
        with pytest.raises(RuntimeError, match="own") if fails else contextlib.nullcontext():
            train(tiny.config, tiny.task, options=tiny.options, on_check=see, progress=False)
        seen.append(torch.get_num_threads())
    finally:
        torch.set_num_threads(before)
    assert set(seen[:-1]) == {1}
    assert seen[-1] == 3


def test_the_bar_counts_the_runs(tiny, capsys, tmp_path):
    tiny.seeds([5], folder=tmp_path, progress=True)
    shown = capsys.readouterr().out
    assert "1/1" in shown
    assert "seed 5: not reached" in shown
