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
from tests.certify.oracles import RNNRecipe, favouring, margins, random_rnn, rnns
from tests.certify.proofs.changed import change_arrays, model_in, refuse_changes
from tests.certify.proofs.common import check_file, enumerated, run_copied_out
from tests.certify.proofs.test_check_edits import PROVABLE
from tl_dyck import construct
from tl_dyck.certify import CertifyError, check_automaton, check_edits, check_language
from tl_dyck.certify.automaton_proofs import _facts, _prove
from tl_dyck.certify.check_automaton import Automaton
from tl_dyck.certify.check_edits import OneLayer
from tl_dyck.certify.check_language import ProofError, read
from tl_dyck.certify.language.automata import NOTHING, Answers
from tl_dyck.certify.language_proofs import prove_language
from tl_dyck.certify.proof import NoProofError, pack
from tl_dyck.certify.questions import Asker
from tl_dyck.rnn import TwoLayerRNN, export_rnn, save_rnn
from tl_dyck.tasks import DyckTask

pytestmark = pytest.mark.filterwarnings("ignore:HookedTransformer is deprecated")

#: Token 0 leads back and forth, token 1 from anywhere to the end, which only token 2 leaves.
AFTER = np.array([[1, 2, 0], [0, 2, -1], [-1, -1, 1]])
ODD = Answers(AFTER, np.array([NOTHING, 0, 0]))


def walked(after: Any, tokens: tuple[int, ...]) -> int:
    """The state behind some tokens, step by step; -1 if the automaton does not write them."""
    state = 0
    for token in tokens:
        state = after[state][token] if state >= 0 else -1
    return state


def every(answers: Answers, longest: int, bare: bool) -> list[tuple[tuple[int, ...], int]]:
    """All strings up to a length of which something is asked, and what."""
    found = []
    for length in range(int(bare), longest + 1):
        for tokens in itertools.product(range(answers.after.shape[1]), repeat=length):
            state = walked(answers.after, tokens)
            if state >= 0 and answers.answer[state] != NOTHING:
                found.append((tokens, int(answers.answer[state])))
    return found


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
    strings = [string for string, _ in every(ODD, 4, rnn.config.bos_token is None)]
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
    strings = [string for string, _ in every(answers, 4, bare=False)]
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
    folder = tmp_path_factory.mktemp("proof")
    rnn = random_rnn(2, act_fn="relu", n_heads=2, bos_token=6, state="position", ln2="ln")
    strings = [string for string, _ in every(ODD, 3, bare=False)]
    rnn = favouring(rnn, 0, 0.01 - margins(rnn, strings, 0).min())
    save_rnn(rnn, folder / "rnn")
    return proof_of(rnn, ODD, 3).save(folder / "a.proof"), folder / "rnn"


def test_a_proof_is_compared_with_the_exported_rnn_and_stands_by_itself(proof, tmp_path):
    assert check_file(*proof).endswith("compared with the model")
    checkers = [check_automaton, check_edits, check_language]
    said = run_copied_out(tmp_path, checkers, proof[0])
    assert "strings of 0 to 3 tokens of 'an automaton', an automaton of 3 states" in said


def _changed(path: Path, rng: np.random.Generator) -> bytes:
    """Sealed again after a change of a node, a weight, the automaton, a length, the network."""
    facts, arrays = read(path)
    del facts["arrays"]
    kind = rng.integers(6)
    if kind < 3:
        change_arrays(arrays, kind, rng)
    elif kind == 3:
        row = facts["after"][rng.integers(3)]
        row[rng.integers(3)] = (-2, -1, 0, 1, 2, 3, 0.5, None)[rng.integers(8)]
    elif kind == 4:
        at, value = rng.integers(3), (None, -1, 0, 1, 2, 9, "0")[rng.integers(7)]
        facts[("answers", "lengths", "written")[at]][rng.integers(3)] = value
    else:
        name = str(rng.choice(sorted(facts["config"])))
        facts["config"][name] = (None, -1, 0, 2, "depth", "gelu", [], 10**30)[rng.integers(8)]
    return pack(facts, arrays)


def true(path: Path, rnn: TwoLayerRNN) -> bool:
    """Whether what a file claims holds, by its own words and enumeration."""
    facts, arrays = read(path)
    model = model_in(facts, arrays, rnn)
    for length in {*facts["lengths"]} - ({0} if model.config.bos_token is None else set()):
        for columns in itertools.product(range(3), repeat=length):
            state = walked(facts["after"], columns)
            target = facts["answers"][state] if state >= 0 else None
            string = tuple(facts["written"][column] for column in columns)
            if target is not None and not margins(model, [string], target).min() > 0:
                return False
    return True


def test_changed_files_are_refused_in_a_line_or_say_what_is_true(proof, tmp_path):
    refuse_changes(proof[0], _changed, true, tmp_path / "x")


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
