"""Every option of TransformerLens 3.9's configuration with values of its kind, one at a time."""

from __future__ import annotations

import itertools
import operator
from typing import Any

import torch

from tests.cases import draw_normal
from tests.models.hooked.questions import tokens_for

#: A plain decoder; every option of the table is put on top, with MLPs and without.
BASE = {"n_layers": 2, "d_model": 8, "d_head": 4, "n_heads": 2, "n_ctx": 9, "d_vocab": 7}
_YES = [False, True]
_TIMES = [1.0, 32.0]
_COUNT = [None, 1, 2, 4]
_SHARE = [-1.0, 0.5, 2.0]
VALUES: dict[str, list[Any]] = {
    "d_model": [4, 12],
    "d_head": [1, 3, 8],
    "n_layers": [1, 3],
    "n_ctx": [7, 30],
    "n_heads": [-1, 1, 3],
    "d_mlp": [None, 1, 5],
    "d_vocab": [7, 11],
    "d_vocab_out": [-1, 1, 9],
    "device": ["cpu"],
    "dtype": [torch.float32, torch.float64, torch.float16, torch.bfloat16],
    "eps": [1e-5, 0.3],
    "model_name": ["custom", "attn-only-1l"],
    "act_fn": ["relu", "gelu", "gelu_new", "gelu_fast", "gelu_pytorch_tanh", "silu", "solu_ln",
               "relu2", "xielu", None, "nothing"],
    "normalization_type": ["LN", "LNPre", "RMS", "RMSPre", None],
    "positional_embedding_type": ["standard", "rotary", "shortformer", "alibi",
                                  "relative_positional_bias"],
    "attention_dir": ["causal", "bidirectional"],
    "init_mode": ["gpt2", "xavier_uniform", "kaiming_normal", "muP"],
    "init_weights": _YES,
    "initializer_range": [-1.0, 0.02, 0.3],
    "seed": [None, 3],
    "attn_scale": _SHARE,
    "attn_scores_soft_cap": [-1.0, 5.0],
    "output_logits_soft_cap": [-1.0, 5.0],
    "n_key_value_heads": [None, 1, 2],
    "num_experts": [None, 2],
    "experts_per_token": [None, 1],
    "clip_qkv": [None, 0.1],
    "n_devices": [1],
    "n_params": [None, 5],
    "original_architecture": [None, "neel", "GPT2LMHeadModel", "Olmo2ForCausalLM"],
    "checkpoint_index": _COUNT,
    "checkpoint_label_type": [None, "step"],
    "checkpoint_value": _COUNT,
    "tokenizer_name": [None],  # of another, TransformerLens fetches the tokenizer
    "window_size": [None, 2],
    "attn_types": [None, ["local", "global"]],
    "rotary_dim": [None, 2],
    "rotary_base": [10000, 500],
    "rotary_base_local": [None, 500],
    "rotary_scaling_factor": [1.0, 8.0],
    "relative_attention_max_distance": [None, 4],
    "relative_attention_num_buckets": [None, 4],
    "decoder_start_token_id": _COUNT,
    "train_seq_length": [None, 4],
    "quantization_method": [None, "mxfp4"],
    "tokenizer_prepends_bos": [None, False, True],
    "NTK_by_parts_low_freq_factor": [1.0, 4.0],
    "NTK_by_parts_high_freq_factor": [4.0, 1.0],
    "NTK_by_parts_factor": [8.0, 64.0],
    "NTK_original_ctx_len": [8192, 64],
    "yarn_factor": _TIMES,
    "yarn_attention_factor": _TIMES,
    "yarn_beta_fast": _TIMES,
    "yarn_beta_slow": _TIMES,
    "yarn_original_max_position_embeddings": [4096, 64],
}  # fmt: skip
VALUES |= {option: [False, True] for option in (
    "use_attn_result", "use_split_qkv_input", "default_prepend_bos", "gated_mlp", "attn_only",
     "uses_rms_norm", "layer_norm_folding", "final_rms", "use_attn_scale", "use_hook_mlp_in",
     "use_attn_in", "use_qk_norm", "use_logn_attn", "use_dynamic_ntk_rope", "use_local_attn",
     "ungroup_grouped_query_attention", "from_checkpoint", "scale_attn_by_inverse_layer_idx",
     "parallel_attn_mlp", "use_hook_tokens", "post_embedding_ln", "trust_remote_code",
     "rotary_adjacent_pairs", "load_in_4bit", "tie_word_embeddings",
     "use_normalization_before_and_after", "use_NTK_by_parts_rope", "use_yarn_rope",
     "yarn_truncate", "yarn_global_attn_only", "use_attention_sinks", "norm_topk_prob",
)}  # fmt: skip
#: Options of TransformerLens 3.9 that can make a plain decoder into what ours is not.
REFUSED = {"positional_embedding_type", "normalization_type", "n_key_value_heads", "gated_mlp"}
REFUSED |= {"num_experts", "experts_per_token", "uses_rms_norm", "layer_norm_folding", "final_rms"}
REFUSED |= {"init_mode", "parallel_attn_mlp", "scale_attn_by_inverse_layer_idx", "use_local_attn"}
REFUSED |= {"use_qk_norm", "use_logn_attn", "use_attention_sinks", "clip_qkv", "load_in_4bit"}
REFUSED |= {"attn_scores_soft_cap", "output_logits_soft_cap", "quantization_method"}
REFUSED |= {"use_dynamic_ntk_rope", "use_NTK_by_parts_rope", "use_yarn_rope", "local", "rotary"}
REFUSED |= {"experts", "original_architecture", "use_normalization_before_and_after"}
#: Of several options at once: as people save `attn-only-1l`, and local attention as it goes.
TOGETHER: dict[str, dict[str, Any]] = {
    "attn-only-1l": {"n_layers": 1, "attn_only": True, "act_fn": None, "model_name": "attn-only-1l",
                     "original_architecture": "neel", "from_checkpoint": False, "init_mode": "gpt2",
                     "window_size": None, "n_devices": 1, "rotary_dim": None, "d_mlp": None,
                     "attn_types": None, "init_weights": True, "seed": 10, "eps": 1e-5},
    "local": {"use_local_attn": True, "window_size": 2, "attn_types": ["local", "global"]},
    "rotary": {"positional_embedding_type": "rotary", "rotary_dim": 2, "rotary_base": 100},
    "experts": {"num_experts": 2, "experts_per_token": 1},
}  # fmt: skip
_FREE = [option for option in VALUES if option not in REFUSED]
TOGETHER |= {  # five of those that ours takes, in 60 ways
    f"five, {at}": {
        option: VALUES[option][(at + step) % len(VALUES[option])]
        for step in range(5)
        for option in [_FREE[(5 * at + 7 * step) % len(_FREE)]]
    }
    for at in range(60)
}
TABLE: list[tuple[str, Any, bool]] = [
    (option, value, attn_only)
    for option, values in VALUES.items()
    for value in values
    for attn_only in ((False, True) if option != "attn_only" else (False,))
] + [(kind, None, False) for kind in TOGETHER]

BY_OPTION = {
    option: list(asked) for option, asked in itertools.groupby(TABLE, operator.itemgetter(0))
}


def name(option: str, value: Any, attn_only: bool) -> str:
    """What the question is called."""
    return f"option: {option}={value!r}" + ", attention only" * attn_only


def config(option: str, value: Any, attn_only: bool) -> dict[str, Any]:
    """The options that are given."""
    given = TOGETHER.get(option) or {"attn_only": attn_only, option: value}
    return {**BASE, "act_fn": "relu", "init_weights": False, "device": "cpu", **given}


def ask(classes: Any, option: str, value: Any, attn_only: bool) -> Any:
    """Its logits with random weights, and what the configuration says; None if it is refused."""
    try:
        cfg = classes.HookedTransformerConfig(**config(option, value, attn_only))
        model = classes.HookedTransformer(cfg)
        logits = draw_normal(model, 0, 0.5)(tokens_for(model, (2, 7)))
    except Exception:  # whatever TransformerLens raises: then it is no decoder that could be had
        return None
    names = ("d_mlp", "d_vocab_out", "n_heads", "n_params", "initializer_range", "attn_scale")
    return [logits.detach(), {each: float(getattr(cfg, each)) for each in names}]
