"""Frozen importance: what a model loses when a head is disabled (Michel et al. 2019).

Everything else stays.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from itertools import product
from typing import Any, SupportsIndex, final

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
    default_metric,
    evaluate,
    real_positions,
    rows_per_pass,
)
from tl_dyck.ablation.replay import Replay
from tl_dyck.kit.arguments import checked
from tl_dyck.kit.check import check_seed
from tl_dyck.kit.registry import unknown_name
from tl_dyck.models.lean import LeanTail
from tl_dyck.plotting.plot_recipes import frame

#: Axes of what there is one number of for each head, see `frame`.
HEADS = [("layer", 0), ("head", 0)]
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
        # ddof 1: of a sample, not of all examples there are
        found: np.ndarray = self.per_example.std(-1, ddof=1) / math.sqrt(n)
        return found

    def to_frame(self) -> pd.DataFrame:
        """One row per head: layer, head, importance, standard_error, mode."""
        columns = {"importance": self.values, "standard_error": self.standard_error}
        return frame(HEADS, {**columns, "mode": self.mode})

    def __repr__(self) -> str:
        rows = "; ".join(" ".join(f"{value:.3g}" for value in layer) for layer in self.values)
        return f"HeadImportance({self.mode}, by layer: {rows}; metric {self.baseline.mean():.4g})"


@checked
def frozen_importance(
    model: Any,
    data: Int[Tensor, "batch pos"],
    metric: Metric | None = None,
    mode: str = "zero",
    *,
    where: Bool[Tensor, "batch pos"] | None = None,
    seed: SupportsIndex = 0,
) -> HeadImportance:
    """Measure the drop of a metric when one head at a time is disabled and all else stays.

    A head's output z (`hook_z`) is replaced by

    - "zero": 0, which is the same as removing the head's slice of W_O;
    - "mean": its mean over the real positions of all examples, at every position;
    - "resample": its z on another example that is real at the same position, or, if no other is so
      long, at the nearest where one is; at positions that are not real it stays;
    - "uniform-pattern": what it puts out if its pattern (`hook_pattern`) is uniform over the
      positions it may attend to: what the head *reads*, without where it looks.

    A position is real if its token is a symbol of the string: neither BOS, which is no part of any
    string, nor what fills up short ones (`tl_dyck.ablation.metrics`). Both are known of models of
    a language and of models with a tokenizer; of others say it with `where`.

    All else follows from that in one more forward pass (see `tl_dyck.ablation.replay`). A head that
    changes nothing in its layer's attention output, such as a decoy, has importance exactly 0.

    Args:
        model: any HookedTransformer; not changed, and hooks that it has take part.
        data: token ids, as the model reads them (BOS included).
        metric: ``metric(logits, tokens)`` returns one number per example of the batch that it is
            given; larger is better. None for `log_likelihood` of real tokens.
        mode: see above.
        where: the real positions, from which "mean" and "resample" take what they put in; None for
            those of the model's vocabulary.
        seed: of the pairing that "resample" draws: at each position one cycle through all examples
            that are real there, so none is paired with itself and each is used once.

    Raises:
        MetricError: the metric returned another shape than one number per example, or NaN.
        TypeError: not a HookedTransformer, or data that is no token ids.
        UnknownNameError: no such mode.
        VocabularyError: nobody says which positions are real, and it matters: for "mean",
            "resample" and the metric None.
        ValueError: no attention heads; data that is empty, too long for the model, or out of its
            vocabulary; one example only, where "resample" needs another.
    """
    if not isinstance(mode, str) or mode not in MODES:
        raise unknown_name("mode", mode, MODES)
    check_model(model)
    check_tokens(model, data, where)
    metric, seed = default_metric(model, metric), check_seed(seed)
    device = model.cfg.device
    rows = rows_per_pass(model, data.shape[1])
    real = real_positions(model, data, where) if mode in ("mean", "resample") else None
    means = _mean_z(model, data, real, rows) if real is not None and mode == "mean" else None
    sources = partners(real, seed) if real is not None and mode == "resample" else None
    n_layers, n_heads = model.cfg.n_layers, model.cfg.n_heads
    drops = torch.zeros(n_layers, n_heads, len(data), dtype=torch.float64)
    baseline = torch.zeros(len(data), dtype=torch.float64)
    lean = LeanTail(model) if LeanTail.fits(model) else None
    for batch in torch.arange(len(data)).split(rows):
        tokens = data[batch].to(device)
        replay = Replay(model, tokens, uniform=mode == "uniform-pattern", lean=lean)
        other = None
        if sources is not None:
            other = _resampled(model, data, sources[0][batch], sources[1][batch], rows)
        before = evaluate(metric, replay.logits, tokens)
        baseline[batch] = before.cpu()
        # heads are replaced side by side where the batch leaves room
        size = max(1, rows // len(batch))
        for layer, start in product(range(n_layers), range(0, n_heads, size)):
            heads = list(range(start, min(start + size, n_heads)))
            if mode == "uniform-pattern":
                z = replay.uniform_z[layer][:, :, heads]
            elif other is not None:
                z = other[layer][:, :, heads]
            else:
                z = (
                    # [1, 1, head, d_head]: the same for all examples and positions
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
                after = evaluate(metric, logits, tokens, what)
                drops[layer, heads[index], batch] = (before - after).cpu()
    return HeadImportance(mode=mode, per_example=drops.numpy(), baseline=baseline.numpy())


@checked
def gradient_importance(
    model: Any,
    data: Int[Tensor, "batch pos"],
    metric: Metric | None = None,
) -> HeadImportance:
    """Michel et al. 2019, Eq. 4: ``E_x |∂L(x)/∂ξ_h|``; ξ_h = 1 multiplies the output of head h.

    One backward pass for all heads. It is a first-order estimate of the size of the effect of
    removing a head, without sign; Michel et al. further divide by each layer's norm, which is left
    to the caller.

    Args:
        model: any HookedTransformer.
        data: token ids.
        metric: as for `frozen_importance`, and differentiable.

    Raises:
        MetricError: as for `frozen_importance`, or the metric has no gradient.
        TypeError: not a HookedTransformer, or data that is no token ids.
        ValueError: as for `frozen_importance`.
    """
    check_model(model)
    check_tokens(model, data)
    metric = default_metric(model, metric)
    n_layers, n_heads = model.cfg.n_layers, model.cfg.n_heads
    sizes, baseline = [], []
    rows = max(1, rows_per_pass(model, data.shape[1]) // 4)  # a graph takes more memory
    for batch in torch.arange(len(data)).split(rows):
        tokens = data[batch].to(model.cfg.device)
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
            values = evaluate(metric, logits, tokens, differentiable=True)
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
            # [batch or 1, head] as [batch, pos, head, d_head]
            return z * factors[layer][:, None, :, None]

        return hook

    return [(f"blocks.{layer}.attn.hook_z", scale(layer)) for layer in range(len(factors))]


def _mean_z(
    model: Any, data: Int[Tensor, "batch pos"], real: Bool[Tensor, "batch pos"], rows: int
) -> list[Float[Tensor, "head d_head"]]:
    """Per layer, the mean of z over the real positions of all examples."""
    sums: list[Tensor] = []
    for batch in torch.arange(len(data)).split(rows):
        z = Replay(model, data[batch].to(model.cfg.device)).z
        here = real[batch].to(z[0].device)
        found = [layer[here].double().sum(0) for layer in z]
        sums = [a + b for a, b in zip(sums, found, strict=True)] if sums else found
    return [(total / int(real.sum())).to(model.cfg.dtype) for total in sums]


def _resampled(
    model: Any,
    data: Int[Tensor, "batch pos"],
    example: Int[Tensor, "some pos"],
    position: Int[Tensor, "some pos"],
    rows: int,
) -> list[Float[Tensor, "some pos head d_head"]]:
    """Per layer, z of these examples at these positions."""
    found: list[Tensor] = []
    for few in example.unique().split(rows):  # sorted
        every = Replay(model, data[few].to(model.cfg.device)).z
        found = found or [z.new_empty(*example.shape, *z.shape[2:]) for z in every]
        here = torch.isin(example, few)
        row, at = torch.searchsorted(few, example[here]), position[here]
        for into, z in zip(found, every, strict=True):
            into[here.to(z.device)] = z[row.to(z.device), at.to(z.device)]
    return found


def partners(
    real: Bool[Tensor, "batch pos"], seed: int
) -> tuple[Int[Tensor, "batch pos"], Int[Tensor, "batch pos"]]:
    """From which example and position each is resampled; what is not real, from itself.

    At each position the examples that are real there follow each other in one cycle, in an order
    that is drawn once. Where only one is, it takes from the nearest position that another has.

    Raises:
        ValueError: fewer than two examples have a real position.
    """
    n, length = real.shape
    if int(real.any(1).sum()) < 2:
        raise ValueError(
            "mode 'resample' replaces a head's output by that on another example: give at least "
            f"two with real positions, not {int(real.any(1).sum())}"
        )
    order = torch.randperm(n, generator=torch.Generator().manual_seed(seed))
    example = torch.arange(n)[:, None].repeat(1, length)
    position = torch.arange(length).repeat(n, 1)
    for at in range(length):
        cycle = order[real[order, at]]
        # each takes from the next in the cycle; the last from the first
        example[cycle, at] = cycle.roll(-1)
        if len(cycle) != 1:
            continue
        alone = int(cycle[0])
        rest = order.roll(-1 - int((order == alone).nonzero()))[:-1]  # the others, the next first
        shared = real[rest].any(0).nonzero()[:, 0].tolist()
        near = min(shared, key=lambda other: abs(other - at))
        example[alone, at], position[alone, at] = rest[real[rest, near]][0], near
    return example, position
