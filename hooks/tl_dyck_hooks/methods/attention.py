"""Methods that read attention patterns."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from einops import einsum
from torch import Tensor

from tl_dyck.ablation import attention_entropy
from tl_dyck.judge import Case, Question, Scores, declare_method, score_brackets, score_heads
from tl_dyck.probes.likeness import stack_likeness
from tl_dyck.reading.attention import random_row_variation
from tl_dyck.reading.hook_points import attention_patterns
from tl_dyck_hooks.methods.shared import activations


@score_heads(
    above=0.5,
    paper="Ebrahimi et al. 2020",
    stack=lambda case: float(stack_likeness(case.model, case.tokens).mass_at_closing.max()),
)
def stack_attention(case: Case) -> Any:
    """Attention weight on the top of the stack, mean over closing brackets that leave one open.

    "How Can Self-Attention Networks Recognize Dyck-n Languages?" Read as: a head that looks at the
    top of the stack is how the model keeps one; a model that has such a head keeps one.
    """
    return stack_likeness(case.model, case.tokens).mass_at_closing


@score_heads(above=0.5, paper="Voita et al. 2019")
def sharpness(case: Case) -> Any:
    """One minus the entropy of a head's attention, as a share of that of uniform attention.

    1 − Σ H(pattern of a query) / Σ log(positions it may attend to), sums over all queries.
    "Analyzing Multi-Head Self-Attention": confident heads are those that matter (they take the mean
    of the largest weight).
    """
    flat = np.log(np.arange(2, case.tokens.shape[1] + 1)).mean()  # of brackets; BOS has no choice
    return 1 - attention_entropy(case.model, case.tokens) / flat


@score_brackets(paper="Bahdanau et al. 2015")
def attention_weight(case: Case, tokens: Tensor, answers: Tensor) -> Tensor:
    """Attention of the last position in the last layer, mean over heads.

    The oldest reading: the model looks at what it uses.
    """
    return attention_patterns(case.model, tokens)[-1][:, :, -1].mean(1)


@score_brackets(paper="Abnar and Zuidema 2020")
def rollout(case: Case, tokens: Tensor, answers: Tensor) -> Tensor:
    """Attention rollout: mean over heads, half of it for the residual link, layer after layer.

    "Quantifying Attention Flow in Transformers": the last row of Π (mean pattern + 1) / 2.
    """
    n = tokens.shape[1]
    flow = torch.eye(n, dtype=torch.float64).expand(len(tokens), n, n)
    for pattern in attention_patterns(case.model, tokens):
        flow = (pattern.mean(1).double() + torch.eye(n)) / 2 @ flow
    return flow[:, -1]


@score_brackets(paper="Kobayashi et al. 2020")
def weighted_values(case: Case, tokens: Tensor, answers: Tensor) -> Tensor:
    """Norm of what the last position takes from a bracket in the last layer, over all heads.

    "Attention is Not Only a Weight": ‖Σ_heads weight · (x W_V + b_V) W_O‖.
    """
    last = case.model.cfg.n_layers - 1
    names = [f"blocks.{last}.attn.hook_pattern", f"blocks.{last}.attn.hook_v"]
    pattern, v = activations(case.model, tokens, names)
    weight = case.model.blocks[last].attn.W_O
    summed = "batch head key, batch key head d, head d m -> batch key m"
    moved: Tensor = einsum(pattern[:, :, -1], v, weight, summed).norm(dim=-1)
    return moved


@declare_method("same", yes="below half of random", paper="after Wen et al. 2023, Section 4.1")
def attention_distance(case: Case, questions: Sequence[Question]) -> Scores:
    """How far the patterns of two models are from each other, beside patterns drawn at random.

    The claim turned around: models that attend alike compute alike. Asked where both have as many
    layers; in each layer heads are averaged: the mean over layers and strings of ‖A − B‖², over
    E‖a − b‖² of rows uniform on the simplex.
    """
    if case.other.cfg.n_layers != case.model.cfg.n_layers:
        return None
    ours, theirs = (
        [pattern.mean(1) for pattern in attention_patterns(model, case.tokens)]
        for model in (case.model, case.other)
    )
    moved = [float((a - b).square().sum((1, 2)).mean()) for a, b in zip(ours, theirs, strict=True)]
    random = float(random_row_variation(case.tokens.shape[1]).sum())
    return [0.5 - sum(moved) / len(moved) / random] * len(questions)
