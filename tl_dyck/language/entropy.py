"""Least nats of complete strings of several lengths, by a recursion over position and depth.

Knows: what the unknown length of a complete string costs.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from tl_dyck.language.sampling import choice_nats, free_open_probability, log_completion


def complete_nats(
    q: float, n_types: int, max_depth: int, sizes: NDArray[np.int64], counts: NDArray[np.int64]
) -> float:
    """Sum over lengths of the expected nats of a string, mode "complete".

    The length is unknown; sizes ascend.

    With A the mass of an open and C that of a close at (position, depth), summed over the
    lengths that go on, the best prediction is A / (A + C), and its cost A log((A + C) / A) + C
    log((A + C) / C).
    """
    longest, nats_of_type = int(sizes[-1]), math.log(n_types)
    log_table = log_completion(q, max_depth, longest)
    width = log_table.shape[1]
    edge = np.full((longest + 1, 1), -np.inf)
    padded = np.concatenate([edge, log_table, edge], axis=1)  # column d + 1: depth d
    opens = free_open_probability(q, max_depth, width - 1)
    log_reach = np.full(width + 2, -np.inf)  # log-probability of each depth in mode "prefix"
    log_reach[1] = 0.0
    nats = 0.0
    with np.errstate(divide="ignore"):
        log_open, log_close = np.log(opens), np.log1p(-opens)
    for position in range(longest):
        going = sizes > position
        rest = sizes[going] - position - 1
        base = log_reach[1:-1] - log_table[sizes[going], 0][:, None]
        opening = counts[going] @ np.exp(base + log_open + padded[rest, 2:])
        closing = counts[going] @ np.exp(base + log_close + padded[rest, :-2])
        nats += float((choice_nats(opening, closing) + opening * nats_of_type).sum())
        after_open, after_close = log_reach[1:-1] + log_open, log_reach[1:-1] + log_close
        log_reach[:] = -np.inf
        log_reach[2:] = after_open
        log_reach[:-2] = np.logaddexp(log_reach[:-2], after_close)
    return nats
