"""Prune the product of two random matrices until it is near a third one (Theorem 3)."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import final

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from tl_dyck.kit.errors import DyckError
from tl_dyck.models.construct.subset_sum import nearest_subsets


class NetworkTooNarrowError(DyckError, ValueError):
    """The random network is too small for target or ε; the message says how large it must be."""


@final
@dataclass(frozen=True)
class Fit:
    """Masks for two random matrices whose product is near a third, and bounds of the errors."""

    first: Bool[Tensor, "d_in unit"]
    second: Bool[Tensor, "unit d_out"]
    error: Float[Tensor, "d_in d_out"]


def fit_product(
    first: Float[Tensor, "d_in unit"],
    second: Float[Tensor, "unit d_out"],
    wanted: Float[Tensor, "d_in d_out"],
    mode: str,
    items: int,
    what: str,
) -> Fit:
    """Prune the product of two random matrices to a third one, entry by entry.

    Units are dealt out to rows of `first`; a unit serves one row, so which weights of `first` are
    kept does not depend on `wanted`. In mode "linear" nothing is between the two matrices; in mode
    "positive" a relu, and inputs are never negative; in mode "both" a relu, and inputs have any
    sign, but for the last row, which belongs to the constant.
    """
    keep_first, keep_second = (
        torch.zeros(first.shape, dtype=torch.bool),
        torch.zeros(second.shape, dtype=torch.bool),
    )
    error = torch.zeros(wanted.shape, dtype=torch.float64)
    for row, groups in enumerate(_deal(first, mode, items)):
        for units in groups:
            products = (first[row, units][:, None] * second[units]).T.contiguous()  # output, unit
            _check_reach(products, wanted[row], what)
            subset = nearest_subsets(products, wanted[row])
            keep_first[row, units] = True
            keep_second[units] = subset.T
            off = torch.where(subset, products, 0.0).sum(1) - wanted[row]
            error[row] = off if mode == "linear" else torch.maximum(error[row], off.abs())
    return Fit(keep_first, keep_second, error)


def _deal(first: Float[Tensor, "d_in unit"], mode: str, items: int) -> list[list[Tensor]]:
    """For each row, its units: `items` of them, or as many with positive and with negative weights.

    Rows choose in turn, the largest weight that is left, so that none gets small ones only.
    """
    n_rows, n_units = first.shape
    free = torch.ones(n_units, dtype=torch.bool)
    both = [mode == "both" and row < n_rows - 1 for row in range(n_rows)]
    dealt: list[list[list[int]]] = [[[], []] if both[row] else [[]] for row in range(n_rows)]
    for _ in range(items):
        for row in range(n_rows):
            for side, group in enumerate(dealt[row]):
                # side 0 wants positive weights, side 1 negative ones
                value = first[row].abs() if mode == "linear" else first[row] * (1 - 2 * side)
                unit = int(value.masked_fill(~free, -torch.inf).argmax())
                if free[unit] and value[unit] > 0:
                    group.append(unit)
                    free[unit] = False
    return [[torch.tensor(group, dtype=torch.int64) for group in groups] for groups in dealt]


def _check_reach(
    products: Float[Tensor, "output unit"], wanted: Float[Tensor, " output"], what: str
) -> None:
    """Refuse weights beyond the sum of all products of their sign, bad luck apart."""
    n = products.shape[1]
    if n == 0 or not wanted.any():
        return
    reach = torch.where(wanted > 0, products.clamp(min=0).sum(1), -products.clamp(max=0).sum(1))
    typical = float(products.abs().mean()) * n / 2  # half of the products have the right sign
    short = wanted.abs() / reach.clamp(min=typical)
    worst = int(short.argmax())
    if short[worst] > 1:
        # half as much again: just enough would leave no choice
        factor = math.ceil(1.5 * float(short[worst]))
        raise NetworkTooNarrowError(
            f"the target is too large: {what} has a weight of {float(wanted[worst]):.3g} (in units "
            f"of the random network), but its {n} random products sum to {float(reach[worst]):.3g} "
            "at most; scale the target down, draw the random weights from a range "
            f"{math.sqrt(factor):.1f} times as large, or take {factor} times the width"
        )
