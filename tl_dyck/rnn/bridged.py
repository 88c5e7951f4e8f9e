"""A `TransformerBridge` of one layer, read as the parts that `export_rnn` knows, by attribute.

Parts are of classes with TransformerLens 3's names, for these say what a part is. What is read is
not trusted: the exporter runs bridge and RNN side by side.
"""

from __future__ import annotations

import copy
from functools import cache
from types import SimpleNamespace
from typing import Any

import torch
from torch import Tensor

from tl_dyck.reading.norms import NORMS
from tl_dyck.reading.positions import POSITIONS


def is_bridge(model: Any) -> bool:
    """Whether it is one, by name: TransformerLens is not imported to look at a model."""
    return "TransformerBridge" in {kind.__name__ for kind in type(model).__mro__}


def read_bridge(bridge: Any) -> Any:
    """Configuration and parts, named as those of a HookedTransformer."""
    cfg, embed, theirs = copy.copy(bridge.cfg), bridge.embed, _config(bridge)
    if getattr(theirs, "model_type", None) == "falcon":  # of which the bridge says "relu"
        cfg.act_fn = theirs.activation
    scheme = getattr(cfg, "positional_embedding_type", "standard")
    table = _tensor(getattr(bridge, "pos_embed", None), "W_pos", "weight")
    if getattr(theirs, "model_type", None) == "opt" and table is not None:
        table = table[2:]  # rows of padding: the first token has the third
    zeros = _tensor(embed, "W_E", "weight").new_zeros(cfg.n_ctx, cfg.d_model)
    final = "RMS" if getattr(cfg, "final_rms", False) else cfg.normalization_type
    return SimpleNamespace(
        cfg=cfg,
        theirs=theirs,
        embed_ln=getattr(bridge, "embed_ln", None),
        blocks=[_block(bridge, block) for block in bridge.blocks],
        embed=SimpleNamespace(W_E=_tensor(embed, "W_E", "weight")),
        # schemes without a table have none, whatever a bridge shows
        pos_embed=SimpleNamespace(
            W_pos=zeros if table is None or "W_pos" not in POSITIONS[scheme].weights else table
        ),
        ln_final=_norm(getattr(bridge, "ln_final", None), final),
        unembed=_unembed(bridge),
        tokenizer=getattr(bridge, "tokenizer", None),
        named_modules=lambda: iter(()),  # a bridge has hooks of its own; what differs is seen
        named_parameters=bridge.named_parameters,
        named_buffers=lambda: iter(()),  # masks and counters, of any type
    )


def _block(bridge: Any, block: Any) -> Any:
    cfg = bridge.cfg
    found: dict[str, Any] = {"attn": _attention(bridge, block.attn)}
    for name in ("ln1", "ln2"):
        found[name] = _norm(getattr(block, name, None), cfg.normalization_type)
    if getattr(cfg, "parallel_attn_mlp", False) and getattr(block, "ln2", None) is None:
        found["ln2"] = found["ln1"]  # one norm for both
    for name in ("ln1_post", "ln2_post"):  # nobody here knows these: refused by their class
        if getattr(block, name, None) is not None:
            found[name] = getattr(block, name)
    mlp = getattr(block, "mlp", None)
    if mlp is not None and not getattr(cfg, "attn_only", False):
        found["mlp"] = _mlp(mlp)
    return SimpleNamespace(**found)


def _attention(bridge: Any, attn: Any) -> Any:
    cfg, found = bridge.cfg, {}
    for name in ("W_Q", "W_K", "W_V", "W_O"):
        found[name] = _tensor(attn, name)
        if found[name] is None:  # no weights by head: of a class that is not known
            return attn
    zero = found["W_Q"].new_zeros(cfg.n_heads, cfg.d_head)
    found |= {f"b_{name}": _or_zero(_tensor(attn, f"b_{name}"), zero) for name in "QKV"}
    found["b_O"] = _or_zero(_tensor(attn, "b_O"), zero.new_zeros(cfg.d_model))
    for name in ("W_K", "W_V", "b_K", "b_V"):  # groups of queries share one
        found[name] = found[name].repeat_interleave(cfg.n_heads // len(found[name]), 0)
    for name in ("q_norm", "k_norm"):
        norm = _tensor(getattr(attn, name, None), "w", "weight")
        found[name] = None if norm is None else SimpleNamespace(w=norm)
    scale = cfg.attn_scale if cfg.attn_scale and cfg.attn_scale > 0 else cfg.d_head**0.5
    found["attn_scale"] = scale if getattr(cfg, "use_attn_scale", True) else 1.0
    if cfg.positional_embedding_type == "rotary":
        found |= _angles(bridge)
    return _kind("Attention")(**found)


def _config(bridge: Any) -> Any:
    """What `transformers` knows of the model; None if there is nothing."""
    return getattr(getattr(bridge, "original_model", None), "config", None)


def _angles(bridge: Any) -> dict[str, Any]:
    """Cosines and sines, for pairs of neighbours or for halves."""
    n_ctx, weight = bridge.cfg.n_ctx, next(bridge.parameters())
    for module in bridge.modules():
        cos, sin = (_tensor(module, f"{name}_cached") for name in ("cos", "sin"))
        if cos is not None and sin is not None:  # TransformerLens' own bridges
            return {"rotary_cos": cos[:n_ctx], "rotary_sin": sin[:n_ctx], "adjacent": True}
    for module in bridge.modules():
        if _tensor(module, "inv_freq") is not None:  # those of transformers
            places = torch.arange(n_ctx, device=weight.device)[None]
            cos, sin = module(weight.new_zeros(1, n_ctx, 1), places)
            halves = bool((cos[..., 0::2] != cos[..., 1::2]).any())
            return {"rotary_cos": cos[0], "rotary_sin": sin[0], "adjacent": not halves}
    for module in bridge.modules():
        table = _tensor(module, "embed_positions")  # GPT-J's: sines, then cosines
        if table is not None:
            sin, cos = table[:n_ctx].repeat_interleave(2, -1).chunk(2, -1)
            return {"rotary_cos": cos, "rotary_sin": sin, "adjacent": True}
    return {}


def _mlp(mlp: Any) -> Any:
    found = {name: _tensor(mlp, name) for name in ("W_in", "W_out", "b_in", "b_out")}
    if found["W_in"] is None or found["W_out"] is None:
        return mlp
    found["b_in"] = _or_zero(found["b_in"], found["W_in"].new_zeros(found["W_in"].shape[1]))
    found["b_out"] = _or_zero(found["b_out"], found["W_in"].new_zeros(found["W_out"].shape[1]))
    gate = _tensor(mlp, "W_gate")
    if gate is None:
        inner = getattr(mlp, "gate", None)
        turned = _tensor(inner, "weight")
        gate = None if turned is None else turned.T
    if gate is None:
        return _kind("MLP")(**found)
    bias = _tensor(mlp, "b_gate")
    bias = _tensor(getattr(mlp, "gate", None), "bias") if bias is None else bias
    # here the bias of what is gated is added before the product
    return _kind("GatedMLP")(**found, W_gate=gate, b_gate=_or_zero(bias, 0 * found["b_in"]))


def _norm(module: Any, name: str | None) -> Any:
    known = NORMS.get(name or "")
    if module is None or known is None:
        return None
    found = {"w": _tensor(module, "w", "weight"), "b": _tensor(module, "b", "bias")}
    if not known.scales or found["w"] is None:  # folded into what reads it
        return _kind(NORMS["LNPre" if known.centres else "RMSPre"].kind)()
    return _kind(known.kind)(**{each: x for each, x in found.items() if x is not None})


def _unembed(bridge: Any) -> Any:
    weight = _tensor(bridge.unembed, "W_U")
    if weight is None:
        weight = _tensor(bridge.unembed, "weight").T
    scale = getattr(getattr(bridge, "original_model", None), "logit_scale", None)
    weight = weight if scale is None else weight * scale  # Cohere's; 1 where it was folded in
    return SimpleNamespace(W_U=weight, b_U=_or_zero(_tensor(bridge.unembed, "b_U"), 0 * weight[0]))


def _tensor(owner: Any, *names: str) -> Any:
    """The first of these attributes that is a tensor; some raise where there is nothing to show."""
    for name in names:
        try:
            found = getattr(owner, name)
        except (AttributeError, TypeError, NotImplementedError, ValueError):
            continue
        if isinstance(found, Tensor):
            return found
    return None


def _or_zero(found: Tensor | None, zero: Tensor) -> Tensor:
    return zero if found is None else found


@cache
def _kind(name: str) -> type[SimpleNamespace]:
    """Named attributes, of a class with the name that says what they are a part of."""
    return type(name, (SimpleNamespace,), {})
