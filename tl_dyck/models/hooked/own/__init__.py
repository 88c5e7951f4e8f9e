"""The decoder that all models of ours are: TransformerLens 3's class, as far as it is needed.

It is built on what TransformerLens 4 keeps: hook points, `HookedRootModule`, `ActivationCache`,
`FactoredMatrix`, utilities. On TransformerLens 3 it is a subclass of that
class and computes nothing by it; tests hold the one to the other bit for bit.
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
