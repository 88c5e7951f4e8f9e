"""Fine-tuning in plain loops: with a head out, and with gates that have a price."""

from __future__ import annotations

import copy
from typing import Any

import numpy as np
import torch
from torch import Tensor

from tests.judge.methods.heads import each_head
from tests.judge.methods.network import right_brackets
from tl_dyck.ablation.tuning import stream
from tl_dyck.judge import Case

Array = np.ndarray
_PRICES = (0.003, 0.01, 0.02, 0.04, 0.08, 0.16, 0.32)


def log_probability(logits: Tensor, rights: Tensor) -> Tensor:
    """Of the right closing bracket, mean over the positions that have one, by string."""
    told = logits - logits.logsumexp(-1, keepdim=True)
    told = told.gather(2, rights.clamp(min=0)[:, :, None])[:, :, 0]
    return torch.where(rights >= 0, told, 0).sum(1) / (rights >= 0).sum(1)


def _rows(case: Case, step: int) -> Tensor:
    """The strings of a step: the same draws as the method's."""
    return torch.randint(len(case.tokens), (32,), generator=stream(0, "batch", step))


def left_out(case: Case) -> Array:
    """A head is out because its slice of W_O is zero, and kept so."""
    rights = torch.tensor(right_brackets(case.tokens.numpy()))

    def after(gone: tuple[int, int] | None) -> float:
        model = copy.deepcopy(case.model)
        optimiser = torch.optim.Adam(model.parameters(), lr=1e-3)
        for step in range(40):
            _take_out(model, gone)
            rows = _rows(case, step)
            optimiser.zero_grad()
            (-log_probability(model(case.tokens[rows]), rights[rows]).mean()).backward()
            optimiser.step()
        _take_out(model, gone)
        with torch.no_grad():
            return float(log_probability(model(case.tokens), rights).mean())

    control = after(None)
    return each_head(case, lambda layer, head: control - after((layer, head)))


@torch.no_grad()
def _take_out(model: Any, gone: tuple[int, int] | None) -> None:
    if gone is not None:
        model.blocks[gone[0]].attn.W_O[gone[1]] = 0


def closing_prices(case: Case) -> Array:
    """Hard-concrete gates, Louizos et al. 2018, by their formulas; the price that closes each."""
    rights = torch.tensor(right_brackets(case.tokens.numpy()))
    model, cfg = copy.deepcopy(case.model), case.model.cfg
    alpha = torch.full((cfg.n_layers, cfg.n_heads), 3.0, dtype=torch.float64, requires_grad=True)
    weights = [weight for weight in model.parameters() if weight.requires_grad]
    optimiser = torch.optim.Adam([{"params": weights, "lr": 1e-3}, {"params": [alpha], "lr": 0.3}])
    closed_at = np.full(alpha.shape, 2 * _PRICES[-1])
    was_open = np.ones(alpha.shape, dtype=bool)
    for step in range(140):
        price = _PRICES[step // 20]
        u = torch.rand(
            cfg.n_layers, 32, cfg.n_heads, generator=stream(0, "gates", step), dtype=torch.float64
        )
        s = torch.sigmoid((torch.log(u) - torch.log(1 - u) + alpha[:, None]) / (2 / 3))
        gates = torch.clamp(1.2 * s - 0.1, 0, 1)
        held = [
            (f"blocks.{layer}.attn.hook_z", lambda z, hook, g=gate: z * g[:, None, :, None])
            for layer, gate in enumerate(gates)
        ]
        rows = _rows(case, step)
        logits = model.run_with_hooks(case.tokens[rows], fwd_hooks=held)
        cost = torch.sigmoid(alpha - (2 / 3) * np.log(0.1 / 1.1)).sum()  # of P(gate > 0)
        optimiser.zero_grad()
        (price * cost - log_probability(logits, rights[rows]).mean()).backward()
        optimiser.step()
        with torch.no_grad():
            alpha.clamp_(max=3.0)
        is_open = (1.2 / (1 + np.exp(-alpha.detach().numpy())) - 0.1) > 0
        closed_at[was_open & ~is_open] = price
        closed_at[is_open] = 2 * _PRICES[-1]
        was_open = is_open
        if not is_open.any():
            break
    return closed_at
