"""A task, a model and options small enough to train in a moment."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import pytest
import torch

from tl_dyck.models import DyckTransformerConfig, get_config
from tl_dyck.tasks import DyckTask
from tl_dyck.training import TrainConfig, TrainResult, train, train_seeds
from tl_dyck.training.loop import train_together
from tl_dyck.training.run import RunState


@pytest.fixture(autouse=True)
def _no_waiting_for_the_disk(monkeypatch: pytest.MonkeyPatch) -> None:
    """Flushing to disk matters when a machine stops, not a process; on a busy disk it is slow."""
    monkeypatch.setattr(os, "fsync", lambda descriptor: None)


@pytest.fixture
def hasty_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    """The accuracy of a run that has ended is measured on few strings."""
    accuracy = RunState.accuracy
    monkeypatch.setattr(
        RunState, "accuracy", lambda self, n, seed: accuracy(self, min(n, 50), seed)
    )


@dataclass
class Tiny:
    task: DyckTask
    config: DyckTransformerConfig
    options: TrainConfig

    def train(self, **kwargs: Any) -> TrainResult:
        """Train the tiny model; any argument of `train` can be given."""
        kwargs = {"options": self.options, "progress": False, **kwargs}
        return train(kwargs.pop("config", self.config), kwargs.pop("task", self.task), **kwargs)

    def seeds(self, seeds: Sequence[int], **kwargs: Any) -> list[TrainResult]:
        """Train it from many seeds; any argument of `train_seeds` can be given."""
        kwargs = {"options": self.options, "n_jobs": 1, "progress": False, **kwargs}
        return train_seeds(self.config, self.task, seeds=seeds, **kwargs)

    def together(self, seeds: Sequence[int], folders: Any = None, **kwargs: Any) -> Any:
        """Train it from many seeds in one group."""
        folders = folders or [None] * len(seeds)
        options = self.options
        return train_together(
            self.config, self.task, seeds, options=options, folders=folders, **kwargs
        )


@pytest.fixture
def ctrl_c() -> Iterator[Callable[..., None]]:
    """Press Ctrl-C: the usual handler of it, which a test runner's workers may have replaced."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield lambda *_: signal.raise_signal(signal.SIGINT)
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
    signal.signal(signal.SIGINT, before)


@pytest.fixture(scope="session")
def tiny() -> Tiny:
    task = DyckTask(
        name="tiny", n_types=2, max_depth=2, train_lengths=(2, 4, 6), long_lengths=(8, 9)
    )
    config = get_config("minimal-onehot", task, d_model=10, d_mlp=4)
    return Tiny(
        task,
        config,
        TrainConfig(
            steps=10,
            batch_size=3,
            check_every=4,
            check_size=9,
            checkpoint_every=3,
            warmup_steps=2,
            target=None,
        ),
    )


@pytest.fixture(scope="session")
def uninterrupted(tiny: Tiny) -> TrainResult:
    return tiny.train(seed=1)


def same_run(found: TrainResult, wanted: TrainResult) -> None:
    """The same to the last bit: weights, history, status, accuracy."""
    theirs = dict(wanted.model.named_parameters())
    for name, parameter in found.model.named_parameters():
        assert torch.equal(parameter, theirs[name]), name
    assert found.history.equals(wanted.history)
    assert list(found.history.dtypes) == list(wanted.history.dtypes)
    for field in ("status", "steps", "seed", "accuracy", "task", "options"):
        assert getattr(found, field) == getattr(wanted, field), field
    assert found.identity() == wanted.identity()


@pytest.fixture(scope="session", name="same_run")
def same_run_fixture() -> Any:
    return same_run
