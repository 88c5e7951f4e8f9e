"""Operations of the stacked forward pass whose gradients are written by hand, in fewer steps than autograd takes."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

__all__ = ["attend", "unit_norm"]


class _UnitNorm(torch.autograd.Function):
    """y = P⊥x / max(‖P⊥x‖₂, C), so dx = P⊥(dy − y ⟨y, dy⟩ [‖P⊥x‖₂ ≥ C]) / max(‖P⊥x‖₂, C)."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, c: float) -> Tensor:
        y = x - x.mean(-1, keepdim=True)
        norm = torch.linalg.vector_norm(y, dim=-1, keepdim=True)
        inverse = norm.clamp_min(c).reciprocal_()
        y *= inverse
        ctx.save_for_backward(y, inverse, norm >= c)
        return y

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, None]:
        (gradient,) = gradients
        y, inverse, free = ctx.saved_tensors
        along = (gradient * y).sum(-1, keepdim=True) * free
        out = torch.addcmul(gradient, y, along, value=-1)
        out -= out.mean(-1, keepdim=True)
        out *= inverse
        return out, None


def unit_norm(x: Tensor, c: float) -> Tensor:
    """LN_C of Eq. 7 along the last dimension, as `UnitNorm` has it."""
    out: Tensor = _UnitNorm.apply(x, c)
    return out


class _Attention(torch.autograd.Function):
    """z = softmax(scale · q kᵀ + mask) v, head by head, since views of one head need no copies."""

    @staticmethod
    def forward(ctx: Any, qkv: Tensor, mask: Tensor, scale: float) -> Tensor:
        n_heads = qkv.shape[3]
        parts, patterns = [], []
        for head in range(n_heads):
            q, k, v = qkv[:, :, :, head].unbind(2)
            pattern = torch.baddbmm(mask, q, k.transpose(1, 2), alpha=scale).softmax(-1)
            parts.append(torch.bmm(pattern, v))
            patterns.append(pattern)
        ctx.save_for_backward(qkv, *patterns)
        ctx.scale = scale
        return parts[0].unsqueeze(2) if n_heads == 1 else torch.stack(parts, dim=2)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, None, None]:
        (dz,) = gradients
        qkv, *patterns = ctx.saved_tensors
        out = torch.empty_like(qkv)
        for head, pattern in enumerate(patterns):
            q, k, v = qkv[:, :, :, head].unbind(2)
            g = dz[:, :, head]
            d_pattern = torch.bmm(g, v.transpose(1, 2))
            scores = torch._softmax_backward_data(d_pattern, pattern, -1, pattern.dtype)
            scores *= ctx.scale
            out[:, :, 0, head] = torch.bmm(scores, k)
            out[:, :, 1, head] = torch.bmm(scores.transpose(1, 2), q)
            out[:, :, 2, head] = torch.bmm(pattern.transpose(1, 2), g)
        return out, None, None


def attend(qkv: Tensor, mask: Tensor, scale: float) -> Tensor:
    """Softmax attention of packed rows.

    Args:
        qkv: ``[row, slot, 3, head, d_head]``.
        mask: added to the scores, 0 or -inf, ``[row, slot, slot]``.
        scale: of the scores.

    Returns:
        ``[row, slot, head, d_head]``.
    """
    out: Tensor = _Attention.apply(qkv, mask, scale)
    return out
