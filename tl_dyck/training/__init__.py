"""Training: one model, many seeds, checkpoints that survive a kill.

Knows: schedules, batches, steps of one model or several, checkpoints.
Does not know: sweeps, and what is measured afterwards (`tl_dyck.runs`, `tl_dyck.studies`).
"""

from tl_dyck.training.checkpoint import CheckpointError, load_result
from tl_dyck.training.config import TrainConfig, TrainResult
from tl_dyck.training.contrastive import ContrastiveRegularizer
from tl_dyck.training.drift import DriftRegularizer
from tl_dyck.training.loop import train
from tl_dyck.training.seeds import train_seeds

__all__ = [
    "CheckpointError",
    "ContrastiveRegularizer",
    "DriftRegularizer",
    "TrainConfig",
    "TrainResult",
    "load_result",
    "train",
    "train_seeds",
]
