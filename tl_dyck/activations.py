"""The activations of MLPs whose formula is known, by TransformerLens' names."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import torch.nn.functional as F
from torch import Tensor

__all__ = ["ACTIVATIONS", "canonical_activation"]

#: "gelu" is the form with erf, "gelu_new" that of GPT-2, with tanh.
ACTIVATIONS: dict[str, Callable[[Tensor], Tensor]] = {
    "relu": F.relu,
    "gelu": F.gelu,
    "gelu_new": partial(F.gelu, approximate="tanh"),
    "silu": F.silu,
}


def canonical_activation(name: str | None) -> str:
    """The name of the same formula in `ACTIVATIONS`, or else the name itself; "" for None."""
    return "gelu_new" if name == "gelu_pytorch_tanh" else name or ""
