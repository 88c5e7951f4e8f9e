"""A plain decoder with TransformerLens' hook points, names and methods."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from transformer_lens.hook_points import HookPoint
from transformer_lens.utilities import (
    USE_DEFAULT_VALUE,
    LocallyOverridenDefaults,
    get_attention_mask,
    lm_cross_entropy_loss,
    move_to_and_update_config,
)

from tl_dyck.kit.registry import unknown_name
from tl_dyck.models.caches import OwnCache, UnsummedCache
from tl_dyck.models.hooked.installed import Base, HookedRootModule
from tl_dyck.models.hooked.own.block import TransformerBlock
from tl_dyck.models.hooked.own.config import HookedTransformerConfig
from tl_dyck.models.hooked.own.layers import Embed, PosEmbed, Unembed, norm
from tl_dyck.models.hooked.own.strings import TextMethods
from tl_dyck.models.hooked.own.weights import WeightMethods

#: Hook points that nothing runs through unless an option of the configuration says so.
_ASKED_FOR = {
    "hook_result": ("use_attn_result", "use_attn_result_hook"),
    "hook_q_input": ("use_split_qkv_input", "use_split_qkv_input"),
    "hook_k_input": ("use_split_qkv_input", "use_split_qkv_input"),
    "hook_v_input": ("use_split_qkv_input", "use_split_qkv_input"),
    "hook_attn_in": ("use_attn_in", "use_attn_in"),
    "hook_mlp_in": ("use_hook_mlp_in", "use_hook_mlp_in"),
}


class Output(NamedTuple):
    """What ``return_type="both"`` gives: logits, and the loss."""

    logits: Tensor
    loss: Tensor


class HookedTransformer(TextMethods, WeightMethods, Base):
    """A decoder that embeds tokens and positions, runs its blocks, and unembeds.

    Names of parameters and hook points, their order, options and methods are those of
    TransformerLens 3, and so are all numbers, bit for bit. It has no other architectures, no
    pretrained models and no sampling; and it begins in eval mode.

    Args:
        cfg: a `HookedTransformerConfig`, or a dictionary of its options.
        tokenizer: from Hugging Face's `transformers`; None if the model reads tokens only.
        move_to_device: whether to put the model on ``cfg.device``.
    """

    cfg: Any
    tokenizer: Any
    token_names: Sequence[str] | None = None  # what pictures call them, if there is no tokenizer

    def __init__(
        self,
        cfg: Any,
        tokenizer: Any = None,
        move_to_device: bool = True,
    ) -> None:
        # not `super`: the base of TransformerLens 3 would build its own layers
        HookedRootModule.__init__(self)
        cfg = HookedTransformerConfig(**cfg) if isinstance(cfg, dict) else cfg
        self.cfg, self.tokenizer = cfg, None
        if tokenizer is not None:
            self.set_tokenizer(tokenizer)
        assert cfg.d_vocab > 0, "Must provide a tokenizer if d_vocab is not provided"
        self.embed = Embed(cfg)
        self.hook_embed = HookPoint()
        self.pos_embed = PosEmbed(cfg)
        self.hook_pos_embed = HookPoint()
        if cfg.use_hook_tokens:
            self.hook_tokens = HookPoint()
        self.blocks = nn.ModuleList(TransformerBlock(cfg, index) for index in range(cfg.n_layers))
        if cfg.normalization_type is not None:
            self.ln_final = norm(cfg)
        self.unembed = Unembed(cfg)
        if cfg.init_weights:
            self.init_weights()
        if move_to_device:
            self.to(str(cfg.device), print_details=False)
        self.setup()
        self.eval()  # as all models are handed out: TransformerLens 4's analyses want it

    def init_weights(self) -> None:
        """Draw every W_* from torch's global generator; biases and scales stay."""
        for name, parameter in self.named_parameters():
            # the order of parameters is TransformerLens', so that a seed draws the same weights
            if "W_" in name:
                nn.init.normal_(parameter, std=self.cfg.initializer_range)

    # --- forward ----------------------------------------------------------------------------------

    def forward(
        self,
        input: str | list[str] | Tensor,
        return_type: str | None = "logits",
        loss_per_token: bool = False,
        prepend_bos: bool | None = USE_DEFAULT_VALUE,
        padding_side: Any = USE_DEFAULT_VALUE,
        start_at_layer: int | None = None,
        tokens: Tensor | None = None,
        shortformer_pos_embed: None = None,
        attention_mask: Tensor | None = None,
        stop_at_layer: int | None = None,
        past_kv_cache: None = None,
    ) -> Any:
        """Run the model.

        Args:
            input: strings, tokens ``[batch, pos]`` or, with `start_at_layer`, the residual stream
                ``[batch, pos, d_model]``.
            return_type: "logits" ``[batch, pos, d_vocab_out]``, "loss" (mean cross-entropy of the
                next token), "both" of these, as a pair with these names, or None for nothing.
            loss_per_token: whether the loss is ``[batch, pos − 1]`` instead.
            prepend_bos: for strings; the default is the configuration's.
            padding_side: for strings; the default is the tokenizer's.
            start_at_layer: first block to run; negative counts from the last.
            tokens: for the loss, if `start_at_layer` is given.
            shortformer_pos_embed: TransformerLens' tools give it; these models have none.
            attention_mask: 1 where a token is no padding ``[batch, pos]``; by default padding is
                looked for where it matters, on the left.
            stop_at_layer: block before which to stop, and to return the residual stream.
            past_kv_cache: None, for whole strings are read.

        Raises:
            UnknownNameError: no such `return_type`.
            ValueError: there is a `past_kv_cache`.
        """
        if return_type not in ("logits", "loss", "both", None):
            raise unknown_name("return_type", return_type, ("logits", "loss", "both"))
        if past_kv_cache is not None:
            raise ValueError("this model reads whole strings, without a past_kv_cache; give None")
        with LocallyOverridenDefaults(self, prepend_bos=prepend_bos, padding_side=padding_side):
            if start_at_layer is None:
                residual, tokens, _, attention_mask = self.input_to_embed(
                    input,
                    prepend_bos=prepend_bos,
                    padding_side=padding_side,
                    attention_mask=attention_mask,
                )
            else:
                assert isinstance(input, Tensor), "start_at_layer takes a residual stream, no text"
                residual = input
                if attention_mask is None:
                    attention_mask = self._seen(tokens)
            # negative and missing layers as in a slice
            for index in range(*slice(start_at_layer, stop_at_layer).indices(self.cfg.n_layers)):
                residual = self.blocks[index](residual, attention_mask=attention_mask)
            if stop_at_layer is not None:
                return residual
            if self.cfg.normalization_type is not None:
                residual = self.ln_final(residual)
            if return_type is None:
                return None
            logits = self.unembed(residual)
            if return_type == "logits":
                return logits
            assert tokens is not None, "tokens must be passed for a loss from start_at_layer on"
            loss = self.loss_fn(logits, tokens, attention_mask, per_token=loss_per_token)
            return loss if return_type == "loss" else Output(logits, loss)

    def input_to_embed(
        self,
        input: str | list[str] | Tensor,
        prepend_bos: bool | None = USE_DEFAULT_VALUE,
        padding_side: Any = USE_DEFAULT_VALUE,
        attention_mask: Tensor | None = None,
    ) -> tuple[Tensor, Tensor, None, Tensor | None]:
        """From the input to the first residual stream; arguments as `forward` has them.

        Returns:
            The residual stream, the tokens, None (for shortformer models), and the attention mask;
            None where all tokens count.
        """
        if isinstance(input, Tensor):
            tokens = input
        else:
            assert self.tokenizer is not None, (
                "Must provide a tokenizer if passing a string to the model"
            )
            tokens = self.to_tokens(input, prepend_bos=prepend_bos, padding_side=padding_side)
        # a single string is a batch of one
        tokens = (tokens if tokens.ndim > 1 else tokens[None]).to(self.cfg.device)
        self._check(tokens)
        # padding on the right is behind all that counts: causal attention never sees it
        on_the_left = self.tokenizer is not None and self.tokenizer.padding_side == "left"
        if attention_mask is None and on_the_left:
            attention_mask = get_attention_mask(
                self.tokenizer, tokens, self.cfg.default_prepend_bos
            )
        if attention_mask is not None:
            assert attention_mask.shape == tokens.shape, (
                f"Attention mask shape {attention_mask.shape} does not match tokens {tokens.shape}"
            )
            attention_mask = attention_mask.to(self.cfg.device)
        if self.cfg.use_hook_tokens:
            tokens = self.hook_tokens(tokens)
        embed = self.hook_embed(self.embed(tokens))
        positions = self.hook_pos_embed(self.pos_embed(tokens, attention_mask))
        if attention_mask is None:
            attention_mask = self._seen(tokens)
        return embed + positions, tokens, None, attention_mask

    def _check(self, tokens: Tensor) -> None:
        """Refuse what the model does not read; this one asks nothing."""

    def _seen(self, tokens: Tensor | None) -> Tensor | None:
        """Which tokens are no padding, if no mask is given; None for all, as this one has it."""
        return None

    def loss_fn(
        self,
        logits: Tensor,
        tokens: Tensor,
        attention_mask: Tensor | None = None,
        per_token: bool = False,
    ) -> Tensor:
        """The cross-entropy of each next token, in nats: mean, or ``[batch, pos − 1]``."""
        return lm_cross_entropy_loss(logits, tokens.to(logits.device), attention_mask, per_token)

    def run_with_cache(
        self,
        *model_args: Any,
        return_cache_object: bool = True,
        remove_batch_dim: bool = False,
        **kwargs: Any,
    ) -> tuple[Any, Any]:
        """Run the model; returns its output and its activations.

        Args:
            *model_args: as for `forward`.
            return_cache_object: whether the activations are an `ActivationCache` or a dictionary.
                Of blocks other than "gpt", what takes their residual stream or attention for a
                plain sum warns, and says how far off it is.
            remove_batch_dim: whether to leave out the batch dimension, of size one.
            **kwargs: as for `forward` and `HookedRootModule.run_with_cache`.
        """
        out, found = HookedRootModule.run_with_cache(
            self, *model_args, remove_batch_dim=remove_batch_dim, **kwargs
        )
        if not return_cache_object:
            return out, found
        # blocks with a norm behind the sum, or without a sum, do not decompose into their parts
        unsummed = getattr(self.cfg, "block", "gpt") != "gpt"
        kind = UnsummedCache if unsummed else OwnCache
        return out, kind(found, self, has_batch_dim=not remove_batch_dim)

    # --- settings ---------------------------------------------------------------------------------

    def check_hooks_to_add(
        self,
        hook_point: Any,
        hook_point_name: str,
        hook: Any,
        dir: Any = "fwd",
        is_permanent: bool = False,
        prepend: bool = False,
    ) -> None:
        """Refuse hooks that would never run."""
        option, shown = _ASKED_FOR.get(hook_point_name.rpartition(".")[2], (None, None))
        assert option is None or getattr(self.cfg, option), (
            f"Cannot add hook {hook_point_name} if {shown} is False"
        )

    def set_use_attn_result(self, use_attn_result: bool) -> None:
        """Whether to compute `hook_result`: what each head adds to the residual stream."""
        self.cfg.use_attn_result = use_attn_result

    def set_use_split_qkv_input(self, use_split_qkv_input: bool) -> None:
        """Whether query, key and value have inputs of their own, by head."""
        self.cfg.use_split_qkv_input = use_split_qkv_input

    def set_use_hook_mlp_in(self, use_hook_mlp_in: bool) -> None:
        """Whether the input of the MLP has a hook before its LayerNorm."""
        assert not self.cfg.attn_only, "Can't use hook_mlp_in with attn_only model"
        self.cfg.use_hook_mlp_in = use_hook_mlp_in

    def set_use_attn_in(self, use_attn_in: bool) -> None:
        """Whether the input of attention is by head."""
        self.cfg.use_attn_in = use_attn_in

    def to(self, device_or_dtype: Any, print_details: bool = True) -> Any:  # type: ignore[override]
        """Move or convert the model, and say so in its configuration."""
        return move_to_and_update_config(self, device_or_dtype, print_details)

    def cpu(self) -> Any:
        """Move the model to the CPU."""
        return self.to(torch.device("cpu"))

    def cuda(self, device: Any = None) -> Any:
        """Move the model to a GPU: by number or device, None for the current one."""
        if isinstance(device, int):
            return self.to(f"cuda:{device}")
        return self.to("cuda" if device is None else device)
