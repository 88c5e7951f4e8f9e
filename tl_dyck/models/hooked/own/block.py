"""A block of a plain decoder."""

from __future__ import annotations

from typing import Any

from torch import Tensor, nn
from transformer_lens.hook_points import HookPoint

from tl_dyck.models.hooked.own.attention import Attention
from tl_dyck.models.hooked.own.layers import MLP, UnitNorm, norm


class TransformerBlock(nn.Module):
    """``resid_mid = resid_pre + attn(ln1(resid_pre))``, then ``+ mlp(ln2(resid_mid))``.

    If the configuration says so, norms `ln1_post` and `ln2_post` act on what attention and MLP
    return, before it is added. Hook points: `hook_resid_pre`, `hook_attn_out`, `hook_resid_mid`,
    `hook_mlp_out`, `hook_resid_post`, and inputs of attention and MLP that must be asked for.

    A configuration of ours may ask for a block of Wen et al. 2023 instead (``cfg.block``):

    - "eq6" (Eq. 6): LN_C acts on the attention output *before* it is added, as `ln1_post`, so
      `hook_attn_out` is what is added; the projection g is ``x + MLP(x)``.
    - "eq49" (Eq. 49, App. C.7): LN_C acts on the *sum*. With y = LN_C(resid_mid), which is
      `ln2.hook_normalized`, ``resid_post = g(y) = y + mlp(y)``: what is normalised is handed on.
    - "bare" (App. D.1): attention and nothing else, ``resid_post = attn(resid_pre)``, without
      residual link, MLP, LayerNorm and `hook_resid_mid`.

    Args:
        cfg: of the model.
        block_index: which block it is.
    """

    def __init__(self, cfg: Any, block_index: int) -> None:
        super().__init__()
        self.cfg, self.kind = cfg, getattr(cfg, "block", "gpt")
        both = cfg.use_normalization_before_and_after
        self.ln1 = norm(cfg)
        if both:
            # under TransformerLens' name for a norm behind attention, so that its tools find it
            self.ln1_post = UnitNorm(cfg.ln_c) if self.kind == "eq6" else nn.Identity()
        if not cfg.attn_only:
            self.ln2 = UnitNorm(cfg.ln_c) if self.kind == "eq49" else norm(cfg)
            if both:
                self.ln2_post = nn.Identity()
        self.attn = Attention(cfg, "global", block_index)
        if not cfg.attn_only:
            self.mlp = MLP(cfg)
        self.hook_attn_in = HookPoint()
        self.hook_q_input = HookPoint()
        self.hook_k_input = HookPoint()
        self.hook_v_input = HookPoint()
        self.hook_mlp_in = HookPoint()
        self.hook_attn_out = HookPoint()
        self.hook_mlp_out = HookPoint()
        self.hook_resid_pre = HookPoint()
        if not cfg.attn_only:
            self.hook_resid_mid = HookPoint()
        self.hook_resid_post = HookPoint()

    def forward(self, resid_pre: Tensor, attention_mask: Tensor | None = None) -> Tensor:
        """Run the block.

        Args:
            resid_pre: the residual stream, ``[batch, pos, d_model]``.
            attention_mask: which tokens are no padding.

        Returns:
            The residual stream after it, of the same shape.
        """
        resid_pre = self.hook_resid_pre(resid_pre)
        query, key, value = self._attention_inputs(resid_pre)
        attn_out = self.attn(
            query_input=self.ln1(query),
            key_input=self.ln1(key),
            value_input=self.ln1(value),
            attention_mask=attention_mask,
        )
        if self.cfg.use_normalization_before_and_after:
            attn_out = self.ln1_post(attn_out)
        attn_out = self.hook_attn_out(attn_out)
        # App. D.1: "bare" has no residual link
        resid_mid = attn_out if self.kind == "bare" else resid_pre + attn_out
        if self.cfg.attn_only:
            return self.hook_resid_post(resid_mid)  # type: ignore[no-any-return]
        resid_mid = self.hook_resid_mid(resid_mid)
        # of Eq. 49 the normed stream is both what the MLP reads and what it is added to
        kept = read = self.ln2(resid_mid) if self.kind == "eq49" else resid_mid
        if self.cfg.use_hook_mlp_in:
            # a copy: a hook that changes the MLP's input must not change the stream
            read = self.ln2(self.hook_mlp_in(resid_mid.clone()))
        elif self.kind != "eq49":
            read = self.ln2(resid_mid)
        resid_post: Tensor = self.hook_resid_post(kept + self.apply_mlp(read))
        return resid_post

    def apply_mlp(self, normalized_resid: Tensor) -> Tensor:
        """The MLP's output, after `ln2_post` if there is one; runs `hook_mlp_out`."""
        out = self.mlp(normalized_resid)
        if self.cfg.use_normalization_before_and_after:
            out = self.ln2_post(out)
        mlp_out: Tensor = self.hook_mlp_out(out)
        return mlp_out

    def _attention_inputs(self, resid_pre: Tensor) -> list[Tensor]:
        """What query, key and value read; for each head where that was asked for."""

        def by_head() -> Tensor:
            # [batch, pos, head, d_model]; real copies, for hooks that write to one head
            return resid_pre[:, :, None].repeat(1, 1, self.cfg.n_heads, 1)

        inputs = [self.hook_attn_in(by_head()) if self.cfg.use_attn_in else resid_pre] * 3
        if self.cfg.use_split_qkv_input:
            hooks = (self.hook_q_input, self.hook_k_input, self.hook_v_input)
            inputs = [hook(by_head()) for hook in hooks]
        return inputs
