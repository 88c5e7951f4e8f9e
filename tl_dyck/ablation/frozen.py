"""Frozen importance: what a model loses when a head is disabled (Michel et al. 2019).

Everything else stays.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, final

import numpy as np
import pandas as pd
import torch
from einops import rearrange
from jaxtyping import Bool, Float, Int
from torch import Tensor

from tl_dyck.ablation.metrics import (
    Metric,
    check_model,
    check_tokens,
    evaluate,
    log_likelihood,
    rows_per_pass,
)
from tl_dyck.ablation.replay import Replay
from tl_dyck.models.lean import LeanTail
from tl_dyck.registry import unknown_name

__all__ = ["MODES", "HeadImportance", "frozen_importance", "gradient_importance"]

#: What a head is replaced by.
MODES = ("zero", "mean", "resample", "uniform-pattern")


@final
@dataclass(frozen=True, kw_only=True)
class HeadImportance:
    """Importance of each head, in units of the metric.

    Attributes:
        mode: one of `MODES`, or "gradient".
        per_example: the drop of the metric (baseline minus ablated), ``[layer, head, example]``;
            with "gradient", the size of the derivative.
        baseline: the metric of the intact model, ``[example]``.
    """

    mode: str
    per_example: Float[np.ndarray, "layer head example"]
    baseline: Float[np.ndarray, " example"]

    @property
    def values(self) -> Float[np.ndarray, "layer head"]:
        """The mean over examples."""
        found: np.ndarray = self.per_example.mean(-1)
        return found

    @property
    def standard_error(self) -> Float[np.ndarray, "layer head"]:
        """Of `values`, over examples; NaN for one example."""
        n = len(self.baseline)
        if n < 2:
            return np.full(self.per_example.shape[:2], np.nan)
        found: np.ndarray = self.per_example.std(-1, ddof=1) / math.sqrt(n)
        return found

    def to_frame(self) -> pd.DataFrame:
        """One row per head: layer, head, importance, standard_error, mode."""
        layer, head = np.indices(self.values.shape).reshape(2, -1)
        values, error = self.values.ravel(), self.standard_error.ravel()
        return pd.DataFrame(
            {
                "layer": layer,
                "head": head,
                "importance": values,
                "standard_error": error,
                "mode": self.mode,
            }
        )

    def __repr__(self) -> str:
        rows = "; ".join(" ".join(f"{value:.3g}" for value in layer) for layer in self.values)
        return f"HeadImportance({self.mode}, by layer: {rows}; metric {self.baseline.mean():.4g})"


def frozen_importance(
    model: Any,
    data: Int[Tensor, "batch pos"],
    metric: Metric = log_likelihood,
    mode: str = "zero",
    *,
    labels: Tensor | None = None,
    where: Bool[Tensor, "batch pos"] | None = None,
    chunk: int | None = None,
    seed: int = 0,
) -> HeadImportance:
    """Measure the drop of a metric when one head at a time is disabled and all else stays.

    A head's output z (`hook_z`) is replaced by

    - "zero": 0, which is the same as removing the head's slice of W_O;
    - "mean": its mean over examples and positions of the data;
    - "resample": its z on another example of the data, at the same position;
    - "uniform-pattern": what it puts out if its pattern (`hook_pattern`) is uniform over the
      positions it may attend to: what the head *reads*, without where it looks.

    All else follows from that in one more forward pass, of which only what comes after the head's
    attention layer is computed (see `tl_dyck.ablation.replay`). A head that changes nothing in its
    layer's attention output, such as a decoy, has importance exactly 0.

    Args:
        model: any HookedTransformer; not changed, and hooks that it has take part.
        data: token ids, as the model reads them (BOS included).
        metric: ``metric(logits, tokens)``, or ``metric(logits, tokens, labels)`` if there are
            labels, returns one number per example of the batch that it is given; larger is better.
        mode: see above.
        labels: anything the metric needs to know of each example, first dimension as the data.
        where: the positions over which "mean" takes the mean, so that filling can be left out; None
            for all.
        chunk: strings per forward pass, which bounds the memory: about ``chunk × pos ×
            (d_vocab + layers × (2 d_model + heads × d_head))`` numbers. Data and heads are stacked
            up to this. None for what is quick: on a CPU little.
        seed: of the pairing that "resample" draws: one cycle through all examples, so none is
            paired with itself.

    Raises:
        MetricError: the metric returned another shape than one number per example, or NaN.
        TypeError: not a HookedTransformer, or data that is no token ids.
        UnknownNameError: no such mode.
        ValueError: no attention heads; data that is empty, too long for the model, or out of its
            vocabulary; one example only, where "resample" needs another.
    """
    if mode not in MODES:
        raise unknown_name("mode", mode, MODES)
    check_model(model)
    check_tokens(model, data, labels, where)
    if mode == "resample" and len(data) < 2:
        raise ValueError(
            "mode 'resample' replaces a head's output by that on another example: give at least two"
        )
    device = model.cfg.device
    rows = rows_per_pass(model, data.shape[1], chunk)
    means = _mean_z(model, data, where, rows) if mode == "mean" else None
    partners = _cycle(len(data), seed) if mode == "resample" else None
    n_layers, n_heads = model.cfg.n_layers, model.cfg.n_heads
    drops = torch.zeros(n_layers, n_heads, len(data), dtype=torch.float64)
    baseline = torch.zeros(len(data), dtype=torch.float64)
    lean = LeanTail(model) if LeanTail.fits(model) else None
    for batch in torch.arange(len(data)).split(rows):
        tokens = data[batch].to(device)
        told = None if labels is None else labels[batch].to(device)
        replay = Replay(model, tokens, uniform=mode == "uniform-pattern", lean=lean)
        other = None if partners is None else Replay(model, data[partners[batch]].to(device)).z
        before = evaluate(metric, replay.logits, tokens, told)
        baseline[batch] = before.cpu()
        for layer, heads in _groups(n_layers, n_heads, max(1, rows // len(batch))):
            if mode == "uniform-pattern":
                z = replay.uniform_z[layer][:, :, heads]
            elif other is not None:
                z = other[layer][:, :, heads]
            else:
                z = (
                    torch.zeros_like(replay.z[layer][:1, :1, heads])
                    if means is None
                    else means[layer][None, None, heads]
                )
            change = replay.change(layer, heads, z)
            alive = [index for index in range(len(heads)) if bool((change[index] != 0).any())]
            if not alive:
                continue  # the same model: rounding aside, nothing could differ
            for index, logits in zip(alive, replay.run(layer, change[alive]), strict=True):
                what = f"the model without head {heads[index]} of layer {layer}"
                after = evaluate(metric, logits, tokens, told, what)
                drops[layer, heads[index], batch] = (before - after).cpu()
    return HeadImportance(mode=mode, per_example=drops.numpy(), baseline=baseline.numpy())


def gradient_importance(
    model: Any,
    data: Int[Tensor, "batch pos"],
    metric: Metric = log_likelihood,
    *,
    labels: Tensor | None = None,
    chunk: int | None = None,
) -> HeadImportance:
    """Michel et al. 2019, Eq. 4: ``E_x |∂L(x)/∂ξ_h|``; ξ_h = 1 multiplies the output of head h.

    One backward pass for all heads. It is a first-order estimate of the size of the effect of
    removing a head, without sign; Michel et al. further divide by each layer's norm, which is left
    to the caller.

    Args:
        model: any HookedTransformer.
        data: token ids.
        metric: as for `frozen_importance`, and differentiable.
        labels: likewise.
        chunk: strings per pass.

    Raises:
        MetricError: as for `frozen_importance`, or the metric has no gradient.
        TypeError: not a HookedTransformer, or data that is no token ids.
        ValueError: as for `frozen_importance`.
    """
    check_model(model)
    check_tokens(model, data, labels)
    n_layers, n_heads = model.cfg.n_layers, model.cfg.n_heads
    sizes, baseline = [], []
    rows = max(
        1, rows_per_pass(model, data.shape[1], chunk) // (1 if chunk else 4)
    )  # a graph takes more memory
    for batch in torch.arange(len(data)).split(rows):
        tokens = data[batch].to(model.cfg.device)
        told = None if labels is None else labels[batch].to(model.cfg.device)
        xi = torch.ones(
            n_layers,
            len(batch),
            n_heads,
            device=tokens.device,
            dtype=model.cfg.dtype,
            requires_grad=True,
        )
        with torch.enable_grad():
            logits = model.run_with_hooks(tokens, return_type="logits", fwd_hooks=scaling_hooks(xi))
            values = evaluate(metric, logits, tokens, told, differentiable=True)
            (gradient,) = torch.autograd.grad(values.sum(), [xi])
        sizes.append(
            rearrange(gradient.abs(), "layer batch head -> layer head batch").double().cpu()
        )
        baseline.append(values.detach().cpu())
    return HeadImportance(
        mode="gradient",
        per_example=torch.cat(sizes, -1).numpy(),
        baseline=torch.cat(baseline).numpy(),
    )


def scaling_hooks(factors: Float[Tensor, "layer #batch head"]) -> list[tuple[str, Any]]:
    """Hooks that multiply the output z of every head by a factor."""

    def scale(layer: int) -> Any:
        def hook(z: Tensor, hook: Any) -> Tensor:
            return z * factors[layer][:, None, :, None]

        return hook

    return [(f"blocks.{layer}.attn.hook_z", scale(layer)) for layer in range(len(factors))]


def _groups(n_layers: int, n_heads: int, size: int) -> Iterator[tuple[int, list[int]]]:
    """Layers with some of their heads, `size` at most."""
    for layer in range(n_layers):
        for start in range(0, n_heads, size):
            yield layer, list(range(start, min(start + size, n_heads)))


def _mean_z(
    model: Any, data: Int[Tensor, "batch pos"], where: Bool[Tensor, "batch pos"] | None, rows: int
) -> list[Float[Tensor, "head d_head"]]:
    """Per layer, the mean of z over the marked positions of all examples."""
    sums: list[Tensor] = []
    marked = torch.ones_like(data, dtype=torch.bool) if where is None else where
    for batch in torch.arange(len(data)).split(rows):
        z = Replay(model, data[batch].to(model.cfg.device)).z
        here = marked[batch].to(z[0].device)
        found = [layer[here].double().sum(0) for layer in z]
        sums = [a + b for a, b in zip(sums, found, strict=True)] if sums else found
    return [(total / int(marked.sum())).to(model.cfg.dtype) for total in sums]


def _cycle(n: int, seed: int) -> Int[Tensor, " n"]:
    """A partner for every example: the next one on a random cycle through all."""
    order = torch.randperm(n, generator=torch.Generator().manual_seed(seed))
    partner = torch.empty_like(order)
    partner[order] = order.roll(-1)
    return partner
