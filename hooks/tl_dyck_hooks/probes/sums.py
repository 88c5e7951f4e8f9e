"""What the search for the shortest sum works on: nodes of its tree, groups of near sums, rows."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from jaxtyping import Float, Int

__all__ = ["Groups", "Nodes", "add_up", "all_sums", "least_of", "row_norms", "try_all"]


@dataclass
class Nodes:
    """Prefixes of decisions, all of one length s, the most promising first.

    Attributes:
        types: decisions so far, ``[node, s]``.
        cost: their part of the energy, ``[node]``.
        fields: what they add to each choice at the levels to come,
            ``[node, level to come, choice]``.
        bound: no sum of the node is smaller, ``[node]``; squared norm.
    """

    types: Int[np.ndarray, "node decided"]
    cost: Float[np.ndarray, " node"]
    fields: Float[np.ndarray, "node open choice"]
    bound: Float[np.ndarray, " node"]

    def __len__(self) -> int:
        return len(self.cost)

    def __getitem__(self, rows: Any) -> Nodes:
        return Nodes(self.types[rows], self.cost[rows], self.fields[rows], self.bound[rows])


@dataclass
class Groups:
    """The sums of the tail, in groups of near ones, in the coordinates of `lead` of the search.

    Attributes:
        near: of each group: the centre in all coordinates but the last, the least of the last.
        radius: no sum of the group is farther from the centre in all coordinates but the last.
        first: where the group's sums begin in `order`; one more entry for the end.
        order: numbers of sums, group by group.
    """

    near: Float[np.ndarray, "group axis"]
    radius: Float[np.ndarray, " group"]
    first: Int[np.ndarray, " ends"]
    order: Int[np.ndarray, " sum"]

    def size(self, group: Int[np.ndarray, " pair"]) -> Int[np.ndarray, " pair"]:
        """Number of sums that these groups have."""
        size: np.ndarray = self.first[group + 1] - self.first[group]
        return size

    def members(
        self, node: Int[np.ndarray, " pair"], group: Int[np.ndarray, " pair"]
    ) -> tuple[Int[np.ndarray, " member"], Int[np.ndarray, " member"]]:
        """Pairs of a node and a group, taken apart into pairs of a node and a sum."""
        size = self.size(group)
        place = np.arange(size.sum()) + np.repeat(
            self.first[group] - (np.cumsum(size) - size), size
        )
        return np.repeat(node, size), self.order[place]


def add_up(
    start: Float[np.ndarray, " axis"],
    place: Float[np.ndarray, "level choice axis"],
    types: Int[np.ndarray, "row chosen"],
) -> Float[np.ndarray, "row axis"]:
    """The sums for these choices at the first levels; one at a time, which bounds the memory."""
    total = np.repeat(start[None], len(types), axis=0)
    for level, chosen in zip(place, types.T, strict=False):
        total += level.take(chosen, axis=0)
    return total


def row_norms(vectors: Float[np.ndarray, "row axis"]) -> Float[np.ndarray, " row"]:
    """The length of every row."""
    norm: np.ndarray = np.sqrt(np.einsum("ra,ra->r", vectors, vectors))
    return norm


def least_of(values: Float[np.ndarray, "*any choice"]) -> Float[np.ndarray, "*any"]:
    """Minimum over a short last axis: by halves, several times faster than numpy's ``min(-1)``."""
    while values.shape[-1] > 1:
        half = (values.shape[-1] + 1) // 2
        values = np.minimum(values[..., :half], values[..., -half:])
    return values[..., 0]


def try_all(
    base: Float[np.ndarray, " dim"], choices: Float[np.ndarray, "level choice dim"]
) -> Float[np.ndarray, " choice"]:
    """The least norm for each choice at the last level."""
    norms = np.linalg.norm(all_sums(base, choices), axis=-1)
    least: np.ndarray = norms.reshape(-1, choices.shape[1]).min(0)
    return least


def all_sums(
    base: np.ndarray, choices: Float[np.ndarray, "level choice dim"]
) -> Float[np.ndarray, "sum dim"]:
    """All sums; the choice at the last level varies fastest."""
    total = base[None]
    for level in choices:
        total = (total[:, None] + level).reshape(-1, len(base))
    return total
