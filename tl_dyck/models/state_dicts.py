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
    LARGEST_DESCRIPTION,
    LARGEST_TENSORS,
    CorruptFileError,
    one_line,
    read_json,
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
    if str(path).endswith(".safetensors"):
        return without(read_tensors(path), BUFFERS)
    return read_checkpoint(path)[0]


#: What weights are called in a checkpoint that holds more: by nanoGPT, PyTorch, Lightning.
_INSIDE = ("model", "model_state_dict", "state_dict")


def read_checkpoint(path: str | Path) -> tuple[dict[str, Tensor], Mapping[Any, Any]]:
    """Weights from a file of PyTorch, as `read_state_dict`; and what the file has besides."""
    source = repr(str(path))
    data = read_regular(path, LARGEST_TENSORS)
    try:
        _check_packed(data, source)
        found = torch.load(io.BytesIO(data), map_location="cpu", weights_only=True)
    # what an unpickler of torch raises of a file that someone made up can be anything
    except Exception as error:
        if isinstance(error, CorruptFileError):
            raise
        said = one_line(error)
        if "weights_only" in said.lower() or "weights only" in said.lower():
            said = "it holds objects, such as a whole model; save model.state_dict()"
        raise CorruptFileError(f"{source} is not a state dict: {said}") from error
    rest: Mapping[Any, Any] = {}
    if isinstance(found, Mapping):
        inside = [name for name in _INSIDE if isinstance(found.get(name), Mapping)]
        if len(inside) == 1:
            found, rest = found[inside[0]], found
    if not isinstance(found, Mapping) or not all(isinstance(w, Tensor) for w in found.values()):
        raise CorruptFileError(f"{source} holds {type(found).__name__}, not a state dict")
    kept = without(found, BUFFERS)
    _check_held(kept, len(data), source)
    return kept, rest


def read_folder(path: Path) -> dict[str, Tensor]:
    """Weights as `save_pretrained` writes them: in a file, in several, or pickled as it used to."""
    index, old = path / "model.safetensors.index.json", path / "pytorch_model.bin"
    whole = path / "model.safetensors"
    if whole.exists() or not (index.exists() or old.exists()):
        return read_tensors(whole)
    if not index.exists():
        return read_state_dict(old)
    said = read_json(index, LARGEST_DESCRIPTION)
    where = said.get("weight_map") if isinstance(said, Mapping) else None
    names = [*map(str, where.values())] if isinstance(where, Mapping) else [".."]
    # beside the index, and nothing elsewhere
    if not all(Path(name).name == name and name.endswith(".safetensors") for name in names):
        raise CorruptFileError(f"{str(index)!r} does not say in which file each weight is")
    found: dict[str, Tensor] = {}
    for name in sorted(set(names)):
        part = read_tensors(path / name)
        if found.keys() & part.keys():
            raise CorruptFileError(f"{str(path / name)!r} has weights that another file has")
        found |= part
    return found


#: nanoGPT's options, by the names that `transformers` has for them.
_NANO = {"n_layer": "n_layer", "n_head": "n_head", "n_embd": "n_embd"}
_NANO |= {"block_size": "n_positions", "vocab_size": "vocab_size"}


def read_nano(path: Path) -> tuple[dict[str, Any], dict[str, Tensor]] | None:
    """A checkpoint of nanoGPT as a GPT-2 of `transformers`, options and weights; None of others.

    There a linear map is ``x @ W.T``, GELU is exact, and biases may be absent, which is 0.
    """
    if path.suffix == ".safetensors" or not path.exists():
        return None
    state, rest = read_checkpoint(path)
    options, source = rest.get("model_args"), repr(str(path))
    if not isinstance(options, Mapping):
        return None
    missing = next((name for name in _NANO if name not in options), None)
    if missing is not None:
        raise CorruptFileError(f"{source} has model_args of no nanoGPT: there is no {missing!r}")
    found = {name: w.T if w.ndim == 2 and ".h." in name else w for name, w in state.items()}
    if not options.get("bias", True):
        for name, weight in list(found.items()):
            if not name.endswith(("wte.weight", "wpe.weight", "lm_head.weight")):
                bias = name.removesuffix("weight") + "bias"
                found.setdefault(bias, weight.new_zeros(weight.shape[-1]))
    said = {theirs: options[name] for name, theirs in _NANO.items()}
    return {**said, "model_type": "gpt2", "activation_function": "gelu"}, found


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
    # a tied head is the embedding once more, in the same place
    once = {(each.data_ptr(), each.shape, each.stride()): each for each in found.values()}
    said = sum(each.numel() * each.element_size() for each in once.values())
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
