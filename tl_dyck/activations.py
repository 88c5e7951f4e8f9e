"""Functions of a layer by their formula: activations, by TransformerLens' names, and LN_C."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor

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


def unit_norm(x: Float[Tensor, "*any dim"], c: float) -> Float[Tensor, "*any dim"]:
    """LN_C of Wen et al. 2023, Eq. 7: P x / max(|P x|, C), where P subtracts the mean."""
    centred = x - x.mean(-1, keepdim=True)
    unit: Tensor = centred / centred.norm(dim=-1, keepdim=True).clamp_min(c)
    return unit
