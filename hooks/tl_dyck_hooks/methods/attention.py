"""Methods that read attention patterns."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from einops import einsum
from jaxtyping import Float
from torch import Tensor

from tl_dyck.ablation import attention_entropy
from tl_dyck.attention import random_row_variation
from tl_dyck.judge import Case, Question
from tl_dyck.probes import stack_likeness
from tl_dyck_hooks.methods.shared import HEADS, Scores, activations, by_head, by_token


def stack_attention(case: Case, questions: Sequence[Question]) -> Scores:
    """Attention weight on the top of the stack, mean over closing brackets that leave one open.

    Ebrahimi et al. 2020, "How Can Self-Attention Networks Recognize Dyck-n Languages?". Read as: a
    head that looks at the top of the stack is how the model keeps one; a model that has such a head
    keeps one. Yes above 0.5.
    """
    if questions[0].kind not in (*HEADS, "stack"):
        return None
    mass = stack_likeness(case.model, case.tokens).mass_at_closing
    if questions[0].kind == "stack":
        return [float(mass.max()) - 0.5 for _ in questions]
    return by_head(questions, mass, 0.5)


def sharpness(case: Case, questions: Sequence[Question]) -> Scores:
    """One minus the entropy of a head's attention, as a share of that of uniform attention.

    1 − Σ H(pattern of a query) / Σ log(positions it may attend to), sums over all queries.
    Voita et al. 2019, "Analyzing Multi-Head Self-Attention": confident heads are those that matter
    (they take the mean of the largest weight). Yes above 0.5.
    """
    if questions[0].kind not in HEADS:
        return None
    flat = np.log(np.arange(2, case.tokens.shape[1] + 1)).mean()  # of brackets; BOS has no choice
    return by_head(questions, 1 - attention_entropy(case.model, case.tokens) / flat, 0.5)


def attention_weight(case: Case, questions: Sequence[Question]) -> Scores:
    """Attention of the last position in the last layer, mean over heads.

    The oldest reading (Bahdanau et al. 2015): the model looks at what it uses. Yes for the bracket
    with the largest weight.
    """

    def attribute(tokens: Tensor, answers: Tensor) -> Tensor:
        return _patterns(case, tokens)[-1][:, :, -1].mean(1)

    return by_token(case, questions, attribute)


def rollout(case: Case, questions: Sequence[Question]) -> Scores:
    """Attention rollout: mean over heads, half of it for the residual link, layer after layer.

    Abnar and Zuidema 2020, "Quantifying Attention Flow in Transformers": the last row of
    Π (mean pattern + 1) / 2. Yes for the bracket with the largest share.
    """

    def attribute(tokens: Tensor, answers: Tensor) -> Tensor:
        n = tokens.shape[1]
        flow = torch.eye(n, dtype=torch.float64).expand(len(tokens), n, n)
        for pattern in _patterns(case, tokens):
            flow = (pattern.mean(1).double() + torch.eye(n)) / 2 @ flow
        return flow[:, -1]

    return by_token(case, questions, attribute)


def weighted_values(case: Case, questions: Sequence[Question]) -> Scores:
    """Norm of what the last position takes from a bracket in the last layer, over all heads.

    Kobayashi et al. 2020, "Attention is Not Only a Weight": ‖Σ_heads weight · (x W_V + b_V) W_O‖.
    Yes for the bracket with the largest norm.
    """

    def attribute(tokens: Tensor, answers: Tensor) -> Tensor:
        last = case.model.cfg.n_layers - 1
        names = [f"blocks.{last}.attn.hook_pattern", f"blocks.{last}.attn.hook_v"]
        pattern, v = (activations(case.model, tokens, [name])[0] for name in names)
        weight = case.model.blocks[last].attn.W_O
        moved = einsum(
            pattern[:, :, -1],
            v,
            weight,
            "batch head key, batch key head d, head d m -> batch key m",
        )
        found: Tensor = moved.norm(dim=-1)
        return found

    return by_token(case, questions, attribute)


def attention_distance(case: Case, questions: Sequence[Question]) -> Scores:
    """How far the patterns of two models are from each other, beside patterns drawn at random.

    Wen et al. 2023, Section 4.1, turned into a claim: models that attend alike compute alike. Asked
    where both have as many layers; in each layer heads are averaged: the mean over layers and
    strings of ‖A − B‖², over E‖a − b‖² of rows uniform on the simplex. Yes below half of random.
    """
    if questions[0].kind != "same":
        return None
    if case.other is None or case.other.cfg.n_layers != case.model.cfg.n_layers:
        return None
    ours, theirs = (
        [pattern.mean(1) for pattern in _patterns(case, case.tokens, model)]
        for model in (case.model, case.other)
    )
    moved = [float((a - b).square().sum((1, 2)).mean()) for a, b in zip(ours, theirs, strict=True)]
    random = float(random_row_variation(case.tokens.shape[1]).sum())
    return [0.5 - sum(moved) / len(moved) / random for _ in questions]


def _patterns(
    case: Case, tokens: Tensor, model: Any = None
) -> list[Float[Tensor, "batch head query key"]]:
    chosen = case.model if model is None else model
    names = [f"blocks.{layer}.attn.hook_pattern" for layer in range(chosen.cfg.n_layers)]
    return activations(chosen, tokens, names)
