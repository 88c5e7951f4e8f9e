"""The sampler: draws are of the language, frequencies exact, both ways of walking agree in bits."""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from tl_dyck.language import DyckDistribution, DyckLanguage, sampling


def generator(seed=0):
    return torch.Generator().manual_seed(seed)


QS = [1e-9, 0.01, 0.3, 0.5, 0.9, 1 - 1e-9]


@given(
    st.integers(1, 5),
    st.one_of(st.integers(1, 6), st.sampled_from([14, 15, 16, 17, 40, 200])),
    st.sampled_from(QS),
    st.one_of(st.integers(0, 70), st.sampled_from([126, 127, 128, 129, 300])),
    st.sampled_from(["complete", "prefix", "close"]),
    st.integers(0, 2**31),
)
@settings(max_examples=60)
def test_every_draw_is_of_the_language(n_types, max_depth, q, length, kind, seed):
    distribution = DyckDistribution(DyckLanguage(n_types, max_depth), q)
    language = distribution.language
    if kind == "close":
        length += 2 - (length % 2 if max_depth == 1 else 0)
        tokens = distribution.sample_ending_in_close(
            7, length, mode="prefix", generator=generator(seed)
        )
        assert bool(language.is_close(tokens[:, -1]).all())
    else:
        length -= length % 2 if kind == "complete" else 0
        tokens = distribution.sample(7, length, mode=kind, generator=generator(seed))
    assert tokens.shape == (7, length)
    assert tokens.dtype == torch.int64
    assert not bool((tokens == language.bos_token).any())
    assert bool((language.is_complete if kind == "complete" else language.is_prefix)(tokens).all())


# --- the walk -------------------------------------------------------------------------------------


def reference_walks(q, max_depth, draws, end):
    """One string and one position at a time; probabilities by exact fractions."""
    length, n = draws.shape
    top = min(max_depth, length)

    def opening(depth):
        return Fraction(1) if depth == 0 else Fraction(0) if depth == max_depth else q

    goals = [{d: Fraction(d == 0 if end == "complete" else 1) for d in range(top + 2)}]
    for r in range(1, length + 1):
        last, row = goals[-1], {top + 1: Fraction(0), -1: Fraction(0)}
        for d in range(top + 1):
            up = 0 if end == "close" and r == 1 else opening(d) * last[d + 1]
            row[d] = up + (1 - opening(d)) * (last.get(d - 1, 0) if d else 0)
        goals.append(row)
    result = np.zeros((length, n), dtype=np.uint8)
    for string in range(n):
        depth = 0
        for position in range(length):
            r = length - position
            up = 0 if end == "close" and r == 1 else opening(depth) * goals[r - 1][depth + 1]
            opens = draws[position, string] < float(Fraction(up, 1) / goals[r][depth])
            result[position, string] = opens
            depth += 1 if opens else -1
    return result


@pytest.mark.parametrize("end", ["complete", "close", "anywhere"])
@pytest.mark.parametrize(
    ("q", "max_depth", "length"),
    [
        (Fraction(1, 2), 4, 28),
        (Fraction(1, 2), 4, 66),  # just long enough for more than one piece
        (Fraction(9, 10), 3, 100),
        (Fraction(1, 10), 15, 90),
        (Fraction(7, 8), 15, 120),
        (Fraction(1, 2), 1, 70),
        (Fraction(1, 3), 2, 64),
    ],
)
def test_both_ways_of_walking_against_a_reference(q, max_depth, length, end):
    """The same uniform numbers give the same walks.

    Not monotone in depth for q = 9/10, hence the bit masks.
    """
    draws = np.random.default_rng(5).random((length, 40))
    expected = reference_walks(q, max_depth, draws, end)
    table = sampling.open_probability(float(q), max_depth, length, end)
    by_position = sampling._walk_by_position(table, draws)
    assert np.array_equal(by_position, expected)
    cells = sampling._cells(float(q), max_depth, length, end)
    assert (cells.shape[1] > 1) == (length > 64)
    steps, pieces, _ = cells.shape
    padded = np.full((pieces * steps, 40), 0.5)
    padded[:length] = draws
    in_pieces = sampling._walk_in_pieces(cells, padded.reshape(pieces, steps, 40).swapaxes(0, 1))
    assert np.array_equal(in_pieces[:length], expected)


@pytest.mark.parametrize(("max_depth", "length"), [(4, 500), (4, 10_000), (15, 500), (17, 500)])
@pytest.mark.parametrize("kind", ["complete", "prefix", "close"])
def test_depths_of_long_strings_against_forward_backward(max_depth, length, kind):
    """Mean depth at some positions: exact by matrix powers, within 5 standard errors."""
    # Around the greatest depth that is walked in pieces, strings have to be deep for the last cell
    # to matter.
    q, n = 0.9 if max_depth in (15, 17) else 0.45, 300 if length > 1000 else 1500
    step = np.zeros((max_depth + 1, max_depth + 1))
    for depth in range(max_depth + 1):
        opening = 1.0 if depth == 0 else 0.0 if depth == max_depth else q
        if opening:
            step[depth, depth + 1] = opening
        if opening < 1:
            step[depth, depth - 1] = 1 - opening
    goal = np.eye(max_depth + 1)[0] if kind == "complete" else np.ones(max_depth + 1)
    last = np.tril(step) if kind == "close" else step
    distribution = DyckDistribution(DyckLanguage(2, max_depth), q)
    if kind == "close":
        tokens = distribution.sample_ending_in_close(
            n, length, mode="prefix", generator=generator(3)
        )
    else:
        tokens = distribution.sample(n, length, mode=kind, generator=generator(3))
    depth = distribution.language.depth(tokens).double()
    power = np.linalg.matrix_power
    for position in (1, 2, 31, 64, length // 3, length - 5, length - 2, length - 1):  # tokens read
        forward = power(step, position)[0]
        weight = forward * (power(step, length - position - 1) @ last @ goal)
        weight /= weight.sum()
        mean = weight @ np.arange(max_depth + 1)
        spread = math.sqrt(max(weight @ np.arange(max_depth + 1) ** 2 - mean**2, 0))
        assert abs(depth[:, position - 1].mean().item() - mean) <= 5 * spread / math.sqrt(n) + 1e-9


# --- types ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("n_types", "max_depth", "length"),
    [
        (2, 4, 28),
        (4, 3, 100),
        (3, 4, 28),
        (3, 8, 200),
        (5, 60, 400),
        (2, 120, 600),
        (300, 3, 40),
        (129, 3, 40),
    ],
)
def test_types_are_uniform_and_independent(n_types, max_depth, length):
    """Also where the levels need several words (k = 5, D = 60 and k = 2, D = 120)."""
    q = 0.5 if max_depth < 10 else 0.97
    distribution = DyckDistribution(DyckLanguage(n_types, max_depth), q)
    language = distribution.language
    tokens = distribution.sample(
        2500 if n_types < 100 else 12_000, length, mode="prefix", generator=generator(2)
    )
    types, opens = language.bracket_type(tokens), language.is_open(tokens)
    partner = language.matching(tokens)
    assert torch.equal(types.gather(1, partner.clamp(min=0))[partner >= 0], types[partner >= 0])
    deepest = int(language.depth(tokens).max())
    assert deepest == min(max_depth, length)
    depth = language.depth(tokens)
    for level in {1, 2, deepest // 2 + 1, deepest}:
        chosen = opens & (depth == level)
        counts = torch.bincount(types[chosen], minlength=n_types).numpy()
        assert stats.chisquare(counts).pvalue > 1e-4, level
    # Type of an open against that of the next open of the same level, and of the bracket around it.
    first = (opens & (depth == 2)).int().argmax(1)
    rows = torch.arange(len(tokens))
    around, inner = types[:, 0], types[rows, first]
    later = (opens & (depth == 2)).int().cumsum(1).eq(2).int().argmax(1)
    for a, b, kept in (
        (around, inner, first > 0),
        (inner, types[rows, later], (first > 0) & (later > 0)),
    ):
        if n_types > 10 or kept.sum() < 5 * n_types**2:
            continue
        joint = torch.bincount(a[kept] * n_types + b[kept], minlength=n_types**2).numpy()
        assert stats.chisquare(joint).pvalue > 1e-4


def test_neighbouring_strings_are_independent():
    """Strings are drawn in blocks; no two may share anything, in one block or in two."""
    distribution = DyckDistribution(DyckLanguage(2, 4))
    tokens = distribution.sample(30_000, 28, generator=generator(4))  # more than one block
    assert len(tokens) * 28 > 2 * sampling._BLOCK
    at_once = sampling._BLOCK // 28
    for shift in (1, at_once):
        same = (tokens[:-shift, 9] == tokens[shift:, 9]).double().mean().item()
        share = torch.bincount(tokens[:, 9], minlength=4).double() / len(tokens)
        assert same == pytest.approx(
            (share**2).sum().item(), abs=5 * 0.5 / math.sqrt(len(tokens) - shift)
        )


# --- interface ------------------------------------------------------------------------------------


@pytest.mark.parametrize("length", [28, 500])
@pytest.mark.parametrize("mode", ["complete", "prefix"])
def test_same_seed_same_strings(mode, length):
    distribution = DyckDistribution(DyckLanguage(3, 4))
    first, again = generator(7), generator(7)
    a = distribution.sample(600, length, mode=mode, generator=first)
    assert torch.equal(a, distribution.sample(600, length, mode=mode, generator=again))
    assert not torch.equal(
        a, distribution.sample(600, length, mode=mode, generator=first)
    )  # the generator moved on
    assert not torch.equal(a, distribution.sample(600, length, mode=mode, generator=generator(8)))
    fresh = distribution.sample(
        600, length, mode=mode
    )  # without a generator: new strings each time
    assert not torch.equal(a, fresh)
    assert not torch.equal(fresh, distribution.sample(600, length, mode=mode))
    assert torch.equal(
        distribution.sample_ending_in_close(9, length, mode=mode, generator=generator(7)),
        distribution.sample_ending_in_close(9, length, mode=mode, generator=generator(7)),
    )


@pytest.mark.parametrize(
    "device",
    [
        "cpu",
        pytest.param(
            "cuda", marks=pytest.mark.skipif(not torch.cuda.is_available(), reason="no GPU")
        ),
    ],
)
def test_device(device):
    distribution = DyckDistribution(DyckLanguage(2, 4))
    tokens = distribution.sample(5, 10, generator=generator(1), device=torch.device(device))
    assert tokens.device.type == device
    # The same strings, wherever they go.
    assert torch.equal(tokens.cpu(), distribution.sample(5, 10, generator=generator(1)))
    assert (
        distribution.sample(
            5, 10, generator=torch.Generator(device).manual_seed(1), device=device
        ).device.type
        == device
    )


@pytest.mark.parametrize(("n", "length"), [(0, 4), (3, 0), (0, 0)])
def test_empty_results(n, length):
    for mode in ("complete", "prefix"):
        assert DyckDistribution(DyckLanguage(2, 4)).sample(n, length, mode=mode).shape == (
            n,
            length,
        )
