"""What can be said of attention patterns without the model that they are of."""

from __future__ import annotations

import torch
from jaxtyping import Float, Int
from torch import Tensor


def random_row_variation(n_positions: int) -> Float[Tensor, " n_positions"]:
    """E‖a − b‖² for rows a, b drawn uniformly from the simplex of m positions, m = 1, 2, ….

    It is ``2(m − 1) / (m(m + 1))``.

    A coordinate of a uniform point on the simplex has variance (m − 1) / (m²(m + 1)); a row has m
    of them, and the difference of two rows twice the variance.
    """
    m = torch.arange(1, n_positions + 1, dtype=torch.float64)
    rows: Tensor = 2 * (m - 1) / (m * (m + 1))
    return rows


def share_of_largest(
    pattern: Float[Tensor, "*any query key"], key: Int[Tensor, "*#any query"]
) -> Float[Tensor, "*any query"]:
    """1 where a query's largest weight is on a key, 0 elsewhere; a tie of m counts as 1/m.

    Without positions equal tokens of equal depth get equal weights, up to rounding: 1e-5 of the
    weight counts as that.
    """
    largest = pattern >= pattern.max(-1, keepdim=True).values * (1 - 1e-5)
    index = key[..., None].expand(*pattern.shape[:-1], 1)
    share: Tensor = largest.gather(-1, index)[..., 0].double() / largest.sum(-1)
    return share
