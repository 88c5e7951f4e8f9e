"""What TransformerLens 3 had and our class has not, by name, and what to use instead."""

from __future__ import annotations

from typing import Any

from tl_dyck.errors import DyckError

__all__ = [
    "FOREIGN_OPTIONS",
    "MissingMethodError",
    "UnsupportedOptionError",
    "check_options",
    "missing",
]

_NATIVE = "TransformerBridge.boot_native(TransformerBridgeConfig(…))"
_LOADED = "TransformerBridge.boot_transformers(name)"
_OLD = "transformer_lens<4"

#: Options of TransformerLens 3 that are not ours: the only value that is allowed.
FOREIGN_OPTIONS: dict[str, Any] = {
    # attention
    "n_key_value_heads": None,
    "ungroup_grouped_query_attention": False,
    "use_qk_norm": False,
    "clip_qkv": None,
    "use_logn_attn": False,
    "train_seq_length": None,
    "use_local_attn": False,
    "window_size": None,
    "attn_types": None,
    "scale_attn_by_inverse_layer_idx": False,
    "attn_scores_soft_cap": -1.0,
    "use_attention_sinks": False,
    # positions
    "positional_embedding_type": "standard",
    "rotary_dim": None,
    "rotary_base": 10000,
    "rotary_base_local": None,
    "rotary_scaling_factor": 1.0,
    "rotary_adjacent_pairs": False,
    "use_dynamic_ntk_rope": False,
    "use_NTK_by_parts_rope": False,
    "NTK_by_parts_low_freq_factor": 1.0,
    "NTK_by_parts_high_freq_factor": 4.0,
    "NTK_by_parts_factor": 8.0,
    "NTK_original_ctx_len": 8192,
    "use_yarn_rope": False,
    "yarn_factor": 1.0,
    "yarn_attention_factor": 1.0,
    "yarn_beta_fast": 32.0,
    "yarn_beta_slow": 1.0,
    "yarn_original_max_position_embeddings": 4096,
    "yarn_truncate": True,
    "yarn_global_attn_only": False,
    "relative_attention_max_distance": None,
    "relative_attention_num_buckets": None,
    # blocks and norms
    "parallel_attn_mlp": False,
    "gated_mlp": False,
    "num_experts": None,
    "experts_per_token": None,
    "norm_topk_prob": False,
    "uses_rms_norm": False,
    "final_rms": False,
    "layer_norm_folding": False,
    # output
    "output_logits_soft_cap": -1.0,
    "tie_word_embeddings": False,
    # where weights and tokenizers come from, and where they go
    "init_mode": "gpt2",
    "n_devices": 1,
    "load_in_4bit": False,
    "quantization_method": None,
    "trust_remote_code": False,
    "tokenizer_name": None,
    "original_architecture": None,
    "from_checkpoint": False,
    "checkpoint_index": None,
    "checkpoint_label_type": None,
    "checkpoint_value": None,
    "decoder_start_token_id": None,
}

_INSTEAD = {
    "init_mode": "init_weights=False, and draw the weights yourself",
    "tokenizer_name": "HookedTransformer(cfg, tokenizer=…)",
    **dict.fromkeys(
        (
            "rotary_dim",
            "rotary_base",
            "rotary_adjacent_pairs",
            "gated_mlp",
            "n_key_value_heads",
            "normalization_type",
            "positional_embedding_type",
        ),
        f"{_NATIVE} or {_OLD}",
    ),
    **dict.fromkeys(
        (
            "original_architecture",
            "from_checkpoint",
            "checkpoint_index",
            "checkpoint_label_type",
            "checkpoint_value",
            "load_in_4bit",
            "n_devices",
            "trust_remote_code",
        ),
        f"{_LOADED} or {_OLD}",
    ),
}

_SAMPLE = "transformer_lens.utilities.sample_logits(model(tokens)[:, -1]), in a loop"
_PROCESS = "model.process_weights_(…) or model.load_and_process_state_dict(…)"
_METHODS = {
    "from_pretrained": _LOADED,
    "from_pretrained_no_processing": _LOADED,
    "generate": _SAMPLE,
    "generate_stream": _SAMPLE,
    "load_sample_training_dataset": "transformer_lens.utilities.get_dataset",
    "sample_datapoint": "transformer_lens.utilities.get_dataset",
    "fold_layer_norm": _PROCESS,
    "fold_value_biases": _PROCESS,
    "center_writing_weights": _PROCESS,
    "center_unembed": _PROCESS,
    "refactor_factored_attn_matrices": _PROCESS,
    "fill_missing_keys": "load_state_dict(…, strict=False)",
    "set_ungroup_grouped_query_attention": "nothing: every head has keys and values of its own",
    "W_gate": "nothing: no MLP has a gate",
}


class UnsupportedOptionError(DyckError, ValueError):
    """An option of TransformerLens 3 that the class for TransformerLens 4 does not have."""


class MissingMethodError(DyckError, AttributeError):
    """A method of TransformerLens 3 that the class for TransformerLens 4 does not have."""


def check_options(cfg: Any) -> None:
    """Refuse what a plain decoder is not.

    Raises:
        UnsupportedOptionError: an option has another value than the one that is allowed.
    """
    allowed = {name: (only,) for name, only in FOREIGN_OPTIONS.items()}
    for name, values in {**allowed, "normalization_type": ("LN", "LNPre", None)}.items():
        value = getattr(cfg, name)
        if value not in values:
            raise UnsupportedOptionError(
                f"{name}={value!r} is not supported on TransformerLens 4, where tl_dyck brings its "
                f"own HookedTransformer, a plain decoder: leave it at "
                f"{' or '.join(map(repr, values))}, or use {_INSTEAD.get(name, _OLD)}"
            )


def missing(owner: str, name: str) -> AttributeError:
    """The error for an attribute that is not there."""
    if name in _METHODS:
        return MissingMethodError(
            f"{owner} has no {name!r} on TransformerLens 4; use {_METHODS[name]}"
        )
    return AttributeError(f"{owner!r} object has no attribute {name!r}")
