"""Units that never open, and by which weights tell less of what is heard.

Knows: what keeps a unit shut on every string. Does not hide that a head has no direct path.
"""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor, nn

from tl_dyck.judge.pose import choose, uniform
from tl_dyck.judge.protocol import JudgeError
from tl_dyck.models import DyckTransformerConfig, build_model

# so much louder than other units write those that never open: a path through them is as loud as
# what a head is heard by, or louder, whichever circuit that is in
_LOUDER = (4.0, 16.0)


@torch.no_grad()
def add_shut(
    models: tuple[Any, Any],
    config: DyckTransformerConfig,
    tokens: Tensor,
    generator: torch.Generator,
) -> tuple[Any, Any]:
    """The same models with half as many units again in each MLP, none of which ever opens.

    Each reads heads of one group as two of its units do, and writes as one of either group does, so
    that paths of weights lead from every head to both readouts. What it reads of states keeps it
    shut on every string, whichever string heads' outputs are of, and if they are 0.

    Args:
        models: a model and its mirror, which differ in the readout.
        config: of both.
        tokens: every string.
        generator: of what is drawn.

    Raises:
        JudgeError: states differ so much from string to string that nothing keeps units shut.
    """
    part, units = config.d_model // 3, models[0].cfg.d_mlp // 2
    weights: list[dict[str, Tensor]] = [dict(model.named_parameters()) for model in models]
    for layer, block in enumerate(models[0].blocks):
        x = _reads(models[0], block.mlp, tokens)
        w_in, b_in, w_out = block.mlp.W_in, block.mlp.b_in, block.mlp.W_out
        gate = _gate(x[:, :part])
        found: list[tuple[Tensor, Tensor, Tensor]] = []
        for group in range(2):
            own = slice((1 + group) * part, (2 + group) * part)
            louder = math.exp(uniform(generator, *map(math.log, _LOUDER)))
            for _ in range(units // 2):
                a, b, *to = torch.randint(units, (4,), generator=generator).tolist()
                a, b = (group * units + at for at in (a, b))
                weight = w_in[:, a].clone()
                mixed = w_in[own, a] + choose(generator, (-1, 1)) * w_in[own, b]
                # 1e-12: a unit less itself is 0
                weight[own] = mixed * w_in[own, a].norm() / mixed.norm().clamp(min=1e-12)
                most = (x[:, own] @ weight[own]).max().clamp(min=0)
                most = most + (x[:, :part] @ weight[:part]).max() + b_in[a]
                # half more than what any two strings give, as norms grow where a head is 0, and a
                # quarter where that is nothing
                weight[:part] -= gate * (1.5 * most.clamp(min=0) + 0.25)
                wrote = w_out[to[0]] + w_out[units + to[1]]
                found.append((weight, b_in[a], louder * wrote))
        w_more, b_more, out_more = (torch.stack(each) for each in zip(*found, strict=True))
        at = f"blocks.{layer}.mlp"
        for each in weights:
            each[f"{at}.W_in"] = torch.cat([w_in, w_more.T], dim=1)
            each[f"{at}.b_in"] = torch.cat([b_in, b_more])
            each[f"{at}.W_out"] = torch.cat([w_out, out_more])
    wider = replace(config, d_mlp=2 * units + 2 * (units // 2))
    made = [build_model(wider, seed=0) for _ in models]
    for model, each in zip(made, weights, strict=True):
        for name, weight in each.items():
            where, _, last = name.rpartition(".")
            setattr(model.get_submodule(where), last, nn.Parameter(weight.detach().clone()))
    return made[0], made[1]


def _reads(model: Any, mlp: nn.Module, tokens: Tensor) -> Tensor:
    """What an MLP reads at every place of every string, ``[place, d_model]``."""
    found: list[Tensor] = []
    handle = mlp.register_forward_pre_hook(lambda _, given: found.append(given[0].flatten(0, -2)))
    try:
        model(tokens)
    finally:
        handle.remove()
    return found[0]


def _gate(states: Tensor) -> Tensor:
    """A direction along which every row is at least 1, and nearly alike.

    Raises:
        JudgeError: there is none.
    """
    ones = torch.ones(len(states), 1, dtype=states.dtype)
    # of full rank or not: the smallest of the best
    gate: Tensor = torch.linalg.lstsq(states, ones, driver="gelsd").solution[:, 0]
    least = float((states @ gate).min())
    if least < 0.05:  # of 1: far from it, weights would grow twentyfold
        raise JudgeError("states differ too much for units to be kept shut")
    return gate / least
