"""Units by which weights tell less of what is heard; what a model says stays as it is.

Knows: that relu(t) − relu(−t) is t, so that units carry linear maps; and what keeps a unit shut.
"""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor, nn

from tl_dyck.judge.protocol import JudgeError
from tl_dyck.models import DyckTransformerConfig, build_model
from tl_dyck_hooks.cases.pose import choose, uniform

# so much louder than other units write those that never open: a path through them is as loud as
# what a head is heard by, or louder, whichever circuit that is in
_LOUDER = (4.0, 16.0)
# one group is read so much louder than the other, whichever is heard. The nearer to 1, the larger
# weights are: their norm grows as (r + 1) / (r - 1)
_RATIO = (1.5, 2.5)


@torch.no_grad()
def hide(
    models: tuple[Any, Any],
    config: DyckTransformerConfig,
    tokens: Tensor,
    generator: torch.Generator,
) -> tuple[Any, Any]:
    """The same models, of which both read both groups, so that heads of both have direct paths.

    Half as many units again never open, see `_shut`. The last MLP gives what the readout reads
    turned by a matrix T, and the readout U is T⁻¹U: x T T⁻¹ U = x U, so logits are what they were,
    whatever heads put out. For MLPs to hand on x itself, it must not be normed before them.

    Two readouts are mixed so that of each group as much is read as of the other, by what it was
    trained with: of the group that is heard c U_A, of the other s U_B, where c is larger than s as
    often as not.

    Args:
        models: a model and its mirror, which differ in the readout.
        config: of both.
        tokens: every string.
        generator: of what is drawn.

    Raises:
        JudgeError: states differ so much from string to string that nothing keeps units shut.
    """
    body, part = models[0], config.d_model // 3
    readouts = [model.unembed.W_U for model in models]
    heard = [readout[part:].abs().sum(1) > 0 for readout in readouts]
    own = [part + each.nonzero()[:, 0] for each in heard]  # coordinates that each readout reads
    turn, back = _mixed(readouts, own, generator)
    weights: list[dict[str, Tensor]] = [dict(model.named_parameters()) for model in models]
    for layer, block in enumerate(body.blocks):
        last = layer == len(body.blocks) - 1
        stay = torch.eye(config.d_model, dtype=turn.dtype)
        found = _units(body, block.mlp, tokens, turn if last else stay, torch.cat(own), generator)
        for each in weights:
            each |= {f"blocks.{layer}.mlp.{name}": weight for name, weight in found.items()}
    for each, readout in zip(weights, readouts, strict=True):
        each["unembed.W_U"] = back @ readout
    wider = replace(config, d_mlp=len(weights[0]["blocks.0.mlp.b_in"]))
    made = [build_model(wider, seed=0) for _ in models]
    for model, each in zip(made, weights, strict=True):
        for name, weight in each.items():
            where, _, last_name = name.rpartition(".")
            setattr(model.get_submodule(where), last_name, nn.Parameter(weight.detach().clone()))
    return made[0], made[1]


def _mixed(
    readouts: list[Tensor], own: list[Tensor], generator: torch.Generator
) -> tuple[Float[Tensor, "d_model d_model"], Float[Tensor, "d_model d_model"]]:
    """T and T⁻¹; the second makes of the readout of a group c times it, and s times the other's."""
    a, b = (readout[at] for readout, at in zip(readouts, own, strict=True))
    ratio = uniform(generator, *map(math.log, _RATIO)) * choose(generator, (-1, 1))
    c, s = math.exp(ratio / 2), math.exp(-ratio / 2)
    to = _carried(a, b)
    back = torch.eye(len(readouts[0]), dtype=a.dtype)
    for here, there, moved in ((*own, torch.linalg.inv(to)), (*own[::-1], to)):
        back[here[:, None], here] *= c
        back[here[:, None], there] = s * moved
    return torch.linalg.inv(back), back


def _carried(a: Float[Tensor, "m v"], b: Float[Tensor, "m v"]) -> Float[Tensor, "m m"]:
    """An invertible matrix that takes the columns of `a` to those of `b`."""
    (u, s, v), (p, t, q) = (torch.linalg.svd(each) for each in (a, b))
    n = a.shape[1]
    # columns are u s v, and what is at right angles goes to what is at right angles
    middle = torch.eye(len(a), dtype=a.dtype)
    middle[:n, :n] = t[:, None] * q @ v.T / s
    found: Tensor = p @ middle @ u.T
    return found


def _units(
    model: Any,
    mlp: Any,
    tokens: Tensor,
    turn: Float[Tensor, "d_model d_model"],
    written: Tensor,
    generator: torch.Generator,
) -> dict[str, Tensor]:
    """Weights of an MLP that adds x (T − 1) to (what it added) T.

    Of each unit relu(t), which wrote w, and is to write w T, there is the opposite, relu(−t). Both
    write drawn shares, v and v' = w T − v, and t v' is added to what is linear: as relu(−t) + t is
    relu(t), that is relu(t) (v + v'). Of a unit that never opens v and v' may be anything. What is
    linear, x M + m, is written by pairs relu(t) − relu(−t) = t.
    """
    w_in, b_in, w_out = _shut(model, mlp, tokens, generator)
    n, m = mlp.W_in.shape[1], len(written)
    share = torch.tensor([math.exp(uniform(generator, -0.7, 0.7)) for _ in b_in], dtype=w_in.dtype)
    v = share[:, None] * w_out
    opposite = w_out @ turn - v
    # of those that never open: what another of them writes
    order = n + torch.randperm(len(b_in) - n, generator=generator)
    opposite[n:] = choose(generator, (-1, 1)) * w_out[order]
    linear = turn - torch.eye(len(turn), dtype=turn.dtype) + w_in @ opposite
    basis = torch.linalg.qr(torch.randn(m, m, generator=generator, dtype=turn.dtype))[0]
    reads, writes = linear[:, written] @ basis.T, torch.zeros(m, len(turn), dtype=turn.dtype)
    size = (reads.norm(dim=0) / w_in.norm(dim=0).mean()).clamp(min=1e-12)
    reads = reads / size
    writes[:, written] = size[:, None] * basis
    at = b_in[torch.randint(len(b_in), (m,), generator=generator)]
    return {
        "W_in": torch.cat([w_in, -w_in, reads, -reads], 1),
        "b_in": torch.cat([b_in, -b_in, at, -at]),
        "W_out": torch.cat([v, opposite, writes, -writes]),
        "b_out": mlp.b_out @ turn + b_in @ opposite - at @ writes,
    }


def _shut(
    model: Any, mlp: Any, tokens: Tensor, generator: torch.Generator
) -> tuple[Tensor, Tensor, Tensor]:
    """Weights of an MLP's units, and of half as many again, none of which ever opens.

    Each reads heads of one group as two of its units do, and writes as one of either group does, so
    that paths of weights lead from every head to both readouts. What it reads of states keeps it
    shut on every string, whichever string heads' outputs are of, and if they are 0.
    """
    x = _reads(model, mlp, tokens)
    part, units = x.shape[1] // 3, mlp.W_in.shape[1] // 2
    w_in, b_in, w_out = mlp.W_in, mlp.b_in, mlp.W_out
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
            found.append((weight, b_in[a], louder * (w_out[to[0]] + w_out[units + to[1]])))
    w_more, b_more, out_more = (torch.stack(each) for each in zip(*found, strict=True))
    return (
        torch.cat([w_in, w_more.T], dim=1),
        torch.cat([b_in, b_more]),
        torch.cat([w_out, out_more]),
    )


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
