"""Proofs about two models, or one model and a head of it."""

from __future__ import annotations

import numpy as np
import pytest

from tests.certify.proofs.common import (
    SMALL,
    TWO_MODELS,
    N,
    agreement,
    every_prefix,
    pair_of,
    rnn_of,
    with_bias,
)
from tests.certify.proofs.test_changed_files import PAIR_CHANGES
from tl_dyck.certify import check_agreement
from tl_dyck.certify.check_language import ProofError, read
from tl_dyck.certify.language_proofs import prove_language
from tl_dyck.certify.proof import NoProofError


@pytest.mark.parametrize("name", ["b_U", "other.b_U"])
def test_both_models_are_checked(pair, name):
    facts, arrays = read(pair[0])
    check_agreement.check(facts, arrays)
    with pytest.raises(ProofError, match="not settled"):
        check_agreement.check(facts, {**arrays, name: arrays[name] + 100 * (np.arange(3) == 2)})


@pytest.mark.parametrize("change", ["other winners", "longer", "no weights of the other"])
def test_it_is_refused_without_the_models_too(pair, change):
    facts, arrays = read(pair[0])
    PAIR_CHANGES[change](facts, arrays)
    with pytest.raises((ProofError, KeyError)):
        check_agreement.check(facts, arrays)


@pytest.mark.parametrize(("seed", "gap"), [(1, 1e-9), (2, -1e-9)])
@pytest.mark.parametrize("claim", TWO_MODELS)
def test_models_that_nearly_disagree_are_told_from_those_that_do(seed, claim, gap):
    """A token is made likelier in both until it is about to win after the first prefix in one."""
    language, asked = SMALL.language, 0
    rnn = rnn_of(("minimal-onehot", "eq6", "eq49")[seed % 3], seed)
    rnn.W_Q.mul_(1e-3)
    other, _ = pair_of(rnn, claim, 1e-4, seed)
    if agreement(rnn, other, language) < 0:
        rnn.b_U[0] += 20  # one token wins everywhere
        other.b_U[0] += 20
    rows = [row for each in (rnn, other) for *_, row in every_prefix(each, language)]
    for token in (1, 3):
        lead = min(np.delete(row, token).max() - row[token] for row in rows)
        moved = [with_bias(each, 0.0, language) for each in (rnn, other)]
        for each in moved:
            each.b_U[token] += lead - gap
        how = {"head": 0} if claim == "head" else {"other": moved[1]}
        if agreement(*moved, language) > 0:
            assert gap > 0
            prove_language(moved[0], SMALL, N, claim, **how)
        else:
            with pytest.raises(NoProofError):
                prove_language(moved[0], SMALL, N, claim, **how)
            asked += gap < 0
    assert gap > 0 or asked
