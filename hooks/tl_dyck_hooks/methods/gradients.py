"""First-order methods: what a gradient says an intervention would do.

Where a ReLU stands exactly at zero, as it may in constructed models, there are two slopes, and
rounding says which one is found: scores of one case can differ between machines there.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import Any

import numpy as np
import torch
from torch import Tensor

from tl_dyck.ablation import gradient_importance
from tl_dyck.judge import Case, Question
from tl_dyck.judge.facts import exchange_types
from tl_dyck_hooks.methods.shared import (
    HEADS,
    Scores,
    activations,
    by_head,
    by_token,
    closing_metric,
    logit_difference,
)

_STEPS = 20  # of the integral


def gradient(case: Case, questions: Sequence[Question]) -> Scores:
    """Size of the derivative by a factor on the head's output: gradient times activation.

    Michel et al. 2019, Eq. 4: |Σ z · ∂L/∂z|, mean over strings. Yes above 0.01 nats.
    """
    if questions[0].kind not in HEADS:
        return None
    return by_head(questions, _derivative(case), 0.01)


@lru_cache(maxsize=1)
def _derivative(case: Case) -> np.ndarray:
    metric = closing_metric(case.task.language)
    return gradient_importance(case.model, case.tokens, metric).values


def attribution_patching(case: Case, questions: Sequence[Question]) -> Scores:
    """First-order estimate of activation patching, clean to types exchanged.

    Nanda 2023, "Attribution Patching"; Syed et al. 2023: |Σ (z' − z) · ∂Δ/∂z| / |Δ' − Δ|, with z
    and the sum of logit differences Δ on clean strings, z' and Δ' on the others. Yes above 0.05.
    """
    if questions[0].kind not in HEADS:
        return None
    return by_head(questions, _estimate(case), 0.05)


@lru_cache(maxsize=1)
def _estimate(case: Case) -> np.ndarray:
    language, n_layers = case.task.language, case.model.cfg.n_layers
    right = language.right_bracket(case.tokens)
    names = [f"blocks.{layer}.attn.hook_z" for layer in range(n_layers)]
    other = exchange_types(language, case.tokens)
    corrupted = activations(case.model, other, names)
    clean: list[Tensor] = []

    def keep(z: Tensor, hook: Any) -> Tensor:
        z = z.detach().requires_grad_()
        clean.append(z)
        return z

    # each layer's z is a leaf of its own, one layer at a time, so that later layers follow from it
    values = []
    with torch.enable_grad():
        for name, instead in zip(names, corrupted, strict=True):
            clean.clear()
            logits = case.model.run_with_hooks(case.tokens, fwd_hooks=[(name, keep)])
            before = logit_difference(language, logits, right).sum()
            (slope,) = torch.autograd.grad(before, clean)
            values.append((slope * (instead - clean[0])).sum((0, 1, 3)).abs())
        with torch.no_grad():
            after = logit_difference(language, case.model(other), right).sum()
    way = (before - after).abs().clamp(min=1e-12)
    found: np.ndarray = (torch.stack(values) / way).detach().numpy()
    return found


def gradient_times_input(case: Case, questions: Sequence[Question]) -> Scores:
    """Gradient of the logit difference by a bracket's embedding, times the embedding; in size.

    Shrikumar et al. 2016, "Not Just a Black Box": |Σ x · ∂Δ/∂x|; the baseline is an embedding of
    zeros. Yes for the largest.
    """

    def attribute(tokens: Tensor, answers: Tensor) -> Tensor:
        embed, slope = _slope(case, tokens, answers, 1.0)
        return (embed * slope).sum(-1).abs()

    return by_token(case, questions, attribute)


def integrated_gradients(case: Case, questions: Sequence[Question]) -> Scores:
    """The same, with the gradient's mean on the way from embeddings of zeros; 20 midpoints.

    Sundararajan et al. 2017, "Axiomatic Attribution for Deep Networks". Yes for the largest.
    """

    def attribute(tokens: Tensor, answers: Tensor) -> Tensor:
        total: Any = 0.0
        for step in range(_STEPS):
            embed, slope = _slope(case, tokens, answers, (step + 0.5) / _STEPS)
            total = total + slope / _STEPS
        found: Tensor = (embed * total).sum(-1).abs()
        return found

    return by_token(case, questions, attribute)


def snip(case: Case, questions: Sequence[Question]) -> Scores:
    """Size of gradient times weight, summed over a matrix.

    Lee et al. 2019, "SNIP"; with the data's log-probability for a loss. Yes above 0.01 nats.
    """
    if questions[0].kind != "weight":
        return None
    names = {question.target[0] for question in questions}
    weights = {name: case.model.get_parameter(name) for name in names}
    metric = closing_metric(case.task.language)
    with torch.enable_grad():
        found = metric(case.model(case.tokens), case.tokens).mean()
        slopes = torch.autograd.grad(found, list(weights.values()), allow_unused=True)
    sizes = {
        name: (slope * weights[name]).detach().abs().sum((-1, -2))
        for name, slope in zip(weights, slopes, strict=True)
        if slope is not None
    }
    return [
        float(sizes[question.target[0]][question.target[1]]) - 0.01
        if question.target[0] in sizes
        else -0.01
        for question in questions
    ]


def _slope(case: Case, tokens: Tensor, answers: Tensor, factor: float) -> tuple[Tensor, Tensor]:
    """Embeddings, and the gradient of the logit difference where they are multiplied."""
    kept: list[Tensor] = []

    def scale(embed: Tensor, hook: Any) -> Tensor:
        kept.append(embed.detach())
        kept.append((embed.detach() * factor).requires_grad_())
        return kept[1]

    with torch.enable_grad():
        logits = case.model.run_with_hooks(tokens, fwd_hooks=[("hook_embed", scale)])
        found = logit_difference(case.task.language, logits[:, -1], answers).sum()
        (slope,) = torch.autograd.grad(found, [kept[1]])
    return kept[0], slope
