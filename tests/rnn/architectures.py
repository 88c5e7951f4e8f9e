"""One layer in every architecture that a HookedTransformer or a bridge can be, by name.

`docs/certify_classifier.md` has the same table; `test_architectures` holds it to what is done here.
"""

from __future__ import annotations

from functools import cache
from typing import Any

import torch

from tests.cases import draw_normal
from tl_dyck.models.hooked import HookedTransformer, HookedTransformerConfig, installed

ROTARY = {"positional_embedding_type": "rotary", "rotary_dim": 4}
RMS = {"normalization_type": "RMS"}
PARALLEL = {"parallel_attn_mlp": True}
GATED = {"gated_mlp": True, "act_fn": "silu"}

#: Options by the row of the page's table that they are of.
ARCHITECTURES: dict[str, dict[str, dict[str, Any]]] = {
    "LayerNorm": {"LN": {}, "LNPre": {"normalization_type": "LNPre"}},
    "RMSNorm": {"RMS": RMS, "RMSPre": {"normalization_type": "RMSPre"}},
    "rotary positions": {
        "halves": ROTARY,
        "neighbours": ROTARY | {"rotary_adjacent_pairs": True},
        "a part of each head": ROTARY | {"rotary_dim": 2},
    },
    "ALiBi": {"alibi": {"positional_embedding_type": "alibi"}},
    "shortformer positions": {
        "LN": {"positional_embedding_type": "shortformer"},
        "RMS": RMS | {"positional_embedding_type": "shortformer"},
    },
    "grouped queries": {"one group": {"n_key_value_heads": 1}},
    "gated MLP": {
        "SwiGLU": GATED,
        "GEGLU": GATED | {"act_fn": "gelu"},
        "GEGLU by tanh": GATED | {"act_fn": "gelu_new"},
        "ReGLU": GATED | {"act_fn": "relu"},
    },
    "QK norms": {"RMS": {"use_qk_norm": True}},
    "soft cap of scores": {"2": {"attn_scores_soft_cap": 2.0}},
    "soft cap of logits": {"2": {"output_logits_soft_cap": 2.0}},
    "attention and MLP in parallel": {
        "GPT-NeoX": ROTARY | PARALLEL,
        "gated": RMS | ROTARY | GATED | PARALLEL,
    },
    "sliding window": {
        "n_ctx": {"use_local_attn": True, "attn_types": ["local"], "window_size": 10},
    },
    "several of these": {
        "Llama": RMS | ROTARY | GATED | {"n_key_value_heads": 1},
        "Qwen3": RMS | ROTARY | GATED | {"n_key_value_heads": 1, "use_qk_norm": True},
    },
}
#: Options that TransformerLens 4's own bridges have; others come as models of `transformers`.
_NATIVE = {
    *("normalization_type", "positional_embedding_type", "rotary_dim", "n_key_value_heads"),
    *("gated_mlp", "act_fn", "attn_scores_soft_cap", "output_logits_soft_cap"),
}

SIZES: dict[str, Any] = {
    **{"n_layers": 1, "d_model": 8, "d_head": 4, "n_heads": 2, "d_mlp": 7, "d_vocab": 5},
    **{"n_ctx": 10, "act_fn": "relu", "normalization_type": "LN", "device": "cpu"},
}


def named() -> list[tuple[str, str]]:
    """Each architecture that the installed TransformerLens can be: its row, and which of it."""
    return [
        (row, name) for row, each in ARCHITECTURES.items() for name in each if possible(row, name)
    ]


def possible(row: str, name: str) -> bool:
    """Whether the installed release has it."""
    options = ARCHITECTURES[row][name]
    if installed.MAJOR >= 4:
        return options.keys() <= _NATIVE and options.get("positional_embedding_type") in (
            *(None, "rotary"),
        )
    return options.keys() <= HookedTransformerConfig.__dataclass_fields__.keys()


@cache
def built(row: str, name: str, dtype: torch.dtype = torch.float64, **more: Any) -> Any:
    """The model, with random weights, biases and norms too; on TransformerLens 4 a bridge.

    Leave it as it is.
    """
    options = SIZES | ARCHITECTURES[row][name] | more
    model: Any
    if installed.MAJOR >= 4:
        from transformer_lens import TransformerBridgeConfig
        from transformer_lens.model_bridge import TransformerBridge

        kind = {"dtype": dtype, "architecture": "TransformerLensNative"}
        model = TransformerBridge.boot_native(TransformerBridgeConfig(**options, **kind))
        torch.nn.Module.to(model, dtype)  # not the bridge's own, which takes as long as the rest
    else:
        cfg = HookedTransformerConfig(**options, dtype=dtype, init_weights=False)
        model = HookedTransformer(cfg, move_to_device=False)
    draw_normal(model, 1, 0.6)
    return model.eval()
