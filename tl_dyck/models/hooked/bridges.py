"""What TransformerLens 4 offers to wrap a module of ours in a `TransformerBridge`."""

from __future__ import annotations

from types import SimpleNamespace

from tl_dyck.errors import DyckError
from tl_dyck.models.hooked.installed import MAJOR


class NoBridgeError(DyckError, TypeError):
    """A `TransformerBridge` cannot be had: of this model, or with this TransformerLens."""


def bridge_parts() -> SimpleNamespace:
    """TransformerLens' native model, and the functions that load and wrap it.

    Raises:
        NoBridgeError: TransformerLens is older than 4.
    """
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
