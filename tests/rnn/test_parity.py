"""The exported RNN and the model it came from, on long strings (`test_accounts` has short ones)."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from tests.cases import CASES, EXTREME, Case, case
from tl_dyck.models import list_models
from tl_dyck.rnn import export_rnn

TOLERANCE = {torch.float32: 1e-5, torch.float64: 1e-10}
# In float32 a score of 1e4 is known to ±1e-3 only, so model and RNN may each be off by that much:
# compare the RNN with the model's exact function (in float64), allowing as much error as the model
# itself makes.


def relative_error(actual: Tensor, expected: Tensor) -> float:
    return float(
        (actual.double() - expected.double()).abs().max() / (1 + expected.double().abs().max())
    )


def assert_parity(entry: Case, dtype: torch.dtype, batch: int, length: int) -> None:
    model = entry.build(dtype, max(length, 8))
    rnn = export_rnn(model)
    tokens = entry.tokens(batch, length, model.cfg.d_vocab)
    with torch.no_grad():
        expected, actual = model(tokens), rnn(tokens)
    tolerance = TOLERANCE[dtype]
    if dtype == torch.float32 and entry.largest_score == EXTREME:
        exact = export_rnn(model).to(torch.float64)(tokens)
        tolerance += 4 * relative_error(expected, exact)
        assert relative_error(actual, exact) <= tolerance
    assert actual.dtype == dtype
    assert actual.shape == expected.shape
    assert bool(actual.isfinite().all())
    assert relative_error(actual, expected) <= tolerance


def test_table_covers_every_registered_family() -> None:
    assert {name for name in list_models() if not name.startswith("test")} <= {
        entry.name for entry in CASES
    }
    assert len({entry.name for entry in CASES}) == len(CASES)


# Causality: position i of one string of 2,000 tokens is the last position of its prefix of length
# i, so these check every length from 1 to 2,000; 511 and 513 end just beside the border of a block.
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=["float32", "float64"])
@pytest.mark.parametrize(
    ("name", "length"),
    [
        ("gpt-linear", 2000),
        ("gpt-uniform", 2000),
        ("eq6", 2000),
        ("minimal-onehot", 2000),
        ("minimal-onehot-linear-2heads", 2000),
        ("figure2-yao", 2000),
        ("linear-readout", 2000),
        ("gelu-new-lnpre-3heads", 2000),
        ("attn-only-lnpre-classifier", 2000),
        ("scores-100", 2000),
        ("scores-1e4", 2000),
        ("scores-1e4-attn-only", 2000),
        ("relu-ln-4heads", 511),
        ("relu-ln-4heads", 513),
    ],
)
def test_rnn_equals_model_on_long_strings(name: str, length: int, dtype: torch.dtype) -> None:
    assert_parity(case(name), dtype, 1, length)


@pytest.mark.parametrize("largest", [100.0, 1e4])
def test_saturated_cases_are_saturated(largest: float) -> None:
    entries = [entry for entry in CASES if entry.largest_score == largest]
    assert entries
    for entry in entries:
        rnn = export_rnn(entry.build())
        tokens = torch.randint(
            rnn.config.d_vocab, (8, 32), generator=torch.Generator().manual_seed(1)
        )
        r = rnn.embed(tokens, rnn.states(tokens))
        scores = torch.einsum("bqhe,bkhe->bhqk", rnn.query(r), rnn.key(r)).tril()
        assert float(scores.abs().max()) == pytest.approx(largest)


def test_no_case_is_trivial() -> None:
    """Logits depend on the tokens before the last one, so a wrong attention cannot go unnoticed."""
    for entry in CASES:
        rnn = export_rnn(entry.build())
        if rnn.config.d_vocab == 1:
            continue
        tokens = entry.tokens(32, 12, rnn.config.d_vocab)
        changed = (tokens + 1) % rnn.config.d_vocab
        changed[:, -1] = tokens[:, -1]
        assert relative_error(rnn.last_logits(changed), rnn.last_logits(tokens)) > 1e-6, entry.name
