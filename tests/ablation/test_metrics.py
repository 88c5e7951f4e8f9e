"""Metrics, and what is said about data and metrics that cannot be."""

from __future__ import annotations

import math
from types import SimpleNamespace

import pytest
import torch

from tests.ablation.conftest import plain_model
from tl_dyck.ablation import (
    MetricError,
    frozen_importance,
    gradient_importance,
    log_likelihood,
)
from tl_dyck.ablation.metrics import rows_per_pass
from tl_dyck.language import DyckLanguage

LANGUAGE = DyckLanguage(2, 4)
TOKENS = torch.arange(6).reshape(2, 3)


def test_log_likelihood():
    generator = torch.Generator().manual_seed(0)
    logits, tokens = (
        torch.randn(3, 6, 5, generator=generator),
        torch.randint(5, (3, 6), generator=generator),
    )
    tokens[1, 3:] = 4
    tokens[0, 1:] = torch.tensor([4, 2, 4, 1, 0])
    for ignore in (None, 4):
        found = log_likelihood(logits, tokens, ignore=ignore)
        for row in range(3):
            terms = []
            for position in range(5):
                target = int(tokens[row, position + 1])
                if target != ignore:
                    exps = [math.exp(value) for value in logits[row, position].tolist()]
                    terms.append(math.log(exps[target] / sum(exps)))
            assert float(found[row]) == pytest.approx(sum(terms) / len(terms), abs=1e-5)


@pytest.mark.parametrize(
    ("metric", "message"),
    [
        (lambda logits, tokens: logits.mean(), r"shape \[2\], but returned shape \[\]"),
        (lambda logits, tokens: logits[:, :, 0], r"shape \[2\], but returned shape \[2, 3\]"),
        (lambda logits, tokens: logits[:1, 0, 0], r"shape \[2\], but returned shape \[1\]"),
        (lambda logits, tokens: 0.5, "returned float"),
        (
            lambda logits, tokens: logits[:, 0, 0].log() * torch.nan,
            "intact model the metric returned nan for 2 of 2",
        ),
        (
            lambda logits, tokens: torch.tensor([0.0, -math.inf]),
            r"-inf for 1 of 2 .* example 1 of its batch",
        ),
    ],
)
def test_bad_metrics(metric, message):
    with pytest.raises(MetricError, match=message):
        frozen_importance(plain_model(), TOKENS, metric)
    with pytest.raises(MetricError, match=message):
        gradient_importance(plain_model(), TOKENS, metric)


def test_a_metric_that_fails_for_one_head_says_which():
    calls = []

    def metric(logits, tokens):
        calls.append(1)
        return logits[:, 0, 0] * (torch.nan if len(calls) == 6 else 1)

    with pytest.raises(MetricError, match="without head 1 of layer 1"):
        frozen_importance(plain_model(), TOKENS, metric)


def test_a_metric_without_gradient():
    def metric(logits, tokens):
        return logits[:, 0, 0].detach()

    tokens = torch.tensor([[4, 0, 1], [4, 2, 3]])
    frozen_importance(plain_model(), tokens, metric)
    with pytest.raises(MetricError, match="no gradient"):
        gradient_importance(plain_model(), tokens, metric)


def test_the_default_chunk_shrinks_with_what_it_holds():
    def rows(d_vocab, device="cuda:0", length=64):
        cfg = SimpleNamespace(d_vocab_out=d_vocab, d_mlp=64, d_model=16, n_heads=2, device=device)
        return rows_per_pass(SimpleNamespace(cfg=cfg), length)

    assert rows(50_000) < rows(10)
    assert 4 * rows(50_000) * 64 * 50_000 <= 2**28
    assert rows(10, "cpu") < rows(10)
    assert rows(10**8) == rows(10**8, "cpu") == 512 // 64
    assert rows(10**8, length=1000) == 1
