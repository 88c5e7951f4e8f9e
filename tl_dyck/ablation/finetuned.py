"""Fine-tuned importance: which heads survive when each has a price (Voita et al. 2019).

Meanwhile all weights may adapt.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, SupportsIndex, final

import numpy as np
import pandas as pd
import torch
from jaxtyping import Float, Int
from torch import Tensor

from tl_dyck.ablation.figures import gate_curves
from tl_dyck.ablation.frozen import HEADS
from tl_dyck.ablation.gates import expected_gate, final_gate, p_open, sample_gate
from tl_dyck.ablation.metrics import Ignored, Metric, default_metric
from tl_dyck.ablation.tuning import Data, FinetuneConfig, Source, Tuner, check_options, stream
from tl_dyck.kit.arguments import checked
from tl_dyck.kit.screen import progress_bar
from tl_dyck.plotting.plot_recipes import as_figure, frame

if TYPE_CHECKING:
    import plotly.graph_objects as go

_HEADS = ["step", "penalty", "layer", "head", "gate", "p_open", "expected_gate"]


@final
@dataclass(frozen=True, kw_only=True)
class FinetunedImportance:
    """Heads that survive when all others adapt, and for how long each does.

    Attributes:
        values: the expected gate, averaged over the whole sweep, ``[layer, head]``: 1 if a head
            stayed open to the end, near 0 if it was removed at once.
        removed_at: the step after which the gate (at test time) was 0 for good, ``[layer, head]``;
            -1 if it never was.
        gates: the gates at the end, at test time, ``[layer, head]``.
        path: one row per stage of the sweep: step (at its end), penalty, metric (with gates at test
            time), n_open.
        heads: one row per stage and head: gate, p_open, expected_gate, and drift, how far its
            attention patterns moved since before (see `pattern_drift`).
        trajectories: the gates every few steps: step, penalty, layer, head, log_alpha, p_open,
            expected_gate, gate.
        metric: of the model before, on the same strings as `path`.
        status: "finished" or "all heads removed".
        model: as it was at the end; its gates are not part of it (`scaling_hooks` of `gates`
            applies them).
    """

    values: Float[np.ndarray, "layer head"]
    removed_at: Int[np.ndarray, "layer head"]
    gates: Float[np.ndarray, "layer head"]
    path: pd.DataFrame
    heads: pd.DataFrame
    trajectories: pd.DataFrame
    metric: float
    status: str
    model: Any

    @property
    def removal_order(self) -> list[tuple[int, int]]:
        """The removed heads (layer, head), first removed first.

        Of those removed in one step the least open comes first.
        """
        gone = [(int(layer), int(head)) for layer, head in np.argwhere(self.removed_at >= 0)]
        return sorted(gone, key=lambda head: (self.removed_at[head], self.values[head]))

    @property
    def drift(self) -> Float[np.ndarray, "layer head"]:
        """Distance each head's pattern had moved at its last open stage; NaN if it had none."""
        found = np.full(self.values.shape, np.nan)
        for row in self.heads[self.heads["gate"] > 0].itertuples():
            found[row.layer, row.head] = row.drift
        return found

    def plot(self) -> go.Figure:
        """The pruning path: every gate against the steps of the sweep."""
        below = "above: penalty of the stage, metric at its end"
        title = f"Gates as the penalty rises<br><sup>{below}</sup>"
        figure = as_figure([gate_curves(self.trajectories, title="gates", of="the model")], title)
        for row in self.path.itertuples():
            text = f"{row.penalty:g}: {row.metric:.3f}"
            # just above the plot, at the end of the stage
            figure.add_annotation(
                x=row.step, y=1.02, yref="paper", text=text, showarrow=False, xanchor="right"
            )
        return figure

    def __repr__(self) -> str:
        rows = "; ".join(" ".join(f"{value:.2f}" for value in layer) for layer in self.values)
        return f"FinetunedImportance({self.status}; mean expected gate by layer: {rows})"


@checked
def finetuned_importance(
    model: Any,
    data: Data,
    metric: Metric | None = None,
    *,
    options: FinetuneConfig | None = None,
    ignore: Ignored = None,
    seed: SupportsIndex = 0,
    progress: bool = True,
) -> FinetunedImportance:
    """Gate every head, let all weights adapt, and raise the price of open gates until few are left.

    The objective is ``mean metric − λ Σ_h P(gate_h > 0)`` over weights and gates, with one
    hard-concrete gate per head (`tl_dyck.ablation.gates`), drawn anew for every example,
    multiplying its output z. The penalty λ rises stage by stage, each going on from the one before,
    so the stages are one pruning path. Voita et al. 2019 train one model per penalty instead; a
    path costs as much as one of these and gives an order of removal.

    Args:
        model: any HookedTransformer; not changed. Weights that do not require a gradient stay.
        data: tokens ``[batch, pos]``; a task, of which fresh strings are drawn for every
            step; or a function ``sample(n, generator) -> tokens`` that draws them.
        metric: differentiable, see `frozen_importance`; None for `log_likelihood`.
        options: the sweep, see `FinetuneConfig`.
        ignore: the token or tokens that are no symbols of a string, BOS and filling; ``()`` if all
            are. They are not predicted (by the metric None), nor do patterns count there. None for
            those of the task or of the model's vocabulary, see `frozen_importance`.
        seed: of batches and gates.
        progress: whether to show a progress bar.

    Raises:
        MetricError: the metric has another shape than one number per example, no gradient, or
            became NaN.
        TypeError: not a HookedTransformer, or data that is no token ids.
        VocabularyError: nobody says which positions are real.
        ValueError: no attention heads, or data that the model cannot read.
    """
    options = check_options("options", options) or FinetuneConfig()
    source = Source(model, data, ignore, options, seed)
    shape, device = (model.cfg.n_layers, model.cfg.n_heads), model.cfg.device
    # log α in float64: a few numbers, and gates must close exactly
    log_alpha = torch.full(shape, float(options.log_alpha), dtype=torch.float64, device=device)
    log_alpha.requires_grad_(True)
    tuner = Tuner(model, default_metric(model, metric, source.ignore), source, log_alpha)
    before = tuner.measure(torch.ones(shape[0], 1, shape[1], device=device))
    # the sum of expected gates over all steps, whose mean is the importance
    area, last_open = torch.zeros(shape, dtype=torch.float64), torch.zeros(shape, dtype=torch.int64)
    trajectories = [_gates(log_alpha, 0, options.penalties[0])]
    path: list[dict[str, Any]] = []
    heads: list[pd.DataFrame] = []
    penalties, status, note = np.repeat(options.penalties, options.steps), "finished", ""
    with progress_bar(progress) as shown:
        task = shown.add_task("gates", total=len(penalties), note="")
        for done, penalty in enumerate(penalties.tolist(), start=1):
            gate = _step(tuner, log_alpha, done - 1, penalty)
            area += expected_gate(log_alpha.detach()).cpu()
            last_open[gate > 0] = done
            n_open = int((gate > 0).sum())
            ends = not n_open or done % options.steps == 0
            if ends or done % options.log_every == 0:
                trajectories.append(_gates(log_alpha, done, penalty))
            if ends:
                factors = gate.to(device, model.cfg.dtype)[:, None]
                moved = tuner.drift(model, factors)
                reached = tuner.measure(factors)
                path.append({"step": done, "penalty": penalty, "metric": reached, "n_open": n_open})
                heads.append(trajectories[-1][_HEADS].assign(drift=moved.ravel()))
                note = f", metric {reached:.4g}"
            said = f"penalty {penalty:g}: {n_open} of {gate.numel()} heads open{note}"
            shown.update(task, completed=done, note=said)
            if not n_open:
                status = "all heads removed"
                break
        shown.update(task, completed=len(penalties))
    return FinetunedImportance(
        values=(area / len(penalties)).numpy(),  # once all heads are gone they stay so
        removed_at=np.where(gate > 0, -1, last_open.numpy()),
        gates=gate.numpy(),
        path=pd.DataFrame(path),
        heads=pd.concat(heads, ignore_index=True),
        trajectories=pd.concat(trajectories, ignore_index=True),
        metric=before,
        status=status,
        model=tuner.model,
    )


@torch.enable_grad()  # the gates' too, wherever they are rounded
def _step(
    tuner: Tuner, log_alpha: Float[Tensor, "layer head"], index: int, penalty: float
) -> Float[Tensor, "layer head"]:
    """One update of weights and gates; returns the gates as they are at test time."""
    options = tuner.source.options
    uniform = torch.rand(
        log_alpha.shape[0],
        options.batch_size,
        log_alpha.shape[1],
        generator=stream(tuner.source.seed, "gates", index),
        dtype=torch.float64,
    )
    gates = sample_gate(log_alpha[:, None], uniform.to(log_alpha.device))
    price = penalty * p_open(log_alpha).sum()
    tuner.step(index, gates.to(tuner.model.cfg.dtype), price)
    with torch.no_grad():  # or a gate that was long wanted would take long to close
        log_alpha.clamp_(max=options.log_alpha)
    return final_gate(log_alpha.detach()).cpu()


def _gates(log_alpha: Float[Tensor, "layer head"], step: int, penalty: float) -> pd.DataFrame:
    """The gates as they are now, a row per head."""
    now = log_alpha.detach().cpu()
    values = {
        "log_alpha": now,
        "p_open": p_open(now),
        "expected_gate": expected_gate(now),
        "gate": final_gate(now),
    }
    gates = frame(HEADS, values)
    gates.insert(0, "penalty", penalty)
    gates.insert(0, "step", step)
    return gates
