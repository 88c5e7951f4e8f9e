"""Operations of the stacked forward pass, in which no model feels its neighbours.

The gradients are written by hand.

How a product of matrices is rounded depends on more than its numbers: linear algebra libraries
choose the order of its sums by the shapes, by how many products are asked for at once, and by where
operands begin in memory. So on the CPU the products of each model are calls of their own, always of
the same shapes, and all that they read and write begins on a boundary of `BOUNDARY` bytes: the
calls that are made for a model are those that are made for it alone. Elementwise operations take
all models at once, since they round each number by itself (vector or scalar instructions may differ
for exponentials and the like, so a model has a multiple of `GRAIN` numbers there).

On a GPU all models share batched products: sums may be rounded in another way there.
"""

from __future__ import annotations

import itertools
import math
import operator
from collections.abc import Sequence
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

#: Bytes; the alignment for which libraries promise the same bits, and that of every tensor that
#: torch allocates.
BOUNDARY = 64

#: Numbers: so many of at least two bytes fill a boundary, and two vector registers of any
#: processor.
GRAIN = 32


def aligned(n_models: int, shape: Sequence[int], *, like: Tensor) -> Tensor:
    """An uninitialised ``[model, *shape]``; each model's part is contiguous, on a boundary."""
    size = math.prod(shape)
    if n_models == 1 or size % GRAIN == 0:
        return like.new_empty(n_models, *shape)
    # of one model's part as if it stood alone: only the step to the next model is longer
    strides = itertools.accumulate(reversed(shape[1:]), operator.mul, initial=1)
    padded = -(-size // GRAIN) * GRAIN
    return like.new_empty(n_models * padded).as_strided(
        (n_models, *shape), (padded, *reversed([*strides]))
    )


def flattened(tensors: dict[str, Tensor]) -> tuple[dict[torch.dtype, Tensor], dict[str, Tensor]]:
    """One long tensor for each data type, so that Adam is one operation, and tensors as views.

    Each model's part of each tensor begins on a boundary, wherever it stands in the stack, and the
    length is a multiple of `GRAIN`, for a processor may round the rest, taken one by one, in
    another way (see above).
    """
    buffers, views = {}, {}
    for dtype in dict.fromkeys(tensor.dtype for tensor in tensors.values()):
        chosen = {name: tensor for name, tensor in tensors.items() if tensor.dtype == dtype}
        sizes = [math.prod(tensor.shape[1:]) for tensor in chosen.values()]
        shapes = [
            (len(t), -(-size // GRAIN) * GRAIN)
            for t, size in zip(chosen.values(), sizes, strict=True)
        ]
        like = next(iter(chosen.values()))
        # zeros between parts stay zeros: Adam moves no number whose slope and moments are 0
        buffers[dtype] = like.new_zeros(sum(map(math.prod, shapes)))
        parts = buffers[dtype].split([*map(math.prod, shapes)])
        for (name, tensor), part, shape, size in zip(
            chosen.items(), parts, shapes, sizes, strict=True
        ):
            views[name] = part.view(shape)[:, :size].view(tensor.shape)
            views[name].copy_(tensor)
    return buffers, {name: views[name] for name in tensors}


def filled_up(vectors: Tensor) -> Tensor:
    """``[(model,) number, size]`` with rows of zeros to a multiple of `GRAIN`."""
    return F.pad(vectors, (0, 0, 0, -vectors.shape[-2] % GRAIN))


def _product(a: Tensor, b: Tensor, added: Tensor | None = None, scale: float = 1.0) -> Tensor:
    """For each model scale · a b, or that added to something.

    Args:
        a: ``[model, m, k]``, or ``[model, row, m, k]`` with a product for each row.
        b: likewise.
        added: ``[model, n]``, or with rows ``[model, row, m, n]``.
        scale: without `added`, 1.
    """
    # [model, row, m, k]: a product for each row
    batched = a.ndim == 4
    # nothing is promised bit for bit there, and a call for each model would be slow
    if a.is_cuda:
        if added is None:
            return torch.matmul(a, b)
        return torch.add(added if batched else added[:, None], torch.matmul(a, b), alpha=scale)
    shape = (*a.shape[1:-1], b.shape[-1])
    if added is None:
        plain = torch.bmm if batched else torch.mm
        if len(a) == 1:  # saves a third of the overhead, and is the same call
            return plain(a[0], b[0]).unsqueeze_(0)
        out = aligned(len(a), shape, like=a)
        for own_a, own_b, own_out in zip(a.unbind(), b.unbind(), out.unbind(), strict=True):
            plain(own_a, own_b, out=own_out)
        return out
    adding = torch.baddbmm if batched else torch.addmm
    if len(a) == 1:
        return adding(added[0], a[0], b[0], alpha=scale).unsqueeze_(0)
    out = aligned(len(a), shape, like=a)
    for own, own_a, own_b, own_out in zip(
        added.unbind(), a.unbind(), b.unbind(), out.unbind(), strict=True
    ):
        adding(own, own_a, own_b, alpha=scale, out=own_out)
    return out


class _Linear(torch.autograd.Function):
    """y = (x ∘ scale + shift) W + b = x V + c; V = diag(scale) W, c = b + shift W, both small."""

    @staticmethod
    def forward(
        ctx: Any, x: Tensor, W: Tensor, b: Tensor, scale: Tensor | None, shift: Tensor | None
    ) -> Tensor:
        # the norm's scale and shift are folded into the small matrix, not applied to every row
        V, c = W, b
        if scale is not None and shift is not None:
            V = torch.mul(W, scale[:, :, None], out=aligned(len(W), W.shape[1:], like=W))
            # a product with one row would be rounded by how W is aligned
            moved = (shift[:, :, None] * W).sum(1)
            c = torch.add(b, moved, out=aligned(len(b), b.shape[1:], like=b))
        ctx.save_for_backward(x, W, V, scale, shift)
        return _product(x, V, c)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        (dy,) = gradients
        x, W, V, scale, shift = ctx.saved_tensors
        dx = _product(dy, V.transpose(1, 2)) if ctx.needs_input_grad[0] else None
        dW = _product(x.transpose(1, 2), dy)
        db = dy.sum(1)
        if scale is None:
            return dx, dW, db, None, None
        # V = diag(scale) W, so dscale_i = Σ_j dV_ij W_ij; dW is that of V until it is scaled below
        d_scale = (dW * W).sum(2)
        d_shift = (W * db[:, None]).sum(2)
        dW *= scale[:, :, None]
        # c = b + shift W, so W has a part in c as well
        dW += shift[:, :, None] * db[:, None]
        return dx, dW, db, d_scale, d_shift


def linear(
    x: Tensor, W: Tensor, b: Tensor, scale: Tensor | None = None, shift: Tensor | None = None
) -> Tensor:
    """The linear map of x, ``[model, slot, in]``, by each model's weights, ``[model, in, out]``.

    Or of x scaled and shifted, as a LayerNorm has it, both ``[model, in]``.
    """
    out: Tensor = _Linear.apply(x, W, b, scale, shift)
    return out


class _LookUp(torch.autograd.Function):
    """Rows of a table; its gradient is a product with each row's indicator.

    That is faster than adding one by one.
    """

    @staticmethod
    def forward(ctx: Any, table: Tensor, index: Tensor) -> Tensor:
        ctx.save_for_backward(index)
        n_models, ctx.number, size = table.shape
        # a table that was expanded, not copied: there is nothing to offset by
        if table.stride(0) == 0:  # the same for all
            return torch.nn.functional.embedding(index, table[0])
        offsets = torch.arange(0, n_models * ctx.number, ctx.number, device=index.device)
        return torch.nn.functional.embedding(index + offsets[:, None], table.reshape(-1, size))

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, None]:
        (gradient,) = gradients
        (index,) = ctx.saved_tensors
        # [model, number, slot], 1 where a slot reads a row: times the gradient, sums over slots
        chosen = gradient.new_zeros(len(index), ctx.number, index.shape[1]).scatter_(
            1, index[:, None], 1
        )
        return _product(chosen, gradient), None


def look_up(table: Tensor, index: Tensor) -> Tensor:
    """Of each model's vectors, ``[model, number, size]``, those that ``[model, slot]`` names."""
    out: Tensor = _LookUp.apply(table, index)
    return out


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
        # where C is larger than the norm, y is linear in x and this term is absent
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
        parts, patterns = [], []
        # axes: model, row, slot, part (query, key, value), head, d_head
        for head in range(qkv.shape[4]):
            q, k, v = qkv[:, :, :, :, head].unbind(3)
            pattern = _product(q, k.transpose(2, 3), mask, scale).softmax(-1)
            parts.append(_product(pattern, v))
            patterns.append(pattern)
        ctx.save_for_backward(qkv, *patterns)
        ctx.scale = scale
        return parts[0].unsqueeze(3) if len(parts) == 1 else torch.stack(parts, dim=3)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, None, None]:
        (dz,) = gradients
        qkv, *patterns = ctx.saved_tensors
        out = torch.empty_like(qkv)
        for head, pattern in enumerate(patterns):
            q, k, v = qkv[:, :, :, :, head].unbind(3)
            g = dz[:, :, :, head]
            # z = A v: dA = dz vᵀ, dv = Aᵀ dz; scores = scale q kᵀ: dq = dS k, dk = dSᵀ q
            d_pattern = _product(g, v.transpose(2, 3))
            scores = torch._softmax_backward_data(d_pattern, pattern, -1, pattern.dtype)
            scores *= ctx.scale
            # 0, 1, 2 are query, key and value, as `Stack` joins their weights
            out[:, :, :, 0, head] = _product(scores, k)
            out[:, :, :, 1, head] = _product(scores.transpose(2, 3), q)
            out[:, :, :, 2, head] = _product(pattern.transpose(2, 3), g)
        return out, None, None


def attend(qkv: Tensor, mask: Tensor, scale: float) -> Tensor:
    """Softmax attention of packed rows, ``[model, row, slot, 3, head, d_head]``, without the 3.

    The mask, 0 or -inf, ``[model, row, slot, slot]``, is added to the scores.
    """
    out: Tensor = _Attention.apply(qkv, mask, scale)
    return out


class _UniformAttention(torch.autograd.Function):
    """z = A v for a constant A."""

    @staticmethod
    def forward(ctx: Any, v: Tensor, pattern: Tensor) -> Tensor:
        ctx.save_for_backward(pattern)
        return _product(pattern, v)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, None]:
        (dz,) = gradients
        (pattern,) = ctx.saved_tensors
        # transposed over [query, key]
        return _product(pattern.transpose(2, 3), dz), None


def attend_uniformly(v: Tensor, pattern: Tensor) -> Tensor:
    """Values of all heads by a pattern: ``[model, row, slot, size]`` by ``[…, slot, slot]``."""
    out: Tensor = _UniformAttention.apply(v, pattern)
    return out
