"""Corollary 3: two different models, pruned from one random network, that share a weight matrix."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import final

from tl_dyck.kit.arguments import checked
from tl_dyck.models.construct.plan import Plan, random_network
from tl_dyck.models.construct.pruning import Pruning, check_alike, check_bound, check_epsilon, prune
from tl_dyck.models.transformer import DyckTransformer

_BLOCK = re.compile(r"blocks\.(\d+)\.(attn\.(?:W_[QKVO]|b_[QKV])|mlp\.(?:W_in|b_in|W_out))")


@final
@dataclass(frozen=True)
class Twins:
    """Two pruned networks that agree in one parameter, bit for bit.

    Attributes:
        a: pruned to the first target.
        b: pruned to the second.
        shared: name of the parameter.
        in_use: whether both networks compute with it. If not, it stands unpruned in a block that
            both leave out.
    """

    a: Pruning
    b: Pruning
    shared: str
    in_use: bool


@checked
def twins(
    target_a: DyckTransformer,
    target_b: DyckTransformer,
    *,
    shared: str,
    epsilon: float,
    items: int = 24,
    seed: int = 0,
    scale: float = 1.0,
) -> Twins:
    """Corollary 3: two targets, pruned out of one random network.

    A matrix of your choice is the same in both.

    So nothing that one sees in this matrix, however interpretable, tells which function the model
    computes. Where only the layout decides what is kept (W_E, W_U, and the query, value and MLP
    input weights and biases of blocks that need them), both networks share the matrix *and* use it.
    For any other one the block is left out in both, and the matrix stays there unpruned; that is
    the paper's argument (its layers that approximate the identity can be anywhere).

    Args:
        target_a: see `prune_to`.
        target_b: of the same language, embedding and C of LN_C; other sizes may differ.
        shared: name of the parameter of the random network, such as ``"blocks.1.attn.W_Q"`` or
            ``"unembed.W_U"``.
        epsilon: as for `prune_to`, for both.
        items: of the network to draw, see `construct.random_network`.
        seed: likewise.
        scale: likewise.

    Raises:
        ValueError: see `prune_to`; the two targets do not go together; no such parameter, or one
            that is never kept.
        NetworkTooNarrowError: see `prune_to`.
    """
    check_epsilon(epsilon)
    check_alike("the targets", target_a, target_b, "twins come from one random network")
    plan, in_use = _plan(shared, target_a, target_b)
    network = random_network(
        target_a,
        target_b,
        items=items,
        seed=seed,
        scale=scale,
        spare_layers=int(plan.idle is not None),
    )
    if shared not in dict(network.named_parameters()):
        raise ValueError(
            f"the random network has no parameter {shared!r}; it has blocks 0 to "
            f"{network.cfg.n_layers - 1}"
        )
    keep = None if in_use else shared
    a, b = (prune(target, network, plan, keep) for target in (target_a, target_b))
    for pruning in (a, b):
        check_bound(pruning, plan, epsilon)
    return Twins(a, b, shared, in_use)


def _plan(shared: str, *targets: DyckTransformer) -> tuple[Plan, bool]:
    """The layout, and whether the shared parameter is in use in it."""
    plan = Plan.of(*targets)
    if shared == "unembed.W_U" or (shared == "embed.W_E" and plan.token_embedding):
        return plan, True
    match = _BLOCK.fullmatch(shared)
    if match is None:
        raise ValueError(
            f"{shared!r} cannot be shared: give the name of a weight matrix or bias of the random "
            "network's blocks ('blocks.1.attn.W_K', 'blocks.0.mlp.W_out', …), 'unembed.W_U', or "
            "'embed.W_E' if tokens have one; output biases (b_O, b_out, b_U) are always pruned"
        )
    block, name = int(match[1]), match[2]
    if name in plan.fixed_by_layout(block):
        return plan, True
    return Plan.of(*targets, idle=block), False
