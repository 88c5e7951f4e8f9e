"""Exact tables behind the distribution D(q, k, D), and drawing from it without rejection.

Nothing here knows bracket types but `assign_types`: a string is a walk over depths, and the types are independent of it.
"""

from __future__ import annotations

from functools import lru_cache

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

__all__ = ["depth_walks", "log_completion", "open_probability"]


@lru_cache(maxsize=16)
def log_completion(q: float, max_depth: int, length: int) -> NDArray[np.float64]:
    """Log-probability of being at depth 0 after r more tokens, from depth d.

    ``B[r, d] = o(d) B[r-1, d+1] + (1 - o(d)) B[r-1, d-1]``, ``B[0, d] = [d = 0]``, with o the probability of an open:
    q, but 1 at depth 0 and 0 at depth D. Kept in logs: for q near 1 and a large D it leaves the range of float64.

    Returns:
        Shape ``[length + 1, min(D, length) + 1]``, -inf where depth 0 is out of reach.
    """
    deepest = min(max_depth, length)
    log_open, log_close = _log_steps(q, max_depth, deepest)
    table = np.full((length + 1, deepest + 3), -np.inf)  # one column more on either side, for d - 1 and d + 1
    table[0, 1] = 0.0
    for r in range(1, length + 1):
        np.logaddexp(log_open + table[r - 1, 2:], log_close + table[r - 1, :-2], out=table[r, 1:-1])
    return table[:, 1:-1]


@lru_cache(maxsize=16)
def open_probability(q: float, max_depth: int, length: int) -> NDArray[np.float64]:
    """Probability that the next token is an open, at depth d with r tokens to come, given that the string ends at depth 0.

    Returns:
        Shape ``[length + 1, min(D, length) + 1]``; 0 where depth 0 is out of reach (also at r = 0).
    """
    log_table = log_completion(q, max_depth, length)
    log_open, _ = _log_steps(q, max_depth, log_table.shape[1] - 1)
    above = np.full_like(log_table[1:], -np.inf)
    above[:, :-1] = log_table[:-1, 1:]
    possible = np.isfinite(log_table[1:])
    result = np.zeros_like(log_table)
    result[1:][possible] = np.exp((log_open + above)[possible] - log_table[1:][possible])
    return np.minimum(result, 1.0)


def free_open_probability(q: float, max_depth: int, deepest: int) -> NDArray[np.float64]:
    """o(d) for d = 0..deepest: q, but 1 at depth 0 and 0 at depth D."""
    result = np.full(deepest + 1, q)
    result[0] = 1.0
    if deepest == max_depth:
        result[-1] = 0.0
    return result


def _log_steps(q: float, max_depth: int, deepest: int) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    opens = free_open_probability(q, max_depth, deepest)
    with np.errstate(divide="ignore"):
        return np.log(opens), np.where(opens == q, np.log1p(-q), np.log(1 - opens))


def depth_walks(
    table: Tensor, n: int, length: int, generator: torch.Generator | None, device: torch.device
) -> Tensor:
    """Draw n walks; returns whether each step is an open, [length, n]."""
    draws = torch.rand(length, n, generator=generator, device=device, dtype=torch.float64)
    depth = torch.zeros(n, dtype=torch.int64, device=device)
    opens = torch.empty(length, n, dtype=torch.bool, device=device)
    for position in range(length):
        torch.lt(draws[position], table[position].take(depth), out=opens[position])
        depth += torch.where(opens[position], 1, -1)
    return opens
