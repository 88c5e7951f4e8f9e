"""Which TransformerLens is installed: asked here and nowhere else."""

from __future__ import annotations

from functools import cache
from importlib import metadata
from typing import TYPE_CHECKING

from tl_dyck.kit.errors import DyckError

__all__ = ["MAJOR", "Base", "HookedRootModule", "UnsupportedTransformerLensError", "keeps_masks"]

_SUPPORTED = (3, 4)  # first and last major version


class UnsupportedTransformerLensError(DyckError, ImportError):
    """TransformerLens is not installed, or a release with which models cannot be made."""


def _supported_major() -> int:
    least, most = _SUPPORTED
    try:
        found = metadata.version("transformer_lens")
    except metadata.PackageNotFoundError:
        found = ""
    number = found.partition(".")[0]
    if number.isdigit() and least <= int(number) <= most:
        return int(number)
    said = (
        f"it is {found}, which is too {'new' if int(number) > most else 'old'}"
        if found
        else ("it is not installed")
    )
    raise UnsupportedTransformerLensError(
        f"tl_dyck needs TransformerLens {least} or {most}, and {said}: "
        f"pip install 'transformer_lens>={least},<{most + 1}'"
    )


#: The first number of the version.
MAJOR = _supported_major()

if TYPE_CHECKING:
    from transformer_lens import HookedRootModule
else:
    try:
        from transformer_lens import HookedRootModule
    except ImportError:  # early releases have it elsewhere
        from transformer_lens.hook_points import HookedRootModule

#: What models are an instance of: on TransformerLens 3 its own class, which computes nothing here.
if TYPE_CHECKING or MAJOR >= 4:
    Base = HookedRootModule
else:
    from transformer_lens import HookedTransformer as Base


@cache
def keeps_masks() -> bool:
    """Whether state dicts of this release hold causal masks, ``[n_ctx, n_ctx]``: early ones do."""
    if MAJOR >= 4:
        return False
    from transformer_lens import HookedTransformerConfig
    from transformer_lens.components import Attention

    tiny = HookedTransformerConfig(
        n_layers=1, d_model=1, d_head=1, n_ctx=2, d_vocab=1, act_fn="relu"
    )
    return bool(Attention(tiny).mask.numel())
