"""What importance of heads cannot be asked: each in one line that says what is wrong.

Wrong types are in `tests.arguments`.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import pytest
import torch

from tests.ablation.conftest import plain_model
from tests.ablation.planted import metric, planted, sample
from tests.ablation.test_compare import table
from tl_dyck.ablation import (
    FinetuneConfig,
    MetricError,
    compare_importance,
    finetuned_importance,
    frozen_importance,
    gradient_importance,
    log_likelihood,
)
from tl_dyck.kit.registry import UnknownNameError

TOKENS, NONE = torch.arange(6).reshape(2, 3), torch.zeros(2, 3, dtype=torch.bool)
FEW = FinetuneConfig(penalties=(0.1,), steps=2, n_eval=4)
WILD = FinetuneConfig(penalties=(0.1,), steps=9, learning_rate=1e30, n_eval=4)
ONE = [table([1, 2, 3], [1, 2, 3])]
frozen = partial(frozen_importance, metric=log_likelihood)
tune = partial(finetuned_importance, progress=False, ignore=(), options=FEW)


def integers(*shape: int, value: int = 0) -> torch.Tensor:
    return torch.full(shape, value, dtype=torch.long)


def in_four_bits() -> Any:
    model = plain_model()
    model.cfg.load_in_4bit = True
    return model


def without_a_hook() -> Any:
    model = plain_model()
    del model.hook_dict["blocks.1.attn.hook_z"]  # as if layer 1 were something else
    return model


REFUSED: list[tuple[Callable[[], Any], type[Exception], str]] = [
    # data
    (lambda: frozen(plain_model(), integers(2, 10)), ValueError,
     r"10 tokens long, .* n_ctx=9: .*data\[:, :9\]"),
    (lambda: gradient_importance(plain_model(), integers(2, 10)), ValueError, "10 tokens long"),
    (lambda: frozen(plain_model(), integers(2, 3, value=7)), ValueError,
     "token 7 is not in the model's vocabulary of 7"),
    (lambda: frozen(plain_model(), integers(2, 3, value=-1)), ValueError, "token -1"),
    (lambda: frozen(plain_model(), integers(0, 3)), ValueError, r"not \[0, 3\]"),
    (lambda: frozen(plain_model(), TOKENS, mode="mean", where=NONE), ValueError, "marks 0"),
    (lambda: frozen(plain_model(), TOKENS, mode="resample",
                    where=torch.tensor([[True] * 3, [False] * 3])), ValueError,
     "at least two with real positions, not 1"),
    (lambda: tune(planted(), lambda n, generator: integers(n, 7), metric), ValueError,
     "7 tokens long"),
    # models
    (lambda: frozen(torch.nn.Identity(), TOKENS), TypeError, "HookedTransformer, not Identity"),
    (lambda: frozen(plain_model(n_layers=0), TOKENS), ValueError, "no attention heads"),
    (lambda: tune(plain_model(n_layers=0), sample), ValueError, "no attention heads"),
    (lambda: frozen(in_four_bits(), TOKENS), ValueError, "4 bits"),
    (lambda: gradient_importance(without_a_hook(), TOKENS), ValueError,
     "layer 1 has no hook point"),
    # metrics
    (lambda: tune(planted(), sample, lambda logits, tokens: logits.mean()), MetricError, "shape"),
    (lambda: tune(planted(), sample, log_likelihood, options=WILD), MetricError,
     "after 1 steps of fine-tuning the metric returned nan"),
    # options
    (lambda: frozen(plain_model(), TOKENS, mode="zeros"), UnknownNameError, "Did you mean 'zero'"),
    (lambda: FinetuneConfig(penalties=()), ValueError, "at least one"),
    (lambda: FinetuneConfig(penalties=(0.1, 0.1)), ValueError, "must rise"),
    (lambda: FinetuneConfig(penalties=(-1.0,)), ValueError, "at least 0"),
    (lambda: FinetuneConfig(penalties=(float("nan"),)), ValueError, "finite"),
    (lambda: FinetuneConfig(steps=0), ValueError, "steps must be at least 1"),
    (lambda: FinetuneConfig(learning_rate=-1.0), ValueError, "learning_rate"),
    # comparisons
    (lambda: compare_importance([]), ValueError, "at least one table"),
    (lambda: compare_importance([ONE[0].drop(columns="head")]), ValueError, "no column 'head'; it"),
    (lambda: compare_importance([table([1, 2, 3])]), ValueError, "takes two measures"),
    (lambda: compare_importance(ONE[0]), ValueError, "'model'"),
    (lambda: compare_importance(ONE[0].iloc[:0]), ValueError, "empty"),
    (lambda: compare_importance(ONE).correlation("all", "mean", "zero"), ValueError,
     "'mean' and 'zero' were not compared"),
]  # fmt: skip


@pytest.mark.parametrize(("call", "error", "words"), REFUSED, ids=[each[2] for each in REFUSED])
def test_refused(call: Callable[[], Any], error: type[Exception], words: str) -> None:
    with pytest.raises(error, match=words):
        call()
