"""What stands at the hook points of a model while it runs.

Knows: how activations are read off any HookedTransformer, and what its patterns are called.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor


def record(
    model: Any,
    tokens: Int[Tensor, "batch pos"],
    names: Sequence[str],
    hooks: Sequence[tuple[str, Callable[..., Any]]] = (),
) -> dict[str, Tensor]:
    """Run any HookedTransformer on `tokens`; return activations at named hook points, no gradients.

    Args:
        model: not changed.
        tokens: that it reads; they are put where it is.
        names: of the hook points.
        hooks: with which it runs.

    Raises:
        ValueError: the model has no such hook point.
    """
    missing = [name for name in names if name not in model.hook_dict]
    if missing:
        raise ValueError(
            f"this model has no hook point {missing[0]!r}; "
            "is it a HookedTransformer with that layer?"
        )
    found: dict[str, Tensor] = {}

    def keep(name: str) -> Callable[..., None]:
        def hook(activation: Tensor, hook: Any) -> None:
            found[name] = activation.detach()

        return hook

    kept = [(name, keep(name)) for name in names]
    with torch.no_grad():
        model.run_with_hooks(
            tokens.to(model.cfg.device), return_type=None, fwd_hooks=[*hooks, *kept]
        )
    return found


def attention_patterns(
    model: Any,
    tokens: Int[Tensor, "batch pos"],
    hooks: Sequence[tuple[str, Callable[..., Any]]] = (),
) -> Float[Tensor, "layer batch head query key"]:
    """The attention patterns of every layer and head of any HookedTransformer, on the CPU.

    NaN where scores are NaN or too large: to the model such a query attends to nothing.
    """

    def read(name: str) -> Tensor:
        names = [f"blocks.{layer}.attn.{name}" for layer in range(model.cfg.n_layers)]
        found = record(model, tokens, names, hooks)
        return torch.stack([found[name].cpu() for name in names])

    patterns = read("hook_pattern")
    silent = patterns.sum(-1) == 0
    if silent.any():  # it sees nothing but padding, or its scores are too large, which is hidden
        scores = read("hook_attn_scores")
        unknown = silent & (scores.isnan() | (scores == torch.inf)).any(-1)
        patterns = patterns.masked_fill(unknown[..., None], torch.nan)
    return patterns
