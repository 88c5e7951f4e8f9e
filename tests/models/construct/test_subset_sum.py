"""Subset sums against every subset there is."""

from __future__ import annotations

from itertools import chain, combinations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from tl_dyck.models.construct.subset_sum import EXACT_ITEMS, nearest_subsets


@settings(max_examples=60)
@given(
    n=st.integers(0, 9), problems=st.integers(1, 4), seed=st.integers(0, 10**6), zeros=st.booleans()
)
def test_no_subset_is_nearer(n: int, problems: int, seed: int, zeros: bool) -> None:
    generator = torch.Generator().manual_seed(seed)
    items = torch.randn(problems, n, generator=generator, dtype=torch.float64)
    if zeros:
        items[:, ::3] = 0
    targets = 2 * torch.randn(problems, generator=generator, dtype=torch.float64)
    chosen = nearest_subsets(items, targets)
    assert not chosen[items == 0].any()
    subsets = list(chain.from_iterable(combinations(range(n), size) for size in range(n + 1)))
    for row, target, mask in zip(items.tolist(), targets.tolist(), chosen.tolist(), strict=True):
        best = min(abs(sum(row[i] for i in subset) - target) for subset in subsets)
        found = abs(sum(value for value, taken in zip(row, mask, strict=True) if taken) - target)
        assert found == pytest.approx(best, abs=1e-12)


def test_many_items_reach_far_and_stay_exact() -> None:
    generator = torch.Generator().manual_seed(1)
    items = torch.rand(3, EXACT_ITEMS + 170, generator=generator, dtype=torch.float64)
    items[2] -= 0.5
    targets = torch.tensor([60.0, 7.3, -0.01], dtype=torch.float64)
    chosen = nearest_subsets(items, targets)
    assert (torch.where(chosen, items, 0.0).sum(1) - targets).abs().max() < 1e-6
