"""What tools say of edges: how far the logit difference moves if one reader reads another string.

Sources put out what they do on the string with all types exchanged; answers are in logits.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from tl_dyck.judge import Case, WithError, score_edges
from tl_dyck.judge.convergence import integrated
from tl_dyck.judge.edges import Edge, Edges
from tl_dyck.reading.interventions import run

_STEPS, _MOST = 5, 320  # of the integral
_LEAST = 0.1  # logits: errors are beside what changes, or this
_WAY = "way"
_Found = dict[tuple[Any, Any], float]


@score_edges(above=0.1, unit="logits", paper="Goldowsky-Dill et al. 2023")
def edge_path_patching(case: Case) -> _Found:
    """Path patching of one edge: the norm behind the heads is passed, then one reader reads it."""
    return _patched(case, lambda edges, edge: edges.stream_change(edge))


@score_edges(above=0.1, unit="logits", paper="after Conmy et al. 2023")
def edge_sum_patching(case: Case) -> _Found:
    """The same as if the residual stream were a sum of what heads write: no norm is passed."""
    return _patched(case, lambda edges, edge: edges.source_change(edge))


@score_edges(above=0.1, unit="logits", paper="Syed et al. 2023")
def edge_attribution(case: Case) -> _Found:
    """EAP: the gradient by what a reader reads, times the change of what the source writes."""
    edges = _edges(case)
    return _along(edges, _slopes(case, edges, 0.0))


@score_edges(above=0.1, unit="logits", paper="Hanna et al. 2024")
def edge_integrated_gradients(case: Case) -> WithError:
    """EAP with the gradient's mean while all embeddings go to the other string.

    20 midpoints or more, until slopes along that way add up to what changes from end to end, and no
    edge is far from what fewer of them say.
    """
    edges = _edges(case)
    with torch.no_grad():
        ends = [_told(case, _on_the_way(case, edges, torch.tensor(x))) for x in (1.0, 0.0)]
    change = ends[0] - ends[1]
    along: _Found = {}

    def run(n: int) -> tuple[list[float], Tensor]:
        steps = [_slopes(case, edges, (step + 0.5) / n) for step in range(n)]
        mean = {name: torch.stack([each[name] for each in steps]).mean(0) for name in steps[0]}
        gap = mean.pop(_WAY) - change
        along.update(_along(edges, mean))
        return list(along.values()), gap

    error = integrated(run, change.abs().clamp(min=_LEAST), _STEPS, _MOST).error
    return WithError(along, error)  # of the most steps


@score_edges(above=1.0)
def edge_change(case: Case) -> _Found:
    """A baseline: by how much what the source writes changes, whoever reads it."""
    edges = _edges(case)
    return {
        (edge.source, edge.reader): float(edges.source_change(edge).norm(dim=-1).mean())
        for edge in edges.edges
    }


def _edges(case: Case) -> Edges:
    return Edges(case.model, case.tokens, case.partners)


def _told(case: Case, logits: Tensor) -> Tensor:
    """Mean logit difference, over positions that have one."""
    right = case.right
    total = case.difference(logits, right).sum()
    return total / (right >= 0).sum()


def _patched(case: Case, change: Callable[[Edges, Edge], Tensor]) -> _Found:
    edges, base = _edges(case), _told(case, run(case.model, case.tokens))
    return {
        (edge.source, edge.reader): float(
            _told(case, edges.logits(edge, change(edges, edge))) - base
        )
        for edge in edges.edges
    }


def _slopes(case: Case, edges: Edges, share: float) -> dict[str, Tensor]:
    """Gradient by what is read, the embedding being that much on its way to the other string.

    And by that share itself, under a name of its own.
    """
    leaves: dict[str, Tensor] = {_WAY: torch.tensor(share, requires_grad=True)}

    def leaf(found: Tensor, hook: Any) -> Tensor:
        leaves[hook.name] = torch.zeros_like(found, requires_grad=True)
        return found + leaves[hook.name]

    names = {edges.reads(edge)[0] for edge in edges.edges}
    hooks = [(name, leaf) for name in names]
    with torch.enable_grad():
        told = _told(case, _on_the_way(case, edges, leaves[_WAY], hooks))
        slopes = torch.autograd.grad(told, list(leaves.values()))
    return dict(zip(leaves, slopes, strict=True))


def _on_the_way(case: Case, edges: Edges, share: Tensor, hooks: Sequence[Any] = ()) -> Tensor:
    """Logits where embeddings are that much on their way to the other string."""
    change = edges.source_change(edges.edges[0])  # of the embedding
    moved = ("hook_embed", lambda found, hook: found + share * change)
    logits: Tensor = edges.model.run_with_hooks(case.tokens, fwd_hooks=[moved, *hooks])
    return logits


def _along(edges: Edges, slopes: Mapping[str, Tensor]) -> _Found:
    """What the slopes say of the change of each edge."""
    found = {}
    for edge in edges.edges:
        name, head = edges.reads(edge)
        slope = slopes[name] if head is None else slopes[name][:, :, head]
        found[edge.source, edge.reader] = float((slope * edges.source_change(edge)).sum())
    return found
