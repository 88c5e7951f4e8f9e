"""Parts of a block beyond a plain one, as weights of a `TwoLayerRNN`.

Knows: how TransformerLens computes them. Nothing is rounded: what comes out is the same function.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from tl_dyck.reading.norms import norm_of
from tl_dyck.reading.positions import POSITIONS

_QUERIES_AND_KEYS = ("W_Q", "W_K", "b_Q", "b_K", "q_norm_w", "k_norm_w")


def qk_norms(attn: Any) -> dict[str, Tensor]:
    """Scales of the norms of queries and keys, if there are any."""
    found = {}
    for name in ("q_norm", "k_norm"):
        norm = getattr(attn, name, None)
        if norm is not None:
            found[f"{name}_w"] = norm.w
    return found


def mlp_weights(mlp: Any) -> dict[str, Tensor]:
    """Weights of an MLP. TransformerLens' gated one adds ``b_in`` behind the product."""
    found = {name: getattr(mlp, name) for name in ("W_in", "b_in", "W_out", "b_out")}
    if getattr(mlp, "W_gate", None) is not None:
        zero, bias = 0 * found["b_in"], getattr(mlp, "b_gate", None)
        found |= {"W_gate": mlp.W_gate, "b_gate": zero, "b_post": found["b_in"], "b_in": zero}
        if bias is not None:  # of a bridge, which adds both biases before the product
            found |= {"b_gate": bias, "b_post": zero, "b_in": mlp.b_in}
    return found


def tables_of(model: Any, attn: Any, weights: dict[str, Tensor]) -> dict[str, Tensor]:
    """Weights of the positions, none if they are zeros; and others that change with them."""
    cfg = model.cfg
    scheme = POSITIONS[cfg.positional_embedding_type]
    if scheme.turns:
        return _rotary(cfg, attn, weights)
    if scheme.by_distance:
        ratio = 2 ** (-8 / cfg.n_heads)  # Press et al.; in single precision, as TransformerLens
        slopes = ratio * (ratio ** torch.arange(cfg.n_heads))
        distance = torch.arange(cfg.n_ctx).to(slopes)
        # [distance, head]; the farther, the lower the score
        return {"W_near": (-distance[:, None] * slopes).to(weights["W_Q"])}
    # zeros are no positions: the state machine has nothing to count
    table = model.pos_embed.W_pos
    return {"W_pos": table} if bool(table.any()) else {}


def _rotary(cfg: Any, attn: Any, weights: dict[str, Tensor]) -> dict[str, Tensor]:
    """Sines and cosines, for pairs of neighbours.

    TransformerLens turns such pairs, or of the first n coordinates the i-th with the i + n/2-th:
    then coordinates of queries and keys are put in another order, which leaves products alone.
    """
    cos, sin = attn.rotary_cos, attn.rotary_sin
    width, turned = weights["W_Q"].shape[-1], cos.shape[-1]
    if len(cos) < cfg.n_ctx:  # it keeps as much as was asked for
        base = attn._rotary_base() if hasattr(attn, "_rotary_base") else cfg.rotary_base
        sin, cos = attn.calculate_sin_cos_rotary(turned, cfg.n_ctx, base=base, dtype=cfg.dtype)
    order = torch.arange(width)
    if not getattr(attn, "adjacent", cfg.rotary_adjacent_pairs):
        # 0, n/2, 1, n/2 + 1, …: partners become neighbours
        order[:turned] = order[:turned].unflatten(0, (2, -1)).T.flatten()
    found = {name: weights[name][..., order] for name in _QUERIES_AND_KEYS if name in weights}
    left = (cfg.n_ctx, width - turned)  # coordinates that are not turned
    cos, sin = (each[: cfg.n_ctx, order[:turned]].to(weights["W_Q"]) for each in (cos, sin))
    sign = torch.ones(turned).to(sin)
    # (x, y) becomes (x cos - y sin, y cos + x sin)
    sign[::2] = -1
    return found | {
        "rotary_cos": torch.cat([cos, cos.new_ones(left)], -1),
        "rotary_sin": torch.cat([sin * sign, sin.new_zeros(left)], -1),
    }


def uncentred(model: Any, block: Any) -> bool:
    """Whether its norms are RMSNorms."""
    norms = (getattr(block, "ln1", None), getattr(block, "ln2", None))
    found = map(norm_of, (*norms, getattr(model, "ln_final", None)))
    return any(norm is not None and not norm.centres for norm in found)


#: The axis of a weight that reads the residual stream, and the one that writes it.
_READS = {"W_Q": 1, "W_K": 1, "W_V": 1, "W_in": 0, "W_gate": 0, "W_U": 0}
_READS |= {f"{norm}_{part}": 0 for norm in ("ln1", "ln2", "ln_final") for part in "wb"}
_WRITES = {"W_E": -1, "W_O": -1, "b_O": -1, "W_out": -1, "b_out": -1, "W_pos": -1}


def doubled(weights: dict[str, Tensor], cfg: Any) -> dict[str, Tensor]:
    """Weights of the same network with the stream (x, -x).

    Its mean is 0 and its mean square that of x, so that its LayerNorm is (RMSNorm(x), -RMSNorm(x)).
    What is read is the first half.
    """
    found, reads, writes = dict(weights), dict(_READS), dict(_WRITES)
    if POSITIONS[cfg.positional_embedding_type].in_attended:  # added to what is read, not written
        reads["W_pos"] = writes.pop("W_pos")
    for name, axis in reads.items():
        if name in found:
            # the second half of the stream, -x, is read by nothing
            found[name] = torch.cat([found[name], 0 * found[name]], axis)
    for name, axis in writes.items():
        if name in found:
            found[name] = torch.cat([found[name], -found[name]], axis)
    return found
