"""What cannot be trained: each in one line that says what is wrong."""

from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from tl_dyck.language import DyckLanguage
from tl_dyck.models import build_model, get_config
from tl_dyck.training import ContrastiveRegularizer, TrainConfig, train, train_seeds

OPTIONS: list[tuple[dict[str, Any], str]] = [
    ({"steps": 0}, "steps must be at least 1, got 0"),
    ({"batch_size": -1}, "batch_size must be at least 1"),
    ({"check_every": 0}, "check_every"),
    ({"check_size": 0}, "check_size"),
    ({"checkpoint_every": 0}, "checkpoint_every"),
    ({"min_steps": -1}, "min_steps must be at least 0"),
    ({"warmup_steps": -1}, "warmup_steps must be at least 0"),
    ({"learning_rate": 0.0}, "learning_rate must be above 0, got 0"),
    ({"learning_rate": math.inf}, "learning_rate must be finite, got inf"),
    ({"weight_decay": -0.1}, "weight_decay must be at least 0, got -0.1"),
    ({"weight_decay": math.nan}, "weight_decay must be finite"),
    ({"target": 0.0}, "target must be above 0, got 0"),
    ({"target": 1.1}, "target must be at most 1, got 1.1"),
    *(({f"{name}_weight": wrong}, f"{name}_weight must be")
      for name in ("contrastive", "drift") for wrong in (-1.0, math.nan, math.inf)),
]  # fmt: skip


@pytest.mark.parametrize(("values", "words"), OPTIONS)
def test_options(values: dict[str, Any], words: str) -> None:
    with pytest.raises(ValueError, match=words):
        TrainConfig(**values)


def contrast(tokens: list[list[int]]) -> Callable[[Any], Any]:
    return lambda tiny: ContrastiveRegularizer(DyckLanguage(2, 4))(
        build_model(GPT), torch.tensor(tokens), generator=torch.Generator()
    )


def drift(family: str, **more: Any) -> Callable[[Any], Any]:
    options = TrainConfig(steps=1, check_size=5, drift_weight=0.1)
    return lambda tiny: tiny.train(config=get_config(family, tiny.task, **more), options=options)


def short(tiny: Any) -> None:
    """It could be trained without the regularisation."""
    config = get_config("gpt", tiny.task, n_ctx=9)
    tiny.train(config=config, options=TrainConfig(steps=1, check_size=5))
    options = TrainConfig(steps=1, check_size=5, contrastive_weight=0.1)
    tiny.train(config=config, options=options)


def seeds(*given: int, **more: Any) -> Callable[[Any], Any]:
    return lambda tiny: train_seeds(
        tiny.config, more.pop("task", tiny.task), seeds=given, progress=False, **more
    )


GPT = get_config("gpt", "dyck-2-4")
MINIMAL = "drift_weight is for models with a minimal first"
CALLS: list[tuple[Callable[[Any], Any], type[Exception], str]] = [
    (lambda tiny: TrainConfig(steps=1.5), TypeError, "steps"),
    (lambda tiny: TrainConfig(step=1), TypeError, "step"),
    (lambda tiny: tiny.train(seed=1.5), TypeError, "seed must be an integer"),
    (lambda tiny: train(GPT, "dyck-3-4", progress=False), ValueError,
     r"the model reads .*but task 'dyck-3-4' is about"),
    (lambda tiny: train(get_config("gpt", "dyck-2-4", n_ctx=20), "dyck-2-4", progress=False),
     ValueError, "n_ctx=20 is less than the longest training string with BOS, 27"),
    (lambda tiny: train(GPT, "dyck2-4"), ValueError, r"unknown task 'dyck2-4'"),
    (contrast([[0, 1]]), ValueError, r"begin with BOS \(4\)"),
    (contrast([[4, 4]]), ValueError, r"begin with BOS \(4\)"),
    (short, ValueError, r"n_ctx=9 .* prefix of the regularisation, 11"),
    (drift("gpt"), ValueError, MINIMAL),
    (drift("minimal-onehot", n_heads=2), ValueError, MINIMAL),
    (drift("minimal-onehot", position="linear"), ValueError, MINIMAL),
    (drift("minimal-uniform"), ValueError, MINIMAL),
    (seeds(1, 1), ValueError, "seeds must be different from each other"),
    (seeds(1, n_jobs=-1), ValueError, "n_jobs must be at least 1"),
    (seeds(1, folder=Path(__file__)), OSError, "cannot write to the folder"),
    (seeds(1, task="dyck"), ValueError, "unknown task"),
]  # fmt: skip


@pytest.mark.parametrize(("call", "error", "words"), CALLS)
def test_refused(tiny: Any, call: Callable[[Any], Any], error: type[Exception], words: str) -> None:
    with pytest.raises(error, match=words):
        call(tiny)
