"""Seeds that are trained together, against each one alone."""

from __future__ import annotations

import importlib
import math
import os
import random
import signal

import pandas as pd
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from tl_dyck.models import get_config, list_models
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


class Killed(BaseException):
    """The process ends here."""


def options_of(tiny, **changes):
    return TrainConfig(**{**vars(tiny.options), **changes})


def both(tiny, config, options, seeds, folder=None, task=None):
    """Results together, and those of each seed alone."""
    folders = [None if folder is None else folder / f"seed-{seed}" for seed in seeds]
    task = task or tiny.task
    found = train_together(config, task, seeds, options=options, folders=folders)
    return found, {
        seed: tiny.train(config=config, task=task, options=options, seed=seed) for seed in seeds
    }


def same_but_for_rounding(found, wanted, atol=1e-9):
    """In float64."""
    theirs = dict(wanted.model.named_parameters())
    for name, parameter in found.model.named_parameters():
        torch.testing.assert_close(parameter, theirs[name], rtol=0, atol=atol)
        assert parameter.is_contiguous()
    pd.testing.assert_frame_equal(found.history, wanted.history, rtol=1e-9)
    for field in ("status", "steps", "seed", "accuracy", "task", "options"):
        assert getattr(found, field) == getattr(wanted, field), field
    assert found.identity() == wanted.identity()


@given(
    family=st.sampled_from(list_models()),
    seeds=st.lists(st.integers(0, 1000), min_size=1, max_size=4, unique=True),
    n_heads=st.integers(1, 2),
    act_fn=st.sampled_from(["relu", "gelu_new", "solu_ln"]),
    weight_decay=st.sampled_from([0.0, 0.1]),
    contrastive_weight=st.sampled_from([0.0, 0.5]),
)
@settings(max_examples=8)
def test_each_seed_is_the_model_that_it_is_alone(
    tiny, family, seeds, n_heads, act_fn, weight_decay, contrastive_weight
):
    config = get_config(
        family, tiny.task, d_model=10, n_ctx=12, n_heads=n_heads, act_fn=act_fn, dtype=torch.float64
    )
    options = options_of(
        tiny, steps=12, weight_decay=weight_decay, contrastive_weight=contrastive_weight
    )
    found, alone = both(tiny, config, options, seeds)
    assert list(found) == seeds
    for seed in seeds:
        same_but_for_rounding(found[seed], alone[seed])


@pytest.mark.parametrize("family", ["minimal-onehot", "gpt-learned"])
def test_after_many_steps_over_several_pools_of_strings(tiny, family):
    config = get_config(family, tiny.task, d_model=10, dtype=torch.float64)
    found, alone = both(tiny, config, options_of(tiny, steps=70, check_every=20), [4, 1, 7])
    for seed in alone:
        same_but_for_rounding(found[seed], alone[seed], atol=1e-8)


@pytest.mark.bits
@pytest.mark.parametrize("seeds", [[3], [3, 1], range(5)])
@pytest.mark.parametrize("family", ["minimal-onehot", "gpt", "gpt-uniform"])
def test_in_single_precision_each_seed_has_the_same_bits(tiny, same_run, family, seeds):
    """As far as batched products of matrices are computed one like the other, which MKL does."""
    if not torch.backends.mkl.is_available():
        pytest.skip("no MKL")
    config = get_config(family, tiny.task, d_model=13)
    found, alone = both(
        tiny, config, options_of(tiny, steps=40, batch_size=4, check_every=20), seeds
    )
    for seed in seeds:
        same_run(found[seed], alone[seed])


def test_batches_that_need_many_rows_are_set_apart(tiny, same_run, monkeypatch):
    group_module = importlib.import_module("tl_dyck.training.group")
    monkeypatch.setattr(group_module, "_layout", lambda task, options: (8, 4))  # rather few
    sizes, losses = [], Stack.losses

    def watched(self, batch):
        sizes.append(batch.tokens.shape[:2])
        return losses(self, batch)

    monkeypatch.setattr(Stack, "losses", watched)
    config = get_config("gpt", tiny.task, d_model=10, dtype=torch.float64)
    found, alone = both(tiny, config, options_of(tiny, batch_size=7), range(3))
    assert {rows for _, rows in sizes} == {4, 8}
    assert {members for members, _ in sizes} == {1, 2, 3}
    for seed in range(3):
        same_but_for_rounding(found[seed], alone[seed])


def test_seeds_stop_when_they_have_reached_the_target(tiny, tmp_path):
    easy = DyckTask(name="easy", n_types=1, max_depth=1, train_lengths=(2, 4), long_lengths=(4, 6))
    config = get_config("minimal-onehot", easy, dtype=torch.float64)
    options = TrainConfig(
        steps=60, batch_size=4, learning_rate=0.01, check_every=4, check_size=50, target=0.99
    )
    found, alone = both(tiny, config, options, range(6), tmp_path, easy)
    assert len({result.steps for result in found.values()}) > 2
    for seed in range(6):
        same_but_for_rounding(found[seed], alone[seed], atol=1e-7)
        same_but_for_rounding(load_result(tmp_path / f"seed-{seed}"), alone[seed], atol=1e-7)


def test_one_seed_that_diverges(tiny, monkeypatch, tmp_path):
    config = get_config("gpt", tiny.task, d_model=10, dtype=torch.float64)
    _, alone = both(tiny, config, tiny.options, [0, 1, 2])
    record = RunState.record

    def poisoned(self, total, loss, rate):
        if self.seed == 1 and self.step == 5:
            with torch.no_grad():
                self.model.W_U.fill_(math.nan)
        return record(self, total, loss, rate)

    monkeypatch.setattr(RunState, "record", poisoned)
    found = train_together(
        config,
        tiny.task,
        [0, 1, 2],
        options=tiny.options,
        folders=[tmp_path / str(seed) for seed in range(3)],
    )
    assert (found[1].status, found[1].steps) == ("diverged", 7)
    assert math.isnan(found[1].history["loss"].iloc[-1])
    assert load_result(tmp_path / "1").status == "diverged"
    for seed in (0, 2):
        same_but_for_rounding(found[seed], alone[seed])


def test_one_seed_whose_folder_or_callback_fails(tiny, tmp_path):
    (tmp_path / "1").mkdir()
    (tmp_path / "1" / "checkpoint.json").write_text("no JSON")

    def on_model(step, model, folder):
        if folder.name == "2" and step == 8:
            raise RuntimeError("cannot look")

    def on_result(result, folder):
        if folder.name == "3":
            raise RuntimeError("cannot measure")

    found = tiny.together(
        range(5),
        [tmp_path / str(seed) for seed in range(5)],
        on_model=on_model,
        on_result=on_result,
    )
    assert isinstance(found[1], CheckpointError)
    assert "cannot look" in str(found[2])
    assert "cannot measure" in str(found[3])
    assert load_result(tmp_path / "3").steps == 10  # it had ended
    assert [found[seed].status for seed in (0, 4)] == ["not reached"] * 2


# --- interrupted ----------------------------------------------------------------------------------


def test_seeds_at_different_steps(tiny, tmp_path):
    config = get_config("minimal-onehot", tiny.task, d_model=10, dtype=torch.float64)
    _, alone = both(tiny, config, tiny.options, range(3))

    def stop(row):
        if row["step"] >= 8:
            raise Killed

    with pytest.raises(Killed):
        tiny.train(config=config, seed=1, folder=tmp_path / "1", on_check=stop)
    found = train_together(
        config,
        tiny.task,
        range(3),
        options=tiny.options,
        folders=[tmp_path / str(seed) for seed in range(3)],
    )
    for seed in range(3):
        same_but_for_rounding(found[seed], alone[seed])


def test_a_resumed_group_ends_with_the_same_bits(tiny, same_run, tmp_path, monkeypatch):
    """Killed before any of its checkpoints."""
    whole = tiny.together(range(3))
    chance = random.Random(0)
    for attempt in range(6):
        folders = [tmp_path / f"{attempt}-{seed}" for seed in range(3)]
        left, steps, checkpoint = [chance.randrange(9)], [], RunState.checkpoint

        def mortal(self, left=left, steps=steps, checkpoint=checkpoint):
            if left[0] == 0:
                raise Killed
            left[0] -= 1
            steps.append(self.step)
            checkpoint(self)

        with monkeypatch.context() as patch:
            patch.setattr(RunState, "checkpoint", mortal)
            with pytest.raises(Killed):
                tiny.together(range(3), folders)
        found = tiny.together(range(3), folders)
        for seed in range(3):
            same_run(found[seed], whole[seed])


@pytest.fixture
def ctrl_c():
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield lambda *_: signal.raise_signal(signal.SIGINT)
    signal.signal(signal.SIGINT, before)


@pytest.mark.parametrize("seed", [0, 2])
def test_ctrl_c_writes_a_checkpoint_of_every_seed(tiny, same_run, ctrl_c, tmp_path, seed):
    folders = [tmp_path / str(seed) for seed in range(3)]
    whole = tiny.together(range(3))

    def press(step, model, folder):
        if step == 4 and folder == folders[seed]:
            ctrl_c()

    with pytest.raises(KeyboardInterrupt):
        tiny.together(range(3), folders, on_model=press)
    assert all((folder / "state-4.safetensors").exists() for folder in folders)
    found = tiny.together(range(3), folders)
    for number in range(3):
        same_run(found[number], whole[number])


# --- the choice -----------------------------------------------------------------------------------


def sizes(groups):
    return [len(group) for group in groups]


def test_the_rule(tiny):
    seeds, config = list(range(8)), tiny.config
    assert sizes(seed_groups(config, seeds, 2)) == [4, 4]
    assert sizes(seed_groups(config, seeds, 1)) == [4, 4]
    assert sizes(seed_groups(config, seeds, 4)) == [2] * 4
    assert sizes(seed_groups(config, seeds, 16)) == [1] * 8
    assert sizes(seed_groups(config, seeds[:5], 2)) == [3, 2]
    assert sizes(seed_groups(config, seeds, 2, together=False)) == [1] * 8
    assert seed_groups(config, [], 2) == []
    wide = get_config("gpt", tiny.task, d_model=256)
    assert sizes(seed_groups(wide, seeds, 1)) == [1] * 8
    assert sizes(seed_groups(wide, seeds, 1, together=True)) == [4, 4]
    assert sorted(seed for group in seed_groups(config, seeds, 3) for seed in group) == seeds


def test_train_seeds_trains_groups(tiny, monkeypatch):
    config = get_config("minimal-onehot", tiny.task, d_model=10, dtype=torch.float64)
    made, real = [], Stack.__init__

    def watched(self, models, *args, **kwargs):
        made.append(len(models))
        real(self, models, *args, **kwargs)

    monkeypatch.setattr(Stack, "__init__", watched)
    arguments = {"seeds": range(5), "options": tiny.options, "n_jobs": 1, "progress": False}
    found = train_seeds(config, tiny.task, **arguments)
    assert made == [3, 2]
    made.clear()
    alone = train_seeds(config, tiny.task, together=False, **arguments)
    assert made == [1] * 5
    for a, b in zip(found, alone, strict=True):
        same_but_for_rounding(a, b)


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
@pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")
def test_kill_9(tiny, same_run, tmp_path):
    folders = [tmp_path / str(seed) for seed in range(3)]
    whole = tiny.together(range(3))

    def die(step, model, folder):
        if step == 8:
            os.kill(os.getpid(), signal.SIGKILL)

    child = os.fork()
    if child == 0:
        try:
            tiny.together(range(3), folders, on_model=die)
        finally:
            os._exit(0)
    assert os.WTERMSIG(os.waitpid(child, 0)[1]) == signal.SIGKILL
    found = tiny.together(range(3), folders)
    for seed in range(3):
        same_run(found[seed], whole[seed])
