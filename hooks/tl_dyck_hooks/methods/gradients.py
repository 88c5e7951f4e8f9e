"""First-order methods: what a gradient says an intervention would do.

Where a ReLU stands exactly at zero, as it may in constructed models, there are two slopes, and
rounding says which one is found: scores of one case can differ between machines there.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from tl_dyck.ablation import gradient_importance
from tl_dyck.judge import Case, WithError, score_brackets, score_heads
from tl_dyck.judge.convergence import integrated
from tl_dyck_hooks.methods.shared import (
    activations,
    answer_metric,
    z_names,
)

_STEPS, _MOST, _AT_ONCE = 5, 2560, 64  # of the integral
_LEAST = 0.1  # logits, of a string: errors are beside what changes, or this


@score_heads(above=0.01, unit="nats", paper="Michel et al. 2019, Eq. 4")
def gradient(case: Case) -> Any:
    """Size of the derivative by a factor on the head's output: gradient times activation.

    |Σ z · ∂L/∂z|, mean over strings.
    """
    metric = answer_metric(case.task)
    return gradient_importance(case.model, case.tokens, metric).values


@score_heads(above=0.05, unit="of the difference", paper="Nanda 2023; Syed et al. 2023")
def attribution_patching(case: Case) -> Any:
    """First-order estimate of activation patching, clean to types exchanged.

    |Σ (z' − z) · ∂Δ/∂z| / |Δ' − Δ|, with z and the sum of logit differences Δ on clean strings, z'
    and Δ' on the others.
    """
    return first_order(case)


def first_order(case: Case) -> Tensor:
    """What `attribution_patching` says of each head, ``[layer, head]``."""
    names, right, other = z_names(case), case.right, case.partners
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
            before = case.difference(logits, right).sum()
            (slope,) = torch.autograd.grad(before, clean)
            values.append((slope * (instead - clean[0])).sum((0, 1, 3)).abs())
        with torch.no_grad():
            after = case.difference(case.model(other), right).sum()
    way = (before - after).abs().clamp(min=1e-12)
    return (torch.stack(values) / way).detach()


@score_brackets(paper="Shrikumar et al. 2016")
def gradient_times_input(case: Case, tokens: Tensor, answers: Tensor) -> Tensor:
    """Gradient of the logit difference by a bracket's embedding, times the embedding; in size.

    "Not Just a Black Box": |Σ x · ∂Δ/∂x|; the baseline is an embedding of zeros.
    """
    embed, slope = _slope(case, tokens, answers, 1.0)
    return (embed * slope).sum(-1).abs()


@score_brackets(paper="Sundararajan et al. 2017")
def integrated_gradients(case: Case, tokens: Tensor, answers: Tensor) -> WithError:
    """The same, with the gradient's mean on the way from embeddings of zeros.

    "Axiomatic Attribution for Deep Networks". 20 midpoints or more, until brackets add up to the
    change of the logit difference, and none is far from what fewer of them say.
    """
    with torch.no_grad():
        embed: Tensor = case.model.embed(tokens)
        ends = [
            case.difference(case.forward(each)[:, -1], answers)
            for each in (embed, torch.zeros_like(embed))
        ]
    change = ends[0] - ends[1]

    def run(n: int) -> tuple[Tensor, Tensor]:
        total = torch.zeros_like(embed)
        for shares in ((torch.arange(n, dtype=embed.dtype) + 0.5) / n).split(_AT_ONCE):
            rows = tokens.repeat(len(shares), 1), answers.repeat(len(shares))
            factors = shares.repeat_interleave(len(tokens))[:, None, None]
            total += _slope(case, *rows, factors)[1].view(-1, *embed.shape).sum(0) / n
        found = (embed * total).sum(-1)
        return found, found.sum(-1) - change

    found = integrated(run, change.abs().clamp(min=_LEAST), _STEPS, _MOST)
    return WithError(found.values.abs(), found.error)


def _slope(
    case: Case, tokens: Tensor, answers: Tensor, factor: float | Tensor
) -> tuple[Tensor, Tensor]:
    """Embeddings, and the gradient of the logit difference where they are multiplied."""
    kept: list[Tensor] = []

    def scale(embed: Tensor, hook: Any) -> Tensor:
        kept.append(embed.detach())
        kept.append((embed.detach() * factor).requires_grad_())
        return kept[1]

    with torch.enable_grad():
        logits = case.model.run_with_hooks(tokens, fwd_hooks=[("hook_embed", scale)])
        found = case.difference(logits[:, -1], answers).sum()
        (slope,) = torch.autograd.grad(found, [kept[1]])
    return kept[0], slope
