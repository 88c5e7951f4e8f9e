"""Balance violation: how far a model is from the condition that every length-generalising one must meet.

Wen et al. 2023, Sections 3.1 and 4.2.

Notation. A *state* is a bracket with its depth, ``open(t, d)``, d = 1..D, or ``close(t, d)``, d = 0..D−1 (the depth is
counted after the bracket), or BOS. With a minimal first layer, query, key and value of the last attention layer are
functions of the state. The contribution of a key to the attention output of a query, before normalisation (Eq. 12), is

    u(query, key) = exp(score) · P⊥ (W_O v + b_O),    score = q · k / attn_scale,    P⊥x = x − mean(x).

Biases are part of q, k, v; b_O belongs to every key, because the weights of a pattern sum to one. So Σ_keys u is P⊥ of
the layer's output times its softmax denominator, and any LayerNorm after it sees the same direction.

- Eq. 15: S[d, d', i, j] = ‖u(close(j,d), open(i,d')) + u(close(j,d), close(i,d'−1))‖: what a matching pair adds.
- Eq. 16: Q_j(t) = ‖u(q, BOS) + Σ_{m≤d} u(q, open(t_m, m)) + u(q, open(j, d+1)) + u(q, q)‖, q = close(j, d), t = (t_1 …
  t_d): the norm of the unnormalised output after the string BOS t open(j) close(j).
- Eq. 17: t* = argmin_t Q_j(t); P[d, j] = min of Q_j(t) over t whose last bracket differs from that of t*.
- β = mean of S / P over 1 ≤ d ≤ D−1, 1 ≤ d' ≤ D and all types i, j.

β = 0 means that matched pairs, anywhere, leave later predictions alone: with Eq. 6 this is necessary and sufficient for
an optimal prediction at any length (Theorem 1). A small loss at length N forces S ≤ (C/N) P (Theorem 2).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import final

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from tl_dyck.language import DyckLanguage
from tl_dyck.models import DyckTransformer
from tl_dyck_hooks.probes.activations import record

__all__ = ["BalanceViolation", "balance_violation", "contributions"]

_MAX_PREFIXES = 2_000_000  # the minimum over open prefixes is by brute force


@final
@dataclass(frozen=True, kw_only=True)
class BalanceViolation:
    """Balance violation of a model, and what it is made of.

    S and P of one query share a positive factor, exp(−largest score of that query), which keeps saturated scores finite
    and cancels in their ratio.

    Attributes:
        beta: mean of `ratio`; 0 for a balanced model.
        ratio: S / P, ``[d − 1, d' − 1, i, j]``, d = 1..D−1, d' = 1..D.
        S: Eq. 15, ``[d − 1, d' − 1, i, j]``.
        P: Eq. 17, ``[d − 1, j]``.
    """

    beta: float
    ratio: Float[np.ndarray, "depth pair_depth n_types n_types"]
    S: Float[np.ndarray, "depth pair_depth n_types n_types"]
    P: Float[np.ndarray, "depth n_types"]

    def __float__(self) -> float:
        return self.beta

    def __repr__(self) -> str:
        return f"BalanceViolation(beta={self.beta:.4g}, largest S/P={self.ratio.max():.4g})"


def balance_violation(model: DyckTransformer) -> BalanceViolation:
    """Measure the balance violation of a model with a minimal first layer, from activations of a forward pass.

    Args:
        model: of a ``minimal-*`` or ``figure2-*`` family: one layer, one head, a depth embedding, no positions.

    Raises:
        ValueError: another kind of model, one bracket type only (P needs two), depth 1, or too many open prefixes.
    """
    language = _check(model)
    k, depth = language.n_types, language.max_depth
    u = contributions(model)  # query state, key state, d_model
    state = _StateIndex(language)
    S = torch.empty(depth - 1, depth, k, k, dtype=u.dtype)
    P = torch.empty(depth - 1, k, dtype=u.dtype)
    for d in range(1, depth):
        for j in range(k):
            query = u[state.close(j, d)]
            for pair_depth in range(1, depth + 1):
                for i in range(k):
                    pair = query[state.open(i, pair_depth)] + query[state.close(i, pair_depth - 1)]
                    S[d - 1, pair_depth - 1, i, j] = torch.linalg.vector_norm(pair)
            P[d - 1, j] = _smallest_gap(query, state, d, j)
    ratio = S / P[:, None, None, :]
    return BalanceViolation(beta=float(ratio.mean()), ratio=ratio.numpy(), S=S.numpy(), P=P.numpy())


def contributions(model: DyckTransformer) -> Float[Tensor, "query key d_model"]:
    """u(query, key) of Eq. 12 for every pair of states, float64, each query scaled by exp(−its largest score).

    States are ordered as token · (D + 1) + depth; those that no string reaches are zero. Queries, keys and values are
    read by hooks while the model runs on strings that visit every state.
    """
    language = _check(model)
    k, depth = language.n_types, language.max_depth
    steps = torch.arange(2 * depth)
    tokens = torch.full((k, 2 * depth + 1), language.bos_token)
    for t in range(k):  # BOS, then D openings and D closings of type t
        tokens[t, 1:] = 2 * t + (steps >= depth).long()
    states = (tokens * (depth + 1) + language.depth(tokens)).flatten()
    attn = model.blocks[-1].attn
    names = [f"blocks.{model.cfg.n_layers - 1}.attn.hook_{name}" for name in "qkv"]
    found = record(model, tokens.to(model.cfg.device), names)
    q, key, v = (found[name][:, :, 0].double().cpu().flatten(0, 1) for name in names)
    value = v @ attn.W_O[0].detach().double().cpu() + attn.b_O.detach().double().cpu()
    value = value - value.mean(-1, keepdim=True)
    score = q @ key.T / attn.attn_scale
    weight = torch.exp(score - score.max(-1, keepdim=True).values)
    u = torch.zeros(
        language.d_vocab * (depth + 1), language.d_vocab * (depth + 1), value.shape[-1], dtype=torch.float64
    )
    u[states[:, None], states[None, :]] = weight[:, :, None] * value[None]
    return u


class _StateIndex:
    """Where a state stands in the table of `contributions`."""

    def __init__(self, language: DyckLanguage) -> None:
        self.depths = language.max_depth + 1
        self.bos = language.bos_token * self.depths
        self.n_types = language.n_types

    def open(self, t: int, depth: int) -> int:
        return 2 * t * self.depths + depth

    def close(self, t: int, depth: int) -> int:
        return (2 * t + 1) * self.depths + depth


def _smallest_gap(query: Float[Tensor, "key d_model"], state: _StateIndex, d: int, j: int) -> Float[Tensor, ""]:
    """P[d, j] of Eq. 17, by brute force over the k^d open prefixes t."""
    total = (query[state.bos] + query[state.open(j, d + 1)] + query[state.close(j, d)])[None]
    for m in range(1, d + 1):
        opens = query[[state.open(t, m) for t in range(state.n_types)]]
        total = (total[:, None] + opens[None]).flatten(0, 1)  # the type of the last bracket varies fastest
    norms = torch.linalg.vector_norm(total, dim=-1).view(-1, state.n_types)
    # t* has the last bracket whose smallest norm is smallest, so P is the smallest norm over the other last brackets
    gap: Tensor = norms.min(0).values.sort().values[1]
    return gap


def _check(model: DyckTransformer) -> DyckLanguage:
    cfg = model.cfg
    if getattr(cfg, "embedding", "token") == "token" or cfg.n_layers != 1:
        raise ValueError(
            f"balance violation needs a minimal first layer (a minimal-* or figure2-* model), not {cfg.model_name!r}: "
            "elsewhere keys depend on more than type and depth"
        )
    if cfg.n_heads != 1:
        raise ValueError(f"balance violation is defined for one head; this model has {cfg.n_heads}")
    if cfg.position != "none":
        raise ValueError(f"balance violation is defined without positions; this model has {cfg.position!r} ones")
    language = cfg.language
    if language.n_types < 2 or language.max_depth < 2:
        raise ValueError(
            "balance violation compares strings that differ in the type of an open bracket below the top: it needs two "
            f"types and depth 2 at least, not {language.n_types} and {language.max_depth}"
        )
    if language.n_types ** (language.max_depth - 1) > _MAX_PREFIXES:
        raise ValueError(
            f"{language.n_types}^{language.max_depth - 1} open prefixes are too many for the brute-force minimum "
            f"(at most {_MAX_PREFIXES})"
        )
    return language
