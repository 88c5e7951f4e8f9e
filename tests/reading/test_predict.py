"""What is predicted where logits are no numbers: nothing, which is wrong everywhere."""

from __future__ import annotations

import pytest
import torch

from tl_dyck.ablation import measure_heads
from tl_dyck.models import build_model, get_config
from tl_dyck.reading.predict import NotCausalError, likeliest
from tl_dyck.tasks import AutomatonTask, DyckTask, counted_accuracy

BRACKETS = DyckTask(name="b", n_types=1, max_depth=2, train_lengths=(4,), long_lengths=(6, 8))
LETTERS = AutomatonTask(
    name="a",
    symbols=("a",),
    start=0,
    moves=lambda state: {"a": 0},
    ends=lambda state: True,
    train_lengths=(2,),
    long_lengths=(4, 4),
)


def test_nan_is_no_prediction():
    logits = torch.tensor([[0.0, 1.0], [float("nan"), 1.0], [-torch.inf, torch.inf]])
    assert likeliest(logits).tolist() == [1, -1, 1]


@pytest.mark.parametrize("task", [BRACKETS, LETTERS], ids=lambda task: task.name)
def test_a_model_without_numbers_is_always_wrong(task):
    """The first of several NaN is the largest for torch, and of one type it was the right one."""

    def model(tokens):
        return torch.full((*tokens.shape, task.language.d_vocab), torch.nan)

    found = counted_accuracy(task, model, n=10)
    assert found.any_token == 0
    assert getattr(found, "closing_only", 0) == 0


def broken():
    """NaN where "[" is read; BOS is not."""
    model = build_model(get_config("gpt", BRACKETS, n_layers=1, n_heads=1, d_model=4))
    model.W_E.data[0] = torch.nan
    return model


def test_what_is_nan_only_if_more_is_shown_is_said_so():
    class Late(torch.nn.Module):
        def forward(self, tokens):
            logits = torch.zeros(*tokens.shape, BRACKETS.language.d_vocab)
            return logits + (torch.nan if tokens.shape[1] == 4 else 0.0)

    with pytest.raises(NotCausalError, match="is NaN when later tokens are shown"):
        counted_accuracy(BRACKETS, Late(), n=5)


def test_what_draws_numbers_is_not_said_to_look_ahead():
    drawn = torch.Generator().manual_seed(0)

    def drops(tokens):
        return torch.rand(*tokens.shape, BRACKETS.language.d_vocab, generator=drawn)

    with pytest.raises(ValueError, match=r"the same tokens again: .* with dropout\?"):
        counted_accuracy(BRACKETS, drops, n=5)


def test_heads_of_a_model_without_numbers_are_refused_in_a_line():
    with pytest.raises(ValueError, match="W_E holds nan or infinite values"):
        measure_heads(broken(), BRACKETS.sample(4, seed=0), modes=("zero",), n=4)
