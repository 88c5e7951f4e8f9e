"""Directions in what a head puts out, without training: by variance, by zeros, by weights."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from tl_dyck.judge import Case, Question, Scores, declare_method, find_directions
from tl_dyck_hooks.methods.shared import activations, z_names

_ZERO = 0.01  # of the largest
_OFTEN = 0.2


@find_directions(paper="Pearson 1901")
def principal_components(case: Case, layer: int, head: int) -> Tensor:
    """Principal components of a head's output, at all positions."""
    (z,) = activations(case.model, case.tokens, [z_names(case)[layer]])
    x = z[:, :, head].flatten(0, 1)
    components: Tensor = torch.linalg.svd(x - x.mean(0), full_matrices=False).Vh
    return components


@find_directions(paper="after Elhage et al. 2021")
def token_values(case: Case, layer: int, head: int) -> Tensor:
    """W_V of what tokens are embedded as, at each depth: weights alone, of a first layer."""
    values: Tensor = case.model.embed.table @ case.model.blocks[layer].attn.W_V[head]
    return values.flatten(0, 1)


@declare_method("feature", yes="if it is zero at more than a fifth", paper="after Hoyer 2004")
def zeros_along(case: Case, questions: Sequence[Question]) -> Scores:
    """How often a head's output has less than 1 % of its largest part along the direction."""
    assert case.directions is not None  # or nobody is asked
    z = activations(case.model, case.tokens, z_names(case))
    scores: list[float | None] = []
    for layer, head, index in (question.target for question in questions):
        part = (z[layer][:, 1:, head] @ case.directions[index]).abs()
        scores.append(float((part < _ZERO * part.max()).double().mean()) - _OFTEN)
    return scores
