"""One-layer transformers as two-layer RNNs; imports torch, never TransformerLens.

Knows: the two layers of the RNN, what they carry, and its files.
Does not know: TransformerLens, models and certificates (`tl_dyck.models`, `tl_dyck.certify`).

Examples:
    >>> from tl_dyck import construct, load_task
    >>> model = construct.stack(load_task("dyck-2-4").language)  # any causal one
    >>> rnn = export_rnn(model)
    >>> tokens = model.to_tokens("[(())]")
    >>> bool((rnn(tokens) - model(tokens)).abs().max() < 1e-9)  # the same logits, at every position
    True
    >>> folder = save_rnn(rnn, "my-rnn")
    >>> load_rnn("my-rnn").to_string(tokens[0])
    '[(())]'

`tl_dyck.rnn.machine` states why the two are equal.
"""

from tl_dyck.rnn.artefact import load_rnn, save_rnn
from tl_dyck.rnn.attention import QueryCarry
from tl_dyck.rnn.config import (
    RNNConfig,
    RNNConfigError,
    RNNInputError,
    RNNWeightError,
    weight_shapes,
)
from tl_dyck.rnn.export import export_rnn
from tl_dyck.rnn.machine import TwoLayerRNN
from tl_dyck.rnn.unsupported import ExportMismatchError, UnsupportedModelError

__all__ = [
    "ExportMismatchError",
    "QueryCarry",
    "RNNConfig",
    "RNNConfigError",
    "RNNInputError",
    "RNNWeightError",
    "TwoLayerRNN",
    "UnsupportedModelError",
    "export_rnn",
    "load_rnn",
    "save_rnn",
    "weight_shapes",
]
