"""A model as a `TransformerBridge`, for those tools of TransformerLens 4 that insist on one."""

from __future__ import annotations

import copy
from functools import partial
from types import SimpleNamespace
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from transformer_lens.utilities.activation_functions import SUPPORTED_ACTIVATIONS

from tl_dyck.kit.arguments import checked
from tl_dyck.kit.errors import DyckError
from tl_dyck.models.embeddings import DepthEmbed
from tl_dyck.models.hooked import HookedTransformer
from tl_dyck.models.hooked.installed import MAJOR
from tl_dyck.models.hooked.own import Attention, UnitNorm
from tl_dyck.reading.decoder import HIDDEN_BOS
from tl_dyck.reading.inputs import hides_bos, named_logits


class NoBridgeError(DyckError, TypeError):
    """A `TransformerBridge` cannot be had: of this model, or with this TransformerLens."""


@checked
def as_bridge(model: HookedTransformer) -> Any:
    """A `TransformerBridge` with a copy of the model's weights and the same logits.

    What it calls by a hook name of ours means the same: with Eq. 6, `hook_attn_out` is what is
    added to the residual stream. Where the residual stream is not a sum (Eq. 49, bare attention),
    tools that take it for one are wrong, as they are on any release. Rows of `W_E` of a minimal
    first layer are one for each token and depth, ``token × (D + 1) + depth``. Scores in a cache of
    a bridge are not masked, and a hook that writes scores changes nothing.

    Args:
        model: a Dyck model, or any plain decoder of `tl_dyck.models.hooked`; not changed. Hooks
            that it has stay behind.

    Returns:
        The bridge, on the model's device and of its precision.

    Raises:
        NoBridgeError: TransformerLens is older than 4, or the model has a part that no bridge
            has; the message names it.
    """
    parts = _parts()
    _check(model)
    cfg = model.cfg
    config = parts.Config(
        **{name: getattr(cfg, name) for name in _SAME},
        act_fn=cfg.act_fn if cfg.act_fn == "solu_ln" else "relu",
        architecture="TransformerLensNative",
        device=str(cfg.device),
    )
    with torch.random.fork_rng(devices=[]):  # new layers draw weights, which are replaced below
        native = _native(model, parts.NativeModel, config)
    config.act_fn = cfg.act_fn
    bridge = parts.build(
        native,
        "TransformerLensNative",
        tl_config=config,
        model_name=cfg.model_name,
    )
    if model.tokenizer is not None:
        # afterwards, for its set-up encodes "a", which is no bracket
        bridge.tokenizer = copy.deepcopy(model.tokenizer)
        bridge.cfg.tokenizer_prepends_bos = cfg.tokenizer_prepends_bos
    if hasattr(model, "language"):
        bridge.cfg.language = model.language
        bridge.cfg.predicts = named_logits(model)
    weights = {name: value.detach().clone() for name, value in model.named_parameters()}
    bridge.load_state_dict(parts.convert(weights, config), strict=False)
    return bridge.eval()


def _parts() -> SimpleNamespace:
    """TransformerLens' native model, and the functions that load and wrap it."""
    if MAJOR < 4:
        raise NoBridgeError(
            "a TransformerBridge of a model needs transformer_lens>=4; on TransformerLens 3 the "
            "model is a HookedTransformer, which that release's tools take as it is"
        )
    from transformer_lens import TransformerBridgeConfig
    from transformer_lens.model_bridge.sources._bridge_builder import build_bridge_from_module
    from transformer_lens.model_bridge.sources.native.model import NativeModel
    from transformer_lens.utilities.tl_checkpoint_conversion import convert_tl_checkpoint

    return SimpleNamespace(
        Config=TransformerBridgeConfig,
        NativeModel=NativeModel,
        build=build_bridge_from_module,
        convert=convert_tl_checkpoint,
    )


_SAME = (
    "n_layers",
    "d_model",
    "d_head",
    "n_heads",
    "d_mlp",
    "n_ctx",
    "d_vocab",
    "d_vocab_out",
    "eps",
    "normalization_type",
    "attn_only",
    "attention_dir",
    "default_prepend_bos",
    "dtype",
)


def _check(model: Any) -> None:
    """Refuse what a bridge could only pretend to be."""
    if not isinstance(model, HookedTransformer):
        raise NoBridgeError(f"as_bridge takes a model of tl_dyck, not {type(model).__name__}")
    cfg = model.cfg
    ours = "block" in vars(cfg)
    lacking = {
        "attention of its own kind (a decoy head, which is no weight)": any(
            type(block.attn) is not Attention for block in model.blocks
        ),
        f"{HIDDEN_BOS}, and a bridge would show it": hides_bos(model),
        "a LayerNorm after the embedding (post_embedding_ln)": cfg.post_embedding_ln,
        "norms on what a block adds (use_normalization_before_and_after)": (
            cfg.use_normalization_before_and_after and not ours
        ),
        "trained numbers in its activation (act_fn='xielu')": cfg.act_fn == "xielu",
        "a norm inside its MLPs without scale (act_fn='solu_ln')": (
            cfg.act_fn == "solu_ln" and cfg.normalization_type != "LN"
        ),
    }
    for part, there in lacking.items():
        if there:
            raise NoBridgeError(f"no TransformerBridge of this model: it has {part}")


def _native(model: Any, kind: Any, config: Any) -> nn.Module:
    """The model as TransformerLens' native one, `kind`, with parts of ours where it needs them."""
    cfg = model.cfg
    native: Any = kind(config)
    native.head = nn.Linear(cfg.d_model, cfg.d_vocab_out)  # theirs has no bias
    for index, block in enumerate(model.blocks):
        _adapt(native.layers[index], block)
        if getattr(cfg, "block", "gpt") != "gpt":
            native.layers[index] = _Block(native.layers[index], block, cfg.block)
    if isinstance(model.embed, DepthEmbed):
        native.tok_embed = _DepthTable(model.embed)
    moved: nn.Module = native.to(device=cfg.device, dtype=cfg.dtype)
    return moved


def _adapt(layer: Any, block: Any) -> None:
    """What the native block takes from a configuration, from the block itself."""
    layer.attn.scale = block.attn.attn_scale
    if not block.cfg.attn_only and block.cfg.act_fn != "solu_ln":
        layer.mlp.act = SUPPORTED_ACTIVATIONS[block.cfg.act_fn]


class _Block(nn.Module):
    """A block of Eq. 6, of Eq. 49, or of attention alone, of native parts."""

    def __init__(self, layer: Any, block: Any, kind: str) -> None:
        super().__init__()
        self.kind = kind
        self.ln1, self.attn = layer.ln1, layer.attn
        if kind == "eq6":  # in the attention, so that what it returns is what is added
            self.attn.register_forward_hook(partial(_normalised, UnitNorm(block.ln1_post.c)))
        if kind != "bare":
            self.ln2 = UnitNorm(block.ln2.c) if kind == "eq49" else layer.ln2
            self.mlp = layer.mlp

    def forward(
        self,
        hidden_states: Tensor,
        attention_mask: Tensor | None = None,
        position_ids: Tensor | None = None,
        **kwargs: Any,
    ) -> tuple[Tensor]:
        """Run the block; arguments as TransformerLens' native block has them."""
        attn_out, _ = self.attn(
            self.ln1(hidden_states), attention_mask=attention_mask, position_ids=position_ids
        )
        if self.kind == "bare":
            return (attn_out,)
        if self.kind == "eq49":
            kept = self.ln2(hidden_states + attn_out)
            return (kept + self.mlp(kept),)
        hidden_states = hidden_states + attn_out
        return (hidden_states + self.mlp(self.ln2(hidden_states)),)


def _normalised(norm: UnitNorm, module: nn.Module, args: Any, out: Any) -> tuple[Tensor, Tensor]:
    """A forward hook that puts LN_C on what attention returns."""
    return norm(out[0]), out[1]


class _DepthTable(nn.Module):
    """A `DepthEmbed` with its table in one matrix, as an embedding has."""

    weight: Tensor

    def __init__(self, embed: DepthEmbed) -> None:
        super().__init__()
        self.language, self.n_depths = embed.language, embed.table.shape[1]
        self.register_buffer("weight", embed.table.flatten(0, 1).clone(), persistent=False)

    def forward(self, tokens: Tensor) -> Tensor:
        """Embed strings given from their beginning."""
        return F.embedding(
            tokens * self.n_depths + self.language.clipped_depth(tokens), self.weight
        )
