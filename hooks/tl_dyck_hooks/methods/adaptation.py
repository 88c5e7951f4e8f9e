"""Methods that let the rest of the model adapt; slow, so they are asked of every tenth case."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache

import numpy as np

from tl_dyck.ablation import FinetuneConfig, finetuned_importance, leave_one_out_importance
from tl_dyck.judge import Case, Question
from tl_dyck_hooks.methods.shared import HEADS, Scores, by_head, closing_metric

_EVERY = 10
_NATS = 0.05


def gates(case: Case, questions: Sequence[Question]) -> Scores:
    """The price, in nats, at which a head's gate closes for good while all weights adapt.

    Voita et al. 2019, "Analyzing Multi-Head Self-Attention". A path of 7 prices, 20 steps each, see
    `tl_dyck.finetuned_importance`; a gate that is open at the end counts as twice the highest.
    Yes for a head that is still open when the stage of 0.08 nats ends.
    """
    if questions[0].kind not in HEADS or case.seed % _EVERY:
        return None
    return by_head(questions, _gates(case), 0.08)


def leave_one_out(case: Case, questions: Sequence[Question]) -> Scores:
    """What is lost without a head after 40 steps of fine-tuning, beside as many with it.

    After Wen et al. 2023, App. B.2. Yes above 0.05 nats.
    """
    if questions[0].kind not in HEADS or case.seed % _EVERY:
        return None
    return by_head(questions, _left_out(case), _NATS)


@lru_cache(maxsize=1)
def _gates(case: Case) -> np.ndarray:
    options = FinetuneConfig(steps=20, n_eval=64, gate_learning_rate=0.3)
    metric = closing_metric(case.task.language)
    found = finetuned_importance(case.model, case.tokens, metric, options=options, progress=False)
    stage = np.where(found.removed_at < 0, -1, found.removed_at // options.steps)
    return np.array([*options.penalties, 2 * options.penalties[-1]])[stage]


@lru_cache(maxsize=1)
def _left_out(case: Case) -> np.ndarray:
    options = FinetuneConfig(steps=40, n_eval=64)
    metric = closing_metric(case.task.language)
    return leave_one_out_importance(
        case.model, case.tokens, metric, options=options, progress=False
    ).values
