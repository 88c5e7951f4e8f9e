"""Ablations of one head at a time, all else frozen."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from tl_dyck.ablation import frozen_importance
from tl_dyck.judge import Case, score_brackets, score_heads
from tl_dyck_hooks.methods.shared import answer_metric


def _drop(case: Case, mode: str) -> Any:
    metric = answer_metric(case.task)
    return frozen_importance(case.model, case.tokens, metric, mode).values


@score_heads(above=0.01, unit="nats", paper="Michel et al. 2019")
def zero_ablation(case: Case) -> Any:
    """Drop of the log-probability of the right answer when a head's output is zero.

    "Are Sixteen Heads Really Better than One?" Read as: a head whose removal costs nothing is not
    needed.
    """
    return _drop(case, "zero")


@score_heads(above=0.01, unit="nats", paper="Wang et al. 2022")
def mean_ablation(case: Case) -> Any:
    """The same when its output is its mean over the data.

    "Interpretability in the Wild": what is constant is not held against a head. The mean is over
    all symbols of all strings, BOS left out.
    """
    return _drop(case, "mean")


@score_heads(above=0.01, unit="nats", paper="Chan et al. 2022")
def resample_ablation(case: Case) -> Any:
    """The same when its output is that on another string.

    "Causal Scrubbing": at the same position, the strings on one cycle through all.
    """
    return _drop(case, "resample")


@score_heads(above=0.01, unit="nats", paper="after Wen et al. 2023, Corollary 1")
def uniform_pattern(case: Case) -> Any:
    """The same when it attends to all positions alike.

    Read as: does it matter where the head looks?
    """
    return _drop(case, "uniform-pattern")


@score_brackets(paper="Li et al. 2016")
def erasure(case: Case, tokens: Tensor, answers: Tensor) -> Tensor:
    """Drop of the logit difference when one bracket's embedding is zero.

    "Understanding Neural Networks through Representation Erasure". Its position stays.
    """
    with torch.no_grad():
        before = case.difference(case.model(tokens)[:, -1], answers)
        drops = []
        for place in range(tokens.shape[1]):

            def erase(embed: Tensor, hook: Any, place: int = place) -> Tensor:
                embed = embed.clone()
                embed[:, place] = 0
                return embed

            logits = case.model.run_with_hooks(tokens, fwd_hooks=[("hook_embed", erase)])
            drops.append(before - case.difference(logits[:, -1], answers))
    return torch.stack(drops, 1)
