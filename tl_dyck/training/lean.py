"""The forward pass of a `DyckTransformer` without hook points, for measuring.

What a model this small takes is spent on launching operations, not on arithmetic, and many of those that a
HookedTransformer launches serve its hook points, masks and checks. This is a second account of the same function, on
the same parameters; `tests/training/test_lean.py` holds the two together for every family, gradients included. Training
itself has a third, for packed strings and several models at once (`tl_dyck.training.stack`).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from jaxtyping import Float, Int
from torch import Tensor

from tl_dyck.models import DyckTransformer

__all__ = ["lean_logits"]

_ACTIVATIONS: dict[str, Callable[[Tensor], Tensor]] = {
    "relu": F.relu,
    "gelu": F.gelu,
    "gelu_new": lambda x: F.gelu(x, approximate="tanh"),
    "silu": F.silu,
}


def lean_logits(model: DyckTransformer, tokens: Int[Tensor, "batch pos"]) -> Float[Tensor, "batch pos d_vocab"]:
    """What ``model(tokens)`` returns, sooner; hooks do not run.

    Args:
        model: gradients flow into its parameters.
        tokens: BOS first, on the model's device.
    """
    cfg = model.cfg
    batch, length = tokens.shape
    x = model.embed(tokens)
    if cfg.position != "none":
        x = x + model.pos_embed.W_pos[:length]
    x = x.view(batch * length, cfg.d_model)
    block: Any
    for block in model.blocks:
        normed = _layer_norm(x, block.ln1, cfg.eps) if cfg.block == "gpt" else x
        out = _attention(block.attn, normed, batch, length, cfg.attention == "uniform")
        if cfg.block == "bare":
            x = out
            continue
        if cfg.block == "eq6":
            out = block.ln1_post(out[None])[0]
        x = x + out
        if cfg.block == "eq49":
            x = block.ln2(x[None])[0]
        normed = _layer_norm(x, block.ln2, cfg.eps) if cfg.block == "gpt" else x
        if cfg.act_fn in _ACTIVATIONS:
            hidden = _ACTIVATIONS[cfg.act_fn](torch.addmm(block.mlp.b_in, normed, block.mlp.W_in))
            x = x + torch.addmm(block.mlp.b_out, hidden, block.mlp.W_out)
        else:
            x = x + block.mlp(normed.view(batch, length, -1)).view_as(x)
    if cfg.block == "gpt":
        x = _layer_norm(x, model.ln_final, cfg.eps)
    return torch.addmm(model.unembed.b_U, x, model.unembed.W_U).view(batch, length, -1)


def _layer_norm(x: Tensor, module: Any, eps: float) -> Tensor:
    return F.layer_norm(x, x.shape[-1:], module.w, module.b, eps)


def _attention(attn: Any, x: Tensor, batch: int, length: int, uniform: bool) -> Tensor:
    n_heads, d_head = attn.b_V.shape
    names = "V" if uniform else "QKV"
    weight = torch.cat([getattr(attn, f"W_{name}") for name in names]).transpose(0, 1).flatten(1)
    bias = torch.cat([getattr(attn, f"b_{name}") for name in names]).flatten()
    projected = torch.addmm(bias, x, weight).view(batch, length, len(names), n_heads, d_head)
    parts = projected.permute(2, 0, 3, 1, 4).unbind()  # each: batch, head, pos, d_head
    if uniform:
        z = parts[0].cumsum(2) / torch.arange(1, length + 1, device=x.device, dtype=x.dtype)[:, None]
    else:
        q, k, v = parts
        z = F.scaled_dot_product_attention(q, k, v, is_causal=True, scale=1 / attn.attn_scale)
    z = z.transpose(1, 2).reshape(batch * length, n_heads * d_head)
    return torch.addmm(attn.b_O, z, attn.W_O.flatten(0, 1))
