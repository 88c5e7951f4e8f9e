"""Weights of a HookedTransformer by their names: in files, and their shapes by its options.

Knows: what wrappers and old releases leave in a state dict, what a file that somebody made up may
hold, and which sizes a model has. Does not know: other forms (`tl_dyck.models.foreign`).
"""

from __future__ import annotations

import io
import itertools
import re
import zipfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from tl_dyck.kit.arguments import checked
from tl_dyck.kit.check import check_integer
from tl_dyck.kit.files import (
    LARGEST_TENSORS,
    CorruptFileError,
    one_line,
    read_regular,
    read_tensors,
)

#: What wrappers and old releases leave in a state dict: prefixes, and buffers that are no weights.
_WRAPPED = re.compile(r"^(?:(?:_orig_mod|module|_forward_module)\.)+")
BUFFERS = (".mask", ".IGNORE", ".rotary_sin", ".rotary_cos")


@checked
def read_state_dict(path: str | Path) -> dict[str, Tensor]:
    """Weights from a file of PyTorch or safetensors, without running what a pickle may hold.

    Prefixes of wrappers and masks of early TransformerLens are left out.

    Raises:
        CorruptFileError: the file is missing, or holds no weights; the message says why.
    """
    source = repr(str(path))
    if str(path).endswith(".safetensors"):
        return without(read_tensors(path), BUFFERS)
    data = read_regular(path, LARGEST_TENSORS)
    try:
        _check_packed(data, source)
        found = torch.load(io.BytesIO(data), map_location="cpu", weights_only=True)
    # what an unpickler of torch raises of a file that someone made up can be anything
    except Exception as error:
        if isinstance(error, CorruptFileError):
            raise
        raise CorruptFileError(f"{source} is not a state dict: {one_line(error)}") from error
    if not isinstance(found, Mapping) or not all(isinstance(w, Tensor) for w in found.values()):
        raise CorruptFileError(f"{source} holds {type(found).__name__}, not a state dict")
    kept = without(found, BUFFERS)
    _check_held(kept, len(data), source)
    return kept


def without(state: Mapping[Any, Tensor], buffers: tuple[str, ...]) -> dict[str, Tensor]:
    """Weights by their own names, which are not those of others: a CorruptFileError if they are."""
    named: dict[str, Tensor] = {}
    for name, value in state.items():
        own = _WRAPPED.sub("", str(name))
        if own in named:
            raise CorruptFileError(f"there are two weights {own!r}, with and without a prefix")
        named[own] = value
    return {name: value for name, value in named.items() if not name.endswith(buffers)}


def _check_packed(data: bytes, source: str) -> None:
    """Refuse an archive that becomes larger when it is read, as PyTorch writes none."""
    if zipfile.is_zipfile(io.BytesIO(data)):
        with zipfile.ZipFile(io.BytesIO(data)) as archive:
            unpacked = sum(each.file_size for each in archive.infolist())
        if unpacked > len(data):
            raise CorruptFileError(
                f"{source} has {len(data):,} bytes and unpacks to {unpacked:,}; PyTorch's are "
                "not compressed"
            )


def _check_held(found: Mapping[str, Tensor], size: int, source: str) -> None:
    """Refuse tensors that say more numbers than there are bytes: of stride 0, or of one storage."""
    if any(each.layout != torch.strided or each.is_quantized for each in found.values()):
        raise CorruptFileError(f"{source} holds tensors that are sparse or quantized")
    said = sum(each.numel() * each.element_size() for each in found.values())
    if said > size:
        raise CorruptFileError(
            f"{source} has {size:,} bytes, but its tensors say {said:,}: some are expanded or "
            "share their numbers; save contiguous copies"
        )


# --- shapes ---------------------------------------------------------------------------------------

#: Options that are sizes of weights.
SIZES = ("n_layers", "d_model", "n_ctx", "d_head", "n_heads", "d_mlp", "d_vocab", "d_vocab_out")


def option_shapes(options: Mapping[str, Any]) -> Iterator[tuple[str, list[int]]]:
    """The shapes that options ask for, so that they can be compared before anything is built.

    WrongTypeError and WrongValueError name a size that is none.
    """
    size = {name: options[name] for name in SIZES}
    for name in SIZES:
        if name != "d_mlp" or not options["attn_only"]:
            size[name] = check_integer(name, size[name], least=1)
    yield "embed.W_E", [size["d_vocab"], size["d_model"]]
    yield "unembed.W_U", [size["d_model"], size["d_vocab_out"]]
    if options["positional_embedding_type"] != "rotary":
        yield "pos_embed.W_pos", [size["n_ctx"], size["d_model"]]
    yield from layer_shapes(size, mlp=not options["attn_only"])


def layer_shapes(size: Mapping[str, Any], mlp: bool) -> Iterator[tuple[str, list[int]]]:
    """Shapes in every layer, the last first: of 10⁹ layers, that one is missing at once."""
    last = size["n_layers"] - 1
    for layer in itertools.chain([last], range(last)):
        yield f"blocks.{layer}.attn.W_O", [size["n_heads"], size["d_head"], size["d_model"]]
        if mlp:
            yield f"blocks.{layer}.mlp.W_in", [size["d_model"], size["d_mlp"]]
