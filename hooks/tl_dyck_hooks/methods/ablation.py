"""Ablations of one head at a time, all else frozen."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import Any

import numpy as np
import torch
from torch import Tensor

from tl_dyck.ablation import frozen_importance
from tl_dyck.judge import Case, Question
from tl_dyck_hooks.methods.shared import (
    HEADS,
    Scores,
    by_head,
    by_token,
    closing_metric,
    logit_difference,
)

_NATS = 0.01  # a head counts if the right bracket loses more than that


def _drop(case: Case, questions: Sequence[Question], mode: str) -> Scores:
    if questions[0].kind not in HEADS:
        return None
    return by_head(questions, _importance(case, mode), _NATS)


@lru_cache(maxsize=4)
def _importance(case: Case, mode: str) -> np.ndarray:
    metric = closing_metric(case.task.language)
    return frozen_importance(case.model, case.tokens, metric, mode).values


def zero_ablation(case: Case, questions: Sequence[Question]) -> Scores:
    """Drop of the log-probability of the right bracket when a head's output is zero.

    Michel et al. 2019, "Are Sixteen Heads Really Better than One?". Read as: a head whose removal
    costs nothing is not needed. Yes above 0.01 nats.
    """
    return _drop(case, questions, "zero")


def mean_ablation(case: Case, questions: Sequence[Question]) -> Scores:
    """The same when its output is its mean over the data.

    Wang et al. 2022, "Interpretability in the Wild": what is constant is not held against a head.
    The mean is over all brackets of all strings, BOS left out.
    Yes above 0.01 nats.
    """
    return _drop(case, questions, "mean")


def resample_ablation(case: Case, questions: Sequence[Question]) -> Scores:
    """The same when its output is that on another string.

    Chan et al. 2022, "Causal Scrubbing": at the same position, the strings on one cycle through
    all. Yes above 0.01 nats.
    """
    return _drop(case, questions, "resample")


def uniform_pattern(case: Case, questions: Sequence[Question]) -> Scores:
    """The same when it attends to all positions alike.

    After Wen et al. 2023, Corollary 1. Read as: does it matter where the head looks? Yes above 0.01
    nats.
    """
    return _drop(case, questions, "uniform-pattern")


def erasure(case: Case, questions: Sequence[Question]) -> Scores:
    """Drop of the logit difference when one bracket's embedding is zero.

    Li et al. 2016, "Understanding Neural Networks through Representation Erasure". Yes for the
    bracket whose erasure costs most. Its position stays.
    """

    def attribute(tokens: Tensor, answers: Tensor) -> Tensor:
        language = case.task.language
        with torch.no_grad():
            before = logit_difference(language, case.model(tokens)[:, -1], answers)
            drops = []
            for place in range(tokens.shape[1]):

                def erase(embed: Tensor, hook: Any, place: int = place) -> Tensor:
                    embed = embed.clone()
                    embed[:, place] = 0
                    return embed

                logits = case.model.run_with_hooks(tokens, fwd_hooks=[("hook_embed", erase)])
                drops.append(before - logit_difference(language, logits[:, -1], answers))
        return torch.stack(drops, 1)

    return by_token(case, questions, attribute)
