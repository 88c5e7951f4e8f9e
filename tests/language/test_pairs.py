"""Moments of the numbers of pairs, against all prefixes one by one and against drawn ones."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from tl_dyck.language import DyckDistribution, DyckLanguage
from tl_dyck.language.pairs import pair_counts


def counted(language, strings):
    """Pairs of each level, ``[string, level - 1]``, by looking for partners."""
    closed = language.is_close(strings) & (language.matching(strings) >= 0)
    inside = language.depth(strings) + 1
    levels = torch.arange(1, language.max_depth + 1)
    return (closed[..., None] & (inside[..., None] == levels)).sum(1).double().numpy()


def by_enumeration(distribution, length):
    """Probability, mean and covariance by what is left open, over all prefixes that end so."""
    language = distribution.language
    strings = torch.cartesian_prod(*[torch.arange(language.n_brackets)] * length)
    strings = strings.view(-1, length)
    strings = strings[language.is_prefix(strings) & language.is_close(strings[:, -1])]
    chance = distribution.log_prob(strings, mode="prefix").exp().numpy()
    counts, left = counted(language, strings), language.depth(strings)[:, -1].numpy()
    for d in range(language.max_depth):
        here = left == d
        total = chance[here].sum()
        if not here.any():
            yield total, None, None
            continue
        share = chance[here] / total
        mean = share @ counts[here]
        off = counts[here] - mean
        yield total, mean, np.einsum("n,na,nb->ab", share, off, off)


@settings(max_examples=40)
@given(
    depth=st.integers(1, 4),
    k=st.integers(1, 2),
    q=st.sampled_from([0.5, 0.2, 0.9]),
    lengths=st.lists(st.integers(1, 7), min_size=1, max_size=3),
)
def test_moments_are_those_of_all_prefixes(depth, k, q, lengths):
    distribution = DyckDistribution(DyckLanguage(k, depth), q)
    found = pair_counts(distribution, lengths)
    for place, length in enumerate(lengths):
        for d, (total, mean, covariance) in enumerate(by_enumeration(distribution, length)):
            assert found.probability[place, d] == pytest.approx(total, abs=1e-12)
            if mean is None:
                assert np.isnan(found.mean[place, d]).all()
                assert np.isnan(found.covariance[place, d]).all()
                continue
            np.testing.assert_allclose(found.mean[place, d], mean, atol=1e-9)
            np.testing.assert_allclose(found.covariance[place, d], covariance, atol=1e-9)


def test_moments_of_long_prefixes_are_those_of_drawn_ones():
    distribution = DyckDistribution(DyckLanguage(1, 3), 0.4)
    generator = torch.Generator().manual_seed(0)
    strings = distribution.sample(20_000, 301, mode="prefix", generator=generator)
    language = distribution.language
    strings = strings[language.is_close(strings[:, -1]) & (language.depth(strings)[:, -1] == 1)]
    counts, found = counted(language, strings), pair_counts(distribution, [301])
    error = counts.std(0) / np.sqrt(len(counts))
    assert (abs(counts.mean(0) - found.mean[0, 1]) < 5 * error).all()
    spread = np.sqrt(np.diag(found.covariance[0, 1]))
    off = np.cov(counts.T) - found.covariance[0, 1]
    assert (abs(off) < 5 * np.outer(spread, spread) * np.sqrt(2 / len(counts))).all()
