"""The exact facts of D(q, k, D), against exact fractions over all strings."""

from __future__ import annotations

import functools
import math
from collections import defaultdict
from fractions import Fraction

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.enumerated import grown
from tl_dyck.language import DyckDistribution, DyckLanguage

all_strings = functools.cache(grown)


def weights(n_types, max_depth, q, length, mode):
    """Strings of the mode and their exact probability among those of their length."""
    found = all_strings(n_types, max_depth, q, length)
    if mode == "prefix":
        return found
    whole = {s: p for s, p in found.items() if sum(1 - 2 * (token % 2) for token in s) == 0}
    total = sum(whole.values())
    return {s: p / total for s, p in whole.items()}


CASES = [
    (n_types, max_depth, q)
    for n_types, max_depth in ((1, 1), (1, 3), (2, 1), (2, 2), (2, 4), (3, 2))
    for q in (Fraction(1, 2), Fraction(1, 7), Fraction(9, 10))
]


def build(n_types, max_depth, q):
    return DyckDistribution(DyckLanguage(n_types, max_depth), float(q))


@pytest.mark.parametrize("mode", ["complete", "prefix"])
@pytest.mark.parametrize("case", CASES)
def test_log_prob_against_fractions(case, mode):
    distribution = build(*case)
    for length in range(0, 7, 2 if mode == "complete" else 1):
        expected = weights(*case, length, mode)
        strings = distribution.language.enumerate(length, mode)
        assert set(map(tuple, strings.tolist())) == set(expected)
        log_probs = distribution.log_prob(strings, mode=mode)
        assert log_probs.dtype == torch.float64
        for string, value in zip(strings.tolist(), log_probs.tolist(), strict=True):
            assert value == pytest.approx(math.log(expected[tuple(string)]), abs=1e-12)


@pytest.mark.parametrize("case", CASES)
def test_next_token_probs_against_fractions(case):
    """P(next | prefix) is the mass of strings that go on so, over that of those beginning so."""
    distribution, length = build(*case), 6
    begin, bos = defaultdict(Fraction), distribution.language.bos_token
    for string, probability in weights(*case, length, "prefix").items():
        for end in range(length + 1):
            begin[string[:end]] += probability
    for size in range(length):
        prefixes = [prefix for prefix in begin if len(prefix) == size]
        tokens = torch.tensor([[bos, *prefix] for prefix in prefixes])
        rows = distribution.next_token_probs(tokens)
        assert rows.shape == (len(prefixes), size + 1, bos + 1)
        for prefix, row in zip(prefixes, rows[:, -1].tolist(), strict=True):
            expected = [
                float(begin.get((*prefix, token), 0) / begin[prefix]) for token in range(bos)
            ]
            assert row == pytest.approx([*expected, 0.0], abs=1e-12)


@pytest.mark.parametrize("shape", [(0,), (3, 0), (0, 3), (2, 3, 0)])
def test_next_token_probs_of_empty_strings_say_nothing(shape):
    """Without BOS nothing is said about the first token, so there is no row for an empty string."""
    distribution, tokens = (
        DyckDistribution(DyckLanguage(2, 4)),
        torch.zeros(shape, dtype=torch.long),
    )
    assert distribution.next_token_probs(tokens).shape == (*shape, 5)


@given(
    st.integers(1, 3),
    st.integers(1, 5),
    st.sampled_from([0.001, 0.2, 0.5, 0.97]),
    st.integers(0, 12),
    st.integers(0, 99),
)
@settings(max_examples=60)
def test_chain_rule(n_types, max_depth, q, pairs, seed):
    """Log-probability is the sum of logs of next-token ones, which sum to 1."""
    distribution = build(n_types, max_depth, q)
    generator = torch.Generator().manual_seed(seed)
    tokens = distribution.sample(3, 2 * pairs, mode="prefix", generator=generator)
    bos = torch.full((3, 1), distribution.language.bos_token)
    rows = distribution.next_token_probs(torch.cat([bos, tokens], 1))[:, :-1]
    assert torch.allclose(rows.sum(-1), torch.ones(3, 2 * pairs, dtype=torch.float64), atol=1e-12)
    chained = rows.gather(-1, tokens[..., None]).log().sum((-1, -2))
    assert torch.allclose(chained, distribution.log_prob(tokens), atol=1e-9)


def test_log_prob_of_impossible_strings():
    distribution = DyckDistribution(DyckLanguage(2, 2))
    strings = torch.tensor(
        [[0, 3, 4, 4], [1, 0, 4, 4], [0, 0, 0, 1], [0, 2, 4, 3], [4, 4, 4, 4], [0, 1, 4, 4]]
    )
    assert distribution.log_prob(strings).tolist() == [-math.inf] * 3 + [
        math.log(1 / 8),
        0,
        math.log(1 / 4),
    ]
    whole = distribution.log_prob(strings, mode="complete")
    assert whole.tolist() == pytest.approx([-math.inf] * 4 + [0, math.log(1 / 2)])


# --- entropy floor --------------------------------------------------------------------------------


def brute_force_floor(n_types, max_depth, q, lengths, mode):
    """Best cross-entropy of any function of the prefix, pooled over strings of all lengths."""
    pooled = defaultdict(lambda: defaultdict(Fraction))
    for length in lengths:
        for string, probability in weights(n_types, max_depth, q, length, mode).items():
            for end in range(length):
                pooled[string[:end]][string[end]] += probability
    nats = 0.0
    for counts in pooled.values():
        total = sum(counts.values())
        nats += sum(float(mass) * math.log(total / mass) for mass in counts.values())
    return nats / sum(lengths)


@pytest.mark.parametrize("case", CASES)
def test_entropy_floor_against_fractions(case):
    distribution = build(*case)
    for mode, every in (
        ("complete", ((2,), (6,), (2, 4, 6), (6, 2), (2, 2, 4))),
        ("prefix", ((1,), (5,), (1, 2, 5))),
    ):
        for lengths in every:
            floor = distribution.entropy_floor(lengths, mode)
            wanted = brute_force_floor(*case, lengths, mode)
            assert floor == pytest.approx(wanted, abs=1e-12), (mode, lengths)
            if len(lengths) == 1:
                assert distribution.entropy_floor(lengths[0], mode) == floor


@pytest.mark.parametrize(
    ("max_depth", "q"), [(1, 0.5), (4, 0.5), (4, 1e-6), (300, 0.999), (300, 1e-3), (20_000, 0.5)]
)
def test_long_strings_neither_underflow_nor_overflow(max_depth, q):
    """For q = 0.999 and D = 300 the probability of being at depth 0 is about 1e-897."""
    length = 4_000 if max_depth < 100 else 900
    distribution = DyckDistribution(DyckLanguage(2, max_depth), q)
    floor = distribution.entropy_floor((length, length - 2), "complete")
    assert math.isfinite(floor)
    assert (
        math.log(2) / 2 - 1e-9 <= floor <= math.log(2) * 1.5 + 1e-9
    )  # half the tokens are opens, of 2 types
    tokens = distribution.sample(3, length, generator=torch.Generator().manual_seed(0))
    assert bool(distribution.language.is_complete(tokens).all())
    assert torch.isfinite(distribution.log_prob(tokens, mode="complete")).all()
