"""Leave-one-out against a plain training loop."""

from __future__ import annotations

import copy
from functools import partial

import numpy as np
import pytest
import torch

from tests.ablation.planted import USEFUL, USELESS, metric, planted, sample
from tl_dyck.ablation import FinetuneConfig, leave_one_out_importance, pattern_drift
from tl_dyck.ablation.tuning import Source

leave = partial(leave_one_out_importance, progress=False, ignore=())
OPTIONS = FinetuneConfig(steps=4, batch_size=8, n_eval=30, learning_rate=0.01)


def moved(model, tuned, tokens):
    """All positions are real."""
    return pattern_drift(model, tuned, tokens, where=torch.ones_like(tokens, dtype=torch.bool))


def by_hand(model, head):
    """Fine-tune without the slice of W_O, which is kept out of the updates."""
    source, clone = Source(model, sample, None, (), OPTIONS, 5), copy.deepcopy(model)
    weight = clone.blocks[0].attn.W_O
    kept = torch.ones_like(weight)
    if head is not None:
        kept[head] = 0
    optimizer = torch.optim.Adam(clone.parameters(), lr=0.01)
    for step in range(4):
        with torch.no_grad():
            weight *= kept
        tokens, _ = source.batch("batch", step)
        optimizer.zero_grad()
        (-metric(clone(tokens), tokens).mean()).backward()
        weight.grad *= kept
        optimizer.step()
    with torch.no_grad():
        return (
            float(metric(clone(source.tokens), source.tokens).double().mean()),
            clone,
            source.tokens,
        )


def test_against_a_plain_loop():
    model = planted()
    found = leave(model, sample, metric, options=OPTIONS, seed=5)
    control, tuned, tokens = by_hand(model, None)
    assert found.control == pytest.approx(control, abs=1e-5)
    np.testing.assert_allclose(found.control_drift, moved(model, tuned, tokens), atol=1e-4)
    for head in range(4):
        after, tuned, _ = by_hand(model, head)
        assert found.values[0, head] == pytest.approx(control - after, abs=1e-5)
        drift = moved(model, tuned, tokens)[0]
        assert found.drift[0, head] == pytest.approx(np.delete(drift, head).mean(), abs=1e-4)
    with torch.no_grad():
        assert found.metric == pytest.approx(float(metric(model(tokens), tokens).mean()), abs=1e-5)
    assert found.values[0, list(USEFUL)].min() > 1 > 0.3 > abs(found.values[0, list(USELESS)]).max()
    assert found.to_frame()["importance"].tolist() == found.values.ravel().tolist()
