"""Subset sums, many at once: which items of a list add up to a target?

This is what pruning does to one weight (Pensia et al. 2020): products of random weights are the
items, the weight of the target network is the target, and what is not in the subset is pruned. Of n
items there are 2^n subsets, so the nearest sum is off by about 2^-n: that is where the log(1/ε) of
the theorem comes from.
"""

from __future__ import annotations

import torch
from jaxtyping import Bool, Float
from torch import Tensor

#: Among so many items the best subset is found exactly; of a longer list the rest is added greedily
#: first.
EXACT_ITEMS = 30

_CHUNK = 2**21  # sums held at a time


def nearest_subsets(
    items: Float[Tensor, "problem item"], targets: Float[Tensor, " problem"]
) -> Bool[Tensor, "problem item"]:
    """The subset of each row whose sum is nearest to its target; zeros are never chosen.

    Exact by meet in the middle, for up to `EXACT_ITEMS` items: all sums of one half are sorted, and
    for each sum of the other half the nearest complement is looked up, 2^(n/2) log 2^(n/2) steps
    instead of 2^n. Of a longer row, the first `EXACT_ITEMS` items are kept for that; the others are
    taken, largest first, while the target is out of their reach.
    """
    chosen = torch.zeros(items.shape, dtype=torch.bool)
    rest = targets.clone()
    exact, extra = items[:, :EXACT_ITEMS], items[:, EXACT_ITEMS:]
    if extra.shape[1]:
        order = extra.abs().argsort(1, descending=True)
        for column in order.T:
            item = extra.gather(1, column[:, None])[:, 0]
            # what is left to the exact search should be well within its reach, where sums are
            # densest
            reach = torch.where(rest > 0, exact.clamp(min=0).sum(1), -exact.clamp(max=0).sum(1))
            take = (item * rest > 0) & (item.abs() <= rest.abs()) & (rest.abs() > reach / 2)
            chosen[:, EXACT_ITEMS:].scatter_(1, column[:, None], take[:, None])
            rest = rest - torch.where(take, item, 0.0)
    rows = max(1, _CHUNK >> ((exact.shape[1] + 1) // 2))
    for first in range(0, len(items), rows):
        part = slice(first, first + rows)
        chosen[part, :EXACT_ITEMS] = _meet_in_the_middle(exact[part], rest[part])
    return chosen & (items != 0)


def _meet_in_the_middle(
    items: Float[Tensor, "problem item"], targets: Float[Tensor, " problem"]
) -> Bool[Tensor, "problem item"]:
    n = items.shape[1]
    left_bits, right_bits = _subsets(n // 2), _subsets(n - n // 2)
    left = items[:, : n // 2] @ left_bits.T.to(items.dtype)
    right, order = (items[:, n // 2 :] @ right_bits.T.to(items.dtype)).sort(1)
    wanted = targets[:, None] - left
    above = torch.searchsorted(right, wanted).clamp(max=right.shape[1] - 1)
    below = (above - 1).clamp(min=0)
    off_above, off_below = (
        (right.gather(1, above) - wanted).abs(),
        (right.gather(1, below) - wanted).abs(),
    )
    nearest = torch.where(off_below < off_above, below, above)
    best = torch.minimum(off_below, off_above).argmin(1, keepdim=True)
    partner = order.gather(1, nearest.gather(1, best))
    return torch.cat([left_bits[best[:, 0]], right_bits[partner[:, 0]]], 1)


def _subsets(n: int) -> Bool[Tensor, "subset item"]:
    """All 2^n subsets of n items."""
    return (torch.arange(2**n)[:, None] >> torch.arange(n)) & 1 == 1
