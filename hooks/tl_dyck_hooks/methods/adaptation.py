"""Methods that let the rest of the model adapt; slow, so they are asked of every tenth case."""

from __future__ import annotations

from typing import Any

import numpy as np

from tl_dyck.ablation import FinetuneConfig, finetuned_importance, leave_one_out_importance
from tl_dyck.judge import Case, WithError, score_heads
from tl_dyck.judge.convergence import doubled
from tl_dyck_hooks.methods.shared import answer_metric

_EVERY = 10
_MOST = 160  # steps; four times what they begin with
_NATS = 0.05  # above which a head is said to be needed


@score_heads(above=0.08, unit="nats, its price", paper="Voita et al. 2019", every=_EVERY)
def gates(case: Case) -> WithError:
    """The price, in nats, at which a head's gate closes for good while all weights adapt.

    "Analyzing Multi-Head Self-Attention". A path of 7 prices, 20 steps each or more, until twice as
    many close it at the same price, see `tl_dyck.finetuned_importance`; a gate that is open at the
    end counts as twice the highest. So yes for a head that is still open when the stage of 0.08
    nats ends.
    """
    metric = answer_metric(case.task)

    def run(steps: int) -> Any:
        options = FinetuneConfig(steps=steps, n_eval=64, gate_learning_rate=0.3)
        found = finetuned_importance(
            case.model, case.tokens, metric, options=options, progress=False
        )
        stage = np.where(found.removed_at < 0, -1, found.removed_at // steps)
        return np.array([*options.penalties, 2 * options.penalties[-1]])[stage]

    return doubled(run, 0.0, 5, _MOST)


@score_heads(
    above=_NATS, unit="nats after tuning", paper="after Wen et al. 2023, App. B.2", every=_EVERY
)
def leave_one_out(case: Case) -> WithError:
    """What is lost without a head after 40 steps of fine-tuning or more, beside as many with it.

    Until half of them say the same.
    """
    metric = answer_metric(case.task)

    def run(steps: int) -> Any:
        options = FinetuneConfig(steps=steps, n_eval=64)
        return leave_one_out_importance(
            case.model, case.tokens, metric, options=options, progress=False
        ).values

    return doubled(run, _NATS, 10, _MOST)
