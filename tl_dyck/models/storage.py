"""Models on disk: a folder with `config.json` and `model.safetensors`.

Knows: what is written and in which order, what is asked of a folder before anything is built, and
which models come back as they were. What a format's `config` means, its own module knows.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import nn

from tl_dyck.check import not_finite
from tl_dyck.decoder import hooked_at
from tl_dyck.files import (
    CorruptFileError,
    ensure_folder,
    one_line,
    read_json,
    read_tensors,
    write_json,
    write_tensors,
)
from tl_dyck.models import adopting
from tl_dyck.models.config import DyckTransformerConfig
from tl_dyck.models.hooked import HookedTransformer
from tl_dyck.models.transformer import DyckTransformer, build_model
from tl_dyck.reading import check_placed, unwrapped


class NotFiniteError(CorruptFileError):
    """Weights are NaN or infinite; the message names the first."""


#: Names of weights, and the shapes that a config says they have.
Shapes = Iterable[tuple[str, list[int]]]


class _Kind(NamedTuple):
    """How the `config` of a format becomes shapes and a model, and a model a `config`."""

    shapes: Callable[[dict[str, Any]], Shapes]
    build: Callable[[dict[str, Any], str | None], Any]


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
    return write_model(model, folder, kind, config)


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
    kind, config, weights = read_model(path, _KINDS, "a Dyck model", _shapes)
    try:
        model = _KINDS[kind].build(config, device)
    except KeyError as error:
        raise CorruptFileError(f"{str(path / 'config.json')!r} lacks {error}") from error
    except (TypeError, ValueError) as error:
        raise CorruptFileError(
            f"{str(path / 'config.json')!r} does not describe the model: {one_line(error)}"
        ) from error
    load_weights(model, weights, str(path))
    if not diverged:
        check_finite(weights, str(path))
    return model


def config_of(model: Any) -> dict[str, Any]:
    """What `save_model` writes of a model besides its weights, as JSON values.

    Raises:
        ValueError: of an adopted model, an option that cannot be saved.
    """
    if isinstance(model, DyckTransformer):
        return model.cfg.to_saved()
    return adopting.to_saved(model)


# --- for every format -----------------------------------------------------------------------------


def write_model(model: nn.Module, folder: str | Path, kind: str, config: Mapping[str, Any]) -> Path:
    """Write weights, and then a `config.json` of that format with their digest.

    Raises:
        OSError: the folder cannot be written.
    """
    path = ensure_folder(folder)
    digest = write_tensors(path / "model.safetensors", dict(model.named_parameters()))
    write_json(path / "config.json", {"format": kind, "config": config, "sha256": digest})
    return path


def read_model(
    folder: str | Path,
    kinds: Collection[str],
    what: str,
    shapes: Callable[[str, dict[str, Any]], Shapes],
) -> tuple[str, dict[str, Any], dict[str, torch.Tensor]]:
    """Read what `write_model` wrote, and compare sizes before anything is built.

    Args:
        folder: the folder.
        kinds: the formats that will do.
        what: what such a folder holds, for messages.
        shapes: from a format and its config to the shapes of weights; enough of them to show that
            no layer, token or position is asked for that the weights have not.

    Returns:
        The format, the config, and a tensor for each parameter.

    Raises:
        CorruptFileError: a file is missing, truncated, altered, or not such a model.
    """
    path = Path(folder)
    place = f"{str(path / 'config.json')!r}"
    saved = read_json(path / "config.json")
    kind = saved.get("format") if isinstance(saved, dict) else type(saved).__name__
    if not isinstance(saved, dict) or not isinstance(kind, str) or kind not in kinds:
        expected = " or ".join(map(repr, kinds))
        raise CorruptFileError(
            f"{str(path)!r} does not hold {what}: format {kind!r}, expected {expected}"
        )
    config, digest = saved.get("config"), saved.get("sha256")
    if not isinstance(config, dict):
        raise CorruptFileError(f"{place} has no config of a model: {config!r:.80}")
    if not isinstance(digest, str):
        raise CorruptFileError(f"{place} has no SHA-256 of the weights: {digest!r}")
    weights = read_tensors(path / "model.safetensors", digest)
    try:
        check_shapes(shapes(kind, config), weights)
    except KeyError as error:
        raise CorruptFileError(f"{place} lacks {error}") from error
    except (AttributeError, TypeError, ValueError) as error:
        raise CorruptFileError(f"{place} does not describe the model: {one_line(error)}") from error
    return kind, config, weights


def check_shapes(shapes: Shapes, weights: Mapping[str, torch.Tensor]) -> None:
    """Compare shapes with the weights before anything is built: a typo may ask for all memory.

    Raises:
        ValueError: a weight is missing or has another shape.
    """
    for name, shape in shapes:
        found = list(weights[name].shape) if name in weights else None
        if found != shape:
            raise ValueError(
                f"by its sizes {name} is {shape}, but the weights have {found or 'none'}"
            )


def load_weights(model: nn.Module, weights: dict[str, torch.Tensor], source: str) -> None:
    """Copy `weights` into the model's parameters.

    Args:
        model: changed in place.
        weights: a tensor per parameter name.
        source: where they come from, for messages.

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


def check_finite(weights: Mapping[str, torch.Tensor], source: str) -> None:
    """Refuse weights that are NaN or infinite.

    Raises:
        NotFiniteError: its message names the first.
    """
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
    yield from adopting.layer_shapes(config, config["block"] != "bare" and config.get("mlp", True))


def _build_dyck(config: dict[str, Any], device: str | None) -> DyckTransformer:
    return build_model(DyckTransformerConfig.from_saved(config, device=device))


_DYCK, _ADOPTED = "tl_dyck.model/1", "tl_dyck.adopted/1"
_KINDS = {
    _DYCK: _Kind(_dyck_shapes, _build_dyck),
    _ADOPTED: _Kind(adopting.saved_shapes, adopting.from_saved),
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
