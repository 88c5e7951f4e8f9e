"""The exact denominator, against all integer sums, where greedy fails, and nearest neighbours."""

from __future__ import annotations

import itertools
import math
import tracemalloc

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays
from scipy.spatial import cKDTree

from tl_dyck.probes import shortest_sum
from tl_dyck.probes.shortest_sum import second_smallest_norm


def second_smallest_square(base, choices):
    """Eq. 17 word by word, in Python's integers: t*, then the best t with another last entry."""
    levels, k, dim = choices.shape
    square = {}
    for t in itertools.product(range(k), repeat=levels):
        total = [
            int(base[x]) + sum(int(choices[m, t[m], x]) for m in range(levels)) for x in range(dim)
        ]
        square[t] = sum(x * x for x in total)
    best = min(square, key=square.get)
    return min(value for t, value in square.items() if t[-1] != best[-1])


def alike(draw, levels, k, dim):
    """Types almost interchangeable: a type has about the same vector at all levels."""
    common = draw(arrays.arrays(np.int64, (k, dim), elements=st.integers(-1000, 1000)))
    return common + draw(arrays.arrays(np.int64, (levels, k, dim), elements=st.integers(-1, 1)))


def flat(draw, levels, k, dim):
    """Vectors on a line."""
    along = draw(arrays.arrays(np.int64, (levels, k, 1), elements=st.integers(-100, 100)))
    return along * draw(arrays.arrays(np.int64, dim, elements=st.integers(-9, 9)))


def common(draw, levels, k, dim):
    """Differences that are small beside what all choices of a level share."""
    shared = draw(arrays.arrays(np.int64, (levels, 1, dim), elements=st.integers(-(2**40), 2**40)))
    return shared + draw(arrays.arrays(np.int64, (levels, k, dim), elements=st.integers(-2, 2)))


def any_vectors(draw, levels, k, dim):
    """Small integers make ties, zeros and cancellation common."""
    largest = draw(st.sampled_from([0, 1, 3, 1000]))
    return draw(arrays.arrays(np.int64, (levels, k, dim), elements=st.integers(-largest, largest)))


@st.composite
def integer_cases(draw):
    levels, k = draw(st.sampled_from([(1, 3), (2, 2), (3, 3), (4, 3), (5, 2), (6, 2)]))
    dim = draw(st.integers(1, 4))
    choices = draw(st.sampled_from([alike, flat, common, any_vectors]))(draw, levels, k, dim)
    base = draw(arrays.arrays(np.int64, dim, elements=st.integers(-1000, 1000)))
    if draw(st.booleans()):  # planted: the base is nearly cancelled
        planted = draw(st.lists(st.integers(0, k - 1), min_size=levels, max_size=levels))
        base = base % 3 - choices[np.arange(levels), planted].sum(0)
    if draw(st.booleans()):  # one coordinate that no choice turns round
        base[-1] += 10 * np.abs(choices[..., -1]).max()
    return base, choices


def try_all(base, choices):
    """The second smallest of the least norms for each choice at the last level: all sums."""
    total = base[None]
    for level in choices:
        total = (total[:, None] + level).reshape(-1, len(base))
    return np.sort(np.linalg.norm(total, axis=-1).reshape(-1, choices.shape[1]).min(0))[1]


@given(integer_cases(), st.sampled_from([2, 512]), st.sampled_from([0, 0, -1000, -500, 480, 960]))
@settings(max_examples=60)
def test_it_is_the_second_smallest_of_all(case, tile, exponent):
    """Squares of norms are exact in integers; what may differ the module's docstring says."""
    base, choices = case
    levels, _, dim = choices.shape
    square = second_smallest_square(base, choices)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(shortest_sum, "_TILE", tile)
        scaled = np.ldexp(base.astype(float), exponent), np.ldexp(choices.astype(float), exponent)
        found = math.ldexp(second_smallest_norm(*scaled), -exponent)
    length = np.linalg.norm(base) + np.linalg.norm(choices, axis=-1).max(1).sum()
    # the norm that is returned is rounded, and so is every vector that is added up; then what
    # counts as zero
    rounding = (4 * (3 * levels + 3) + dim + 2) * np.finfo(float).eps * length
    assert abs(found - math.sqrt(square)) <= 1e-9 * math.sqrt(square) + rounding


@pytest.mark.parametrize("short", [1e-4, 3e-5])
def test_sums_that_cancel_and_differ_by_parts_in_ten_million(short):
    """So short that products do not order them: each that may be the shortest is added up."""
    for seed in range(20):
        generator = np.random.default_rng(seed)
        large, left, last = generator.normal(size=(3, 8, 6))
        length = short * (1 + 1e-7 * generator.permutation(8))[:, None]
        left *= length / np.linalg.norm(left, axis=1, keepdims=True)
        last[:2] = 0
        base, choices = np.zeros(6), np.stack([large, left - large, last])
        expected = try_all(base, choices)
        assert second_smallest_norm(base, choices) == pytest.approx(expected, rel=1e-9)


@pytest.mark.parametrize("seed", range(5))
def test_differences_that_single_precision_does_not_see(seed):
    """Norms that differ by parts in 10⁸: more than may be lost, less than a rough product tells."""
    generator = np.random.default_rng(seed)
    choices = 1e-8 * generator.normal(size=(5, 3, 3))
    base = np.array([0.6, 0.0, 0.8])
    expected = try_all(base, choices)
    assert second_smallest_norm(base, choices) == pytest.approx(expected, rel=1.1e-9)


def by_neighbours(base, choices):
    """Meet in the middle: per last choice, all sums of four levels, and the nearest others."""
    first, second = (every(part) for part in (choices[:-1:2], choices[1:-1:2]))
    tree = cKDTree(first)
    return np.sort([tree.query(-(base + last) - second)[0].min() for last in choices[-1]])[1]


def every(choices):
    total = choices[0]
    for level in choices[1:]:
        total = (total[:, None] + level).reshape(-1, choices.shape[-1])
    return total


def slab(generator):
    """As after training with few dimensions a head: a common offset that nothing turns round."""
    base, choices = generator.normal(size=3), generator.normal(size=(9, 8, 3)) * [0.2, 0.1, 0.002]
    base[2] = 1.8
    return base, choices


def interchangeable(generator):
    """As of new models with split embeddings: near ties by the million."""
    weight = 1 + 0.01 * generator.normal(size=(9, 1, 1))
    choices = weight * (generator.normal(size=(1, 8, 12)) + generator.normal(size=(9, 1, 12)))
    return generator.normal(size=12), choices


@pytest.mark.parametrize("kind", [slab, interchangeable])
def test_eight_types_and_seven_levels_in_few_dimensions(kind):
    """Sums close together, in coordinates that do not show how few dimensions they span."""
    base, choices = kind(np.random.default_rng(5))
    choices = choices[:7]
    turn = np.linalg.qr(np.random.default_rng(6).normal(size=(20, len(base))))[0].T
    tracemalloc.start()
    found = second_smallest_norm(base @ turn, choices @ turn)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert found == pytest.approx(by_neighbours(base, choices), rel=1e-9)
    assert peak < 2**24  # all sums are 2²⁷ bytes, or more
