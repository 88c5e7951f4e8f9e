"""However often training is interrupted, and wherever: the same bits in the end."""

from __future__ import annotations

import os
from dataclasses import replace

import pytest
import torch

from tests import kills
from tl_dyck.models import get_config
from tl_dyck.training import TrainConfig, load_result
from tl_dyck.training.loop import train_together

pytestmark = [
    pytest.mark.usefixtures("hasty_ends"),
    pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork"),
    pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning"),
]
SHORT = TrainConfig(
    steps=5, batch_size=2, check_every=3, check_size=5, checkpoint_every=2, target=None
)
REGULARISED = replace(SHORT, contrastive_weight=0.5, drift_weight=0.5)


@pytest.fixture(params=["alone", "regularised", "together"])
def job(tiny, request):
    """A run, a run with both regularisations, three seeds in step: folder -> results."""
    config = get_config("minimal-onehot", tiny.task, d_model=10, d_mlp=4, n_ctx=16)
    if request.param != "together":
        options = SHORT if request.param == "alone" else REGULARISED
        return lambda folder: [tiny.train(config=config, seed=1, options=options, folder=folder)]

    def together(folder):
        folders = [folder / str(seed) for seed in range(3)]
        options = replace(SHORT, steps=9)  # killed between checkpoints, not only before the first
        found = train_together(config, tiny.task, range(3), options=options, folders=folders)
        return [found[seed] for seed in range(3)]

    return together


@pytest.fixture
def same(job, tmp_path, same_run):
    """Hold results to those of a run that nobody interrupted."""
    whole = job(tmp_path / "uninterrupted")

    def check(found):
        for mine, theirs in zip(found, whole, strict=True):
            same_run(mine, theirs)

    return check


@pytest.mark.parametrize("every", [23, pytest.param(1, marks=pytest.mark.slow)])
def test_a_kill_between_any_two_file_operations(job, same, tmp_path, request, every):
    alone = request.node.callspec.params["job"] == "alone"
    every, count = min(every, 5) if alone else every, 0
    for folder, found in kills.at_file_operations(job, tmp_path, every=every):
        same(found)
        same([load_result(path.parent) for path in sorted(folder.rglob("result.json"))])
        assert not list(folder.rglob(".*.tmp"))
        count += 1
    assert count > (30 // every if alone else 1)


@pytest.mark.parametrize("job", ["alone", "together"], indirect=True)
def test_kill_9_at_random_moments(job, same, tmp_path):
    same(kills.by_kill_9(job, tmp_path))


@pytest.mark.parametrize("job", ["alone", "together"], indirect=True)
def test_ctrl_c_at_random_moments(tiny, job, same, ctrl_c, tmp_path):
    """It can end at all: Ctrl-C writes a checkpoint."""
    found = kills.by_ctrl_c(job, tmp_path)
    torch.set_grad_enabled(True)  # as torch.no_grad leaves it if it is interrupted itself
    same(found)
