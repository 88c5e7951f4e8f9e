"""A `TwoLayerRNN` on disk: a folder with `rnn.safetensors` and `rnn.json`.

Never pickle, nothing executed.

`rnn.json` holds, as the `config.json` of a model does, "format", "config" (every field of
`RNNConfig`: state machine, sizes, alphabet, …), "tensors" and "sha256" of the weights, and nothing
else; see `tl_dyck.kit.records`. Names and shapes of the weights follow from the configuration.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch

from tl_dyck.kit.arguments import checked
from tl_dyck.kit.files import CorruptFileError
from tl_dyck.kit.records import Shapes, read_weights, write_weights
from tl_dyck.rnn.config import RNNConfig, RNNWeightError, weight_shapes
from tl_dyck.rnn.machine import TwoLayerRNN

FILES = ("rnn.json", "rnn.safetensors")

_FORMAT = "tl_dyck.rnn/1"


@checked
def save_rnn(rnn: TwoLayerRNN, folder: str | Path) -> Path:
    """Write the artefact; an older one in the same folder is replaced.

    Args:
        rnn: what to write.
        folder: made if it does not exist.

    Returns:
        The folder.

    Raises:
        OSError: the folder cannot be made or written to.
    """
    return write_weights(folder, _FORMAT, rnn.config.to_dict(), rnn.weights, FILES)


@checked
def load_rnn(folder: str | Path, *, device: torch.device | str = "cpu") -> TwoLayerRNN:
    """Read an artefact that `save_rnn` wrote. Needs torch alone, not TransformerLens.

    Args:
        folder: where `rnn.json` and `rnn.safetensors` are.
        device: where to put the weights.

    Raises:
        CorruptFileError: a file is missing, truncated, altered, of a newer format, or says what
            cannot be; the message says which and what.
    """
    _, config, weights = read_weights(folder, (_FORMAT,), "an RNN", _shapes, FILES)
    try:
        return TwoLayerRNN(RNNConfig.from_dict(config), weights).to(device)
    except RNNWeightError as error:
        raise CorruptFileError(f"{str(Path(folder) / FILES[1])!r}: {error}") from error


def _shapes(_: str, config: dict[str, Any]) -> Shapes:
    shapes = weight_shapes(RNNConfig.from_dict(config))
    return [(name, list(shape)) for name, shape in shapes.items()]
