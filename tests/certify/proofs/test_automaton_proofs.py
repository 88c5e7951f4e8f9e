"""Proofs about automata: held to every string, one by one; what is wrong has none."""

from __future__ import annotations

import itertools
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.certify.language.test_automata import SHAPES, cumulative_sum, random_model
from tests.certify.oracles import PROVABLE, RNNRecipe, favouring, margins, random_rnn, rnns
from tests.certify.proofs.changed import ODD, every, make_automaton, walked
from tests.certify.proofs.common import check_file, enumerated
from tl_dyck import construct
from tl_dyck.certify import CertifyError, check_automaton
from tl_dyck.certify.automaton_proofs import _facts, _prove
from tl_dyck.certify.check_automaton import Automaton
from tl_dyck.certify.check_edits import OneLayer
from tl_dyck.certify.check_language import ProofError, read
from tl_dyck.certify.language.automata import Answers
from tl_dyck.certify.language_proofs import prove_language
from tl_dyck.certify.proof import NoProofError
from tl_dyck.certify.questions import Asker
from tl_dyck.rnn import TwoLayerRNN, export_rnn
from tl_dyck.tasks import DyckTask

pytestmark = pytest.mark.filterwarnings("ignore:HookedTransformer is deprecated")


def tree(longest: int) -> np.ndarray:
    """An automaton of three tokens with a state for every string."""
    n = sum(3**length for length in range(longest + 1))
    after = 3 * np.arange(n)[:, None] + [1, 2, 3]
    return np.where(after < n, after, -1)


def proof_of(rnn: TwoLayerRNN, answers: Answers, longest: int = 4) -> Any:
    return _prove(Asker(rnn), answers, "an automaton", longest, None)


@given(
    rnns(PROVABLE, sharpness=(0.0, 1.0, 5.0, 200.0)),
    st.sampled_from([1e-2, 1e-6, 1e-9, -1e-9, -1e-6, -1e-2]),
)
@settings(max_examples=25)
def test_what_holds_is_proved_and_what_does_not_is_not(tmp_path_factory, recipe, least):
    """The least margin is set to be ``least``, by enumeration; the number of strings is told."""
    rnn = RNNRecipe(recipe.seed, recipe.fields | {"attn_scale": 1.7, "eps": 0.1}).build()
    strings = [
        string
        for string, _ in every(ODD.after, ODD.answer, range(int(rnn.config.bos_token is None), 5))
    ]
    rnn = favouring(rnn, 0, least - margins(rnn, strings, 0).min())
    if least < 0:
        with pytest.raises(NoProofError):
            proof_of(rnn, ODD)
        return
    said = check_file(proof_of(rnn, ODD).save(tmp_path_factory.mktemp("proof") / "a"))
    assert f"after each of {len(strings)} strings" in said


@pytest.mark.parametrize("state", ["none", "position", "position+depth"])
@pytest.mark.parametrize("bos_token", [None, 6])
def test_each_string_counts(state, bos_token):
    """An automaton that asks for what the model says; then for something else of one string."""
    names = [*itertools.chain(*(itertools.product(range(3), repeat=n) for n in range(4)))]
    for seed in itertools.count():
        rnn = random_rnn(seed, act_fn="relu", n_heads=2, state=state, bos_token=bos_token)
        after, asker = tree(3), Asker(rnn)
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
    assert f"after each of {40 - (bos_token is None)} strings" in proof_of(rnn, answers, 3).says
    for i in range(int(bos_token is None), 40):
        other = Answers(after, np.where(np.arange(40) == i, np.argsort(said[i])[-2], answer))
        with pytest.raises(NoProofError, match="another logit is larger"):
            proof_of(rnn, other, 3)


def test_walks_find_the_least_sum_of_every_group_and_count_all_strings():
    rnn, rng = random_rnn(0, state="position+depth", bos_token=6), np.random.default_rng(0)
    answers = Answers(tree(3)[:13] % 13, np.arange(13) % 3 - 1)
    facts = _facts(rnn.config, answers, "", 4)
    weights = {name: weight.numpy()[:7] for name, weight in rnn.weights.items() if name == "W_E"}
    weights = {name: w.numpy() for name, w in rnn.weights.items()} | weights
    weights["W_E"] = weights["W_E"][facts["tokens"]]
    space = Automaton(facts, OneLayer(facts["config"], weights, facts["tokens"]))
    rows = {tuple(row): i for i, row in enumerate(space.symbols.T.tolist())}
    costs = rng.normal(size=(len(rows), 2))
    strings = [string for string, _ in every(answers.after, answers.answer, range(5))]
    asked = [(len(s), int(answers.answer[walked(answers.after, s)])) for s in strings]
    targets, groups = iter(sorted(set(asked))), 0
    for target in space.questions():
        length, wanted = next(targets)
        assert wanted == target
        sums: dict[int, np.ndarray] = {}
        for string, key in zip(strings, asked, strict=True):
            if key != (length, target):
                continue
            depth, path = 0, [rows[6, 0, 0]]
            for place, token in enumerate(string, 1):
                opens = token % 2 == 0
                depth += (1 if opens else -1) * (token < 2 * rnn.config.n_types)
                seen = np.clip(depth, opens, rnn.config.max_depth - 1 + opens)
                path.append(rows[token, place, int(seen) * (token < 2 * rnn.config.n_types)])
            total = costs[path].sum(0)
            sums[path[-1]] = np.minimum(sums.get(path[-1], np.inf), total)
        assert space.ends() == sorted(sums)
        for last, least in sums.items():
            end = np.where(np.arange(len(costs)) == last, 0.0, np.inf)[:, None]
            np.testing.assert_allclose(space.walk(costs, end, space.all), least, atol=1e-12)
            groups += 1
    assert groups > 10
    assert space.ways() == len(strings)


@pytest.fixture(scope="module")
def proof(tmp_path_factory) -> tuple[Path, Path]:
    """A proof of several parts, of a margin of 0.01, and its exported RNN."""
    return make_automaton(tmp_path_factory.mktemp("proof"))


def test_a_proof_is_compared_with_the_exported_rnn(proof):
    assert check_file(*proof).endswith("compared with the model")


HOSTILE = {
    "no such automaton": [
        *({"after": [[0, 0, 0], [0, 0, 3], [0, 0, 0]]}, {"after": [[0]] * 3}, {"answers": [0]}),
        *({"written": [0, 1, 99]}, {"lengths": [9999]}, {"lengths": [2**40]}, {"lengths": [-1]}),
        *({"lengths": [1, 1, 2]}, {"lengths": [1, 3]}, {"written": [0, 1, 1]}),
    ],
    "its target is no logit": [{"answers": [0, -1, 0]}, {"answers": [0, 3, 0]}],
    "too large": [{"after": [[(i + j) % 3000 for j in range(3)] for i in range(3000)],
                   "answers": [0] * 3000, "lengths": [2000]}],
}  # fmt: skip


@pytest.mark.parametrize("reason", HOSTILE)
def test_hostile_words_are_refused_as_such(proof, reason):
    facts, arrays = read(proof[0])
    if reason == "too large":
        facts["config"] |= {"state": "none"}
        arrays = {name: array for name, array in arrays.items() if name != "W_pos"}
    for change in HOSTILE[reason]:
        with pytest.raises(ProofError, match=reason):
            check_automaton.check(facts | change, arrays)


@pytest.mark.parametrize("shape", SHAPES, ids=str)
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
        f"each of {n} strings of 1 to 4 tokens of 'cumulative sum'"
        in prove_language(model, task, 4).says
    )
    with pytest.raises(CertifyError, match="only 'any_token'"):
        prove_language(model, task, 4, "valid_token")


@settings(max_examples=5)
@given(
    make=st.sampled_from([construct.balanced, construct.uniform_attention]),
    noise=st.sampled_from([0.0, 0.01, 0.05]),
    seed=st.integers(0, 1000),
)
def test_prefixes_have_proofs_by_paths_that_say_what_enumeration_says(make, noise, seed):
    task = DyckTask(name="small", n_types=2, max_depth=2, train_lengths=(4,), long_lengths=(8, 8))
    rnn, generator = export_rnn(make(task.language, n_ctx=16)), torch.Generator()
    generator.manual_seed(seed)
    for weight in rnn.weights.values():
        weight *= 1 + noise * torch.randn(weight.shape, generator=generator, dtype=weight.dtype)
    right = enumerated(rnn, task.language, "any_token", 4)
    try:
        said = prove_language(rnn, task, 4, by="paths").says
    except NoProofError:
        assert right < 1e-6
    else:
        assert right > 0
        n = sum(sum(ways[1:]) for ways in task.language.prefixes_by_depth(4))
        assert f"after each of {n} strings" in said
