"""One-layer transformers as two-layer RNNs; imports torch, never TransformerLens."""

from tl_dyck.rnn.attention import Accumulator
from tl_dyck.rnn.config import RNNConfig, RNNConfigError, RNNWeightError, weight_shapes
from tl_dyck.rnn.machine import HistoryCarry, QueryCarry, RNNInputError, TwoLayerRNN

__all__ = [
    "Accumulator",
    "HistoryCarry",
    "QueryCarry",
    "RNNConfig",
    "RNNConfigError",
    "RNNInputError",
    "RNNWeightError",
    "TwoLayerRNN",
    "weight_shapes",
]
