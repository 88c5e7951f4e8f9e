"""Which TransformerLens is installed: asked here and nowhere else."""

from __future__ import annotations

from importlib import metadata
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from transformer_lens import HookedRootModule
else:
    try:
        from transformer_lens import HookedRootModule
    except ImportError:  # early releases have it elsewhere
        from transformer_lens.hook_points import HookedRootModule

__all__ = ["MAJOR", "HookedRootModule"]

#: The first number of the version.
MAJOR = int(metadata.version("transformer_lens").partition(".")[0])
