"""Reading activations off a model while it runs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor


def record(model: Any, tokens: Int[Tensor, "batch pos"], names: Sequence[str]) -> dict[str, Tensor]:
    """Run any HookedTransformer on `tokens`; return activations at named hook points, no gradients.

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

    def keep(activation: Tensor, hook: Any) -> None:
        found[hook.name] = activation.detach()

    with torch.no_grad():
        model.run_with_hooks(tokens, return_type=None, fwd_hooks=[(name, keep) for name in names])
    return found


def attention_patterns(
    model: Any, tokens: Int[Tensor, "batch pos"]
) -> Float[Tensor, "layer batch head query key"]:
    """The attention patterns of every layer and head of any HookedTransformer, on the CPU."""
    names = [f"blocks.{layer}.attn.hook_pattern" for layer in range(model.cfg.n_layers)]
    found = record(model, tokens.to(model.cfg.device), names)
    return torch.stack([found[name].cpu() for name in names])
