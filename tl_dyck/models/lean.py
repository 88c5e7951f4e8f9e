"""Quick forward passes without hook points: a second account of the same functions and weights.

What a model this small takes is spent on launching operations, not on arithmetic, and many of those
that a HookedTransformer launches serve its hooks: copies of weights into the layout of a library,
masks, checks, activations and norms step by step. `lean_logits` is the whole pass of a
`DyckTransformer`; `LeanTail` is the rest of a pass, from the attention output of a layer on, of any
HookedTransformer of the usual shape. Training itself has a third account, for packed strings and
several models at once (`tl_dyck.training.stack`).
"""

from __future__ import annotations

from typing import Any, final

import torch
import torch.nn.functional as F
from jaxtyping import Float, Int
from torch import Tensor

from tl_dyck.kit.arguments import checked
from tl_dyck.models.hooked import TransformerBlock, own
from tl_dyck.models.transformer import DyckTransformer
from tl_dyck.reading.activations import ACTIVATIONS, canonical_activation
from tl_dyck.reading.decoder import departures, hooked_at


@checked
def lean_logits(
    model: DyckTransformer, tokens: Int[Tensor, "batch pos"]
) -> Float[Tensor, "batch pos d_vocab"]:
    """Compute the model's logits sooner than ``model(tokens)`` does; hooks do not run.

    Args:
        model: gradients flow into its parameters.
        tokens: BOS first, on the model's device.
    """
    batch, length = model.language.check_tokens(tokens).shape
    x = model.embed(tokens)
    if model.cfg.position != "none":
        x = x + model.pos_embed.W_pos[:length]
    return _walk(model, x.view(batch * length, -1), None, 0, batch, length)


def _walk(model: Any, x: Tensor, out: Tensor | None, first: int, batch: int, length: int) -> Tensor:
    """From what comes into a layer to logits; `out` is what its attention adds, None if unknown."""
    cfg = model.cfg
    kind = getattr(cfg, "block", "gpt")
    uniform = getattr(cfg, "attention", "softmax") == "uniform"
    for block in model.blocks[first:]:
        if out is None:
            normed = _norm(block.ln1, x) if kind == "gpt" else x
            out = _attention(block.attn, normed, batch, length, uniform)
        if kind == "eq6":
            out = block.ln1_post(out[None])[0]
        x, out = (out if kind == "bare" else x + out), None
        if kind == "eq49":
            x = block.ln2(x[None])[0]
        if cfg.attn_only:
            continue
        normed = _norm(block.ln2, x) if kind == "gpt" else x
        act_fn = canonical_activation(cfg.act_fn)
        if act_fn in ACTIVATIONS:
            x = x + _mlp(block.mlp, normed, act_fn)
        else:
            x = x + block.mlp(normed.view(batch, length, -1)).view_as(x)
    if cfg.normalization_type is not None:
        x = _norm(model.ln_final, x)
    return torch.addmm(model.unembed.b_U, x, model.unembed.W_U).view(batch, length, -1)


def _attention(attn: Any, x: Tensor, batch: int, length: int, uniform: bool) -> Tensor:
    n_heads, d_head = attn.b_V.shape
    names = "V" if uniform else "QKV"
    # [d_model, part · head · d_head]: one product instead of three
    weight = torch.cat([getattr(attn, f"W_{name}") for name in names]).transpose(0, 1).flatten(1)
    bias = torch.cat([getattr(attn, f"b_{name}") for name in names]).flatten()
    projected = torch.addmm(bias, x, weight).view(batch, length, len(names), n_heads, d_head)
    parts = projected.permute(2, 0, 3, 1, 4).unbind()  # each: batch, head, pos, d_head
    if uniform:
        z = (
            # a uniform causal pattern is a running mean
            parts[0].cumsum(2)
            / torch.arange(1, length + 1, device=x.device, dtype=x.dtype)[:, None]
        )
    else:
        q, k, v = parts
        z = F.scaled_dot_product_attention(q, k, v, is_causal=True, scale=1 / attn.attn_scale)
    z = z.transpose(1, 2).reshape(batch * length, n_heads * d_head)
    return torch.addmm(attn.b_O, z, attn.W_O.flatten(0, 1))


@final
class LeanTail:
    """A model from the attention output of a layer on."""

    def __init__(self, model: Any) -> None:
        """For a model of which `fits` is true."""
        self.model = model

    @staticmethod
    def fits(model: Any) -> bool:
        """Whether this module knows all parts of the model, and no hook wants to see them."""
        cfg = model.cfg
        return (
            cfg.dtype in (torch.float32, torch.float64)
            and not cfg.use_normalization_before_and_after
            and getattr(cfg, "block", "gpt") == "gpt"
            and all(type(each) in (TransformerBlock, own.TransformerBlock) for each in model.blocks)
            and not any(departures(model))
            and hooked_at(model) is None
        )

    def run(
        self,
        layer: int,
        resid_pre: Float[Tensor, "row pos d_model"],
        attn_out: Float[Tensor, "row pos d_model"],
    ) -> Float[Tensor, "row pos d_vocab"]:
        """The logits, from what comes into a layer and what its attention adds."""
        batch, length = resid_pre.shape[:2]
        x, out = resid_pre.flatten(0, 1), attn_out.flatten(0, 1)
        return _walk(self.model, x, out, layer, batch, length)


def _norm(module: Any, x: Tensor) -> Tensor:
    if isinstance(module, torch.nn.Identity):
        return x
    weight, bias = getattr(module, "w", None), getattr(module, "b", None)  # none: LayerNormPre
    return F.layer_norm(x, x.shape[-1:], weight, bias, module.eps)


def _mlp(mlp: Any, x: Float[Tensor, "row d_model"], act_fn: str) -> Float[Tensor, "row d_model"]:
    hidden = ACTIVATIONS[act_fn](torch.addmm(mlp.b_in, x, mlp.W_in))
    return torch.addmm(mlp.b_out, hidden, mlp.W_out)
