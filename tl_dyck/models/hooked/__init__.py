"""What a HookedTransformer is, whichever TransformerLens is installed.

Knows: which TransformerLens is installed, and what its classes are called.
Does not know: brackets and families (`tl_dyck.language`, `tl_dyck.models.families`).

TransformerLens 4 has none any more. This package hands out what users bring: on 3 TransformerLens'
own classes, on 4 those of `tl_dyck.models.hooked.own`, which compute the same, bit for bit. Our
models are of `own` on both; on 3 that is a subclass of TransformerLens' class. No other module asks
which one is installed.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tl_dyck.models.hooked.installed import MAJOR

if TYPE_CHECKING or MAJOR >= 4:
    from tl_dyck.models.hooked.own import (
        HookedTransformer,
        HookedTransformerConfig,
        TransformerBlock,
    )
else:
    from transformer_lens import HookedTransformer, HookedTransformerConfig
    from transformer_lens.components import TransformerBlock

__all__ = ["HookedTransformer", "HookedTransformerConfig", "TransformerBlock"]
