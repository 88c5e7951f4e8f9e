"""Thousands of runs: points of a grid or list, many seeds, one machine or many, whatever dies.

Knows: points and seeds, who does which run, records and their table.
Does not know: what a run does (`tl_dyck.studies`, `tl_dyck.training`, `tl_dyck.judge`).
"""

from tl_dyck.runs.execute import RunOptions, run_sweep
from tl_dyck.runs.experiments import Experiment, Job, PackedJob, experiments
from tl_dyck.runs.merge import MergeReport, merge_sweeps
from tl_dyck.runs.results import FailedRunsError, aggregate, load_results
from tl_dyck.runs.saved import load_models
from tl_dyck.runs.spec import Sweep, SweepError
from tl_dyck.runs.status import SweepStatus, sweep_status, time_left
from tl_dyck.runs.yaml_files import load_sweep

__all__ = [
    "Experiment",
    "FailedRunsError",
    "Job",
    "MergeReport",
    "PackedJob",
    "RunOptions",
    "Sweep",
    "SweepError",
    "SweepStatus",
    "aggregate",
    "experiments",
    "load_models",
    "load_results",
    "load_sweep",
    "merge_sweeps",
    "run_sweep",
    "sweep_status",
    "time_left",
]
