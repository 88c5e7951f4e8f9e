"""The table of one model's heads is what its parts say."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np
import pytest
import torch

from tests.ablation.conftest import dyck_model
from tests.ablation.planted import metric, planted, sample
from tl_dyck.ablation import (
    FinetuneConfig,
    finetuned_importance,
    leave_one_out,
    leave_one_out_importance,
    measure_heads,
)
from tl_dyck.ablation.measure import random_drift
from tl_dyck.probes.variation import random_attention_variation
from tl_dyck.tasks import load_task

TASK = load_task("dyck-2-4")
SMALL = FinetuneConfig(penalties=(0.1,), steps=2, batch_size=4, n_eval=6)


def test_a_dyck_model():
    model = dyck_model("gpt-linear", n_layers=2, n_heads=2, dtype=torch.float32, d_model=16)
    found, swept = measure_heads(
        model, TASK, finetune=SMALL, leave_one_out=SMALL, n=6, seed=2, progress=False
    )
    assert list(zip(found["layer"], found["head"], strict=True)) == [(0, 0), (0, 1), (1, 0), (1, 1)]
    tuned = partial(finetuned_importance, model, TASK, options=SMALL, seed=2, progress=False)()
    np.testing.assert_array_equal(found["gates"], tuned.values.ravel())
    np.testing.assert_array_equal(found["drift"], tuned.drift.ravel())
    np.testing.assert_array_equal(swept.values, tuned.values)
    left = leave_one_out_importance(model, TASK, options=SMALL, seed=2, progress=False)
    np.testing.assert_array_equal(found["leave-one-out"], left.values.ravel())
    np.testing.assert_array_equal(found["drift-control"], left.control_drift.ravel())


def test_leaving_a_head_out_is_counted_against_the_control_and_its_own_pattern_not_at_all(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """With made-up numbers of what fine-tuning without each of two by two heads comes to."""
    moved = np.array([[1.0, 2.0], [4.0, 8.0]])
    after = {None: 0.5, (0, 0): 0.25, (0, 1): 0.75, (1, 0): -1.0, (1, 1): 0.5}

    def without(model: Any, metric: Any, source: Any, head: Any) -> tuple[float, np.ndarray]:
        return after[head], moved if head is not None else 3 * moved

    monkeypatch.setattr(leave_one_out, "_without", without)
    model = dyck_model("gpt-linear", n_layers=2, n_heads=2, dtype=torch.float32, d_model=16)
    found = leave_one_out_importance(model, TASK, options=SMALL, progress=False)
    np.testing.assert_array_equal(found.values, [[0.25, -0.25], [1.5, 0.0]])
    np.testing.assert_allclose(found.drift, [[14 / 3, 13 / 3], [11 / 3, 7 / 3]])
    np.testing.assert_array_equal(found.control_drift, 3 * moved)
    assert found.control == 0.5


def test_a_model_without_language():
    found, _ = measure_heads(planted(), sample, metric, modes=("zero", "gradient"), n=5, ignore=())
    assert list(found) == ["layer", "head", "zero", "gradient", "entropy", "drift-random"]


@pytest.mark.parametrize("length", [1, 2, 17])
def test_random_drift_is_the_random_attention_variation(length):
    tokens = torch.zeros(3, length, dtype=torch.long)
    assert random_drift(tokens, None) == pytest.approx(random_attention_variation(length))
    where = torch.arange(length).expand(3, -1) < torch.tensor([[1], [length], [0]])
    mean = (random_attention_variation(1) + random_attention_variation(length)) / 3
    assert random_drift(tokens, where) == pytest.approx(mean)
