"""The denominator of the balance violation, exactly, where there are too many open prefixes to try.

Eq. 16 and 17 of Wen et al. 2023 minimise ‖base + Σ_m x_m‖ over one vector x_m from each of d levels (what an opening
bracket at depth m contributes) with k choices a level (its type), d ≤ D − 1: k^d sums. Greedy choices, depth by depth,
do not find the minimum, since vectors cancel each other. Few sums are all tried. Otherwise branch and bound, exact up
to rounding: the squared norm is a sum of terms of one and of two levels,

    ‖base + Σ_m x_m‖² = constant + Σ_m single_m(t_m) + Σ_{m<n} pair_mn(t_m, t_n),

so taking the least of every term by itself bounds it from below. Before the search, what is certain to be paid is moved
from pairs to single levels and spread evenly (min-sum diffusion, a reparametrisation that changes no sum; see Cooper et
al. 2010, "Soft arc consistency revisited"), which tightens the bound. Levels are decided from the one that varies most;
the last three or so are not branched on but tried all together, by one matrix product in single precision, and what is
not clearly too long is computed again.

The worst case are near ties by the million (types that are almost interchangeable, vectors that span few dimensions).
The search then tries up to all k^d sums, about a nanosecond each.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
from jaxtyping import Float, Int

from tl_dyck.registry import unknown_name

__all__ = ["second_smallest_norm"]

_FEW = 4096  # sums that are all tried
_BLOCK = 512  # so many choices for the last levels are tried together
_GUESS = 64  # nodes a level that are looked at first, for a good guess
_CHUNK = 1024  # nodes that are expanded at once
_ENTRIES = 2**18  # of a table of sums, which bounds the memory
_DIFFUSION = 8  # rounds; more do not tighten the bound noticeably
_NO_MATTER = 1e-9  # relative to the squared norm that is sought: differences below it may be rounding


def second_smallest_norm(
    base: Float[np.ndarray, " dim"], choices: Float[np.ndarray, "level choice dim"], *, method: str = "auto"
) -> float:
    """P of Eq. 17: the least ‖base + Σ_m choices[m, t_m]‖ over t whose last entry is not that of the best t of all.

    Equally: of the least norms for each choice at the last level, the second smallest.

    Args:
        base: what is in every sum.
        choices: one of which is added per level; at least two choices.
        method: "all" or "branch" to have it found in that way; "auto" for all if they are few.

    Returns:
        The norm of that sum, computed from the vectors themselves. It is the true one up to rounding: a sum is passed
        over only if it is larger than the result by bounds of rounding, or smaller by less than one part in 10⁹.

    Raises:
        ValueError: fewer than two choices, no level, numbers that are not finite, or an unknown method.
    """
    levels, k, _ = choices.shape
    if levels < 1 or k < 2:
        raise ValueError(f"a second smallest norm needs a level and two choices, not {levels} and {k}")
    if not (np.isfinite(base).all() and np.isfinite(choices).all()):
        raise ValueError("there are numbers that are not finite among the vectors to add up")
    if method not in ("auto", "all", "branch"):
        raise unknown_name("method", method, ("auto", "all", "branch"))
    every = levels == 1 or method == "all" or (method == "auto" and k**levels <= _FEW)
    found = _try_all(base, choices) if every else _Search(base, choices).run()
    return float(np.partition(found, 1)[1])


def _try_all(
    base: Float[np.ndarray, " dim"], choices: Float[np.ndarray, "level choice dim"]
) -> Float[np.ndarray, " choice"]:
    """The least norm for each choice at the last level."""
    norms = np.linalg.norm(_sums(base, choices), axis=-1)
    least: np.ndarray = norms.reshape(-1, choices.shape[1]).min(0)
    return least


def _sums(base: np.ndarray, choices: Float[np.ndarray, "level choice dim"]) -> Float[np.ndarray, "sum dim"]:
    """All sums; the choice at the last level varies fastest."""
    total = base[None]
    for level in choices:
        total = (total[:, None] + level).reshape(-1, len(base))
    return total


# --- branch and bound ------------------------------------------------------------------------------------------------


@dataclass
class _Nodes:
    """Prefixes of decisions, all of one length s, the most promising first.

    Attributes:
        types: decisions so far, ``[node, s]``.
        cost: their part of the energy, ``[node]``.
        fields: what they add to each choice at the levels to come, ``[node, level to come, choice]``.
        bound: no sum of the node is smaller, ``[node]``; squared norm.
    """

    types: Int[np.ndarray, "node decided"]
    cost: Float[np.ndarray, " node"]
    fields: Float[np.ndarray, "node open choice"]
    bound: Float[np.ndarray, " node"]

    def __len__(self) -> int:
        return len(self.cost)

    def __getitem__(self, rows: Any) -> _Nodes:
        return _Nodes(self.types[rows], self.cost[rows], self.fields[rows], self.bound[rows])


@dataclass
class _Search:
    """Branch and bound; the level at which the result asks for two choices is decided last.

    Attributes:
        base: as in `second_smallest_norm`.
        choices: likewise.
        least: the least norm found so far for each choice at the last level.
    """

    base: Float[np.ndarray, " dim"]
    choices: Float[np.ndarray, "level choice dim"]
    least: Float[np.ndarray, " choice"] = field(init=False)

    def __post_init__(self) -> None:
        levels, k, dim = self.choices.shape
        mean = self.choices.mean(1, keepdims=True)
        varies = ((self.choices - mean) ** 2).sum((1, 2))
        self.choices = self.choices[np.append(np.argsort(-varies[:-1], kind="stable"), levels - 1)]
        # energies of what is left when each level's mean is moved to the base: smaller terms, tighter bounds
        rest = self.choices - self.choices.mean(1, keepdims=True)
        base = self.base + self.choices.mean(1).sum(0)
        flat = rest.reshape(levels * k, dim)
        pair = 2 * (flat @ flat.T).reshape(levels, k, levels, k).transpose(0, 2, 1, 3).copy()
        pair[np.arange(levels), np.arange(levels)] = 0
        single = 2 * rest @ base + (rest**2).sum(-1)
        size = float(np.linalg.norm(base) + np.linalg.norm(rest, axis=-1).max(1).sum())
        self.constant = float(base @ base)
        for _ in range(_DIFFUSION):
            for m in range(levels):
                certain = pair[m].min(2)  # other level, choice at m
                certain[m] = 0
                share = (single[m] + certain.sum(0)) / levels
                moved = share - certain
                moved[m] = 0
                pair[m] += moved[:, :, None]
                pair[:, m] += moved[:, None, :]
                single[m] = share
        self.single, self.pair = single, pair
        #: the least that a choice costs together with the levels after it
        self.alone = np.stack([single[m] + pair[m, m + 1 :].min(2).sum(0) for m in range(levels)])
        self.tail = 1  # how many levels are tried together
        while self.tail < levels - 1 and k ** (self.tail + 1) <= _BLOCK:
            self.tail += 1
        self.head = levels - self.tail
        block = np.full((k,) * self.tail, self.constant)
        for a in range(self.tail):
            block = block + self._along(single[self.head + a], a)
            for b in range(a + 1, self.tail):
                shape = [k if axis in (a, b) else 1 for axis in range(self.tail)]
                block = block + pair[self.head + a, self.head + b].reshape(shape)
        self.block, self.largest_in_block = block.ravel(), float(np.abs(block).max())
        #: which choices make up each entry of the block, ``[level of the tail, entry]``
        self.entries = np.stack(np.unravel_index(np.arange(self.block.size), (k,) * self.tail))
        # energies of the block from a row (fields, cost, 1), by one product
        chosen = (self.entries[:, None] == np.arange(k)[:, None]).reshape(self.tail * k, -1)
        self.product = np.vstack([chosen, np.ones(self.block.size), self.block]).astype(np.float32)
        # no partial sum is larger than this; each is a rounding error away from what it should be, and so is a term
        largest = size**2 + self.constant + np.abs(single).max(1).sum() + np.abs(pair).max((2, 3)).sum()
        terms = dim + levels * (levels + 2 * _DIFFUSION)
        self.rounding = terms * np.finfo(np.float64).eps * largest
        self.least = np.full(k, np.inf)

    def run(self) -> Float[np.ndarray, " choice"]:
        """The least norm for each choice at the last level, exact up to the second smallest of them."""
        levels, k, _ = self.choices.shape
        root = _Nodes(np.zeros((1, 0), int), np.zeros(1), np.zeros((1, levels, k)), np.array([-np.inf]))
        nodes = root
        for _ in range(self.head):
            nodes = self._children(nodes, np.inf)[:_GUESS]
        self._finish(nodes)
        stack = [root]
        while stack:
            nodes = stack.pop()
            nodes = nodes[: int(np.searchsorted(nodes.bound, self._limit()))]
            done = nodes.types.shape[1] == self.head
            most = max(1, _ENTRIES // self.block.size) if done else _CHUNK
            if len(nodes) > most:
                stack.append(nodes[most:])
                nodes = nodes[:most]
            if len(nodes) and done:
                self._finish(nodes)
            elif len(nodes):
                stack.append(self._children(nodes, self._limit()))
        return self.least

    def _limit(self) -> float:
        """Squared norms from here on are of no interest.

        Ties are usual, by symmetry of the types, so what cannot be told from a tie is given up. Only where the result
        is so small beside the vectors that squared norms cannot tell it from zero is everything kept that might matter.
        """
        best = float(np.partition(self.least, 1)[1]) ** 2
        sign = -1 if self.rounding <= _NO_MATTER * best else 1
        return best + sign * float(self.rounding)

    def _children(self, nodes: _Nodes, limit: float) -> _Nodes:
        """Decide one more level, and keep what is below the limit, sorted by bound."""
        s = nodes.types.shape[1]
        cost = nodes.cost[:, None] + nodes.fields[:, 0] + self.single[s]
        fields = nodes.fields[:, None, 1:] + self.pair[s, s + 1 :].transpose(1, 0, 2)
        bound = self.constant + cost + _least(fields + self.alone[s + 1 :]).sum(-1)
        node, chosen = np.nonzero(bound < limit)
        order = np.argsort(bound[node, chosen], kind="stable")
        node, chosen = node[order], chosen[order]
        types = np.concatenate([nodes.types[node], chosen[:, None]], axis=1)
        return _Nodes(types, cost[node, chosen], fields[node, chosen], bound[node, chosen])

    def _finish(self, nodes: _Nodes) -> None:
        """Try all choices at the remaining levels, and remember the least norms."""
        n = len(nodes)
        row = np.concatenate([nodes.fields.reshape(n, -1), nodes.cost[:, None], np.ones((n, 1))], axis=1)
        rough = row.astype(np.float32) @ self.product
        limit = self._limit()
        largest = np.abs(nodes.fields).max(-1).sum(1) + np.abs(nodes.cost)
        error = (self.tail + 4) * np.finfo(np.float32).eps * (largest.max() + self.largest_in_block)
        below = rough < limit + error
        if not below.any():
            return
        node, entry = np.nonzero(below)
        types = self.entries[:, entry].T
        fields = nodes.fields[node[:, None], np.arange(self.tail), types]
        energy = nodes.cost[node] + fields.sum(1) + self.block[entry]
        if limit == np.inf or self.rounding <= _NO_MATTER * limit:  # one for each last choice will do
            order = np.lexsort((energy, types[:, -1]))
            first = np.append(True, np.diff(types[order, -1]) > 0)
            rows = order[first]
            rows = rows[energy[rows] < limit]
        else:
            rows = np.flatnonzero(energy < limit)
        types = np.concatenate([nodes.types[node[rows]], types[rows]], axis=1)
        total = self.base + self.choices[np.arange(len(self.choices)), types].sum(1)
        np.minimum.at(self.least, types[:, -1], np.linalg.norm(total, axis=-1))

    def _along(self, values: Float[np.ndarray, " choice"], axis: int) -> np.ndarray:
        """Values laid along one axis of the block."""
        return values.reshape([-1 if other == axis else 1 for other in range(self.tail)])


def _least(values: Float[np.ndarray, "*any choice"]) -> Float[np.ndarray, "*any"]:
    """Minimum over a short last axis: by halves, which numpy does several times faster than ``min(-1)``."""
    while values.shape[-1] > 1:
        half = (values.shape[-1] + 1) // 2
        values = np.minimum(values[..., :half], values[..., -half:])
    return values[..., 0]
