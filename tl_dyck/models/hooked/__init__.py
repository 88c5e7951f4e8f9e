"""The classes that models are made of, whichever TransformerLens is installed.

TransformerLens 4 has no HookedTransformer any more. On 3 this package hands out TransformerLens'
own classes, on 4 those of `tl_dyck.models.hooked.own`, which are built on what TransformerLens 4
keeps and compute the same, bit for bit. No other module asks which one it is.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tl_dyck.models.hooked.installed import MAJOR

if TYPE_CHECKING or MAJOR < 4:
    from transformer_lens import HookedTransformer, HookedTransformerConfig
    from transformer_lens.components import (
        MLP,
        Attention,
        LayerNorm,
        LayerNormPre,
        TransformerBlock,
    )
else:
    from tl_dyck.models.hooked.own import (
        MLP,
        Attention,
        HookedTransformer,
        HookedTransformerConfig,
        LayerNorm,
        LayerNormPre,
        TransformerBlock,
    )

__all__ = [
    "MLP",
    "Attention",
    "HookedTransformer",
    "HookedTransformerConfig",
    "LayerNorm",
    "LayerNormPre",
    "TransformerBlock",
]
