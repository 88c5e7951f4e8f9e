"""What methods share: metrics, activations, and how numbers become scores of questions."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor

from tl_dyck.ablation.metrics import Metric
from tl_dyck.judge import ABOUT_HEADS, Case, Question
from tl_dyck.language import DyckLanguage
from tl_dyck_hooks.probes.activations import record

#: Questions that are about one head.
HEADS = ABOUT_HEADS

Scores = list[float | None] | None


def by_head(questions: Sequence[Question], values: Any, threshold: float) -> Scores:
    """Scores of questions about heads.

    Args:
        questions: all of one of `HEADS`.
        values: a number for each, ``[layer, head]``; NaN for one that is not asked.
        threshold: above it the answer is yes.
    """
    found = np.asarray(values, dtype=float) - threshold
    chosen = [found[question.target] for question in questions]
    return [None if np.isnan(value) else float(value) for value in chosen]


def by_token(
    case: Case, questions: Sequence[Question], attribute: Callable[[Tensor, Tensor], Tensor]
) -> Scores:
    """Scores of "token" questions: how far a bracket is ahead of all others of its prefix.

    Args:
        case: the model.
        questions: asked.
        attribute: from tokens ``[n, pos]`` and the closing bracket that the model predicts after
            each, ``[n]``, to a size for each position, ``[n, pos]``.
    """
    if questions[0].kind != "token":
        return None
    prefixes = dict.fromkeys(question.target[0] for question in questions)
    ahead: dict[tuple[int, ...], Tensor] = {}
    for length in {len(prefix) for prefix in prefixes}:
        alike = [prefix for prefix in prefixes if len(prefix) == length]
        ahead.update(zip(alike, _ahead(case, torch.tensor(alike), attribute), strict=True))
    return [float(ahead[prefix][place - 1]) for prefix, place in (q.target for q in questions)]


def _ahead(
    case: Case,
    tokens: Int[Tensor, "n pos"],
    attribute: Callable[[Tensor, Tensor], Tensor],
) -> Float[Tensor, "n brackets"]:
    with torch.no_grad():
        closing = case.model(tokens)[:, -1, 1 : case.task.language.n_brackets : 2]
    sizes = attribute(tokens, 2 * closing.argmax(-1) + 1).detach().double()[:, 1:]
    two = sizes.topk(2, -1).values
    rest = torch.where(sizes == two[:, :1], two[:, 1:], two[:, :1])
    return (sizes - rest) / two[:, :1].clamp(min=1e-12)


def activations(model: Any, tokens: Int[Tensor, "batch pos"], names: Sequence[str]) -> list[Tensor]:
    """Activations by hook name, in that order."""
    found = record(model, tokens, list(names))
    return [found[name] for name in names]


def closing_metric(language: DyckLanguage) -> Metric:
    """Log-probability of the right closing bracket, mean over the positions that have one."""

    def metric(
        logits: Float[Tensor, "batch pos d_vocab"], tokens: Int[Tensor, "batch pos"]
    ) -> Float[Tensor, " batch"]:
        right = language.right_bracket(tokens)
        asked = right >= 0
        found = logits.log_softmax(-1).gather(-1, right.clamp(min=0)[..., None])[..., 0]
        return (found * asked).sum(-1) / asked.sum(-1).clamp(min=1)

    return metric


def logit_difference(
    language: DyckLanguage,
    logits: Float[Tensor, "*batch d_vocab"],
    right: Int[Tensor, "*batch"],
) -> Float[Tensor, "*batch"]:
    """Logit of the right closing bracket minus the mean of the others; 0 where none is asked."""
    closing = logits[..., 1 : language.n_brackets : 2]
    mine = logits.gather(-1, right.clamp(min=0)[..., None])[..., 0]
    others = (closing.sum(-1) - mine) / (language.n_types - 1)
    return torch.where(right >= 0, mine - others, 0.0)
