"""Entropy and drift of patterns against loops over their entries."""

from __future__ import annotations

import math

import pytest
import torch

from tests.ablation.conftest import dyck_model, make_any
from tl_dyck.ablation import attention_entropy, pattern_drift


@pytest.mark.parametrize("name", ["gpt2", "eq6", "sinks"])
@pytest.mark.parametrize("chunk", [2, None])
def test_against_loops(name, chunk, tokens_for):
    model = make_any(name)
    tokens = tokens_for(model, length=5)
    where = torch.rand(tokens.shape, generator=torch.Generator().manual_seed(1)) < 0.7
    after = make_any(name)
    with torch.no_grad():
        after.blocks[0].attn.W_Q[1] *= 3
        after.blocks[0].attn.W_O[0] *= 2
    entropy = attention_entropy(model, tokens, where=where, chunk=chunk)
    drift = pattern_drift(model, after, tokens, where=where, chunk=chunk)
    old, new = (each.run_with_cache(tokens)[1] for each in (model, after))
    for layer in range(model.cfg.n_layers):
        for head in range(model.cfg.n_heads):
            nats = moved = 0.0
            for example, query in where.nonzero().tolist():
                a, b = (
                    cache["pattern", layer][example, head, query].tolist() for cache in (old, new)
                )
                nats -= sum(p * math.log(p) for p in a if p > 0)
                moved += sum((p - q) ** 2 for p, q in zip(a, b, strict=True))
            assert entropy[layer, head] == pytest.approx(nats / int(where.sum()), abs=1e-9)
            assert drift[layer, head] == pytest.approx(moved / len(tokens), abs=1e-9)
    assert drift[0, 0] == 0 < drift[0, 1]


def test_drift_runs_the_second_model_with_hooks(tokens_for):
    model = dyck_model(n_layers=2, n_heads=2)
    tokens = tokens_for(model)
    off = [("blocks.0.attn.hook_z", lambda z, hook: 0 * z)]
    drift = pattern_drift(model, model, tokens, hooks=off)
    assert (drift[0] == 0).all()
    assert (drift[1] > 0).all()
