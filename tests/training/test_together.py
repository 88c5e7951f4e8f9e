"""Seeds that are trained together: how each ends (`test_bits`: with the bits it has alone)."""

from __future__ import annotations

import math

import pytest
import torch

from tl_dyck.models import get_config
from tl_dyck.tasks import DyckTask
from tl_dyck.training import CheckpointError, TrainConfig, load_result, train_seeds
from tl_dyck.training.loop import train_together
from tl_dyck.training.run import RunState
from tl_dyck.training.seeds import seed_groups
from tl_dyck.training.stack import Stack

pytestmark = [
    pytest.mark.filterwarnings("ignore::ResourceWarning"),  # joblib's pool outlives a call
    pytest.mark.usefixtures("hasty_ends"),
]


def test_seeds_stop_when_they_have_reached_the_target(tiny, same_run, tmp_path):
    easy = DyckTask(name="easy", n_types=1, max_depth=1, train_lengths=(2, 4), long_lengths=(4, 6))
    config = get_config("minimal-onehot", easy)
    options = TrainConfig(
        steps=60, batch_size=4, learning_rate=0.01, check_every=4, check_size=50, target=0.99
    )
    folders = [tmp_path / f"seed-{seed}" for seed in range(6)]
    found = train_together(config, easy, range(6), options=options, folders=folders)
    assert len({result.steps for result in found.values()}) > 2
    for seed, folder in enumerate(folders):
        alone = tiny.train(config=config, task=easy, options=options, seed=seed)
        same_run(found[seed], alone)
        same_run(load_result(folder), alone)


def test_one_seed_that_diverges(tiny, same_run, monkeypatch, tmp_path):
    record = RunState.record

    def poisoned(self, total, loss, rate):
        if self.seed == 1 and self.step == 5:
            with torch.no_grad():
                self.model.W_U.fill_(math.nan)
        return record(self, total, loss, rate)

    monkeypatch.setattr(RunState, "record", poisoned)
    found = tiny.together(range(3), [tmp_path / str(seed) for seed in range(3)])
    assert (found[1].status, found[1].steps) == ("diverged", 7)
    assert math.isnan(found[1].history["loss"].iloc[-1])
    assert load_result(tmp_path / "1").status == "diverged"
    for seed in (0, 2):
        same_run(found[seed], tiny.train(seed=seed))


def test_one_seed_whose_folder_or_callback_fails(tiny, tmp_path):
    (tmp_path / "1").mkdir()
    (tmp_path / "1" / "checkpoint.json").write_text("no JSON")

    def on_model(step, model, folder):
        if folder.name == "2" and step == 8:
            raise RuntimeError("cannot look")

    def on_result(result, folder):
        if folder.name == "3":
            raise RuntimeError("cannot measure")

    folders = [tmp_path / str(seed) for seed in range(5)]
    found = tiny.together(range(5), folders, on_model=on_model, on_result=on_result)
    assert isinstance(found[1], CheckpointError)
    assert "cannot look" in str(found[2])
    assert "cannot measure" in str(found[3])
    assert load_result(tmp_path / "3").steps == 10  # it had ended
    assert [found[seed].status for seed in (0, 4)] == ["not reached"] * 2


def test_the_rule(tiny):
    seeds, wide = list(range(8)), get_config("gpt", tiny.task, d_model=256)
    for config, n_seeds, jobs, sizes in (
        (tiny.config, 8, 2, [4, 4]),
        (tiny.config, 8, 1, [4, 4]),
        (tiny.config, 8, 4, [2] * 4),
        (tiny.config, 8, 16, [1] * 8),
        (tiny.config, 5, 2, [3, 2]),
        (tiny.config, 0, 2, []),
        (wide, 8, 1, [1] * 8),
    ):
        groups = seed_groups(config, seeds[:n_seeds], jobs)
        assert [len(group) for group in groups] == sizes
    assert sorted(seed for group in seed_groups(wide, seeds, 3) for seed in group) == seeds


def test_train_seeds_trains_groups(tiny, same_run, monkeypatch):
    made, real = [], Stack.__init__

    def watched(self, models, *args, **kwargs):
        made.append(len(models))
        real(self, models, *args, **kwargs)

    monkeypatch.setattr(Stack, "__init__", watched)
    arguments = {"seeds": range(5), "options": tiny.options, "n_jobs": 1, "progress": False}
    found = train_seeds(tiny.config, tiny.task, **arguments)
    assert made == [3, 2]
    for result in found:
        same_run(result, tiny.train(seed=result.seed))
