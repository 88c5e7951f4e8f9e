"""Models on disk: a folder with `config.json` and `model.safetensors`.

Knows: which models come back as they were. What is asked of a folder, `tl_dyck.kit.records` knows.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import nn

from tl_dyck.kit.arguments import checked
from tl_dyck.kit.check import not_finite
from tl_dyck.kit.files import CorruptFileError
from tl_dyck.kit.records import Shapes, check_shapes, described, read_weights, write_weights
from tl_dyck.models import adoption
from tl_dyck.models.config import DyckTransformerConfig
from tl_dyck.models.hooked import HookedTransformer
from tl_dyck.models.state_dicts import layer_shapes
from tl_dyck.models.transformer import DyckTransformer, build_model
from tl_dyck.reading.decoder import hooked_at
from tl_dyck.reading.inputs import check_placed, unwrapped


class NotFiniteError(CorruptFileError):
    """Weights are NaN or infinite; the message names the first."""


class _Kind(NamedTuple):
    """How the `config` of a format becomes shapes and a model, and a model a `config`."""

    shapes: Callable[[dict[str, Any]], Shapes]
    build: Callable[[dict[str, Any], str | None], Any]


@checked
def save_model(model: Any, folder: str | Path) -> Path:
    """Save configuration and weights; each file is replaced atomically.

    Args:
        model: a `DyckTransformer`, or what `tl_dyck.adopt` returned; it is saved with its
            vocabulary. What `torch.compile`, `DataParallel` or a `Sequential` of one have put
            around it stays behind, and so do hooks on a `DyckTransformer`.
        folder: made if need be.

    Returns:
        The folder. The configuration, with the digest, is written last.

    Raises:
        OSError: the folder cannot be written.
        TypeError: another model.
        ValueError: `load_model` could not make this model again from its configuration and
            weights; the message says why, and nothing is written.
    """
    model = unwrapped(model)
    if not isinstance(model, HookedTransformer) or not hasattr(model.cfg, "language"):
        raise TypeError(
            f"save_model saves models of tl_dyck, not a {type(model).__name__} of your own; "
            "adopt(model, vocabulary) makes a HookedTransformer one of them, and for others there "
            "is torch.save(model.state_dict(), file)"
        )
    ours = isinstance(model, DyckTransformer)
    if ours and model.cfg.normalization_type == "LNPre":
        raise ValueError(
            "process_weights_ has folded the LayerNorms into the weights of this model, so it is "
            "no longer what its options say; save it before that"
        )
    types = {parameter.dtype for parameter in model.parameters()}
    if types != {model.cfg.dtype}:
        raise ValueError(
            f"the weights are {', '.join(sorted(map(str, types)))}, but model.cfg.dtype is "
            f"{model.cfg.dtype}; convert with model.to(dtype), which changes both"
        )
    check_placed(model)
    config = config_of(model)
    kind = _DYCK if ours else _ADOPTED
    _check_same(model, _KINDS[kind].build(config, "cpu"))
    return write_weights(folder, kind, config, dict(model.named_parameters()))


@checked
def load_model(folder: str | Path, device: str | None = None, *, diverged: bool = False) -> Any:
    """Load what `save_model` saved.

    Args:
        folder: the folder.
        device: where to put the model; None for TransformerLens' default.
        diverged: whether weights may be NaN or infinite, as a training that diverged leaves them.

    Returns:
        A `DyckTransformer`, or the adopted HookedTransformer that was saved.

    Raises:
        CorruptFileError: a file is missing, truncated, altered, or not a model.
        NotFiniteError: a weight is NaN or infinite.
    """
    path = Path(folder)
    kind, config, weights = read_weights(path, _KINDS, "a Dyck model", _shapes)
    with described(path / "config.json", "a Dyck model"):
        model = _KINDS[kind].build(config, device)
    load_weights(model, weights, str(path))
    if not diverged:
        check_finite(weights, str(path))
    return model


def model_of(config: dict[str, Any], weights: dict[str, torch.Tensor], source: str) -> Any:
    """A `DyckTransformer` from what `config_of` and its parameters say, wherever they were kept.

    Raises:
        ValueError, TypeError, KeyError: the config describes none, or one of other sizes than the
            weights; nothing was built then.
        CorruptFileError: the weights, which `source` names, are not this model's, or not finite.
    """
    check_shapes(_dyck_shapes(config), weights)
    model = _build_dyck(config, "cpu")
    load_weights(model, weights, source)
    check_finite(weights, source)
    return model


def config_of(model: Any) -> dict[str, Any]:
    """What `save_model` writes of a model besides its weights, as JSON values."""
    if isinstance(model, DyckTransformer):
        return model.cfg.to_saved()
    return adoption.to_saved(model)


# --- for every format -----------------------------------------------------------------------------


def load_weights(model: nn.Module, weights: dict[str, torch.Tensor], source: str) -> None:
    """Copy `weights`, which `source` names in messages, into the model's parameters.

    Raises:
        CorruptFileError: names, shapes or types differ from the model's.
    """
    wanted: dict[str, Any] = dict(model.named_parameters())
    if set(weights) != set(wanted):
        odd = sorted(set(weights) ^ set(wanted))
        raise CorruptFileError(
            f"the weights in {source!r} are not this model's: "
            f"missing or unknown {', '.join(odd[:5])}"
        )
    with torch.no_grad():
        for name, parameter in wanted.items():
            if weights[name].shape != parameter.shape or weights[name].dtype != parameter.dtype:
                raise CorruptFileError(
                    f"the weight {name} in {source!r} is {weights[name].dtype} "
                    f"{list(weights[name].shape)}, "
                    f"but the model has {parameter.dtype} {list(parameter.shape)}"
                )
            parameter.copy_(weights[name])


def weights_digest(model: Any) -> str:
    """The identity of a model: SHA-256, in hexadecimal, over its parameters."""
    digest = hashlib.sha256()
    for name, parameter in model.named_parameters():
        digest.update(f"{name} {parameter.dtype} {list(parameter.shape)}".encode())
        digest.update(
            parameter.detach().cpu().contiguous().flatten().view(torch.uint8).numpy().tobytes()
        )
    return digest.hexdigest()


def check_finite(weights: Mapping[str, torch.Tensor], source: str) -> None:
    """Raise `NotFiniteError`, which names the first, for weights that are NaN or infinite."""
    wrong = not_finite(weights)
    if wrong is not None:
        raise NotFiniteError(f"the model in {source!r} computes nothing: {wrong}")


# --- the formats ----------------------------------------------------------------------------------


def _shapes(kind: str, config: dict[str, Any]) -> Shapes:
    return _KINDS[kind].shapes(config)


def _dyck_shapes(config: dict[str, Any]) -> Shapes:
    symbols = config.get("symbols")
    n_symbols = 2 * config["n_types"] if symbols is None else len(symbols["symbols"])
    yield "pos_embed.W_pos", [config["n_ctx"], config["d_model"]]
    yield "unembed.W_U", [config["d_model"], 1 + n_symbols]
    yield from layer_shapes(config, config["block"] != "bare" and config.get("mlp", True))


def _build_dyck(config: dict[str, Any], device: str | None) -> DyckTransformer:
    return build_model(DyckTransformerConfig.from_saved(config, device=device))


_DYCK, _ADOPTED = "tl_dyck.model/1", "tl_dyck.adopted/1"
_KINDS = {
    _DYCK: _Kind(_dyck_shapes, _build_dyck),
    _ADOPTED: _Kind(adoption.saved_shapes, adoption.from_saved),
}


def _check_same(model: Any, again: Any) -> None:
    """Refuse a model that `load_model` would make another, and so lose it."""

    def parts(each: Any) -> dict[str, Any]:
        found = {name: list(value.shape) for name, value in each.named_parameters()}
        if isinstance(each, DyckTransformer):
            return found
        return found | {name: type(module) for name, module in each.named_modules() if name}

    mine, theirs = parts(model), parts(again)
    odd = next((n for n in {**theirs, **mine} if mine.get(n) != theirs.get(n)), None)
    if odd is not None:
        raise ValueError(
            f"{odd} is not what this model's configuration says, so load_model could not make it "
            "again; undo what was put in its place (parametrizations: "
            "torch.nn.utils.parametrize.remove_parametrizations), or keep model.state_dict()"
        )
    if isinstance(model, DyckTransformer):
        return
    hooked = hooked_at(model)
    if hooked is not None:
        raise ValueError(
            f"a hook at {hooked} may change what this model computes, and hooks cannot be saved; "
            "model.reset_hooks(including_permanent=True) removes it"
        )
