"""Which heads matter: when the rest of the model is frozen, and when it may adapt.

Knows: how a head is taken out of a model, what is lost by it, and how accounts of it compare.
Does not know: how models are trained or kept (`tl_dyck.training`, `tl_dyck.runs`), and pages
(`tl_dyck.report`).
"""

from tl_dyck.ablation.compare import Answer, ImportanceComparison, compare_importance
from tl_dyck.ablation.finetuned import FinetunedImportance, finetuned_importance
from tl_dyck.ablation.frozen import MODES, HeadImportance, frozen_importance, gradient_importance
from tl_dyck.ablation.leave_one_out import LeaveOneOutImportance, leave_one_out_importance
from tl_dyck.ablation.measure import FINETUNED, FROZEN, INTERPRETABILITY, measure_heads
from tl_dyck.ablation.metrics import MetricError, log_likelihood
from tl_dyck.ablation.patterns import attention_entropy, pattern_drift
from tl_dyck.ablation.tuning import FinetuneConfig

__all__ = [
    "FINETUNED",
    "FROZEN",
    "INTERPRETABILITY",
    "MODES",
    "Answer",
    "FinetuneConfig",
    "FinetunedImportance",
    "HeadImportance",
    "ImportanceComparison",
    "LeaveOneOutImportance",
    "MetricError",
    "attention_entropy",
    "compare_importance",
    "finetuned_importance",
    "frozen_importance",
    "gradient_importance",
    "leave_one_out_importance",
    "log_likelihood",
    "measure_heads",
    "pattern_drift",
]
