"""Every probe on every shape of model that somebody may bring; what means nothing is refused."""

import numpy as np
import pytest
import torch

from tests.foreign import LANGUAGE, SHAPES, VOCABULARY, foreign, theirs
from tl_dyck import (
    VocabularyError,
    adopt,
    attention_variation,
    balance_violation,
    load_task,
    stack_likeness,
)
from tl_dyck.certify import certify_dyck
from tl_dyck.probes.variation import random_attention_variation
from tl_dyck.report import widgets

TASK = load_task("dyck-2-4")
TEXT = "[(())]()"


def patterns(model):
    _, cache = model.run_with_cache(torch.tensor([theirs(TEXT)]))
    return torch.stack([cache["pattern", layer][0] for layer in range(model.cfg.n_layers)]).double()


@pytest.mark.parametrize("shape", SHAPES)
def test_attention_variation(shape):
    models = [foreign(shape, seed) for seed in range(3)]
    a, b, c = map(patterns, models)
    pairs = torch.stack([((x - y) ** 2).sum((-1, -2)) for x, y in ((a, b), (a, c), (b, c))])
    expected = pairs.mean(0).numpy()
    raw = attention_variation(models, torch.tensor(theirs(TEXT)))  # no tokenizer
    assert raw.mean == pytest.approx(expected, rel=1e-4)
    assert raw.input == [str(token) for token in theirs(TEXT)]
    batched = attention_variation(models, torch.tensor([theirs(TEXT)]))
    adopted = attention_variation([adopt(model, VOCABULARY) for model in models], TEXT)
    assert adopted.input == ["<bos>", *TEXT]
    for found in (batched, adopted):
        assert found.mean == pytest.approx(expected, rel=1e-4)
        assert found.random_baseline == raw.random_baseline


def test_random_patterns_that_look_ahead():
    exponential = torch.empty(2, 20000, 5, dtype=torch.float64)
    exponential.exponential_(generator=torch.Generator().manual_seed(0))
    rows = exponential / exponential.sum(-1, keepdim=True)
    measured = 5 * float(((rows[0] - rows[1]) ** 2).sum(-1).mean())
    assert random_attention_variation(5, causal=False) == pytest.approx(measured, rel=0.02)


@pytest.mark.parametrize("shape", SHAPES)
def test_stack_likeness(shape):
    model = foreign(shape)
    tokens = torch.tensor(theirs(TEXT))
    tops = [1, 2, 3, 2, 1, -1, 7, -1]  # of [(())]() after each bracket, BOS being 0
    ours = VOCABULARY.to_ours(tokens)
    found = stack_likeness(adopt(model, VOCABULARY), ours)
    weights = patterns(model)
    queries = [(query, top) for query, top in enumerate(tops, start=1) if top >= 0]
    rows = torch.stack([weights[:, :, query, top] for query, top in queries], dim=-1)
    assert found.mass == pytest.approx(rows.mean(-1).numpy(), rel=1e-4)
    keys = [len(tokens) if shape == "bidirectional" else query + 1 for query, _ in queries]
    assert found.chance == pytest.approx(np.mean([1 / n for n in keys]))


def test_filling_is_nothing_to_look_at():
    model = adopt(foreign("bidirectional"), VOCABULARY)
    short, long = model.to_tokens(TEXT), model.to_tokens(TEXT + "[]" * 4)
    filled = torch.full_like(long, LANGUAGE.bos_token)
    filled[:, : short.shape[1]] = short
    both = stack_likeness(model, torch.cat([filled, long]))
    parts = [stack_likeness(model, tokens) for tokens in (short, long)]
    mean = sum(part.mass * part.n_queries for part in parts) / both.n_queries
    assert both.mass == pytest.approx(mean, rel=1e-4)


@pytest.mark.parametrize("shape", SHAPES)
def test_balance_violation(shape):
    model = adopt(foreign(shape), VOCABULARY)
    asked = {"first_layer": "means", "head": 0, "n": 300}
    if shape in ("rotary", "bidirectional"):
        named = {"rotary": "rotary positions", "bidirectional": "bidirectional attention"}
        with pytest.raises(ValueError, match=f"not defined for {named[shape]}"):
            balance_violation(model, TASK, **asked)
        # the first error says so, too, and names no call that would end here
        with pytest.raises(ValueError, match=named[shape]) as raised:
            balance_violation(model)
        assert "balance_violation(" not in str(raised.value)
        return
    found = balance_violation(model, TASK, **asked)
    assert 0 < found.beta < np.inf
    assert 0 < found.within < 1


def test_a_certificate_of_one_layer():
    mine = adopt(foreign("one-layer"), VOCABULARY)
    found = certify_dyck(mine, TASK, n=2, length=9, budget=1)
    assert {row.certificate.status for row in found.rows} <= {"proved", "refuted"}
    assert widgets.certificate(found.rows[0], mine).data["strings"] == []


@pytest.mark.parametrize(
    ("measure", "error", "message"),
    [
        (lambda m: stack_likeness([m, m], TASK), TypeError, "one model, not a list of 2"),
        (lambda m: balance_violation([m], TASK), TypeError, "one model, not a list of 1"),
        (
            lambda m: widgets.attention([m, m], TEXT),
            TypeError,
            "one model, not a list of 2",
        ),
        (lambda m: attention_variation([m, m], TEXT), VocabularyError, "has no tokenizer to read"),
        (lambda m: attention_variation([m, m]), VocabularyError, "nothing says which token id"),
        (lambda m: stack_likeness(m), VocabularyError, "nothing says which token id"),
        (
            lambda m: attention_variation([m, adopt(m, VOCABULARY)], torch.tensor([1, 2, 3])),
            VocabularyError,
            "some of the models say",
        ),
        (
            lambda m: attention_variation([m, m], torch.ones(1, 41, dtype=torch.int64)),
            ValueError,
            "41 tokens .* exceed this model's n_ctx=40",
        ),
        (
            lambda m: attention_variation([m, m], torch.ones(1, 1, 3, dtype=torch.int64)),
            ValueError,
            r"tokens must be \[pos\] or \[batch, pos\]",
        ),
        (
            lambda m: widgets.attention(m, torch.ones(2, 3, dtype=torch.int64)),
            ValueError,
            "a picture is of one string, not of 2",
        ),
    ],
)
def test_one_line_for_what_cannot_be(measure, error, message):
    with pytest.raises(error, match=message) as caught:
        measure(foreign("attn-only"))
    assert "\n" not in str(caught.value)
