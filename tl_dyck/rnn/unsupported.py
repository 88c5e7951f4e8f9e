"""What the exporter refuses, by the part of the model and the reason.

Reads a model by attribute only.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import nn

from tl_dyck.activations import ACTIVATIONS, canonical_activation
from tl_dyck.errors import DyckError

__all__ = ["ExportMismatchError", "UnsupportedModelError", "ln_c_of", "refuse_unsupported"]


class UnsupportedModelError(DyckError, ValueError):
    """The model has no two-layer RNN, or no supported one; the message names part and reason."""


class ExportMismatchError(UnsupportedModelError):
    """The model computes something else than its parts say, so their RNN is not equivalent."""


def refuse_unsupported(model: Any) -> None:
    """Check, before anything is built, that the model has an RNN that `export_rnn` can make.

    Raises:
        UnsupportedModelError: it has none; the message names the layer or field and the reason.
    """
    if any(not hasattr(model, name) for name in ("cfg", "blocks", "embed", "unembed")):
        raise UnsupportedModelError(
            f"{type(model).__name__} is not a HookedTransformer: it lacks cfg, blocks, "
            "embed or unembed."
        )
    if model.cfg.n_layers != 1:
        raise UnsupportedModelError(
            f"blocks.1: the model has {model.cfg.n_layers} layers, only one-layer models are "
            "supported; from the second layer on, a key has looked at other tokens and is no "
            "function of one token and its state."
        )
    for check in (_embedding, _positions, _attention, _norms, _mlp, _hooks, _dtype):
        check(model)


def ln_c_of(block: Any, name: str = "ln1_post") -> float | None:
    """The constant C, if that norm of the block is an LN_C.

    The norms are "ln1_post", after the attention (Eq. 6), and "ln2" (Eq. 49).
    """
    norm: Any = getattr(block, name, None)
    return float(norm.c) if type(norm).__name__ == "UnitNorm" else None


def _refuse(where: str, reason: str) -> None:
    raise UnsupportedModelError(f"{where}: {reason}")


def _embedding(model: Any) -> None:
    embed = model.embed
    if not hasattr(embed, "W_E") and not (hasattr(embed, "table") and hasattr(embed, "language")):
        _refuse(
            "embed",
            f"{type(embed).__name__} is neither an embedding of tokens nor of (token, depth).",
        )


_QUERY = "a key's score then depends on the query's position, so that layer 2 cannot sum over keys"


def _positions(model: Any) -> None:
    kind = model.cfg.positional_embedding_type
    if kind in ("rotary", "alibi", "relative_positional_bias"):
        _refuse(
            "blocks.0.attn", f"{kind} positions (cfg.positional_embedding_type={kind!r}): {_QUERY}."
        )
    if kind != "standard":
        _refuse(
            "pos_embed",
            f"{kind} positions (cfg.positional_embedding_type={kind!r}) are not supported, only "
            "'standard' ones, added to the residual stream.",
        )


def _attention(model: Any) -> None:
    cfg, attn, where = model.cfg, model.blocks[0].attn, "blocks.0.attn"
    direction = getattr(attn, "_attention_dir_override", None) or cfg.attention_dir
    if direction != "causal":
        _refuse(
            where,
            f"{direction} attention (cfg.attention_dir={direction!r}): "
            "a token reads those after it.",
        )
    if getattr(cfg, "use_local_attn", False) or getattr(attn, "attn_type", "global") != "global":
        _refuse(
            where,
            f"local attention (cfg.use_local_attn, cfg.window_size={cfg.window_size}): {_QUERY}.",
        )
    groups = getattr(cfg, "n_key_value_heads", None)
    if groups is not None:
        _refuse(
            where, f"grouped-query attention (cfg.n_key_value_heads={groups}) is not supported."
        )
    if getattr(attn, "q_norm", None) is not None or getattr(attn, "k_norm", None) is not None:
        _refuse(f"{where}.q_norm", "norms of queries and keys (cfg.use_qk_norm) are not supported.")
    # Fields that an older release lacks are off there.
    is_set: dict[str, Callable[[Any], bool]] = {
        "use_attention_sinks": bool,
        "attn_scores_soft_cap": lambda cap: cap is not None and cap > 0,
        "clip_qkv": lambda limit: limit is not None,
        "use_logn_attn": bool,
        "load_in_4bit": bool,
    }
    for field, test in is_set.items():
        value = getattr(cfg, field, None)
        if value is not None and test(value):
            _refuse(where, f"cfg.{field}={value!r} is not supported.")
    if type(attn).__name__ != "Attention":
        _refuse(where, f"attention of class {type(attn).__name__} is not supported.")


def _norms(model: Any) -> None:
    cfg, block = model.cfg, model.blocks[0]
    kind = cfg.normalization_type
    if kind not in (None, "LN", "LNPre"):
        _refuse(
            "blocks.0.ln1",
            f"cfg.normalization_type={kind!r} is not supported, only 'LN', 'LNPre' and None.",
        )
    if getattr(cfg, "final_rms", False):
        _refuse("ln_final", "an RMS norm (cfg.final_rms) is not supported, only LayerNorm.")
    architecture = getattr(cfg, "original_architecture", None)
    if architecture in ("Olmo2ForCausalLM", "Olmo3ForCausalLM"):
        _refuse(
            "blocks.0",
            f"norms after each part (cfg.original_architecture={architecture!r}) "
            "are not supported.",
        )
    after = getattr(block, "ln1_post", None)
    if after is not None and not isinstance(after, nn.Identity) and ln_c_of(block) is None:
        _refuse(
            "blocks.0.ln1_post",
            f"a {type(after).__name__} after the attention is not supported, only LN_C (Eq. 6).",
        )
    if not isinstance(getattr(block, "ln2_post", nn.Identity()), nn.Identity):
        _refuse(
            "blocks.0.ln2_post",
            f"a {type(block.ln2_post).__name__} after the MLP is not supported.",
        )


def _mlp(model: Any) -> None:
    cfg, block = model.cfg, model.blocks[0]
    cap = getattr(cfg, "output_logits_soft_cap", None)
    if cap is not None and cap > 0:
        _refuse("unembed", f"cfg.output_logits_soft_cap={cap} is not supported.")
    if not hasattr(block, "mlp"):
        return
    if getattr(cfg, "parallel_attn_mlp", False):
        _refuse(
            "blocks.0", "attention and MLP in parallel (cfg.parallel_attn_mlp) are not supported."
        )
    if type(block.mlp).__name__ != "MLP":
        _refuse(
            "blocks.0.mlp",
            f"{type(block.mlp).__name__} (gated or mixture of experts) is not supported.",
        )
    if canonical_activation(cfg.act_fn) not in ACTIVATIONS:
        _refuse(
            "blocks.0.mlp",
            f"cfg.act_fn={cfg.act_fn!r} is not supported, only {', '.join(ACTIVATIONS)}.",
        )


def _hooks(model: Any) -> None:
    for name, module in model.named_modules():
        if module._forward_hooks or module._forward_pre_hooks:
            _refuse(
                name or "model",
                "a hook is attached, and may change what the model computes; remove it first, with "
                "model.reset_hooks(including_permanent=True) if TransformerLens added it.",
            )


def _dtype(model: Any) -> None:
    for name, weight in [*model.named_parameters(), *model.named_buffers()]:
        if not weight.is_floating_point() or name.endswith(
            "IGNORE"
        ):  # TransformerLens's constant -inf
            continue
        if weight.dtype not in (torch.float32, torch.float64) or weight.dtype != model.cfg.dtype:
            _refuse(
                name,
                f"weights are {weight.dtype} and cfg.dtype is {model.cfg.dtype}, but both must be "
                "float32 or both float64; use model.to(torch.float32) or model.to(torch.float64).",
            )
