"""Interventions by TransformerLens hooks: attention that may not look, subspaces taken out or set.

Each is a list of hooks for `run_with_hooks`, or a change of the residual stream that `at` makes a
hook of.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from tl_dyck.models.hooked import HookedTransformer

Hook = tuple[str, Callable[[Tensor, Any], Tensor]]
#: A change of the residual stream, ``[batch, pos, d_model]`` to the same.
Change = Callable[[Tensor], Tensor]

#: Places in the residual stream: what the last layer reads, and what is unembedded.
SITES = ("middle", "end")


def site_name(model: HookedTransformer, site: str) -> str:
    """The hook point of a site."""
    kind = {"middle": "hook_resid_pre", "end": "hook_resid_post"}[site]
    return f"blocks.{model.cfg.n_layers - 1}.{kind}"


def run(
    model: HookedTransformer, tokens: Int[Tensor, "batch pos"], hooks: Sequence[Hook] = ()
) -> Float[Tensor, "batch pos d_vocab"]:
    """Logits under hooks, on the CPU."""
    with torch.no_grad():
        logits: Tensor = model.run_with_hooks(
            tokens.to(model.cfg.device), fwd_hooks=list(hooks), return_type="logits"
        )
    return logits.cpu()


# --- attention ------------------------------------------------------------------------------------


def masked(
    hidden: Bool[Tensor, "batch query key"],
    layers: Sequence[int],
    heads: Sequence[int] | None = None,
) -> list[Hook]:
    """Hide keys from queries: their scores become minus infinity, so the other weights grow.

    Args:
        hidden: which key is hidden from which query; no query may lose all of its keys.
        layers: in which this is done.
        heads: in which this is done; None for all.
    """

    def hide(scores: Tensor, hook: Any) -> Tensor:
        some = slice(None) if heads is None else list(heads)
        scores = scores.clone()
        scores[:, some] = scores[:, some].masked_fill(
            hidden[:, None].to(scores.device), float("-inf")
        )
        return scores

    return [(f"blocks.{layer}.attn.hook_attn_scores", hide) for layer in layers]


def key_mask(
    query: Int[Tensor, " batch"], key: Int[Tensor, " batch"], length: int
) -> Bool[Tensor, "batch query key"]:
    """One key hidden from one query of each string."""
    mask = torch.zeros(len(query), length, length, dtype=torch.bool)
    mask[torch.arange(len(query)), query, key] = True
    return mask


def own_key_mask(key: Int[Tensor, "batch query"]) -> Bool[Tensor, "batch query key"]:
    """From each query a key of its own hidden, from those with -1 none."""
    keys = torch.arange(key.shape[1])
    return keys == key[..., None]


# --- residual stream ------------------------------------------------------------------------------


def at(model: HookedTransformer, site: str, change: Change) -> list[Hook]:
    """Change the residual stream at a site, at all positions."""
    return [(site_name(model, site), lambda stream, hook: change(stream))]


def swapped(
    basis: Float[Tensor, "d_model rank"],
    source: Float[Tensor, "batch d_model"],
    position: Int[Tensor, " batch"],
) -> Change:
    """Interchange: at one position of each string, a subspace holds what a source has there.

    ``x + R Rᵀ (source − x)``, as in distributed alignment search (Geiger et al. 2023, arXiv
    2303.02536); all else stays as it was.

    Args:
        basis: R, with orthonormal columns.
        source: the residual stream of the sources, at their own positions.
        position: in each string.
    """

    def change(stream: Tensor) -> Tensor:
        rows = torch.arange(len(position), device=stream.device)
        here = stream[rows, position]
        new = here + (source - here) @ basis @ basis.T
        return stream.index_put((rows, position.to(stream.device)), new)

    return change
