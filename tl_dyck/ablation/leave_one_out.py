"""What is lost without a head after the others had time to adapt."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any, final

import numpy as np
import pandas as pd
import torch
from jaxtyping import Float
from torch import Tensor

from tl_dyck.ablation.frozen import scaling_hooks
from tl_dyck.ablation.job import Job
from tl_dyck.ablation.metrics import Metric
from tl_dyck.ablation.patterns import pattern_drift
from tl_dyck.ablation.tuning import Data, FinetuneConfig, Source, Tuner
from tl_dyck.screen import progress_bar

__all__ = ["LeaveOneOutImportance", "leave_one_out_importance"]


@final
@dataclass(frozen=True, kw_only=True)
class LeaveOneOutImportance:
    """Importance of each head once the others have adapted to its absence.

    Attributes:
        values: metric of the intact model minus that of the model without the head, both fine-tuned
            for as many steps on the same batches, ``[layer, head]``; NaN for heads that time did
            not suffice for.
        control: the metric of the intact model after fine-tuning.
        metric: before it.
        drift: how far the patterns of the *other* heads moved while they adapted, their mean,
            ``[layer, head]``.
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
        columns = {
            "importance": self.values,
            "drift": self.drift,
            "control_drift": self.control_drift,
        }
        return pd.DataFrame(
            {
                "layer": layer,
                "head": head,
                **{name: value.ravel() for name, value in columns.items()},
            }
        )

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
    """Remove a head, one at a time, fine-tune what is left, and see what is still lost.

    The fine-tuning takes `options.steps` steps.

    The arguments are those of `finetuned_importance`. A folder keeps every head that is done;
    `seconds` is looked at after each.

    Raises:
        CorruptFileError: the folder holds another run, or a damaged one.
        MetricError: as for `finetuned_importance`.
        TypeError: likewise.
        ValueError: likewise.
    """
    job = Job(
        "leave one out", model, data, metric, options=options, labels=labels, ignore=ignore,
        seed=seed, seconds=seconds, folder=folder, unused=["penalties"],
    )  # fmt: skip
    shape = (model.cfg.n_layers, model.cfg.n_heads)
    removed: list[tuple[int, int] | None] = [
        None,
        *((layer, head) for layer, head in np.ndindex(*shape)),
    ]
    metrics: list[float] = [] if job.saved is None else list(job.saved[0]["metrics"])
    drifts: list[Tensor] = [] if job.saved is None else list(job.saved[1]["drifts"])
    with progress_bar(progress) as shown:
        task = shown.add_task("leave one out", total=len(removed), completed=len(metrics), note="")
        while len(metrics) < len(removed):
            metric_after, drift = _without(model, job.metric, job.source, removed[len(metrics)])
            metrics.append(metric_after)
            drifts.append(torch.as_tensor(drift))
            shown.update(task, completed=len(metrics), note=f"metric {metric_after:.4g}")
            job.save({"step": len(metrics), "metrics": metrics}, {"drifts": torch.stack(drifts)})
            if job.is_late:
                break
    before = Tuner(model, job.metric, job.source).measure(
        torch.ones(shape[0], 1, shape[1], device=model.cfg.device)
    )
    values, others = np.full(shape, np.nan), np.full(shape, np.nan)
    for head, value, moved in zip(removed, metrics, drifts, strict=False):
        if head is not None:
            values[head] = metrics[0] - value
            rest = np.ones(shape, dtype=bool)
            rest[head] = False
            others[head] = moved.numpy()[rest].mean() if rest.any() else np.nan
    return LeaveOneOutImportance(
        values=values,
        control=metrics[0],
        metric=before,
        drift=others,
        control_drift=drifts[0].numpy(),
        status="finished" if len(metrics) == len(removed) else "out of time",
    )


def _without(
    model: Any, metric: Metric, source: Source, head: tuple[int, int] | None
) -> tuple[float, Float[np.ndarray, "layer head"]]:
    """Fine-tune without a head (None: with all): the metric after it, how far patterns moved."""
    factors = torch.ones(
        model.cfg.n_layers, 1, model.cfg.n_heads, device=model.cfg.device, dtype=model.cfg.dtype
    )
    if head is not None:
        factors[head[0], 0, head[1]] = 0
    tuner = Tuner(model, metric, source)
    for step in range(source.options.steps):
        tuner.step("batch", step, factors)
    hooks = scaling_hooks(factors)
    return tuner.measure(factors), pattern_drift(
        model, tuner.model, source.tokens, where=source.where, hooks=hooks
    )
