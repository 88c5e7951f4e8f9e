"""Eq. 11, the balance condition of Theorem 1, as a check of a model's weights."""

from __future__ import annotations

import torch
from jaxtyping import Float, Int
from torch import Tensor

from tl_dyck.kit.arguments import checked
from tl_dyck.kit.check import check_number
from tl_dyck.language import DyckDistribution, DyckLanguage
from tl_dyck.models.transformer import DyckTransformer
from tl_dyck.reading.hook_points import record
from tl_dyck.reading.states import StateIndex, visit_all


@checked
def satisfies_balance(model: DyckTransformer, tolerance: float = 1e-6) -> bool:
    """Whether the last attention layer of a model satisfies the balance condition (Eq. 11).

    That is about scores alone. By Theorem 1 a model of Eq. 6 without positions that is right at
    every length, with C = 0 and a value for every token, must satisfy it; one that does can be made
    optimal by its other weights. It is weaker than S = 0 (Eq. 15), which is also about values: see
    the probe `balance_violation`.

    Args:
        model: see `balance_residual`, which also says what is refused.
        tolerance: largest residual allowed, relative to the largest score in magnitude (at least
            1).

    Returns:
        True if every head satisfies it.
    """
    tolerance = check_number("tolerance", tolerance, least=0.0)
    residual, largest = _residual(model)
    return residual <= tolerance * max(1.0, largest)


@checked
def balance_residual(model: DyckTransformer) -> float:
    """Return the distance of the last layer's scores from the balance condition; 0 if they meet it.

    Eq. 11 says, for all types i, j1, j2, depths 1 ≤ d' ≤ D and 1 ≤ d1, d2 ≤ D−1, with e(τ) the
    output of the first layer,

        (e(open i, d') − e(close i, d'−1))ᵀ W_Kᵀ W_Q (e(close j1, d1) − e(close j2, d2)) = 0:

    by how much a closing bracket scores an opening bracket above its partner must not depend on
    which closing bracket it is. (After a closing bracket of depth 0 nothing is left to remember:
    those are free, as the paper's proof has it.) The residual is the largest left-hand side in
    magnitude, over heads too, in the unit of `hook_attn_scores` (biases and the model's scale
    included).

    Args:
        model: without positions, and such that the input of its last attention layer depends on
            type and depth alone (Assumption 1): a ``minimal-*`` or ``figure2-*`` model, or one
            whose earlier layers compute just that.

    Raises:
        ValueError: the model has positions, or Assumption 1 fails for it.
    """
    return _residual(model)[0]


def _residual(model: DyckTransformer) -> tuple[float, float]:
    """The residual, and the largest score in magnitude."""
    cfg, language = model.cfg, model.cfg.language
    if cfg.position != "none":
        raise ValueError(
            "the balance condition is about models without positions; this model has "
            f"{cfg.position!r} ones, so its scores depend on where a bracket is"
        )
    queries, keys = _queries_and_keys(model)
    opening, closing = (torch.as_tensor(rows) for rows in StateIndex(language).pairs())
    # row 0 closes to depth 0, where nothing is left to ask for (docstring)
    asking = closing[1:].flatten()
    if not len(asking):  # D = 1: nothing is open after a closing bracket
        return 0.0, 0.0
    scale = float(model.blocks[-1].attn.attn_scale)
    score = torch.einsum("qhe,khe->hqk", queries[asking], keys) / scale
    # head, closing query, pair
    excess = score[:, :, opening.flatten()] - score[:, :, closing.flatten()]
    # all closing queries alike: the largest difference of two is largest minus least
    return float((excess.amax(1) - excess.amin(1)).max()), float(score.abs().max())


def _queries_and_keys(
    model: DyckTransformer,
) -> tuple[Float[Tensor, "state head d_head"], Float[Tensor, "state head d_head"]]:
    """Query and key of every state, float64, read as the model runs on strings that visit all."""
    language, last = model.cfg.language, model.cfg.n_layers - 1
    places = [f"blocks.{last}.{name}" for name in ("hook_resid_pre", "attn.hook_q", "attn.hook_k")]
    tokens = _strings(language, model.cfg.n_ctx)
    found = record(model, tokens, places)
    stream, q, k = (found[name].flatten(0, 1).double().cpu() for name in places)
    state = StateIndex(language).of(tokens, language.depth(tokens)).flatten()
    here = torch.arange(len(state))
    n_states = language.d_vocab * (language.max_depth + 1)
    # where it is seen first
    # len(state) stands for "never": no index is as large, so any place is less
    first = torch.full((n_states,), len(state)).scatter_reduce(0, state, here, "amin")
    off = (stream - stream[first[state]]).abs().max() / stream.abs().max()
    # room for rounding, by dtype, relative to the largest number
    if off > (1e-4 if model.cfg.dtype == torch.float32 else 1e-8):
        raise ValueError(
            "the balance condition needs a minimal first layer (Assumption 1): in this model the "
            "input of the last attention layer depends on more than type and depth (relative "
            f"difference {float(off):.2g})"
        )
    reached = first.clamp(max=len(state) - 1)  # states of no string are not looked at
    return q[reached], k[reached]


def _strings(language: DyckLanguage, n_ctx: int) -> Int[Tensor, "batch pos"]:
    """Strings that visit every state, over and over, and random prefixes for other contexts."""
    deepest = language.max_depth
    if n_ctx <= 2 * deepest:
        raise ValueError(
            f"strings that visit every depth have {2 * deepest + 1} tokens, "
            f"but the model's n_ctx is {n_ctx}"
        )
    # 2 D brackets go up and down once: four times, so that states stand in other places too
    length = min(8 * deepest, n_ctx - 1)
    nested = visit_all(language)[:, 1:].repeat(1, 4)[:, :length]
    generator = torch.Generator().manual_seed(0)
    # eight contexts beside the nested ones: who depends on more than type and depth shows it in one
    random = DyckDistribution(language).sample(8, length, mode="prefix", generator=generator)
    strings = torch.cat([nested, random])
    return torch.cat([torch.full((len(strings), 1), language.bos_token), strings], 1)
