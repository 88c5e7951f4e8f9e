"""Proofs about automata: held to every string, one by one; what is wrong has none."""

from __future__ import annotations

import itertools
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from tests.certify.language.test_automata import SHAPES, cumulative_sum, random_model
from tests.certify.oracles import random_rnn
from tests.certify.proofs.changed import walked
from tests.certify.proofs.common import unpacked
from tl_dyck.certify import CertifyError, check_automaton
from tl_dyck.certify.automaton_proofs import _prove
from tl_dyck.certify.language.automata import NOTHING, Answers
from tl_dyck.certify.language_proofs import prove_language
from tl_dyck.certify.proof import NoProofError
from tl_dyck.certify.questions import Asker
from tl_dyck.rnn import TwoLayerRNN

pytestmark = pytest.mark.filterwarnings("ignore:HookedTransformer is deprecated")


def tree(longest: int) -> np.ndarray:
    """An automaton of three tokens with a state for every string."""
    n = sum(3**length for length in range(longest + 1))
    after = 3 * np.arange(n)[:, None] + [1, 2, 3]
    return np.where(after < n, after, -1)


def proof_of(rnn: TwoLayerRNN, answers: Answers, longest: int = 4) -> Any:
    return _prove(Asker(rnn), answers, "an automaton", longest, None)


@pytest.mark.parametrize("state", ["none", "position+depth"])
@pytest.mark.parametrize("bos_token", [None, 6])
def test_each_string_counts(state, bos_token):
    """An automaton that asks for what the model says; then for something else of one string."""
    names = [*itertools.chain(*(itertools.product(range(3), repeat=n) for n in range(3)))]
    for seed in itertools.count():
        rnn = random_rnn(seed, act_fn="relu", n_heads=2, state=state, bos_token=bos_token)
        after, asker = tree(2), Asker(rnn)
        runs = [each or bos_token is not None for each in names]
        said = [
            asker.rnn_logits(each) if run else [0.0] for each, run in zip(names, runs, strict=True)
        ]
        answer = np.array([int(np.argmax(each)) for each in said])
        if len({*answer[1:]}) > 1:
            break
    answers = Answers(after, answer)
    for state_of, string in enumerate(names):
        assert walked(after, string) == state_of
    assert f"after each of {13 - (bos_token is None)} strings" in proof_of(rnn, answers, 2).says
    for i in range(int(bos_token is None), 13, 2):
        other = Answers(after, np.where(np.arange(13) == i, np.argsort(said[i])[-2], answer))
        with pytest.raises(NoProofError, match="another logit is larger"):
            proof_of(rnn, other, 2)


@settings(max_examples=12)
@given(
    seed=st.integers(0, 10**6),
    state=st.sampled_from(["none", "position", "position+depth"]),
    bos_token=st.sampled_from([None, 6]),
    act_fn=st.sampled_from([None, "relu", "gelu", "silu"]),
    norm=st.sampled_from([{}, {"ln_c": 0.4}, {"ln1": "ln", "ln2": "lnpre", "ln_final": "ln"}]),
    threshold=st.sampled_from([0.0, -0.5, 1]),
    data=st.data(),
)
def test_each_set_counts(seed, state, bos_token, act_fn, norm, threshold, data):
    """An automaton in which that may follow which the model's logits say; then one that differs."""
    norm = norm if act_fn or not norm.get("ln2") else {**norm, "ln2": None}
    n_heads = 1 if "ln_c" in norm else 2
    how = {"act_fn": act_fn, "n_heads": n_heads, "state": state, "bos_token": bos_token}
    rnn = random_rnn(seed, d_vocab_out=4, **how, **norm)  # the fourth logit says nothing
    asker, strings, after, off = Asker(rnn), [()], [], []
    for string in strings:
        runs = string or bos_token is not None
        logits = np.array(asker.rnn_logits(string) if runs else [1, -1, 1, 1])[:3] - threshold
        off += [abs(logits).min() if runs else 9.0]
        after += [[-1] * 3]
        for token in np.flatnonzero(logits > 0).tolist() if len(string) < 3 else ():
            after[-1][token] = len(strings)
            strings.append((*string, token))
    asked = [
        i for i, row in enumerate(after) if max(row) >= 0 and (strings[i] or bos_token is not None)
    ]
    assume(asked and min(off[i] for i in asked) > 1e-6)
    answers = Answers(np.array(after), np.full(len(after), NOTHING))
    proof = _prove(asker, answers, "an automaton", 2, None, threshold)
    assert (
        f"above {threshold} exactly if it may follow, after each of {len(asked)} st" in proof.says
    )
    assert check_automaton.check(*unpacked(proof.content)) == proof.says
    i, token = data.draw(st.sampled_from(asked)), data.draw(st.integers(0, 2))
    other = np.array(after)
    other[i, token] = len(after) if other[i, token] < 0 else -1
    assume(other[i].max() >= 0)
    other = np.concatenate([other, [[-1] * 3]])
    with pytest.raises(NoProofError, match="wrong side of the threshold"):
        _prove(asker, Answers(other, np.full(len(other), NOTHING)), "other", 2, None, threshold)


@pytest.mark.parametrize("shape", SHAPES[1:4], ids=str)
def test_sums_of_a_model_that_others_could_have_trained(shape):
    """Its prediction after each sum is the model's own; by `prove_language`, of a task."""
    task = cumulative_sum()
    model = random_model(task, 1, 0.3, d_vocab_out=3, **shape)
    with torch.no_grad():
        model.unembed.b_U += torch.tensor([50.0, 0, 0])
    with pytest.raises(NoProofError, match="another logit is larger"):
        prove_language(model, task, 4)
    task = replace(task, answer=lambda total: 0)
    n = sum(3**length for length in range(1, 5))
    assert (
        f"each of {n} strings of 1 to 4 tokens of an automaton of 9 states, called 'cumul"
        in prove_language(model, task, 4).says
    )
    with pytest.raises(CertifyError, match="only 'any_token' and"):
        prove_language(model, task, 4, "valid_token")
