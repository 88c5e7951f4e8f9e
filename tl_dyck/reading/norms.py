"""Norms by their formula, and LN_C: one record a norm, by TransformerLens' names.

Knows: all that is known of a norm. Whoever meets another class refuses it by its name.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, final

from jaxtyping import Float
from torch import Tensor


@final
@dataclass(frozen=True, kw_only=True)
class Norm:
    """x / √(mean square + eps), of x or of x minus its mean, times a scale, plus a shift.

    Attributes:
        name: TransformerLens' name of it, the value of ``cfg.normalization_type``.
        kind: its class there, and the class of ours that computes the same.
        centres: whether the mean is subtracted first.
        scales: whether there is a scale `w`.
        shifts: whether there is a shift `b`.
    """

    name: str
    kind: str
    centres: bool
    scales: bool
    shifts: bool

    def __call__(self, x: Tensor, eps: float) -> Tensor:
        """The norm, before scale and shift."""
        x = x - x.mean(-1, keepdim=True) if self.centres else x
        normed: Tensor = x / (x.pow(2).mean(-1, keepdim=True) + eps).sqrt()
        return normed


NORMS: dict[str, Norm] = {
    each.name: each
    for each in (
        Norm(name="LN", kind="LayerNorm", centres=True, scales=True, shifts=True),
        Norm(name="LNPre", kind="LayerNormPre", centres=True, scales=False, shifts=False),
        Norm(name="RMS", kind="RMSNorm", centres=False, scales=True, shifts=False),
        Norm(name="RMSPre", kind="RMSNormPre", centres=False, scales=False, shifts=False),
    )
}
_BY_KIND = {each.kind: each for each in NORMS.values()}


def norm_of(module: Any) -> Norm | None:
    """The record of a module that is a norm, by its class; None for any other module, or none."""
    return _BY_KIND.get(type(module).__name__)


def unit_norm(x: Float[Tensor, "*any dim"], c: float) -> Float[Tensor, "*any dim"]:
    """LN_C of Wen et al. 2023, Eq. 7: P x / max(|P x|, C), where P subtracts the mean."""
    centred = x - x.mean(-1, keepdim=True)
    unit: Tensor = centred / centred.norm(dim=-1, keepdim=True).clamp_min(c)
    return unit
