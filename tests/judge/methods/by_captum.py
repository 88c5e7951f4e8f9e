"""What captum says of heads and brackets; it is handed the model as a function, and its modules."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from captum.attr import (
    InputXGradient,
    IntegratedGradients,
    LayerGradientXActivation,
    Saliency,
)
from torch import Tensor

from tests.judge.methods.brackets import Row
from tests.judge.methods.cases import network
from tests.judge.methods.heads import both_ends, other_rows, run
from tests.judge.methods.network import right_brackets
from tl_dyck.judge import Case

Array = np.ndarray


def log_probability(logits: Tensor, rights: Tensor) -> Tensor:
    """Of the right closing bracket, mean over the positions that have one, by string."""
    told = logits - logits.logsumexp(-1, keepdim=True)
    told = told.gather(2, rights.clamp(min=0)[:, :, None])[:, :, 0]
    return torch.where(rights >= 0, told, 0).sum(1) / (rights >= 0).sum(1)


def _log_probability(case: Case) -> Any:
    rights = torch.tensor(right_brackets(case.tokens.numpy()))
    return lambda tokens: log_probability(case.model(tokens), rights)


def _hook(case: Case, layer: int, name: str) -> Any:
    return getattr(case.model.blocks[layer].attn, f"hook_{name}")


# --- heads ----------------------------------------------------------------------------------------


def slope(case: Case) -> Array:
    forward, values = _log_probability(case), []
    for layer in range(case.model.cfg.n_layers):
        found: Any = LayerGradientXActivation(forward, _hook(case, layer, "z")).attribute(
            case.tokens
        )
        values.append(found.sum((1, 3)).abs().mean(0).detach().numpy())
    return np.stack(values)


def first_order(case: Case) -> Array:
    """The gradient at the clean z, times the way to the other."""
    low, high = both_ends(case)
    other = run(case, other_rows(case)).z
    with torch.no_grad():  # the model's own: where a ReLU stands at zero, rounding says which slope
        _, clean = case.model.run_with_cache(case.tokens)
    rights = torch.tensor(right_brackets(case.tokens.numpy()))
    k, values = case.task.n_types, []
    for layer in range(case.model.cfg.n_layers):

        def forward(z: Tensor, layer: int = layer) -> Tensor:
            name = f"blocks.{layer}.attn.hook_z"
            logits = case.model.run_with_hooks(case.tokens, fwd_hooks=[(name, lambda _, hook: z)])
            return _difference(k, logits, rights).sum(1)

        a, b = clean["z", layer].clone(), torch.tensor(np.stack(other[layer], 2))
        gradient = Saliency(forward).attribute(a.requires_grad_(), abs=False)
        values.append((gradient * (b - a)).sum((0, 1, 3)).abs().detach().numpy() / rights.numel())
    return np.stack(values) / abs(high - low)


def _difference(k: int, logits: Tensor, rights: Tensor) -> Tensor:
    closing = logits[..., [2 * t + 1 for t in range(k)]]
    mine = logits.gather(-1, rights.clamp(min=0)[..., None])[..., 0]
    found = mine - (closing.sum(-1) - mine) / (k - 1)
    return torch.where(rights >= 0, found, 0)


# --- brackets -------------------------------------------------------------------------------------


def _of_embeddings(case: Case) -> Any:
    """Logit difference at the last position, as a function of embeddings."""

    def forward(embed: Tensor, tokens: Tensor, answers: Tensor) -> Tensor:
        logits = case.model.run_with_hooks(
            tokens, fwd_hooks=[("hook_embed", lambda old, hook: embed)]
        )
        return _difference(case.task.n_types, logits[:, -1], answers)

    return forward


def _parts(case: Case, rows: list[Row], answers: list[int]) -> tuple[Tensor, Any]:
    embed = torch.tensor(network(case.model).embed(np.array(rows)))
    return embed.requires_grad_(), (torch.tensor(rows), torch.tensor(answers))


def times_input(case: Case, rows: list[Row], answers: list[int]) -> Array:
    embed, more = _parts(case, rows, answers)
    found: Any = InputXGradient(_of_embeddings(case)).attribute(embed, additional_forward_args=more)
    return found.sum(-1).abs().detach().numpy()


def integrated(case: Case, rows: list[Row], answers: list[int]) -> Array:
    embed, more = _parts(case, rows, answers)
    found: Any = IntegratedGradients(_of_embeddings(case)).attribute(
        embed, 0, additional_forward_args=more, n_steps=20, method="riemann_middle"
    )
    return found.sum(-1).abs().detach().numpy()
