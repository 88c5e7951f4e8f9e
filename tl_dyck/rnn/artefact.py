"""A `TwoLayerRNN` on disk: a folder with `rnn.safetensors` and `rnn.json`.

Never pickle, nothing executed.

`rnn.json` holds, as the `config.json` of a model does,

    {"format": "tl_dyck.rnn/1", "config": every field of RNNConfig: state machine, sizes, alphabet,
     …, "sha256": of the weights}

and nothing else. Names and shapes of the weights follow from the configuration. No memory is
reserved for a size before the weights have shown it, and no file but these two is opened.

Each file is replaced whole (`tl_dyck.files`), the weights first; a crash between the two leaves a
pair whose hash does not fit, which is refused when it is read, never run.
"""

from __future__ import annotations

import math
from pathlib import Path

import torch

from tl_dyck.files import (
    LARGEST_DESCRIPTION,
    CorruptFileError,
    ensure_folder,
    read_json,
    read_tensors,
    write_json,
    write_tensors,
)
from tl_dyck.rnn.config import RNNConfig, RNNConfigError, RNNWeightError, weight_shapes
from tl_dyck.rnn.machine import TwoLayerRNN

CONFIG_FILE = "rnn.json"
WEIGHT_FILE = "rnn.safetensors"

_FORMAT = "tl_dyck.rnn/1"
_KEYS = {"format", "config", "sha256"}
_LARGEST_NUMBER = 8  # bytes, of float64
_LARGEST_HEADER = 2**16  # of a safetensors file: about 100 bytes a tensor


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
    path = ensure_folder(folder)
    digest = write_tensors(path / WEIGHT_FILE, rnn.weights)
    saved = {"format": _FORMAT, "config": rnn.config.to_dict(), "sha256": digest}
    write_json(path / CONFIG_FILE, saved)
    return path


def load_rnn(folder: str | Path, *, device: torch.device | str = "cpu") -> TwoLayerRNN:
    """Read an artefact that `save` wrote. Needs torch alone, not TransformerLens.

    Args:
        folder: where `rnn.json` and `rnn.safetensors` are.
        device: where to put the weights.

    Raises:
        CorruptFileError: a file is missing, truncated, altered, of a newer format, or says what
            cannot be; the message says which and what.
    """
    path = Path(folder)
    config, digest = _read_description(path / CONFIG_FILE)
    weight_file = path / WEIGHT_FILE
    n_numbers = sum(math.prod(shape) for shape in weight_shapes(config).values())
    tensors = read_tensors(weight_file, digest, n_numbers * _LARGEST_NUMBER + _LARGEST_HEADER)
    try:
        return TwoLayerRNN(config, tensors).to(device)
    except RNNWeightError as error:
        raise CorruptFileError(f"{str(weight_file)!r}: {error}") from error


def _read_description(file: Path) -> tuple[RNNConfig, str]:
    """Read and check `rnn.json`; returns the configuration and the digest of the weights."""

    def refuse(reason: str) -> CorruptFileError:
        return CorruptFileError(f"{str(file)!r} does not describe an RNN: {reason}")

    plain = read_json(file, LARGEST_DESCRIPTION)
    if not isinstance(plain, dict) or plain.get("format") != _FORMAT:
        raise refuse(f'it is not an object with "format": "{_FORMAT}"')
    if plain.keys() != _KEYS:
        raise refuse(f"keys missing or unknown: {sorted(plain.keys() ^ _KEYS)}")
    config, digest = plain["config"], plain["sha256"]
    if not isinstance(config, dict) or not isinstance(digest, str):
        raise refuse("config must be an object, and sha256 a string")
    try:
        return RNNConfig.from_dict(config), digest
    except RNNConfigError as error:
        raise refuse(str(error)) from error
