"""What is lost without a head after the others had time to adapt."""

from __future__ import annotations

import time
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, final

import numpy as np
import pandas as pd
import torch
from jaxtyping import Float
from torch import Tensor

from tl_dyck.ablation.data import Metric, log_likelihood
from tl_dyck.ablation.frozen import scaling_hooks
from tl_dyck.ablation.patterns import pattern_drift
from tl_dyck.ablation.resume import load_state, save_state
from tl_dyck.ablation.tuning import (
    Data,
    FinetuneConfig,
    Source,
    Tuner,
    bar,
    metric_numbers,
    rounding,
)
from tl_dyck.files import ensure_folder
from tl_dyck.models.digest import weights_digest

__all__ = ["LeaveOneOutImportance", "leave_one_out_importance"]


@final
@dataclass(frozen=True, kw_only=True)
class LeaveOneOutImportance:
    """What each head is worth once the others have adapted to its absence.

    Attributes:
        values: metric of the intact model minus that of the model without the head, both fine-tuned for as many steps
            on the same batches, ``[layer, head]``; NaN for heads that time did not suffice for.
        control: the metric of the intact model after fine-tuning.
        metric: before it.
        drift: how far the patterns of the *other* heads moved while they adapted, their mean, ``[layer, head]``.
        control_drift: how far each head's pattern moved when none was left out, ``[layer, head]``.
        status: "finished" or "out of time".
    """

    values: Float[np.ndarray, "layer head"]
    control: float
    metric: float
    drift: Float[np.ndarray, "layer head"]
    control_drift: Float[np.ndarray, "layer head"]
    status: str

    def to_frame(self) -> pd.DataFrame:
        """One row per head: layer, head, importance, drift (of the others), control_drift."""
        layer, head = np.indices(self.values.shape).reshape(2, -1)
        columns = {"importance": self.values, "drift": self.drift, "control_drift": self.control_drift}
        return pd.DataFrame({"layer": layer, "head": head, **{name: value.ravel() for name, value in columns.items()}})

    def __repr__(self) -> str:
        rows = "; ".join(" ".join(f"{value:.3g}" for value in layer) for layer in self.values)
        return f"LeaveOneOutImportance({self.status}; by layer: {rows}; metric {self.control:.4g})"


def leave_one_out_importance(
    model: Any,
    data: Data,
    metric: Metric | None = None,
    *,
    options: FinetuneConfig | None = None,
    labels: Tensor | None = None,
    ignore: int | None = None,
    seed: int = 0,
    seconds: float | int | None = None,
    folder: str | Path | None = None,
    progress: bool = True,
) -> LeaveOneOutImportance:
    """Remove a head, one at a time, fine-tune what is left for `options.steps` steps, and see what is still lost.

    The arguments are those of `finetuned_importance`. A folder keeps every head that is done; `seconds` is looked at
    after each.

    Raises:
        CorruptFileError: the folder holds another run, or a damaged one.
        MetricError: as for `finetuned_importance`.
        TypeError: likewise.
        ValueError: likewise.
    """
    options = options or FinetuneConfig()
    if ignore is None and hasattr(data, "language"):
        ignore = data.language.bos_token
    metric = metric or partial(log_likelihood, ignore=ignore)
    source = Source(model, data, labels, ignore, options, seed)
    shape = (model.cfg.n_layers, model.cfg.n_heads)
    jobs: list[tuple[int, int] | None] = [
        None,
        *((layer, head) for layer in range(shape[0]) for head in range(shape[1])),
    ]
    path = None if folder is None else ensure_folder(folder)
    identity = {
        "what": "leave one out",
        "options": {**options.to_dict(), "penalties": None},
        "seed": seed,
        "model": weights_digest(model),
        "data": source.identity(),
        "ignore": ignore,
    }
    numbers = {} if path is None else metric_numbers(model, metric, source)
    saved = None
    if path is not None:
        saved = load_state(path, "leave-one-out", identity, numbers=numbers, tolerance=rounding(model))
    metrics: list[float] = [] if saved is None else list(saved[0]["metrics"])
    drifts: list[Tensor] = [] if saved is None else list(saved[1]["drifts"])
    deadline = None if seconds is None else time.monotonic() + seconds
    with bar(progress) as shown:
        task = shown.add_task("leave one out", total=len(jobs), completed=len(metrics), note="")
        while len(metrics) < len(jobs):
            metric_after, drift = _without(model, metric, source, jobs[len(metrics)])
            metrics.append(metric_after)
            drifts.append(torch.as_tensor(drift))
            shown.update(task, completed=len(metrics), note=f"metric {metric_after:.4g}")
            if path is not None:
                facts = {"step": len(metrics), "metrics": metrics}
                save_state(path, "leave-one-out", identity, facts, {"drifts": torch.stack(drifts)}, numbers=numbers)
            if deadline is not None and time.monotonic() >= deadline:
                break
    before = Tuner(model, metric, source).measure(torch.ones(shape[0], 1, shape[1], device=model.cfg.device))
    values, others = np.full(shape, np.nan), np.full(shape, np.nan)
    for job, value, moved in zip(jobs, metrics, drifts, strict=False):
        if job is not None:
            values[job] = metrics[0] - value
            rest = np.ones(shape, dtype=bool)
            rest[job] = False
            others[job] = moved.numpy()[rest].mean() if rest.any() else np.nan
    return LeaveOneOutImportance(
        values=values,
        control=metrics[0],
        metric=before,
        drift=others,
        control_drift=drifts[0].numpy(),
        status="finished" if len(metrics) == len(jobs) else "out of time",
    )


def _without(
    model: Any, metric: Metric, source: Source, head: tuple[int, int] | None
) -> tuple[float, Float[np.ndarray, "layer head"]]:
    """Fine-tune without a head (None: with all): the metric after it, and how far patterns moved."""
    factors = torch.ones(model.cfg.n_layers, 1, model.cfg.n_heads, device=model.cfg.device, dtype=model.cfg.dtype)
    if head is not None:
        factors[head[0], 0, head[1]] = 0
    tuner = Tuner(model, metric, source)
    for step in range(source.options.steps):
        tuner.step("batch", step, factors)
    hooks = scaling_hooks(factors)
    return tuner.measure(factors), pattern_drift(model, tuner.model, source.tokens, where=source.where, hooks=hooks)
