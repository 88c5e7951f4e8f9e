"""The decoder that all models of ours are: TransformerLens 3's class, as far as it is needed.

Knows: the forward pass of a decoder, its hook points, and what one asks of it.
Does not know: brackets and families (`tl_dyck.language`, `tl_dyck.models.families`).

It is built on what TransformerLens 4 keeps: hook points, `HookedRootModule`, `ActivationCache`,
`FactoredMatrix`, utilities. On TransformerLens 3 it is a subclass of that
class and computes nothing by it; tests hold the one to the other bit for bit.

Tried instead: `TransformerBridge.boot_native` of 4.3. What a hook writes to attention scores is
lost there (logits change by 0.0; decoys and masks are such hooks), parameters have names like
``layers.0._original_component.attn._original_component.q``, a forward pass takes 1.14 times and a
cache 1.24 times as long, and TransformerLens 3 has no such thing.
"""

from tl_dyck.models.hooked.own.attention import Attention
from tl_dyck.models.hooked.own.block import TransformerBlock
from tl_dyck.models.hooked.own.config import HookedTransformerConfig, UnsupportedOptionError
from tl_dyck.models.hooked.own.layers import (
    MLP,
    Embed,
    LayerNorm,
    LayerNormPre,
    PosEmbed,
    Unembed,
    UnitNorm,
)
from tl_dyck.models.hooked.own.transformer import HookedTransformer

__all__ = [
    "MLP",
    "Attention",
    "Embed",
    "HookedTransformer",
    "HookedTransformerConfig",
    "LayerNorm",
    "LayerNormPre",
    "PosEmbed",
    "TransformerBlock",
    "Unembed",
    "UnitNorm",
    "UnsupportedOptionError",
]
