"""The training loop, against one of ten lines; and what it says when training goes wrong."""

from __future__ import annotations

import itertools
import math

import pandas as pd
import pytest
import torch
import torch.nn.functional as F

from tl_dyck.models import build_model, get_config
from tl_dyck.tasks import DyckTask
from tl_dyck.training import TrainConfig
from tl_dyck.training.config import STATUSES
from tl_dyck.training.run import stream
from tl_dyck.training.stack import Stack


def plain_training(config, batches, seed, *, rate, warmup, steps, decay, made=None):
    """What `train` must do, by hand: (weights, loss of each step, learning rate of each step)."""
    model = build_model(config, seed)
    trained = [parameter for parameter in model.parameters() if parameter.requires_grad]
    first, second = [torch.zeros_like(p) for p in trained], [torch.zeros_like(p) for p in trained]
    losses, rates = [], []
    for step, batch in zip(range(made or steps), batches, strict=False):
        nats, count = 0.0, 0
        for string in batch:
            string = string[: int((string != config.d_vocab - 1).sum()) + 1]
            logits = model(string[None, :-1])[0]
            nats = nats + F.cross_entropy(logits, string[1:], reduction="sum")
            count += len(string) - 1
        loss = nats / count
        gradients = torch.autograd.grad(loss, trained)
        lr = rate * (1 - step / steps) * min(1, (step + 1) / (warmup + 1))
        with torch.no_grad():
            for p, g, m, v in zip(trained, gradients, first, second, strict=True):
                p -= lr * decay * p
                m.mul_(0.9).add_(0.1 * g)
                v.mul_(0.999).add_(0.001 * g * g)
                p -= (
                    lr
                    * (m / (1 - 0.9 ** (step + 1)))
                    / ((v / (1 - 0.999 ** (step + 1))).sqrt() + 1e-8)
                )
        losses.append(loss.item())
        rates.append(lr)
    return dict(model.named_parameters()), losses, rates


@pytest.mark.parametrize("family", ["minimal-yao", "gpt-learned", "eq6"])
def test_training_is_what_it_says(tiny, family, monkeypatch):
    drawn: list[torch.Tensor] = []
    sample = DyckTask.sample
    monkeypatch.setattr(
        DyckTask, "sample", lambda *a, **k: drawn.append(sample(*a, **k)) or drawn[-1]
    )
    config = get_config(family, tiny.task, d_model=10, dtype=torch.float64)
    options = TrainConfig(
        steps=24,
        batch_size=2,
        learning_rate=0.02,
        warmup_steps=4,
        weight_decay=0.1,
        target=None,
        check_every=8,
        check_size=5,
    )
    result = tiny.train(config=config, options=options, seed=3)
    drawn_for_training = [
        tokens
        for tokens in drawn
        if len(tokens) % 2 == 0 and len(tokens) > 5 and len(tokens) != 1000
    ]
    batches = list(itertools.chain.from_iterable(tokens.split(2) for tokens in drawn_for_training))
    weights, losses, rates = plain_training(
        config, batches, 3, rate=0.02, warmup=4, steps=24, decay=0.1
    )
    assert len(losses) == 24
    for name, parameter in result.model.named_parameters():
        torch.testing.assert_close(parameter, weights[name], rtol=1e-7, atol=1e-9)
    history = result.history
    assert history["step"].tolist() == [8, 16, 24]
    assert history["loss"].tolist() == pytest.approx(
        [sum(losses[i : i + 8]) / 8 for i in range(0, 24, 8)]
    )
    assert history["learning_rate"].tolist() == pytest.approx(rates[7::8])
    assert history["floor"].tolist() == [tiny.task.entropy_floor] * 3
    assert (result.status, result.steps, result.seed) == ("not reached", 24, 3)
    assert result.learned  # there was no target


def test_streams_of_random_numbers_do_not_overlap():
    seeds = {
        stream(seed, purpose, index)
        for seed in range(20)
        for purpose in ("train", "check", "final")
        for index in range(20)
    }
    assert len(seeds) == 20 * 3 * 20
    assert all(0 <= seed < 2**63 for seed in seeds)


def test_accuracy_is_the_tasks_own_on_fresh_prefixes(tiny, monkeypatch):
    seeds = []
    original = DyckTask.closing_accuracy

    def spy(self, model, **kwargs):
        seeds.append((kwargs["seed"], kwargs["n"]))
        return original(self, model, **kwargs)

    monkeypatch.setattr(DyckTask, "accuracy", spy)
    result = tiny.train(seed=4)
    assert [n for _, n in seeds] == [9, 9, 9, 1000]
    assert len(set(seeds)) == 4
    assert result.accuracy == original(tiny.task, result.model, n=1000, seed=seeds[-1][0])


@pytest.fixture(scope="module")
def easy() -> DyckTask:
    """One bracket type: whoever knows that the string goes on closes right."""
    return DyckTask(name="easy", n_types=1, max_depth=1, train_lengths=(2, 4), long_lengths=(4, 6))


def test_training_stops_when_the_target_is_reached(tiny, easy):
    config = get_config("minimal-onehot", easy)
    options = TrainConfig(
        steps=200, batch_size=8, learning_rate=0.03, check_every=5, check_size=50, target=0.99
    )
    result = tiny.train(config=config, task=easy, options=options)
    assert (result.status, result.learned) == ("reached", True)
    assert result.steps < 200
    assert result.steps == result.history["step"].iloc[-1]
    accuracy = result.history["accuracy"].tolist()
    assert accuracy[-1] >= 0.99 > max([0.0, *accuracy[:-1]])
    assert result.accuracy.any_token > 0.9
    later = TrainConfig(**{**vars(options), "min_steps": result.steps + 3})
    patient = tiny.train(config=config, task=easy, options=later)
    assert patient.status == "reached"
    assert patient.steps >= result.steps + 3
    assert patient.steps % 5 == 0


def test_a_run_that_does_not_learn_says_so(tiny):
    result = tiny.train(options=TrainConfig(steps=3, target=1.0, check_every=2, check_size=50))
    assert (result.status, result.learned, result.steps) == ("not reached", False, 3)
    assert result.history["step"].tolist() == [2, 3]
    assert result.status in STATUSES
    assert "tiny, seed 0: not reached after 3 steps" in repr(result)


@pytest.mark.parametrize("bad", [math.nan, -math.inf])
def test_a_run_that_diverges_says_so_and_can_be_loaded(tiny, monkeypatch, tmp_path, same_run, bad):
    losses, calls = Stack.losses, itertools.count(1)
    monkeypatch.setattr(
        Stack, "losses", lambda *a: (losses(*a)[0] * (bad if next(calls) == 6 else 1), None)
    )
    result = tiny.train(folder=tmp_path)
    assert (result.status, result.learned, result.steps) == ("diverged", False, 6)
    assert result.history["step"].tolist() == [4, 6]
    assert math.isfinite(result.history["loss"].iloc[0])
    assert math.isnan(result.history["loss"].iloc[1])
    same_run_but_nan = tiny.train(folder=tmp_path)
    pd.testing.assert_frame_equal(same_run_but_nan.history, result.history)
    assert (same_run_but_nan.status, same_run_but_nan.steps) == ("diverged", 6)


def test_rows_are_reported_as_they_are_made(tiny, uninterrupted):
    rows = []
    tiny.train(seed=1, on_check=rows.append)
    assert pd.DataFrame(rows).equals(uninterrupted.history)


def test_the_progress_bar_shows_loss_floor_and_accuracy(tiny, capsys):
    tiny.train(seed=7, progress=True)
    shown = " ".join(capsys.readouterr().out.split())
    assert "minimal-onehot seed 7" in shown
    assert f"(floor {tiny.task.entropy_floor:.3f})" in shown
    assert "10/10" in shown
    tiny.train(seed=7)
    assert capsys.readouterr().out.strip() == ""
