"""The model class that TransformerLens took out in 4.0, as far as this library needs it.

It is built on what TransformerLens 4 keeps: hook points, `HookedRootModule`, `ActivationCache`,
`FactoredMatrix`, the key-value cache, utilities. Tests hold it to TransformerLens 3 bit for bit.
What it leaves out, it has not.
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
    "UnsupportedOptionError",
]
