"""What the exporter refuses, by the part of the model and the reason.

Reads a model by attribute only.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import nn

from tl_dyck.kit.errors import DyckError
from tl_dyck.reading.decoder import BEYOND, Departure, departures, hooked_at
from tl_dyck.reading.norms import norm_of


class UnsupportedModelError(DyckError, ValueError):
    """The model has no two-layer RNN, or no supported one; the message names part and reason."""


class ExportMismatchError(UnsupportedModelError):
    """The model computes something else than its parts say, so their RNN is not equivalent."""


def _theirs(model: Any, name: str) -> Any:
    """An option that `transformers` knows of a bridge's model, or the model's configuration."""
    found = getattr(getattr(model, "theirs", None), name, None)
    return getattr(model.cfg, name, None) if found is None else found


def _has_post_norms(model: Any) -> bool:
    after = any(
        getattr(block, name, None) is not None and not isinstance(getattr(block, name), nn.Identity)
        for block in model.blocks
        for name in ("ln1_post", "ln2_post")
    )
    return after and hasattr(model, "theirs")


#: Layers of which no RNN is known, though their parts look as if: where, in what, and who has it.
REFUSED: tuple[tuple[str, str, Callable[[Any], bool]], ...] = (
    ("blocks.0.ln1_post", "norms behind attention and MLP (as in Gemma 2 and OLMo 2)",
     _has_post_norms),
    ("blocks.0.ln1_post", "norms behind attention and MLP (do_layer_norm_before=False)",
     lambda model: _theirs(model, "do_layer_norm_before") is False),
    ("blocks.0.mlp", "a mixture of experts (as in Mixtral)",
     lambda model: bool(_theirs(model, "num_experts"))),
    ("blocks.0.attn", "a sliding window that is less than n_ctx",
     lambda model: (_theirs(model, "sliding_window") or model.cfg.n_ctx) < model.cfg.n_ctx),
    ("embed", "a norm behind the embedding of a bridge (as in Bloom)",
     lambda model: getattr(model, "embed_ln", None) is not None),
    ("embed", "embeddings times the root of d_model (as in Gemma)",
     lambda model: _theirs(model, "model_type") in ("gemma", "gemma2", "gemma3_text")),
    ("blocks.0.attn", "ALiBi that is rounded to bfloat16 (as in Falcon)",
     lambda model: bool(_theirs(model, "alibi"))),
)  # fmt: skip


def refuse_unsupported(model: Any, n_layers: int = 1) -> None:
    """Refuse a model of which `export_rnn` makes no RNN, or of another number of layers."""
    refuse_foreign(model)
    if model.cfg.n_layers != n_layers:
        if n_layers != 1:
            _refuse("blocks", f"the model has {model.cfg.n_layers} layers, not {n_layers}.")
        raise UnsupportedModelError(
            f"blocks.1: the model has {model.cfg.n_layers} layers, and only one layer is such an "
            "RNN, or has certificates of edits: from the second layer on, a key has looked at "
            "other tokens and is no function of one token and its state; certify_language takes "
            "models of any number of layers."
        )
    for where, what, found in REFUSED:
        if found(model):
            _refuse(where, f"{what}; no RNN is known of a model with that.")
    embed = model.embed
    if not hasattr(embed, "W_E") and not (hasattr(embed, "table") and hasattr(embed, "language")):
        _refuse(
            "embed",
            f"{type(embed).__name__} is neither an embedding of tokens nor of (token, depth).",
        )
    # what a first of two layers hands on is known of plain ones only
    known = BEYOND if n_layers == 1 else ()
    odd = next(departures(model, known), None) or next(_mixed_norms(model), None)
    if odd is not None:
        _refuse(odd.where, f"{odd.what}; no RNN is known of a model with that.")
    hooked = hooked_at(model)
    if hooked is not None:
        _refuse(
            hooked,
            "a hook is attached, and may change what the model computes; remove it first, with "
            "model.reset_hooks(including_permanent=True) if TransformerLens added it.",
        )
    refuse_weights(model)


def _mixed_norms(model: Any) -> Iterator[Departure]:
    """A RMSNorm beside a norm that subtracts the mean: only of one kind is an RNN known."""
    owners = {"ln_final": model}
    for index, block in enumerate(model.blocks):
        owners |= {f"blocks.{index}.{name}": block for name in ("ln1", "ln1_post", "ln2")}
    names = {where: where.rpartition(".")[2] for where in owners}
    norms = [(where, getattr(owners[where], name, None)) for where, name in names.items()]
    known = {where: norm_of(norm) for where, norm in norms}
    uncentred = [where for where, norm in known.items() if norm and not norm.centres]
    others = [where for where, norm in known.items() if norm and norm.centres]
    others += [where for where, norm in norms if type(norm).__name__ == "UnitNorm"]
    if uncentred and others:
        yield Departure(uncentred[0], f"class RMSNorm, and {others[0]} subtracts the mean")


def refuse_foreign(model: Any) -> None:
    """Refuse what is no HookedTransformer: it lacks the parts that are read."""
    if any(not hasattr(model, name) for name in ("cfg", "blocks", "embed", "unembed")):
        inside = "; give the model that it wraps, its .module" if hasattr(model, "module") else ""
        raise UnsupportedModelError(
            f"{type(model).__name__} is not a HookedTransformer: it lacks cfg, blocks, "
            f"embed or unembed{inside}."
        )


def refuse_weights(model: nn.Module) -> None:
    """Refuse weights that are not there, of half precision, or of several types.

    Args:
        model: any module.

    Raises:
        UnsupportedModelError: names a weight.
    """
    first: tuple[str, torch.dtype] | None = None
    for name, weight in [*model.named_parameters(), *model.named_buffers()]:
        if weight.device.type == "meta":
            _refuse(name, "the model is on device meta, where weights have no values.")
        # TransformerLens's constant -inf
        if not weight.is_floating_point() or name.endswith("IGNORE"):
            continue
        if weight.dtype not in (torch.float32, torch.float64):
            _refuse(
                name,
                f"weights are {weight.dtype}, and only float32 and float64 are supported; use "
                "model.to(torch.float32) or model.to(torch.float64).",
            )
        if first is None:
            first = name, weight.dtype
        elif weight.dtype != first[1]:
            _refuse(
                name,
                f"weights are {weight.dtype}, and those of {first[0]} {first[1]}; use "
                "model.to(torch.float32) or model.to(torch.float64).",
            )


def ln_c_of(block: Any, name: str = "ln1_post") -> float | None:
    """The constant C, if that norm of the block is an LN_C.

    The norms are "ln1_post", after the attention (Eq. 6), and "ln2" (Eq. 49).
    """
    norm: Any = getattr(block, name, None)
    return float(norm.c) if type(norm).__name__ == "UnitNorm" else None


def _refuse(where: str, reason: str) -> None:
    raise UnsupportedModelError(f"{where}: {reason}")
