"""The Dyck model: a HookedTransformer whose embedding and blocks may be those of Wen et al. 2023."""

from __future__ import annotations

import math
import warnings
from typing import Any, final

import torch
from torch import Tensor
from transformer_lens import HookedTransformer

from tl_dyck.language import build_tokenizer
from tl_dyck.models.blocks import BareBlock, eq6_block
from tl_dyck.models.config import DyckTransformerConfig
from tl_dyck.models.embeddings import DepthEmbed

__all__ = ["DyckTransformer", "build_model"]


@final
class DyckTransformer(HookedTransformer):
    """A HookedTransformer for a bounded Dyck language, with its tokenizer.

    Every method, hook point and cache entry is TransformerLens' own: `run_with_cache`, `run_with_hooks`, `to_tokens`,
    `to_str_tokens`, `generate`, `loss_fn`, `blocks.0.attn.hook_pattern`, … What differs:

    - a minimal first layer ("onehot", "split", "yao") is a `DepthEmbed` in place of `embed`: it has a `table`, no
      `W_E`, and needs whole strings, so a `past_kv_cache` is refused and `generate` re-reads the string for each new
      token;
    - strings and tokens that are longer than `n_ctx` are refused, never cut.

    Build it with `build_model`.
    """

    cfg: DyckTransformerConfig

    def __init__(self, cfg: DyckTransformerConfig) -> None:
        with warnings.catch_warnings():  # the project depends on transformer_lens < 4 for this reason
            warnings.filterwarnings("ignore", "HookedTransformer is deprecated", DeprecationWarning)
            super().__init__(cfg, tokenizer=build_tokenizer(cfg.language), move_to_device=False)
        if cfg.embedding != "token":
            self._modules["embed"] = DepthEmbed(cfg.embedding, cfg.language, cfg.d_model, cfg.dtype)
        for index in range(cfg.n_layers):
            if cfg.block == "eq6":
                self.blocks[index] = eq6_block(cfg, index, cfg.ln_c)
            elif cfg.block == "bare":
                self.blocks[index] = BareBlock(cfg, index)
        self.setup()  # names the hook points of what was swapped in
        self.to(str(cfg.device), print_details=False)

    def to_tokens(self, input: str | list[str], *args: Any, **kwargs: Any) -> Tensor:
        """As `HookedTransformer.to_tokens`, except that too long a string is an error unless `truncate=True`."""
        kwargs.setdefault("truncate", False)
        tokens: Tensor = super().to_tokens(input, *args, **kwargs)
        self._check_length(tokens)
        return tokens

    def input_to_embed(self, input: Any, *args: Any, **kwargs: Any) -> Any:
        """As `HookedTransformer.input_to_embed`, after a check that the model can read this input."""
        if isinstance(input, Tensor):
            if input.is_floating_point():
                raise TypeError(f"the model reads token ids (integers), not {input.dtype}")
            self._check_length(input)
        if kwargs.get("past_kv_cache") is not None and isinstance(self.embed, DepthEmbed):
            raise ValueError(
                f"the {self.cfg.embedding!r} embedding depends on the depth, so on the whole string: "
                "run the model on whole strings, without past_kv_cache"
            )
        return super().input_to_embed(input, *args, **kwargs)

    @torch.inference_mode()
    def generate(self, input: Any = "", max_new_tokens: int = 10, *args: Any, **kwargs: Any) -> Any:
        """As `HookedTransformer.generate`.

        With a minimal first layer, one token is generated at a time from the whole string, since the embedding of a
        bracket depends on its depth.

        Raises:
            ValueError: prompt and new tokens together exceed `n_ctx`, or the arguments need what a depth embedding
                lacks.
        """
        if args:
            raise TypeError("generate takes its options by keyword: generate(prompt, 10, temperature=0.5)")
        if not isinstance(self.embed, DepthEmbed):
            self._check_length(self._prompt(input, kwargs), max_new_tokens)
            return super().generate(input, max_new_tokens, **kwargs)
        if isinstance(input, list):  # one by one: padding on the left has no meaning for one-token steps
            return [self.generate(text, max_new_tokens, **kwargs) for text in input]
        if (isinstance(input, Tensor) and input.is_floating_point()) or kwargs.get("return_type") == "embeds":
            raise ValueError(f"the {self.cfg.embedding!r} embedding can generate from strings and tokens only")
        return_type = kwargs.pop("return_type", "input")
        if return_type == "input":
            return_type = "str" if isinstance(input, str) else "tokens"
        tokens = self._prompt(input, kwargs)
        self._check_length(tokens, max_new_tokens)
        stop_at_eos = kwargs.pop("stop_at_eos", True)
        eos = kwargs.pop("eos_token_id", None)
        bos = self.cfg.language.bos_token  # the tokenizer has one token for BOS, EOS and padding
        stop = torch.tensor(bos if eos is None else eos, device=tokens.device)
        kwargs.pop("use_past_kv_cache", None)
        kwargs["verbose"] = False
        finished = torch.zeros(len(tokens), dtype=torch.bool, device=tokens.device)
        for _ in range(max_new_tokens):
            longer: Any = super().generate(
                tokens, 1, use_past_kv_cache=False, return_type="tokens", stop_at_eos=False, **kwargs
            )
            tokens = longer
            if stop_at_eos:
                tokens[finished, -1] = bos
                finished |= torch.isin(tokens[:, -1], stop)
                if finished.all():
                    break
        if return_type == "tokens":
            return tokens
        texts = [self.cfg.language.to_string(row.cpu()) for row in tokens]
        return texts[0] if len(texts) == 1 else texts

    def _prompt(self, input: Any, kwargs: dict[str, Any]) -> Tensor:
        if isinstance(input, Tensor):
            return input.to(self.cfg.device)
        known = {name: kwargs[name] for name in ("prepend_bos", "padding_side") if name in kwargs}
        return self.to_tokens(input, **known)

    def _check_length(self, tokens: Tensor, extra: int = 0) -> None:
        length = tokens.shape[1 if tokens.ndim == 3 else -1] + extra
        if length > self.cfg.n_ctx:
            raise ValueError(
                f"{length} tokens (BOS included) exceed this model's n_ctx={self.cfg.n_ctx}; shorten the string, or "
                f"build the model with get_config(…, n_ctx={length})"
            )


def build_model(config: DyckTransformerConfig, seed: int = 0) -> DyckTransformer:
    """Build a model with freshly initialised weights.

    Weights are drawn as TransformerLens' "gpt2" mode has it: normal with standard deviation `config.initializer_range`
    (0.8/√d_model by default), biases 0, LayerNorm scales 1; from a generator of their own, so the same seed gives the
    same weights whatever happened before, and global random state is neither read nor changed.

    Args:
        config: from `get_config`, or made by hand.
        seed: of the initialisation.

    Returns:
        A HookedTransformer, on `config.device`.

    Raises:
        TypeError: `config` is not a `DyckTransformerConfig`.
    """
    if not isinstance(config, DyckTransformerConfig):
        raise TypeError(f"build_model needs a DyckTransformerConfig (see get_config), not {type(config).__name__}")
    model = DyckTransformer(config)
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            kind = name.rpartition(".")[2]
            if kind.startswith("W_"):
                values = torch.randn(parameter.shape, generator=generator, dtype=torch.float64)
                parameter.copy_(values * config.initializer_range)
            else:
                parameter.fill_(1.0 if kind == "w" else 0.0)
        _fix_constants(model)
    return model


def _fix_constants(model: DyckTransformer) -> None:
    """Set and freeze what the configuration says is not trained."""
    cfg = model.cfg
    if cfg.position != "learned":
        model.pos_embed.W_pos.copy_(position_table(cfg))
        model.pos_embed.W_pos.requires_grad_(False)
    if cfg.attention == "uniform":
        for block in model.blocks:
            for parameter in (block.attn.W_Q, block.attn.W_K, block.attn.b_Q, block.attn.b_K):
                parameter.zero_().requires_grad_(False)


def position_table(cfg: DyckTransformerConfig) -> Tensor:
    """The fixed position encodings, ``[n_ctx, d_model]``, float64: zeros, linear (Yao et al. 2021), or sinusoidal.

    Position i counts BOS as 0. Sinusoidal: sin and cos of i / 10000^(2j/d_model), as in Vaswani et al. 2017.
    """
    table = torch.zeros(cfg.n_ctx, cfg.d_model, dtype=torch.float64)
    position = torch.arange(cfg.n_ctx, dtype=torch.float64)
    if cfg.position == "linear":
        table[:, -1] = position / cfg.t_max
    elif cfg.position == "sinusoidal":
        even = torch.arange(0, cfg.d_model, 2, dtype=torch.float64)
        angle = position[:, None] * torch.exp(-math.log(10000.0) * even / cfg.d_model)
        table[:, 0::2] = angle.sin()
        table[:, 1::2] = angle.cos()[:, : cfg.d_model // 2]
    return table
