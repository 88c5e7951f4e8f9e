"""The configuration of a plain decoder, with the names and defaults of TransformerLens 3."""

from __future__ import annotations

import math
import random
from collections.abc import Mapping
from dataclasses import dataclass, field, make_dataclass
from typing import Any

import numpy as np
import torch
from transformer_lens.config import TransformerLensConfig
from transformer_lens.utilities import get_device
from transformer_lens.utilities.activation_functions import SUPPORTED_ACTIVATIONS

from tl_dyck.kit.errors import DyckError
from tl_dyck.kit.registry import unknown_name
from tl_dyck.reading.activations import canonical_activation
from tl_dyck.reading.decoder import odd_options

#: What our class computes, in one sentence, for the message of what it does not.
_COMPUTED = (
    "on TransformerLens 4 a HookedTransformer is a plain decoder: positions are embedded, every "
    "head has keys and values of its own, MLPs have no gates, and norms are 'LN', 'LNPre' or None"
)
#: Options of TransformerLens 4's own configuration that a plain decoder reads.
_READ = (
    *("d_model", "d_head", "n_layers", "n_ctx", "n_heads", "d_mlp", "d_vocab", "act_fn", "eps"),
    *("attn_only", "default_prepend_bos", "device", "dtype"),
    *("use_attn_result", "use_split_qkv_input"),
)
#: Options of TransformerLens 3 that change nothing in a plain decoder, for they say where it comes
#: from, or belong to an option of `_ABSENT`; kept as they are given.
_IDLE: dict[str, Any] = {
    "checkpoint_index": None,
    "checkpoint_label_type": None,
    "checkpoint_value": None,
    "from_checkpoint": False,
    "tokenizer_name": None,
    "trust_remote_code": False,
    "decoder_start_token_id": None,
    "train_seq_length": None,
    "window_size": None,
    "attn_types": None,
    "rotary_dim": None,
    "rotary_base": 10000,
    "rotary_base_local": None,
    "rotary_scaling_factor": 1.0,
    "rotary_adjacent_pairs": False,
    "relative_attention_max_distance": None,
    "relative_attention_num_buckets": None,
    "ungroup_grouped_query_attention": False,
    "norm_topk_prob": False,
    "original_architecture": None,  # but see _CHANGED
    "tie_word_embeddings": False,
    "NTK_by_parts_low_freq_factor": 1.0,
    "NTK_by_parts_high_freq_factor": 4.0,
    "NTK_by_parts_factor": 8.0,
    "NTK_original_ctx_len": 8192,
    "yarn_factor": 1.0,
    "yarn_attention_factor": 1.0,
    "yarn_beta_fast": 32.0,
    "yarn_beta_slow": 1.0,
    "yarn_original_max_position_embeddings": 4096,
    "yarn_truncate": True,
    "yarn_global_attn_only": False,
}
#: Options of TransformerLens 3 that change what is computed, and what they are in a plain decoder.
_ABSENT: dict[str, Any] = {
    "init_mode": "gpt2",
    "n_devices": 1,
    "parallel_attn_mlp": False,
    "scale_attn_by_inverse_layer_idx": False,
    "use_local_attn": False,
    "use_qk_norm": False,
    "use_logn_attn": False,
    "use_attention_sinks": False,
    "clip_qkv": None,
    "attn_scores_soft_cap": -1.0,
    "output_logits_soft_cap": -1.0,
    "load_in_4bit": False,
    "quantization_method": None,
    "use_dynamic_ntk_rope": False,
    "use_NTK_by_parts_rope": False,
    "use_yarn_rope": False,
}
#: Beginnings of architectures whose attention TransformerLens 3 changes by their name.
_CHANGED = ("Olmo",)
_Others: Any = make_dataclass(
    "_Others",
    [(name, Any, field(default=value)) for name, value in {**_IDLE, **_ABSENT}.items()],
    kw_only=True,
)


class UnsupportedOptionError(DyckError, ValueError):
    """An option that our class for TransformerLens 4 does not compute."""


@dataclass
class HookedTransformerConfig(TransformerLensConfig, _Others):  # type: ignore[misc]
    """What a `HookedTransformer` is; every option means what it means in TransformerLens 3.

    All options of TransformerLens 3 are known. Those below are read, others must be what they are
    in a plain decoder, or say nothing of what is computed (`tokenizer_name`: no tokenizer is
    fetched).

    Attributes:
        d_model: width of the residual stream.
        d_head: width of a head.
        n_layers: number of blocks.
        n_ctx: longest input, in tokens.
        n_heads: heads in a layer; -1 for d_model // d_head.
        d_mlp: hidden width of the MLPs; None for 4 d_model.
        d_vocab: number of tokens; -1 for those of the tokenizer.
        act_fn: activation of the MLPs; anything, None too, if there are none.
        eps: added to the variance in a LayerNorm.
        normalization_type: "LN", "LNPre" (no scale or shift) or None.
        attn_only: whether there are no MLPs.
        attention_dir: "causal" or "bidirectional".
        use_attn_scale: whether scores are divided by `attn_scale`.
        attn_scale: -1 for √d_head.
        d_vocab_out: number of logits; -1 for d_vocab.
        post_embedding_ln: whether a LayerNorm follows the embedding.
        use_normalization_before_and_after: whether a block has norms `ln1_post` and `ln2_post` on
            what it adds; they are the identity until somebody puts one there, so
            `normalization_type` must be None.
        init_weights: whether weights are drawn: W_* normal, of standard deviation
            `initializer_range`.
        initializer_range: -1 for 0.8/√d_model.
        seed: if given, reseeds torch, NumPy and `random` first.
        default_prepend_bos: whether BOS is put in front of strings.
        dtype: of the weights.
        device: None for TransformerLens' default, a GPU if there is one.
        use_attn_result: whether `hook_result` (each head's output) is computed.
        use_split_qkv_input: whether query, key and value have inputs of their own, by head.
        use_attn_in: whether the input of attention is by head.
        use_hook_mlp_in: whether the input of the MLP has a hook before its LayerNorm.
        use_hook_tokens: whether the tokens have a hook.
        n_params: weights in attention and MLPs; computed.
        tokenizer_prepends_bos: whether the tokenizer itself does; computed.
        model_name: free.

    Raises:
        UnsupportedOptionError: what a plain decoder is not; the message says what it is.
        UnknownNameError: an activation or direction that is not known.
    """

    model_name: str = "custom"
    use_attn_scale: bool = True
    attn_scale: float = -1.0
    use_hook_mlp_in: bool = False
    use_attn_in: bool = False
    attention_dir: str = "causal"
    seed: int | None = None
    initializer_range: float = -1.0
    init_weights: bool = True
    d_vocab_out: int = -1
    n_params: int | None = None
    use_hook_tokens: bool = False
    tokenizer_prepends_bos: bool | None = None
    post_embedding_ln: bool = False
    use_normalization_before_and_after: bool = False

    def __post_init__(self) -> None:
        odd = {
            name: value
            for kind, known in ((TransformerLensConfig, _READ), (_Others, tuple(_IDLE)))
            for name, value, _ in odd_options(self, kind, known)
        }
        if self.normalization_type in ("LNPre", None):
            odd.pop("normalization_type", None)
        if str(self.original_architecture).startswith(_CHANGED):
            odd["original_architecture"] = self.original_architecture
        for name, value in odd.items():
            raise UnsupportedOptionError(
                f"{name}={value!r} is not supported: {_COMPUTED}; other models are for "
                "transformer_lens<4, or for its TransformerBridge"
            )
        if self.act_fn not in SUPPORTED_ACTIVATIONS and self.act_fn is not None:
            self.act_fn = canonical_activation(self.act_fn)
        if not self.attn_only and self.act_fn not in SUPPORTED_ACTIVATIONS:
            raise unknown_name("act_fn", self.act_fn, tuple(SUPPORTED_ACTIVATIONS))
        if self.attention_dir not in (directions := ("causal", "bidirectional")):
            raise unknown_name("attention_dir", self.attention_dir, directions)
        if self.use_normalization_before_and_after and self.normalization_type is not None:
            raise UnsupportedOptionError(
                "use_normalization_before_and_after=True goes with normalization_type=None, "
                f"not {self.normalization_type!r}: set block.ln1_post and block.ln2_post yourself"
            )
        self.device: str | None
        if self.device is None:
            self.device = str(get_device())
        if self.seed is not None:
            torch.manual_seed(self.seed)
            random.seed(self.seed)
            np.random.seed(self.seed)  # noqa: NPY002 (it is the global state that is to be set)
        super().__post_init__()
        if self.use_attn_scale and self.attn_scale == -1.0:
            self.attn_scale = math.sqrt(self.d_head)
        if self.initializer_range < 0:
            # 0.8: TransformerLens' own; 0.02 at a width of 1,600, that of GPT-2 XL
            self.initializer_range = 0.8 / math.sqrt(self.d_model)
        if self.d_vocab_out == -1:
            self.d_vocab_out = self.d_vocab
        # Q, K, V and O, without biases, as TransformerLens counts n_params
        attention = 4 * self.d_model * self.d_head * self.n_heads
        mlp = 0 if self.attn_only else 2 * self.d_model * (self.d_mlp or 0)
        self.n_params = self.n_layers * (attention + mlp)

    @classmethod
    def from_dict(cls, config_dict: Mapping[str, Any]) -> HookedTransformerConfig:
        """From options by name, none of which is passed over.

        Raises:
            UnsupportedOptionError: what a plain decoder is not.
            TypeError: no such option.
        """
        return cls(**config_dict)

    @classmethod
    def unwrap(cls, config: Any) -> Any:
        """A configuration as it is, or one from a dictionary of options."""
        return cls.from_dict(config) if isinstance(config, Mapping) else config

    def is_layer_norm_activation(self) -> bool:
        """Whether the activation ends with a LayerNorm."""
        return str(self.act_fn).endswith("_ln")
