"""Methods that read weights only."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from tl_dyck.judge import Case, Question, Scores, declare_method, score_heads


@score_heads(above=0.5, paper="Elhage et al. 2021")
@torch.no_grad()
def copying(case: Case) -> Any:
    """Copying score: how positive the eigenvalues of W_E W_V W_O W_U are.

    "A Mathematical Framework": Σ λ / Σ |λ|; an embedding by depth enters as its mean over depths,
    and norms are left out. Read as: heads that copy what they look at are used. In size, since here
    a head that is used may promote the partner.
    """
    embed, model = _embedding(case.model), case.model
    return [
        [_share(embed @ v @ o @ model.unembed.W_U) for v, o in zip(attn.W_V, attn.W_O, strict=True)]
        for attn in (block.attn for block in model.blocks)
    ]


@score_heads(above=0.5, unit="of the largest", paper="after Elhage et al. 2021")
@torch.no_grad()
def path_norm(case: Case) -> Any:
    """Sizes of weights along paths from a head to the answers' logits; no model is run.

    ‖W_V W_O U‖ + Σ ‖W_V W_O w‖ ‖v U‖ over units of MLPs from its layer on, which read by w and
    write v; U is the unembedding of answers, such as closing brackets, less their mean. Norms and
    later heads are left out. Beside the model's largest.
    """
    model = case.model
    closing = model.unembed.W_U[:, case.choices]
    closing = closing - closing.mean(1, keepdim=True)
    sizes = []
    for layer, block in enumerate(model.blocks):
        moved = block.attn.W_V @ block.attn.W_O  # head, d_model, d_model
        size = (moved @ closing).flatten(1).norm(dim=1)
        for later in model.blocks[layer:]:
            reads, told = (moved @ later.mlp.W_in).norm(dim=1), (later.mlp.W_out @ closing)
            size = size + reads @ told.norm(dim=1)
        sizes.append(size)
    found: Tensor = torch.stack(sizes)
    return found / found.max()


@score_heads(above=0.0, unit="more than at random", paper="Elhage et al. 2021")
@torch.no_grad()
def composition(case: Case) -> Any:
    """Composition score of a head with the heads of later layers: the largest of Q, K and V.

    ‖W_1 W_2‖ / (‖W_1‖ ‖W_2‖), Frobenius, less what matrices at random of that size have,
    1/√d_model. Asked of heads that have a later layer.
    """
    if case.model.cfg.n_layers < 2:
        return None
    cfg, blocks = case.model.cfg, case.model.blocks
    values = torch.full((cfg.n_layers, cfg.n_heads), torch.nan)
    for layer in range(cfg.n_layers - 1):
        for head in range(cfg.n_heads):
            moved = blocks[layer].attn.W_V[head] @ blocks[layer].attn.W_O[head]
            values[layer, head] = max(
                _composed(moved, matrix)
                for later in blocks[layer + 1 :]
                for matrix in _circuits(later.attn)
            )
    return values.double() - cfg.d_model**-0.5


@declare_method("same", yes="above 0.9")
@torch.no_grad()
def weight_distance(case: Case, questions: Sequence[Question]) -> Scores:
    """Cosine of all weights of two models of one shape.

    The plainest reading of "these networks are alike"; nothing is aligned.
    """
    ours, theirs = dict(case.model.named_parameters()), dict(case.other.named_parameters())
    if {n: w.shape for n, w in ours.items()} != {n: w.shape for n, w in theirs.items()}:
        return None
    a, b = (torch.cat([weight.flatten() for weight in each.values()]) for each in (ours, theirs))
    return [float(torch.cosine_similarity(a, b, dim=0)) - 0.9] * len(questions)


def _embedding(model: Any) -> Float[Tensor, "d_vocab d_model"]:
    if hasattr(model.embed, "W_E"):
        found: Tensor = model.embed.W_E
        return found
    table = model.embed.table
    reached = (table != 0).any(-1, keepdim=True)
    mean: Tensor = table.sum(1) / reached.sum(1).clamp(min=1)
    return mean


def _share(circuit: Float[Tensor, "d_vocab d_vocab"]) -> float:
    values = torch.linalg.eigvals(circuit)
    total = float(values.abs().sum())
    return abs(float(values.real.sum())) / total if total > 1e-9 else 0.0


def _circuits(attn: Any) -> list[Float[Tensor, "d_model d_model"]]:
    """What a residual stream goes through into queries, keys and values of a layer's heads."""
    found = []
    for q, k, v, o in zip(attn.W_Q, attn.W_K, attn.W_V, attn.W_O, strict=True):
        found += [q @ k.T, k @ q.T, v @ o]
    return found


def _composed(first: Tensor, second: Tensor) -> float:
    size = float(first.norm() * second.norm())
    return float((first @ second).norm()) / size if size > 1e-12 else 0.0
