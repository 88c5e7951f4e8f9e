"""What methods share: metrics and activations."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from jaxtyping import Float, Int
from torch import Tensor

from tl_dyck.ablation.metrics import Metric
from tl_dyck.judge import Case
from tl_dyck.judge.asked import log_probability, right_answers
from tl_dyck.reading.hook_points import record

__all__ = ["activations", "answer_metric", "z_names"]


def z_names(case: Case) -> list[str]:
    """Hook names of what the heads of each layer put out."""
    return [f"blocks.{layer}.attn.hook_z" for layer in range(case.model.cfg.n_layers)]


def activations(model: Any, tokens: Int[Tensor, "batch pos"], names: Sequence[str]) -> list[Tensor]:
    """Activations by hook name, in that order."""
    found = record(model, tokens, list(names))
    return [found[name] for name in names]


def answer_metric(task: Any) -> Metric:
    """Log-probability of the right answer, mean over the positions that ask for one."""

    def metric(
        logits: Float[Tensor, "batch pos d_vocab"], tokens: Int[Tensor, "batch pos"]
    ) -> Float[Tensor, " batch"]:
        right = right_answers(task, tokens)
        return log_probability(logits, right).sum(-1) / (right >= 0).sum(-1).clamp(min=1)

    return metric
