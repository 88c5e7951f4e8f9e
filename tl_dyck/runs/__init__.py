"""Thousands of runs: points of a grid or list, many seeds, one machine or many, whatever dies.

Knows: points and seeds, who does which run, records and their table.
Does not know: what a run does (`tl_dyck.studies`, `tl_dyck.training`, `tl_dyck.judge`).
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from tl_dyck.runs.experiments import Experiment, Job, PackedJob, experiments
from tl_dyck.runs.spec import Sweep, SweepError, load_sweep

if TYPE_CHECKING:
    from tl_dyck.runs.execute import RunOptions, run_sweep
    from tl_dyck.runs.merge import MergeReport, merge_sweeps
    from tl_dyck.runs.results import FailedRunsError, aggregate, load_results
    from tl_dyck.runs.saved import load_models
    from tl_dyck.runs.status import SweepStatus, sweep_status, time_left

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

# What a sweep's file says is read without torch and pandas, which these need.
_LATER = {
    "execute": ("RunOptions", "run_sweep"),
    "merge": ("MergeReport", "merge_sweeps"),
    "results": ("FailedRunsError", "aggregate", "load_results"),
    "saved": ("load_models",),
    "status": ("SweepStatus", "sweep_status", "time_left"),
}

if not TYPE_CHECKING:  # type checkers would take it as "every name exists", and miss typos

    def __getattr__(name: str) -> Any:
        """Import what carries out and reads runs on first use."""
        for module, names in _LATER.items():
            if name in names:
                return getattr(import_module(f"{__name__}.{module}"), name)
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")

    def __dir__() -> list[str]:
        """List what tab completion should offer, loaded or not."""
        return sorted({*globals(), *__all__})
