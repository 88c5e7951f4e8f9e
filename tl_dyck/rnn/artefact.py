"""A `TwoLayerRNN` on disk: a folder with `rnn.safetensors` and `rnn.json`.

Never pickle, nothing executed.

`rnn.json` holds

    {"format": "tl_dyck.rnn", "config": every field of RNNConfig: format version, state machine,
     shapes, alphabet, …, "weights": {"file": "rnn.safetensors", "sha256": …, "dtype": "float32" |
     "float64", "shapes": {name: […]}}, "made_with": {"tl_dyck": …, "torch": …}}

and nothing else. Reading checks everything that was declared against everything that is there, in
this order: the JSON, the configuration, the shapes that follow from it, the size of the weight
file, its SHA-256, its tensors. No memory is reserved for a declared size, and no file but these two
is opened.

Each file is replaced whole (`tl_dyck.files`), the weights first; a crash between the two leaves a
pair whose hash does not fit, which is refused when it is read, never run.
"""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import torch

from tl_dyck import __version__
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

__all__ = ["CONFIG_FILE", "WEIGHT_FILE", "load_rnn", "save_rnn"]

CONFIG_FILE = "rnn.json"
WEIGHT_FILE = "rnn.safetensors"

_FORMAT = "tl_dyck.rnn"
_KEYS = {"format", "config", "weights", "made_with"}
_WEIGHT_KEYS = {"file", "sha256", "dtype", "shapes"}
_DTYPES = {"float32": torch.float32, "float64": torch.float64}
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
    weights = {
        "file": WEIGHT_FILE,
        "sha256": digest,
        "dtype": str(rnn.dtype).removeprefix("torch."),
        "shapes": {name: list(shape) for name, shape in weight_shapes(rnn.config).items()},
    }
    made_with = {"tl_dyck": __version__, "torch": str(torch.__version__)}
    config = rnn.config.to_dict()
    write_json(
        path / CONFIG_FILE,
        {"format": _FORMAT, "config": config, "weights": weights, "made_with": made_with},
    )
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
    config, weights = _read_description(path / CONFIG_FILE)
    weight_file = path / WEIGHT_FILE
    most = _check_size(weight_file, config, weights["dtype"])
    tensors = read_tensors(weight_file, sha256=weights["sha256"], most=most)
    wrong = sorted(
        name for name, tensor in tensors.items() if tensor.dtype != _DTYPES[weights["dtype"]]
    )
    if wrong:
        raise CorruptFileError(
            f"{str(weight_file)!r}: tensors {wrong} are not {weights['dtype']} as declared"
        )
    try:
        return TwoLayerRNN(config, tensors).to(device)
    except RNNWeightError as error:
        raise CorruptFileError(f"{str(weight_file)!r}: {error}") from error


def _read_description(file: Path) -> tuple[RNNConfig, dict[str, Any]]:
    """Read and check `rnn.json`; returns configuration and what is declared about weights."""

    def refuse(reason: str) -> CorruptFileError:
        return CorruptFileError(f"{str(file)!r} does not describe an RNN: {reason}")

    plain = read_json(file, LARGEST_DESCRIPTION)
    if not isinstance(plain, dict) or plain.get("format") != _FORMAT:
        raise refuse(f'it is not an object with "format": "{_FORMAT}"')
    if plain.keys() != _KEYS:
        raise refuse(f"keys missing or unknown: {sorted(plain.keys() ^ _KEYS)}")
    weights = plain["weights"]
    if not isinstance(plain["config"], dict) or not isinstance(weights, dict):
        raise refuse("config and weights must be objects")
    try:
        config = RNNConfig.from_dict(plain["config"])
    except RNNConfigError as error:
        raise refuse(str(error)) from error
    if weights.keys() != _WEIGHT_KEYS:
        raise refuse(f"keys missing or unknown in weights: {sorted(weights.keys() ^ _WEIGHT_KEYS)}")
    if weights["file"] != WEIGHT_FILE:
        raise refuse(
            f"the weights must be in {WEIGHT_FILE!r} beside it, not in {weights['file']!r}"
        )
    if type(weights["dtype"]) is not str or weights["dtype"] not in _DTYPES:
        raise refuse(f"dtype must be one of {sorted(_DTYPES)}, not {weights['dtype']!r}")
    if type(weights["sha256"]) is not str:
        raise refuse(f"sha256 must be a string, not {weights['sha256']!r}")
    expected = {name: list(shape) for name, shape in weight_shapes(config).items()}
    if weights["shapes"] != expected:
        raise refuse(f"the declared shapes are not those that its config implies, {expected}")
    return config, weights


def _check_size(file: Path, config: RNNConfig, dtype: str) -> int:
    """Refuse, unread, a weight file whose size is not the declared one.

    Returns the largest it may have.
    """
    declared = (
        sum(math.prod(shape) for shape in weight_shapes(config).values()) * _DTYPES[dtype].itemsize
    )
    most = declared + _LARGEST_HEADER
    size = (
        file.stat().st_size if file.is_file() else most
    )  # what is no file is refused by who reads it
    if not declared < size <= most:
        raise CorruptFileError(
            f"{str(file)!r} is truncated or was altered: it has {size} bytes, and the declared "
            f"weights {declared} and a short header"
        )
    return most
