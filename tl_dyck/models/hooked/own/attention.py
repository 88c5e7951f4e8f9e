"""Attention of a plain decoder."""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from transformer_lens import FactoredMatrix
from transformer_lens.hook_points import HookPoint

from tl_dyck.models.hooked.installed import keeps_masks
from tl_dyck.models.hooked.own.layers import empty, zeros


class Attention(nn.Module):
    """Multi-head attention: ``Σ_heads softmax(q kᵀ / attn_scale) v W_O + b_O``.

    Weights are by head, as TransformerLens has them. Hook points: `hook_q`, `hook_k`, `hook_v` and
    `hook_z` ``[batch, pos, head, d_head]``, `hook_attn_scores` and `hook_pattern`
    ``[batch, head, query, key]``, and, if the configuration says so, `hook_result`
    ``[batch, pos, head, d_model]``.

    Args:
        cfg: of the model.
        attn_type: "global", the only type.
        layer_id: index of the layer.
    """

    mask: Tensor
    IGNORE: Tensor
    hidden: float | None = None  # of attention in both directions: the score of padding

    def __init__(self, cfg: Any, attn_type: str = "global", layer_id: int | None = None) -> None:
        super().__init__()
        self.cfg, self.attn_type, self.layer_id = cfg, attn_type, layer_id
        heads, width, size, dtype = cfg.n_heads, cfg.d_model, cfg.d_head, cfg.dtype
        # in this order in TransformerLens 3 too: weights are drawn one after the other
        self.W_Q = empty(heads, width, size, dtype=dtype)
        self.W_O = empty(heads, size, width, dtype=dtype)
        self.b_Q = zeros(heads, size, dtype=dtype)
        self.b_O = zeros(width, dtype=dtype)
        self.W_K = empty(heads, width, size, dtype=dtype)
        self.W_V = empty(heads, width, size, dtype=dtype)
        self.b_K = zeros(heads, size, dtype=dtype)
        self.b_V = zeros(heads, size, dtype=dtype)
        self.attn_scale = cfg.attn_scale if cfg.use_attn_scale else 1.0
        # these two are in TransformerLens' state dicts, so that ours load there and theirs here
        kept = cfg.n_ctx if keeps_masks() else 0
        self.register_buffer("mask", torch.ones(kept, kept, dtype=torch.bool).tril())
        self.register_buffer("IGNORE", torch.tensor(-torch.inf))
        self.hook_k = HookPoint()
        self.hook_q = HookPoint()
        self.hook_v = HookPoint()
        self.hook_z = HookPoint()
        self.hook_attn_scores = HookPoint()
        self.hook_pattern = HookPoint()
        self.hook_result = HookPoint()

    @property
    def OV(self) -> FactoredMatrix:
        """``W_V W_O`` of each head."""
        return FactoredMatrix(self.W_V, self.W_O)

    @property
    def QK(self) -> FactoredMatrix:
        """``W_Q W_Kᵀ`` of each head."""
        return FactoredMatrix(self.W_Q, self.W_K.transpose(-2, -1))

    def forward(
        self,
        query_input: Tensor,
        key_input: Tensor,
        value_input: Tensor,
        past_kv_cache_entry: None = None,
        attention_mask: Tensor | None = None,
    ) -> Tensor:
        """Attend.

        Args:
            query_input: ``[batch, pos, d_model]``, or one for each head
                ``[batch, pos, head, d_model]``.
            key_input: likewise.
            value_input: likewise.
            past_kv_cache_entry: TransformerLens 3's blocks give it; None.
            attention_mask: which tokens are no padding ``[batch, pos]``.

        Returns:
            What is added to the residual stream, ``[batch, pos, d_model]``.
        """
        if past_kv_cache_entry is not None:
            raise ValueError("this attention reads whole strings, without a key-value cache")
        q = self.hook_q(_by_head(query_input, self.W_Q, self.b_Q))
        k = self.hook_k(_by_head(key_input, self.W_K, self.b_K))
        v = self.hook_v(_by_head(value_input, self.W_V, self.b_V))
        scores = self.calculate_attention_scores(q, k)
        if self.cfg.attention_dir == "causal":
            scores = self.apply_causal_mask(scores, attention_mask)
        elif self.hidden is not None and attention_mask is not None:
            # [batch, head, query, key]
            scores = scores.masked_fill(attention_mask[:, None, None, :] == 0, self.hidden)
        if getattr(
            self.cfg, "hides_bos", False
        ):  # position 0 is seen by itself alone, sees no other
            at = torch.arange(scores.shape[-1], device=scores.device)
            # key and query are both BOS, or neither is
            scores = torch.where((at == 0) == (at[:, None] == 0), scores, self.IGNORE)
        pattern = F.softmax(self.hook_attn_scores(scores), dim=-1)
        # a query that sees nothing attends to nothing
        pattern = torch.where(torch.isnan(pattern), torch.zeros_like(pattern), pattern)
        pattern = self.hook_pattern(pattern).to(v)  # what a cast model computes in
        return self._project(self.calculate_z_scores(v, pattern))

    def calculate_attention_scores(self, q: Tensor, k: Tensor) -> Tensor:
        """``q kᵀ / attn_scale``, ``[batch, head, query, key]``."""
        # [batch, head, query, d_head] times [batch, head, d_head, key]
        return q.permute(0, 2, 1, 3) @ k.permute(0, 2, 3, 1) / self.attn_scale

    def apply_causal_mask(
        self, attn_scores: Tensor, attention_mask: Tensor | None = None
    ) -> Tensor:
        """Scores with −∞ at later keys, and at keys that are padding."""
        key = torch.arange(attn_scores.shape[-1], device=attn_scores.device)
        # [query, key]
        seen = key <= key[:, None]
        if attention_mask is not None:
            seen = seen & attention_mask[:, None, None, :].bool()
        return torch.where(seen, attn_scores, self.IGNORE)

    def calculate_z_scores(self, v: Tensor, pattern: Tensor) -> Tensor:
        """``pattern v`` of each head, ``[batch, query, head, d_head]``; runs `hook_z`."""
        # [batch, key, head, d_head] with heads in front, as the pattern has them, and back below
        mixed = pattern @ v.permute(0, 2, 1, 3)
        z: Tensor = self.hook_z(mixed.permute(0, 2, 1, 3))
        return z

    def _project(self, z: Tensor) -> Tensor:
        if self.cfg.use_attn_result:
            # [batch, pos, head, d_head, d_model], summed over d_head
            each = (z[..., None] * self.W_O).sum(-2)
            return self.hook_result(each).sum(2) + self.b_O  # type: ignore[no-any-return]
        # d_model, head × d_head; how a matrix lies in memory decides its products' last bits
        weight = self.W_O.permute(2, 0, 1).flatten(1).contiguous()
        return F.linear(z.flatten(2), weight, self.b_O)


def _by_head(x: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
    """``x W + b`` for each head, ``[batch, pos, head, d_head]``."""
    if x.ndim == 4:
        # each head reads a residual stream of its own (hook_attn_in, split_qkv_input)
        return torch.einsum("bphm,hmd->bphd", x, weight) + bias
    flat = F.linear(x, weight.transpose(1, 2).flatten(0, 1), bias.flatten())
    return flat.view(*x.shape[:2], *bias.shape)
