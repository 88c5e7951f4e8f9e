"""Ranges of a head's outputs for groups whose last symbols differ little, some groups at once.

Knows: that the least and the greatest of some groups' weights bound them all. Eight synonyms of a
sentence's last word make nine groups of nearly the same weights; ranges of each alone take nine
times as long, and are seldom needed (`benchmarks/bench_certify.py`).
"""

from __future__ import annotations

import numpy as np

from tl_dyck.certify.exact.attention import AttentionWeights, Items
from tl_dyck.certify.exact.balls import UNIT, Array, BoolArray, IntArray, gamma
from tl_dyck.certify.exact.graph import NO_GROUP, StringGraph
from tl_dyck.certify.exact.paths import least_costs


def shared_ranges(
    attention: AttentionWeights,
    items: Items,
    head: int,
    directions: Array,
    centre: Array,
    low: Array,
    high: Array,
    most_numbers: int,
) -> Array:
    """Bounds of D · o for each of some directions, and all items.

    An item's weights may be divided by any number, here the middle of its denominators: E. With
    t = D · o at some centre, D · o - t is Σ E (D · x - t) / Σ E, and each term lies between those
    of the least and of the greatest E of the items of a cluster.

    Args:
        attention: the weights.
        items: I of them.
        head: whose outputs.
        directions: [K, width] D.
        centre: [I, width] outputs of the head; any will do.
        low: [I] the least denominators,
        high: [I] and the greatest.
        most_numbers: about so many costs of emissions are computed at once.

    Returns:
        [2, I, K].
    """
    graph, n = attention.graph, len(directions)
    cluster, first = _clusters(graph, items)
    middle = (low + high) / 2
    weights = attention.weights[items.groups, :, head] / middle[:, None]
    order = np.argsort(cluster, kind="stable")
    start = np.searchsorted(cluster[order], np.arange(len(first)))
    # [S, clusters]
    least = np.minimum.reduceat(weights[order], start).T
    most = np.maximum.reduceat(weights[order], start).T
    bottom = np.minimum.reduceat((low / middle)[order], start) * (1 - 4 * UNIT)
    top = np.maximum.reduceat((high / middle)[order], start) * (1 + 4 * UNIT)
    error = np.maximum.reduceat(attention.relative_error(items.groups, head)[order], start)
    may = _allowed(graph, items, cluster, first)
    dx = attention.values.x.mid[:, head] @ directions.T  # [S, K]
    t = centre[first] @ directions.T  # [clusters, K]
    found = np.empty((2, len(first), n))
    step = max(1, most_numbers // len(graph.option))
    for begin in range(0, len(first) * n, step):
        attention.deadline.check()
        which, k = np.divmod(np.arange(begin, min(begin + step, len(first) * n)), n)
        away = dx[:, k] - t[which, k]
        ends = away * least[:, which], away * most[:, which]
        costs = np.concatenate([np.minimum(*ends), -np.maximum(*ends)], axis=1)
        found[:, which, k] = least_costs(graph, costs, may[:, np.tile(which, 2)]).reshape(2, -1)
    down = found[0] / np.where(found[0] < 0, bottom[:, None], top[:, None])
    up = -found[1] / np.where(found[1] < 0, bottom[:, None], top[:, None])
    largest, off = attention.values.largest[head], attention.values.error[head]
    size = abs(directions) @ largest + abs(t)
    # as of one group (`Region._ends`), and a quotient more; but what is lost is relative to the
    # greatest weights, of which the denominator may have the least
    lost = (error + gamma(4))[:, None] * size + abs(directions) @ off
    # a weight of 0 in one of them: nothing is known; in all: as one group's, it has no share
    with np.errstate(divide="ignore", invalid="ignore"):
        apart = np.where(most > 0, most / least, 1.0)
    lost *= apart.max(0)[:, None] * (1 + 1e-6)
    slack = lost + 32 * UNIT * (abs(t) + abs(down) + abs(up)) + 1e-300
    return np.stack([t + down - slack, t + up + slack])[:, cluster]


def _clusters(graph: StringGraph, items: Items) -> tuple[IntArray, IntArray]:
    """Which cluster each item is in, [I], and the first item of each.

    Whole groups go together if their last symbols differ in the token alone; parts stay alone.
    """
    if items.allowed is not None:
        return np.arange(len(items)), np.arange(len(items))
    states = graph.symbols.states[graph.groups[items.groups]]
    _, first, cluster = np.unique(states, return_index=True, return_inverse=True)
    return cluster, first


def _allowed(graph: StringGraph, items: Items, cluster: IntArray, first: IntArray) -> BoolArray:
    """[E, clusters] the emissions that some item of each cluster may use, its last symbol's too."""
    ends = np.repeat(graph.bundle_group, np.diff(graph.bundle_start))
    of_group = np.full((len(graph.groups) + 1, len(first)), False)
    of_group[items.groups, cluster] = True
    of_group[-1] = True  # NO_GROUP is -1: no end of a string
    assert NO_GROUP == -1
    may: BoolArray = of_group[ends]
    return may if items.allowed is None else may & items.allowed
