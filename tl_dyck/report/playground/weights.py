"""A model as a page holds it: what defines its function, and its weights in few bytes.

A weight takes 16 bits, a whole number times the scale of its column, if the model's logits stay
where they are; else it takes 32, and 64 where a model in float64 needs them.
"""

from __future__ import annotations

import base64
import copy
from typing import Any

import numpy as np
import torch
from jaxtyping import Float, Float64, Int
from torch import Tensor

from tl_dyck.kit.check import not_finite
from tl_dyck.kit.errors import DyckError
from tl_dyck.models import DyckTransformer, DyckTransformerConfig
from tl_dyck.reading.activations import ACTIVATIONS, canonical_activation
from tl_dyck.reading.inputs import named_logits

_LARGEST = 32767  # of 16 bits with a sign
_TOLERANCE = 5e-4  # of a logit: half of what pages promise, for what else is rounded


class UnplayableModelError(DyckError, ValueError):
    """A model that the page's forward pass does not know; the message names what it has."""


def pack(model: Any, n_pos: int, strings: Int[Tensor, "string pos"]) -> dict[str, Any]:
    """A model as JSON values.

    Returns:
        "family", a name; "config", numbers and names; "shapes", of each weight as a matrix, in the
        order in which they follow; "bits", of a weight; "data", the bytes, little-endian, in
        base64: for 16 bits first the scales (float32) of all columns of all weights, then the whole
        numbers.

    Raises:
        UnplayableModelError: the page cannot run such a model.
    """
    _refuse(model)
    weights = _weights(model, n_pos)
    packed: dict[str, Any] = {
        "family": str(model.cfg.model_name),
        "config": _config(model),
        "shapes": {name: list(matrix.shape) for name, matrix in weights.items()},
    }
    short = {name: _rounded(matrix) for name, matrix in weights.items()}
    if _moved(model, {name: q * scale for name, (q, scale) in short.items()}, strings) < _TOLERANCE:
        data = [scale.astype("<f4").tobytes() for _, scale in short.values()]
        data += [whole.astype("<i2").tobytes() for whole, _ in short.values()]
        # scales first, 4 bytes each: what follows them is then on a boundary of 2
        return packed | {"bits": 16, "data": base64.b64encode(b"".join(data)).decode()}
    single = {name: matrix.astype(np.float32) for name, matrix in weights.items()}
    enough = _moved(model, {n: w.astype(np.float64) for n, w in single.items()}, strings)
    bits = 32 if enough < _TOLERANCE else 64
    data = [matrix.astype(f"<f{bits // 8}").tobytes() for matrix in weights.values()]
    return packed | {"bits": bits, "data": base64.b64encode(b"".join(data)).decode()}


def _described(model: Any) -> DyckTransformerConfig:
    """What a model is, in the words of a Dyck model's configuration; an adopted one's too."""
    cfg: Any = model.cfg
    if isinstance(model, DyckTransformer):
        return model.cfg
    named = named_logits(model)
    if not model.cfg.d_vocab_out == model.cfg.d_vocab == named:
        why = "and the page shows one for each" if named else "so it predicts no tokens"
        raise UnplayableModelError(
            f"{model.cfg.model_name!r} has {model.cfg.d_vocab_out} logits for "
            f"{model.cfg.d_vocab} tokens, {why}"
        )
    try:
        return DyckTransformerConfig.of_plain(model.cfg, cfg.language)
    except ValueError as error:
        raise UnplayableModelError(f"{model.cfg.model_name!r}: {error}") from error


def _refuse(model: Any) -> None:
    name = model.cfg.model_name
    if model.cfg.normalization_type == "LNPre":
        raise UnplayableModelError(
            f"process_weights_ has folded the LayerNorms of {name!r}; give the model as it was"
        )
    cfg = _described(model)
    known = [name for name, each in ACTIVATIONS.items() if each.javascript is not None]
    if cfg.block != "bare" and canonical_activation(cfg.act_fn) not in known:
        raise UnplayableModelError(
            f"the page does not know the activation {cfg.act_fn!r} of {name!r}; it knows "
            f"{', '.join(known)}"
        )
    if cfg.dtype not in (torch.float32, torch.float64):
        raise UnplayableModelError(
            f"{name!r} computes in {cfg.dtype}, which the page does not imitate; convert it: "
            "model.to(torch.float32)"
        )
    wrong = not_finite(dict(model.named_parameters()))
    if wrong is not None:
        raise UnplayableModelError(f"{name!r} has weights that are not finite: {wrong}")


def _config(model: Any) -> dict[str, Any]:
    cfg = _described(model)
    return {
        "block": cfg.block,
        "depth_embedding": cfg.embedding != "token",
        "positions": cfg.position != "none",
        "uniform": cfg.attention == "uniform",
        "n_layers": cfg.n_layers,
        "n_heads": cfg.n_heads,
        "d_model": cfg.d_model,
        "d_head": cfg.d_head,
        "act": canonical_activation(cfg.act_fn),
        "eps": cfg.eps,
        "ln_c": cfg.ln_c,
        "attn_scale": float(model.blocks[0].attn.attn_scale),
    }


def _places(model: Any, n_pos: int) -> dict[str, Tensor]:
    """Where each weight is, inputs first: what is written there, the model computes with."""
    cfg = _described(model)
    embed: Any = model.embed
    found = {"embed": embed.table.flatten(0, 1) if cfg.embedding != "token" else embed.W_E}
    if cfg.position != "none":
        found["pos"] = model.pos_embed.W_pos[:n_pos]
    norms = cfg.block == "gpt" and cfg.layer_norm
    for index, block in enumerate(model.blocks):
        attn, each = block.attn, {}
        for part in "V" if cfg.attention == "uniform" else "QKV":
            each[f"W_{part}"] = getattr(attn, f"W_{part}").transpose(0, 1)
            each[f"b_{part}"] = getattr(attn, f"b_{part}")[None]
        each |= {"W_O": attn.W_O.flatten(0, 1), "b_O": attn.b_O[None]}
        for ln in ("ln1", "ln2")[: 1 + bool(cfg.mlp)] if norms else ():
            each |= {f"{ln}.{part}": getattr(getattr(block, ln), part)[None] for part in "wb"}
        if not cfg.attn_only:
            each |= {name: getattr(block.mlp, name) for name in ("W_in", "W_out")}
            each |= {name: getattr(block.mlp, name)[None] for name in ("b_in", "b_out")}
        found |= {f"{index}.{name}": value for name, value in each.items()}
    if norms:
        found |= {f"ln_final.{part}": getattr(model.ln_final, part)[None] for part in "wb"}
    found |= {"W_U": model.unembed.W_U, "b_U": model.unembed.b_U[None]}
    return {name: place.detach() for name, place in found.items()}


def _weights(model: Any, n_pos: int) -> dict[str, Float64[np.ndarray, "_in _out"]]:
    """Each weight as a matrix from inputs (rows) to outputs; vectors are one row."""
    return {
        name: place.flatten(1).double().cpu().numpy()
        for name, place in _places(model, n_pos).items()
    }


def _rounded(matrix: Float64[np.ndarray, "_in _out"]) -> tuple[np.ndarray, np.ndarray]:
    """Whole numbers of 16 bits, and what a unit of each column is."""
    # as the page will hold it, in float32, so that what is measured is what is drawn
    scale = (np.abs(matrix).max(0) / _LARGEST).astype(np.float32).astype(np.float64)
    # a column of zeros has scale 0, and stays zeros
    whole = np.rint(matrix / np.where(scale > 0, scale, 1.0))
    # a scale that float32 rounded down makes the largest quotient a little more than 32767
    return np.clip(whole, -_LARGEST, _LARGEST), scale


def _moved(
    model: Any,
    weights: dict[str, Float64[np.ndarray, "_in _out"]],
    strings: Int[Tensor, "string pos"],
) -> float:
    """How far other weights move a logit at most, on these strings."""
    device = model.cfg.device
    # float64: what moves is then the rounding of the weights alone
    other = copy.deepcopy(model).to(torch.float64, print_details=False)
    with torch.no_grad():
        for value in (*other.parameters(), *other.buffers()):
            value.data = value.data.contiguous()  # so that places are views
        before: Float[Tensor, "string pos d_vocab"] = other(strings.to(device))
        for name, place in _places(other, len(weights.get("pos", ()))).items():
            place.copy_(torch.from_numpy(weights[name]).view(place.shape))
        moved = (other(strings.to(device)) - before).abs().max()
    return float(moved)
