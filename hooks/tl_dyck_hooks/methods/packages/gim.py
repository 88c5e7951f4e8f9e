"""Attribution by gim-explain: gradients of attention that are changed on the way back.

Backwards, a softmax is that of half of the scores, gradients of queries, keys and values are
smaller, and norms are held at their scale; forwards all is as it is.

Knows: which gradients of a case are taken inside `gim.GIM`, and what `gim.explain` is told.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

import gim
import torch
from torch import Tensor

from tl_dyck.judge import Case, score_brackets, score_heads
from tl_dyck_hooks.methods.gradients import first_order
from tl_dyck_hooks.methods.packages import named

_PAPER = named("gim-explain")("Edin et al. 2025")


@contextlib.contextmanager
def _put_back() -> Iterator[None]:
    """Gim 0.1.4 leaves on `Tensor` the softmax that it inherits."""
    owned = "softmax" in vars(Tensor)
    try:
        yield
    finally:
        if not owned and "softmax" in vars(Tensor):
            del Tensor.softmax


@score_heads(above=0.05, unit="of the difference", paper=_PAPER)
def attribution_patching(case: Case) -> Any:
    """Attribution patching with GIM's gradients: "run your gradient-based method as usual"."""
    with _put_back(), gim.GIM(case.model):
        return first_order(case)


@score_brackets(_PAPER)
def explain(case: Case, tokens: Tensor, answers: Tensor) -> Tensor:
    """GIM's gradient of the right answer's logit, times the embedding less that of BOS; in size."""
    baseline = case.task.language.bos_token
    with _put_back(), torch.enable_grad():
        found = [
            gim.explain(case.model, row, target_token_id=int(right), baseline_token_id=baseline)
            for row, right in zip(tokens, answers, strict=True)
        ]
    return torch.stack(found).abs()
