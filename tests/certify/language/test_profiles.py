"""Profiles of prefixes, their numbers and probabilities, against every prefix there is."""

from __future__ import annotations

import math
from collections import Counter

import numpy as np
import pytest
import torch

from tl_dyck.certify.language.profiles import Ending, Profiles, compositions, n_profiles
from tl_dyck.language import DyckDistribution, DyckLanguage

SMALL = [(1, 1, 9), (1, 3, 10), (2, 1, 8), (2, 2, 9), (2, 4, 9), (3, 3, 7)]


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


@pytest.mark.parametrize(("k", "deepest", "longest"), SMALL)
def test_profiles_are_those_of_all_prefixes_with_their_numbers_and_probabilities(
    k: int, deepest: int, longest: int
) -> None:
    distribution = DyckDistribution(DyckLanguage(k, deepest), 0.3)
    profiles = Profiles(distribution)
    for length in range(longest + 1):
        strings = distribution.language.enumerate(length, "prefix")
        masses = distribution.log_prob(strings).exp().tolist()
        numbers: Counter[tuple[Ending, tuple[int, ...]]] = Counter()
        chances: Counter[tuple[Ending, tuple[int, ...]]] = Counter()
        for string, mass in zip(strings.tolist(), masses, strict=True):
            profile = profile_of(distribution.language, string)
            numbers[profile] += 1
            chances[profile] += mass
        found = set()
        for ending in profiles.endings():
            if (length - ending.depth) % 2 or length < ending.depth:
                continue
            rows = compositions(profiles.kinds, (length - ending.depth) // 2)
            occur = profiles.occur(ending, rows)
            count = profiles.log_count(ending, rows)
            mass = count + profiles.log_string(ending, rows)
            assert np.array_equal(np.isfinite(count), occur)
            for row, n, p in zip(
                rows[occur].tolist(), count[occur].tolist(), mass[occur].tolist(), strict=True
            ):
                key = (ending, tuple(row))
                found.add(key)
                assert math.exp(n) == pytest.approx(numbers[key], rel=1e-9)
                assert math.exp(p) == pytest.approx(chances[key], rel=1e-9)
        assert found == set(numbers)


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


@pytest.mark.parametrize(("kinds", "total"), [(1, 3), (2, 4), (3, 3), (5, 4), (8, 3)])
def test_compositions_are_all_ways_to_distribute(kinds: int, total: int) -> None:
    rows = compositions(kinds, total)
    assert rows.shape == (n_profiles(kinds, total), kinds)
    assert len(np.unique(rows, axis=0)) == len(rows)
    assert set(rows.sum(1).tolist()) == {total}
