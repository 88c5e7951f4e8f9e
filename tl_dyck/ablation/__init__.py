"""Which heads matter: when the rest of the model is frozen, and when it may adapt."""

from tl_dyck.ablation.data import MetricError, closing_accuracy, log_likelihood
from tl_dyck.ablation.frozen import MODES, HeadImportance, frozen_importance, gradient_importance

__all__ = [
    "MODES",
    "HeadImportance",
    "MetricError",
    "closing_accuracy",
    "frozen_importance",
    "gradient_importance",
    "log_likelihood",
]
