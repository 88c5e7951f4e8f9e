"""Strings of profiles; how many there are, and how probable, `test_decide` counts."""

from __future__ import annotations

import pytest
import torch

from tl_dyck.certify.language.profiles import Ending, Profiles, compositions
from tl_dyck.language import DyckDistribution, DyckLanguage


def profile_of(language: DyckLanguage, string: list[int]) -> tuple[Ending, tuple[int, ...]]:
    """The profile of a prefix, read off with a stack."""
    stack: list[int] = []
    pairs = [0] * (language.n_types * language.max_depth)
    for token in string:
        if token % 2 == 0:
            stack.append(token // 2)
        else:
            pairs[(len(stack) - 1) * language.n_types + stack.pop()] += 1
    closes = string[-1] // 2 if string and string[-1] % 2 else None
    return Ending(tuple(stack), closes), tuple(pairs)


@pytest.mark.parametrize(("k", "deepest", "longest"), [(1, 3, 8), (2, 1, 6), (2, 3, 6), (3, 2, 5)])
def test_a_string_of_a_profile_has_that_profile_and_its_probability(
    k: int, deepest: int, longest: int
) -> None:
    distribution = DyckDistribution(DyckLanguage(k, deepest), 0.7)
    profiles = Profiles(distribution)
    for ending in profiles.endings():
        for total in range((longest - ending.depth) // 2 + 1):
            rows = compositions(profiles.kinds, total)
            rows = rows[profiles.occur(ending, rows)]
            for row, nats in zip(rows, profiles.log_string(ending, rows), strict=True):
                string = list(profiles.string(ending, row))
                assert profile_of(distribution.language, string) == (ending, tuple(row.tolist()))
                exact = distribution.log_prob(torch.tensor(string, dtype=torch.int64))
                assert float(exact) == pytest.approx(nats, abs=1e-9)
