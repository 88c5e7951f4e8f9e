"""The configuration of a plain decoder, with the names and defaults of TransformerLens 3."""

from __future__ import annotations

import math
import random
from dataclasses import dataclass

import numpy as np
import torch
from transformer_lens.config import TransformerLensConfig
from transformer_lens.utilities import get_device
from transformer_lens.utilities.activation_functions import SUPPORTED_ACTIVATIONS

from tl_dyck.activations import canonical_activation
from tl_dyck.decoder import odd_options
from tl_dyck.errors import DyckError
from tl_dyck.registry import unknown_name

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


class UnsupportedOptionError(DyckError, ValueError):
    """An option that our class for TransformerLens 4 does not compute."""


@dataclass
class HookedTransformerConfig(TransformerLensConfig):
    """What a `HookedTransformer` is; every option means what it means in TransformerLens 3.

    Attributes:
        d_model: width of the residual stream.
        d_head: width of a head.
        n_layers: number of blocks.
        n_ctx: longest input, in tokens.
        n_heads: heads in a layer; -1 for d_model // d_head.
        d_mlp: hidden width of the MLPs; None for 4 d_model.
        d_vocab: number of tokens; -1 for those of the tokenizer.
        act_fn: activation of the MLPs.
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
        for name, value, _ in odd_options(self, TransformerLensConfig, _READ):
            if name != "normalization_type" or value not in ("LNPre", None):
                raise UnsupportedOptionError(
                    f"{name}={value!r} is not supported: {_COMPUTED}; other models are for "
                    "transformer_lens<4, or for its TransformerBridge"
                )
        if self.act_fn not in SUPPORTED_ACTIVATIONS and self.act_fn is not None:
            self.act_fn = canonical_activation(self.act_fn)
        for name, choices in {
            "act_fn": tuple(SUPPORTED_ACTIVATIONS),
            "attention_dir": ("causal", "bidirectional"),
        }.items():
            if getattr(self, name) not in choices:
                raise unknown_name(name, getattr(self, name), choices)
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
            self.initializer_range = 0.8 / math.sqrt(self.d_model)
        if self.d_vocab_out == -1:
            self.d_vocab_out = self.d_vocab
        attention = 4 * self.d_model * self.d_head * self.n_heads
        mlp = 0 if self.attn_only else 2 * self.d_model * (self.d_mlp or 0)
        self.n_params = self.n_layers * (attention + mlp)

    def is_layer_norm_activation(self) -> bool:
        """Whether the activation ends with a LayerNorm."""
        return str(self.act_fn).endswith("_ln")
