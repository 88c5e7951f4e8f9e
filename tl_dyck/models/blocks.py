"""The transformer blocks that TransformerLens lacks, built from its own parts and hook points."""

from __future__ import annotations

from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn
from transformer_lens.hook_points import HookPoint

from tl_dyck.models.hooked import HookedTransformerConfig, TransformerBlock
from tl_dyck.models.hooked.own.block import attention_inputs


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

    def forward(self, x: Float[Tensor, "batch pos d_model"]) -> Float[Tensor, "batch pos d_model"]:
        """Normalise each position."""
        centred = x - x.mean(-1, keepdim=True)
        # vector_norm has a NaN-free subgradient at zero, clamp passes none below C
        scale = self.hook_scale(
            torch.linalg.vector_norm(centred, dim=-1, keepdim=True).clamp_min(self.c)
        )
        normalized: Tensor = self.hook_normalized(centred / scale)
        return normalized


def eq6_block(cfg: HookedTransformerConfig, index: int, c: float) -> TransformerBlock:
    """A block of Wen et al. 2023, Eq. 6.

    LayerNorm acts on the attention output *before* the residual is added.

    It is TransformerLens' own block with `UnitNorm` as `ln1_post`, so `hook_attn_out` is, as
    documented there, what is added to the residual stream:
    ``resid_mid = resid_pre + hook_attn_out``. The projection g is ``x + MLP(x)``.
    """
    block = TransformerBlock(cfg, index)
    block.ln1_post = UnitNorm(c)
    return block


class _AttentionBlock(TransformerBlock):
    """Common part of the blocks below: attention without a LayerNorm before it."""

    def _attn_out(self, resid_pre: Tensor, past_kv_cache_entry: Any, attention_mask: Any) -> Tensor:
        query, key, value = attention_inputs(self, resid_pre)
        attn_out: Tensor = self.hook_attn_out(
            self.attn(
                query_input=query,
                key_input=key,
                value_input=value,
                past_kv_cache_entry=past_kv_cache_entry,
                attention_mask=attention_mask,
            )
        )
        return attn_out


class BareBlock(_AttentionBlock):
    """Attention and nothing else: ``resid_post = attn_out`` (App. D.1).

    There is no residual link, no MLP, no LayerNorm.
    """

    def forward(
        self,
        resid_pre: Float[Tensor, "batch pos d_model"],
        shortformer_pos_embed: Tensor | None = None,
        past_kv_cache_entry: Any = None,
        attention_mask: Int[Tensor, "batch offset_pos"] | None = None,
    ) -> Float[Tensor, "batch pos d_model"]:
        """Run the attention layer; arguments as `TransformerBlock.forward` has them."""
        attn_out = self._attn_out(
            self.hook_resid_pre(resid_pre), past_kv_cache_entry, attention_mask
        )
        resid_post: Tensor = self.hook_resid_post(attn_out)
        return resid_post


class Eq49Block(_AttentionBlock):
    """A block of Wen et al. 2023, Eq. 49 (App. C.7).

    LayerNorm acts on the *sum* of residual and attention output.

    With ``resid_mid = resid_pre + attn_out`` and y = LN_C(resid_mid), which is
    `ln2.hook_normalized`, it computes g(y) = y + MLP(y). So ``resid_post = y + mlp_out``, where
    TransformerLens' own blocks, which normalise what the MLP reads and not what is handed on, have
    ``resid_mid + mlp_out``.

    Args:
        cfg: of the model.
        index: of the block.
        c: C of LN_C (Eq. 7).
    """

    def __init__(self, cfg: HookedTransformerConfig, index: int, c: float) -> None:
        super().__init__(cfg, index)
        self.ln2 = UnitNorm(c)

    def forward(
        self,
        resid_pre: Float[Tensor, "batch pos d_model"],
        shortformer_pos_embed: Tensor | None = None,
        past_kv_cache_entry: Any = None,
        attention_mask: Int[Tensor, "batch offset_pos"] | None = None,
    ) -> Float[Tensor, "batch pos d_model"]:
        """Run attention, LayerNorm and MLP; arguments as `TransformerBlock.forward` has them."""
        resid_pre = self.hook_resid_pre(resid_pre)
        attn_out = self._attn_out(resid_pre, past_kv_cache_entry, attention_mask)
        resid_mid = self.hook_resid_mid(resid_pre + attn_out)
        kept = read = self.ln2(resid_mid)
        if self.cfg.use_hook_mlp_in:
            read = self.ln2(self.hook_mlp_in(resid_mid.clone()))
        resid_post: Tensor = self.hook_resid_post(kept + self.apply_mlp(read))
        return resid_post
