"""Thousands of runs: every point of a grid or list, with many seeds each, on one machine or many, whatever dies."""

from tl_dyck.sweep.backends import BACKENDS
from tl_dyck.sweep.execute import SweepReport, run_sweep
from tl_dyck.sweep.experiments import Experiment, PackedExperiment, TrainExperiment, experiments
from tl_dyck.sweep.merge import MergeReport, merge_sweeps
from tl_dyck.sweep.results import (
    SweepStatus,
    aggregate,
    load_models,
    load_results,
    sweep_status,
)
from tl_dyck.sweep.spec import Sweep, SweepError, load_sweep

__all__ = [
    "BACKENDS",
    "Experiment",
    "MergeReport",
    "PackedExperiment",
    "Sweep",
    "SweepError",
    "SweepReport",
    "SweepStatus",
    "TrainExperiment",
    "aggregate",
    "experiments",
    "load_models",
    "load_results",
    "load_sweep",
    "merge_sweeps",
    "run_sweep",
    "sweep_status",
]
