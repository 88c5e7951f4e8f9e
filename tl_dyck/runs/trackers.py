"""Experiment trackers, off unless asked for."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import Any

from tl_dyck.errors import DyckError
from tl_dyck.runs.store import RESERVED


class TrackerError(DyckError, ValueError):
    """What Weights & Biases refuses; the message has its reason."""


@contextlib.contextmanager
def wandb_tracker(project: str, **init: Any) -> Iterator[Callable[[dict[str, Any]], None]]:
    """Send results to Weights & Biases as they come: a W&B run per sweep, a step per run of it.

    A W&B run for every run of a sweep would meet the service's rate limits, and what a sweep knows
    is in its own table in any case. ``WANDB_MODE=offline`` keeps everything on this machine.

    Args:
        project: of Weights & Biases.
        **init: of `wandb.init`: name, group, tags, mode, ….

    Yields:
        A function for `run_sweep`'s `on_result`.

    Raises:
        ImportError: wandb is not installed (TransformerLens brings it).
        TrackerError: it does not take the project.
    """
    import wandb

    try:
        run = wandb.init(project=project, **init)
    except wandb.Error as error:  # such as a name with a slash
        raise TrackerError(f"Weights & Biases refuses the project {project!r}: {error}") from error
    counts, status = {"done": 0, "failed": 0}, 1
    try:  # not `with run`, which prints the traceback of whatever ends it

        def on_result(row: dict[str, Any]) -> None:
            counts[row["status"]] += 1
            values = {
                name: value
                for name, value in row.items()
                if name not in RESERVED and value is not None
            }
            run.log({**values, "seed": row["seed"], "seconds": row["seconds"], **counts})

        yield on_result
        status = 0
    finally:
        run.finish(exit_code=status)
