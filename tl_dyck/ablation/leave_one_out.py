"""What is lost without a head after the others had time to adapt."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, SupportsIndex, final

import numpy as np
import pandas as pd
import torch
from jaxtyping import Float

from tl_dyck.ablation.frozen import HEADS
from tl_dyck.ablation.metrics import Ignored, Metric, default_metric
from tl_dyck.ablation.tuning import Data, FinetuneConfig, Source, Tuner, check_options
from tl_dyck.kit.arguments import checked
from tl_dyck.kit.screen import progress_bar
from tl_dyck.plotting.plot_recipes import frame


@final
@dataclass(frozen=True, kw_only=True)
class LeaveOneOutImportance:
    """Importance of each head once the others have adapted to its absence.

    Attributes:
        values: metric of the intact model minus that of the model without the head, both fine-tuned
            for as many steps on the same batches, ``[layer, head]``.
        control: the metric of the intact model after fine-tuning.
        metric: before it.
        drift: how far the patterns of the *other* heads moved while they adapted, their mean,
            ``[layer, head]``.
        control_drift: how far each head's pattern moved when none was left out, ``[layer, head]``.
    """

    values: Float[np.ndarray, "layer head"]
    control: float
    metric: float
    drift: Float[np.ndarray, "layer head"]
    control_drift: Float[np.ndarray, "layer head"]

    def to_frame(self) -> pd.DataFrame:
        """One row per head: layer, head, importance, drift (of the others), control_drift."""
        columns = {"importance": self.values, "drift": self.drift}
        return frame(HEADS, {**columns, "control_drift": self.control_drift})

    def __repr__(self) -> str:
        rows = "; ".join(" ".join(f"{value:.3g}" for value in layer) for layer in self.values)
        return f"LeaveOneOutImportance(by layer: {rows}; metric {self.control:.4g})"


@checked
def leave_one_out_importance(
    model: Any,
    data: Data,
    metric: Metric | None = None,
    *,
    options: FinetuneConfig | None = None,
    ignore: Ignored = None,
    seed: SupportsIndex = 0,
    progress: bool = True,
) -> LeaveOneOutImportance:
    """Remove a head, one at a time, fine-tune what is left, and see what is still lost.

    The fine-tuning takes `options.steps` steps.

    The arguments are those of `finetuned_importance`.

    Raises:
        MetricError: as for `finetuned_importance`.
        TypeError: likewise.
        ValueError: likewise.
    """
    options = check_options("options", options) or FinetuneConfig()
    source = Source(model, data, ignore, options, seed)
    metric = default_metric(model, metric, source.ignore)
    shape = (model.cfg.n_layers, model.cfg.n_heads)
    before = Tuner(model, metric, source).measure(
        torch.ones(shape[0], 1, shape[1], device=model.cfg.device)
    )
    found: dict[tuple[int, ...] | None, tuple[float, np.ndarray]] = {}
    with progress_bar(progress) as shown:
        task = shown.add_task("leave one out", total=1 + math.prod(shape), note="")
        for head in (None, *np.ndindex(*shape)):
            found[head] = _without(model, metric, source, head)
            shown.update(task, advance=1, note=f"metric {found[head][0]:.4g}")
    control, control_drift = found.pop(None)
    values, others = np.empty(shape), np.empty(shape)
    for head, (after, moved) in found.items():
        values[head] = control - after
        rest = np.ones(shape, dtype=bool)
        rest[head] = False
        others[head] = moved[rest].mean() if rest.any() else np.nan
    return LeaveOneOutImportance(
        values=values,
        control=control,
        metric=before,
        drift=others,
        control_drift=control_drift,
    )


def _without(
    model: Any, metric: Metric, source: Source, head: tuple[int, ...] | None
) -> tuple[float, Float[np.ndarray, "layer head"]]:
    """Fine-tune without a head (None: with all): the metric after it, how far patterns moved."""
    factors = torch.ones(
        model.cfg.n_layers, 1, model.cfg.n_heads, device=model.cfg.device, dtype=model.cfg.dtype
    )
    if head is not None:
        # [layer, any example, head]
        factors[head[0], 0, head[1]] = 0
    tuner = Tuner(model, metric, source)
    for step in range(source.options.steps):
        tuner.step(step, factors)
    return tuner.measure(factors), tuner.drift(model, factors)
