"""Entropy and drift of patterns against loops over their entries."""

from __future__ import annotations

import math

import pytest
import torch

from tests.ablation.conftest import make_any
from tl_dyck import build_model, get_config, load_task
from tl_dyck.ablation import attention_entropy, pattern_drift, patterns
from tl_dyck.probes import probes, takes_many


@pytest.mark.parametrize("task", ["dyck-2-4", "shuffle-dyck"])
def test_it_is_a_probe(task):
    """Of a model alone: strings of its language are drawn; of a task, its own."""
    model = build_model(get_config("gpt", task))
    known = load_task(task)
    drawn = known.sample(30, generator=torch.Generator().manual_seed(5))
    strings = attention_entropy(model, drawn)
    assert attention_entropy(model, known, n=30, seed=5) == pytest.approx(strings)
    assert attention_entropy(model).shape == (model.cfg.n_layers, model.cfg.n_heads)
    assert not takes_many(attention_entropy)
    probes.check("attention_entropy", attention_entropy)


@pytest.mark.parametrize("name", ["gpt2", "eq6", "sinks"])
@pytest.mark.parametrize("together", [2, 9])
def test_against_loops(name, together, tokens_for, monkeypatch):
    monkeypatch.setattr(patterns, "rows_per_pass", lambda model, length: together)
    model = make_any(name)
    tokens = tokens_for(model, length=5)
    where = torch.rand(tokens.shape, generator=torch.Generator().manual_seed(1)) < 0.7
    after = make_any(name)
    with torch.no_grad():
        after.blocks[0].attn.W_Q[1] *= 3
        after.blocks[0].attn.W_O[0] *= 2
    entropy = attention_entropy(model, tokens, where=where)
    drift = pattern_drift(model, after, tokens, where=where)
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


def test_what_is_no_model_is_refused_on_either_side(tokens_for):
    model = make_any("gpt2")
    tokens = tokens_for(model, length=5)
    for wrong, pair in (("after", (model, "text")), ("before", ("text", model))):
        with pytest.raises(TypeError, match=rf"{wrong} must be a model, got 'text' \(str\)"):
            pattern_drift(*pair, tokens)
    with pytest.raises(TypeError, match=r"model must be a model, got 'text' \(str\)"):
        attention_entropy("text", tokens)
