"""The layers of a plain decoder but attention; hook points are named as in TransformerLens 3."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from transformer_lens.hook_points import HookPoint
from transformer_lens.utilities import get_offset_position_ids
from transformer_lens.utilities.activation_functions import SUPPORTED_ACTIVATIONS, XIELU


def empty(*shape: int, dtype: torch.dtype) -> nn.Parameter:
    """A weight that is drawn, or loaded, later."""
    return nn.Parameter(torch.empty(*shape, dtype=dtype))


def zeros(*shape: int, dtype: torch.dtype) -> nn.Parameter:
    """A bias."""
    return nn.Parameter(torch.zeros(*shape, dtype=dtype))


def _plus_product(bias: Tensor, weight: Tensor, x: Tensor) -> Tensor:
    """``x @ weight + bias``, in one operation, for ``x`` with any number of leading dimensions."""
    flat = torch.addmm(bias, x.reshape(-1, x.shape[-1]), weight)
    return flat.view(*x.shape[:-1], weight.shape[-1])


class LayerNormPre(nn.Module):
    """LayerNorm without scale and shift: ``(x − mean) / √(mean square + eps)``.

    Hook points: `hook_scale` ``[batch, pos, 1]``, the divisor; `hook_normalized`, of the shape of
    x. Half precision is computed in single precision.
    """

    def __init__(self, cfg: Any) -> None:
        super().__init__()
        self.cfg, self.eps = cfg, cfg.eps
        self.hook_scale = HookPoint()
        self.hook_normalized = HookPoint()

    def forward(self, x: Tensor) -> Tensor:
        """Normalise the last dimension."""
        if self.cfg.dtype not in (torch.float32, torch.float64):
            # squares of half precision overflow above 256
            x = x.to(torch.float32)
        x = x - x.mean(-1, keepdim=True)
        scale = self.hook_scale((x.pow(2).mean(-1, keepdim=True) + self.eps).sqrt())
        return self._affine(self.hook_normalized(x / scale).to(self.cfg.dtype))

    def _affine(self, x: Tensor) -> Tensor:
        return x


class LayerNorm(LayerNormPre):
    """LayerNorm with trained scale `w` and shift `b`, which act after `hook_normalized`."""

    def __init__(self, cfg: Any, length: int | None = None) -> None:
        super().__init__(cfg)
        self.length = cfg.d_model if length is None else length
        self.w = nn.Parameter(torch.ones(self.length, dtype=cfg.dtype))
        self.b = zeros(self.length, dtype=cfg.dtype)

    def _affine(self, x: Tensor) -> Tensor:
        return x * self.w + self.b


class UnitNorm(nn.Module):
    """The LayerNorm of Wen et al. 2023, Eq. 7: ``LN_C(x) = P⊥x / max(‖P⊥x‖₂, C)``.

    Here P⊥x = x − mean(x).

    It differs from the usual one: unit norm, not unit variance, no trained scale or shift, and C
    instead of an epsilon under the root, so that it is *exactly* invariant to scaling as long as
    ‖P⊥x‖₂ ≥ C.

    Hook points as in TransformerLens: `hook_scale` ``[batch, pos, 1]`` and `hook_normalized`
    ``[batch, pos, d_model]``.
    """

    def __init__(self, c: float) -> None:
        super().__init__()
        self.c = c
        self.hook_scale = HookPoint()
        self.hook_normalized = HookPoint()

    def forward(self, x: Tensor) -> Tensor:
        """Normalise each position."""
        centred = x - x.mean(-1, keepdim=True)
        # vector_norm has a NaN-free subgradient at zero, clamp passes none below C
        scale = self.hook_scale(
            torch.linalg.vector_norm(centred, dim=-1, keepdim=True).clamp_min(self.c)
        )
        normalized: Tensor = self.hook_normalized(centred / scale)
        return normalized


def norm(cfg: Any) -> nn.Module:
    """What `normalization_type` names; the identity for None."""
    kinds = {"LN": LayerNorm, "LNPre": LayerNormPre}
    return nn.Identity() if cfg.normalization_type is None else kinds[cfg.normalization_type](cfg)


class Embed(nn.Module):
    """One vector a token: rows of `W_E`, ``[d_vocab, d_model]``."""

    def __init__(self, cfg: Any) -> None:
        super().__init__()
        self.cfg = cfg
        self.W_E = empty(cfg.d_vocab, cfg.d_model, dtype=cfg.dtype)
        if cfg.post_embedding_ln:
            self.ln = LayerNorm(cfg)

    def forward(self, tokens: Tensor) -> Tensor:
        """Look up ``[batch, pos]``."""
        vectors = self.W_E[tokens]
        return self.ln(vectors) if self.cfg.post_embedding_ln else vectors


class PosEmbed(nn.Module):
    """One vector a position: rows of `W_pos`, ``[n_ctx, d_model]``."""

    def __init__(self, cfg: Any) -> None:
        super().__init__()
        self.cfg = cfg
        self.W_pos = empty(cfg.n_ctx, cfg.d_model, dtype=cfg.dtype)

    def forward(self, tokens: Tensor, attention_mask: Tensor | None = None) -> Tensor:
        """The positions of ``[batch, pos]``; padding is not counted and gets zeros."""
        batch, length = tokens.shape
        if attention_mask is None:
            return self.W_pos[:length].expand(batch, -1, -1).clone()
        # 0: no key-value cache, so no tokens before these
        rows = self.W_pos[get_offset_position_ids(0, attention_mask)]
        # padding gets the position of no token; TransformerLens adds zeros there, too
        return rows.masked_fill(attention_mask[:, :, None] == 0, 0)


class MLP(nn.Module):
    """``act(x W_in + b_in) W_out + b_out``.

    Hook points: `hook_pre` and `hook_post`, before and after the activation; for activations with a
    LayerNorm ("solu_ln") `hook_mid`, between them.
    """

    act_fn: Callable[[Tensor], Tensor]

    def __init__(self, cfg: Any) -> None:
        super().__init__()
        self.cfg = cfg
        self.W_in = empty(cfg.d_model, cfg.d_mlp, dtype=cfg.dtype)
        self.b_in = zeros(cfg.d_mlp, dtype=cfg.dtype)
        self.W_out = empty(cfg.d_mlp, cfg.d_model, dtype=cfg.dtype)
        self.b_out = zeros(cfg.d_model, dtype=cfg.dtype)
        # the one activation with weights of its own
        self.act_fn = XIELU() if cfg.act_fn == "xielu" else SUPPORTED_ACTIVATIONS[cfg.act_fn]
        if cfg.is_layer_norm_activation():
            self.hook_mid = HookPoint()
            self.ln = (
                LayerNorm(cfg, cfg.d_mlp) if cfg.normalization_type == "LN" else LayerNormPre(cfg)
            )
        self.hook_pre = HookPoint()
        self.hook_post = HookPoint()

    def forward(self, x: Tensor) -> Tensor:
        """Apply it to the last dimension."""
        hidden = self.act_fn(self.hook_pre(_plus_product(self.b_in, self.W_in, x)))
        if self.cfg.is_layer_norm_activation():
            hidden = self.ln(self.hook_mid(hidden))
        return _plus_product(self.b_out, self.W_out, self.hook_post(hidden))


class Unembed(nn.Module):
    """The logits: ``x W_U + b_U``; hook points `hook_in` and `hook_out`."""

    def __init__(self, cfg: Any) -> None:
        super().__init__()
        self.cfg = cfg
        self.W_U = empty(cfg.d_model, cfg.d_vocab_out, dtype=cfg.dtype)
        self.b_U = zeros(cfg.d_vocab_out, dtype=cfg.dtype)
        self.hook_in = HookPoint()
        self.hook_out = HookPoint()

    def forward(self, residual: Tensor) -> Tensor:
        """From the residual stream to logits."""
        # as nn.Linear's weight lies in memory, which decides the last bits of a product
        weight = self.W_U.T.contiguous()
        logits: Tensor = self.hook_out(F.linear(self.hook_in(residual), weight, self.b_U))
        return logits
