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
from tl_dyck.ablation.frozen import HEADS, scaling_hooks
from tl_dyck.ablation.gates import closed_below, expected_gate, final_gate, p_open, sample_gate
from tl_dyck.ablation.metrics import Metric
from tl_dyck.ablation.patterns import pattern_drift
from tl_dyck.ablation.positions import Ignored, default_metric
from tl_dyck.ablation.tuning import Data, FinetuneConfig, Source, Tuner, check_options, stream
from tl_dyck.recipes import as_figure, frame
from tl_dyck.screen import progress_bar

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
            figure.add_annotation(
                x=row.step, y=1.02, yref="paper", text=text, showarrow=False, xanchor="right"
            )
        return figure

    def __repr__(self) -> str:
        rows = "; ".join(" ".join(f"{value:.2f}" for value in layer) for layer in self.values)
        return f"FinetunedImportance({self.status}; mean expected gate by layer: {rows})"


def finetuned_importance(
    model: Any,
    data: Data,
    metric: Metric | None = None,
    *,
    options: FinetuneConfig | None = None,
    labels: Tensor | None = None,
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
        labels: as for `frozen_importance`, if data is tokens.
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
    source = Source(model, data, labels, ignore, options, seed)
    run = _GateRun(model, default_metric(model, metric, source.ignore), source)
    with progress_bar(progress) as shown:
        task = shown.add_task("gates", total=run.total, note="")
        while not run.status:
            run.advance()
            shown.update(task, completed=run.done, note=run.note())
        shown.update(task, completed=run.total)
    return run.result()


@final
class _GateRun:
    """The state of a pruning path between two steps."""

    def __init__(self, model: Any, metric: Metric, source: Source) -> None:
        self.options, self.source, self.before = source.options, source, model
        shape = (model.cfg.n_layers, model.cfg.n_heads)
        # log α in float64: a few numbers, and gates must close exactly
        self.log_alpha = torch.full(
            shape, float(self.options.log_alpha), dtype=torch.float64, device=model.cfg.device
        )
        self.log_alpha.requires_grad_(True)
        self.tuner = Tuner(model, metric, source, self.log_alpha)
        self.done, self.total = 0, self.options.steps * len(self.options.penalties)
        self.status = ""
        self.area = torch.zeros(shape, dtype=torch.float64)
        self.last_open = torch.zeros(shape, dtype=torch.int64)
        self.trajectories: list[pd.DataFrame] = []
        self.path: list[dict[str, Any]] = []
        self.heads: list[pd.DataFrame] = []
        self.metric = self.tuner.measure(torch.ones(shape[0], 1, shape[1], device=model.cfg.device))

    @property
    def penalty(self) -> float:
        """Of the step to come, or the last one."""
        return self.options.penalties[min(self.done, self.total - 1) // self.options.steps]

    def advance(self) -> None:
        """Make one step, and note what there is to note."""
        n_layers, n_heads = self.log_alpha.shape
        penalty = self.penalty
        if self.done == 0:
            self.trajectories.append(self._gates(penalty))
        uniform = torch.rand(
            n_layers,
            self.options.batch_size,
            n_heads,
            generator=stream(self.source.seed, "gates", self.done),
            dtype=torch.float64,
        )
        with torch.enable_grad():
            gates = sample_gate(self.log_alpha[:, None], uniform.to(self.log_alpha.device))
            price = penalty * p_open(self.log_alpha).sum()
        self.tuner.step("batch", self.done, gates.to(self.before.cfg.dtype), price)
        self.done += 1
        with torch.no_grad():  # or a gate that was long wanted would take long to close
            self.log_alpha.clamp_(max=self.options.log_alpha)
        log_alpha = self.log_alpha.detach()
        gate = final_gate(log_alpha).cpu()
        self.area += expected_gate(log_alpha).cpu()
        self.last_open[gate > 0] = self.done
        gone = not bool((gate > 0).any())
        ends = self.done % self.options.steps == 0
        if ends or gone or self.done % self.options.log_every == 0:
            self.trajectories.append(self._gates(penalty))
        if ends or gone:
            self._stage(penalty, gate)
        if gone:
            self.status = "all heads removed"
        elif self.done == self.total:
            self.status = "finished"

    def _stage(self, penalty: float, gate: Tensor) -> None:
        """Append this stage's metric and the drift of its heads to `path` and `heads`."""
        factors = gate.to(self.log_alpha.device, self.before.cfg.dtype)[:, None]
        tokens, where = self.source.tokens, self.source.where
        drift = pattern_drift(
            self.before, self.tuner.model, tokens, where=where, hooks=scaling_hooks(factors)
        )
        facts = {"step": self.done, "penalty": penalty, "metric": self.tuner.measure(factors)}
        self.path.append({**facts, "n_open": int((gate > 0).sum())})
        self.heads.append(self.trajectories[-1][_HEADS].assign(drift=drift.ravel()))

    def _gates(self, penalty: float) -> pd.DataFrame:
        """The gates as they are now, a row per head."""
        log_alpha = self.log_alpha.detach().cpu()
        values = {
            "log_alpha": log_alpha,
            "p_open": p_open(log_alpha),
            "expected_gate": expected_gate(log_alpha),
            "gate": final_gate(log_alpha),
        }
        gates = frame(HEADS, values)
        gates.insert(0, "penalty", penalty)
        gates.insert(0, "step", self.done)
        return gates

    def note(self) -> str:
        """For the progress bar."""
        n_open = int((self.log_alpha.detach() > closed_below()).sum())
        reached = f", metric {self.path[-1]['metric']:.4g}" if self.path else ""
        return f"penalty {self.penalty:g}: {n_open} of {self.log_alpha.numel()} heads open{reached}"

    def result(self) -> FinetunedImportance:
        """Build the result; once all heads are gone they stay so."""
        gate = final_gate(self.log_alpha.detach()).cpu().numpy()
        return FinetunedImportance(
            values=(self.area / self.total).numpy(),
            removed_at=np.where(gate > 0, -1, self.last_open.numpy()),
            gates=gate,
            path=pd.DataFrame(self.path),
            heads=pd.concat(self.heads, ignore_index=True),
            trajectories=pd.concat(self.trajectories, ignore_index=True),
            metric=self.metric,
            status=self.status,
            model=self.tuner.model,
        )
