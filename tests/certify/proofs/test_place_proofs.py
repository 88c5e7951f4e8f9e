"""Proofs about places in any order: held to every string as it is written, one by one."""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from functools import partial
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from tests.certify.language.test_automata import random_model
from tests.certify.proofs.common import unpacked
from tl_dyck.certify import check_automaton
from tl_dyck.certify.check_language import ProofError
from tl_dyck.certify.language_proofs import prove_language
from tl_dyck.certify.proof import NoProofError
from tl_dyck.tasks import AutomatonTask, addition_task

pytestmark = pytest.mark.filterwarnings("ignore:HookedTransformer is deprecated")

SHAPES: dict[str, dict[str, Any]] = {
    "linear": {"attn_only": True},
    "GELU": {"normalization_type": "LNPre", "act_fn": "gelu"},
    "LayerNorm, two heads": {"normalization_type": "LN", "n_heads": 2},
}
SYMBOLS = "xyz"
FREE = 3  # places where any symbol may stand; the model writes two behind them


def generated(
    said: Mapping[tuple[int, ...], int], order: tuple[int, ...], state: tuple[int, ...]
) -> Mapping[str, tuple[int, ...]]:
    """Any symbols, read in an order; then those that follow, by what a model says."""
    if len(state) < FREE:
        return {symbol: (*state, i) for i, symbol in enumerate(SYMBOLS)}
    if len(state) == FREE + 2:
        return {}
    string = tuple(state[order.index(place)] for place in range(FREE)) + state[FREE:]
    return {SYMBOLS[said[string]]: (*state, said[string])}


def task_of(said: Mapping[tuple[int, ...], int], order: tuple[int, ...]) -> AutomatonTask:
    return AutomatonTask(
        name="generated", symbols=[*SYMBOLS], start=(), moves=partial(generated, said, order),
        places=[*order, FREE, FREE + 1], asked=[FREE - 1, FREE],
    )  # fmt: skip


def logits_of(model: Any, strings: list[tuple[int, ...]], bos: bool) -> np.ndarray:
    tokens = torch.tensor([(*[len(SYMBOLS)] * bos, *string) for string in strings])
    with torch.no_grad():
        return model(tokens)[:, -1, : len(SYMBOLS) + bos].numpy()


@settings(deadline=None, max_examples=4)
@given(
    seed=st.integers(0, 10**6),
    order=st.permutations(range(FREE)).map(tuple),
    shape=st.sampled_from([*SHAPES]),
    bos=st.booleans(),
    data=st.data(),
)
def test_each_string_counts(
    seed: int, order: tuple[int, ...], shape: str, bos: bool, data: Any
) -> None:
    """What a model itself writes is proved; with another symbol behind one string it is not."""
    n = len(SYMBOLS) + bos
    model = random_model(
        addition_task(1), seed, 0.7, d_vocab=n, d_vocab_out=n, n_ctx=FREE + 2 + bos, **SHAPES[shape]
    )
    if bos:
        with torch.no_grad():
            model.unembed.b_U[-1] = -100.0
    strings, said = [*itertools.product(range(3), repeat=FREE)], {}
    for _ in range(2):
        logits = logits_of(model, strings, bos)[:, :3]
        assume(np.diff(np.sort(logits))[:, -1].min() > 1e-6)
        said |= dict(zip(strings, logits.argmax(1).tolist(), strict=True))
        strings = [(*string, said[string]) for string in strings]
    proof = prove_language(model, task_of(said, order))
    assert "largest after each of 54 strings of 3 to 4 tokens of automata" in proof.says
    facts, arrays = unpacked(proof.content)
    assert check_automaton.check(facts, arrays) == proof.says
    assert [part["order"] for part in facts["parts"]] == [
        [*(p for p in order if p < FREE - 1), FREE - 1], [*order, FREE]
    ]  # fmt: skip
    turned = (*order[1:], order[0])  # the same answers, of strings whose places are exchanged
    facts["parts"][1]["order"] = [*turned, FREE]
    read = [(tuple(x[place] for place in order), x) for x in said if len(x) == FREE + 1]
    moved = [(*(tokens[turned.index(p)] for p in range(FREE)), x[FREE]) for tokens, x in read]
    if logits_of(model, moved, bos)[:, :3].argmax(1).tolist() != [said[x] for _, x in read]:
        with pytest.raises(ProofError, match="not settled"):
            check_automaton.check(facts, arrays)
    one = data.draw(st.sampled_from(sorted(said)))
    other = {**said, one: data.draw(st.sampled_from([i for i in range(3) if i != said[one]]))}
    if len(one) == FREE:
        after = (*one, other[one])
        other[after] = int(logits_of(model, [after], bos)[0, :3].argmax())
    with pytest.raises(NoProofError, match="another logit is larger") as caught:
        prove_language(model, task_of(other, order))
    assert f"on {one} another" in str(caught.value)


def of_sets(
    sets: Mapping[tuple[int, ...], tuple[int, ...]], order: tuple[int, ...], state: tuple[int, ...]
) -> Mapping[str, tuple[int, ...]]:
    """Any symbols, read in an order; then one of those that may follow them."""
    if len(state) < FREE:
        return {symbol: (*state, i) for i, symbol in enumerate(SYMBOLS)}
    if len(state) > FREE:
        return {}
    return {
        SYMBOLS[i]: (*state, i) for i in sets[tuple(state[order.index(p)] for p in range(FREE))]
    }


@settings(deadline=None, max_examples=6)
@given(
    seed=st.integers(0, 10**6),
    order=st.permutations(range(FREE)).map(tuple),
    shape=st.sampled_from([*SHAPES]),
    data=st.data(),
)
@np.errstate(all="ignore")
def test_what_may_follow_is_said_of_each_string(
    seed: int, order: tuple[int, ...], shape: str, data: Any
) -> None:
    """Logits above a threshold are proved to be those of the sets, and not of another set."""
    size = {"d_vocab": 3, "d_vocab_out": 3, "n_ctx": FREE + 1}
    model = random_model(addition_task(1), seed, 0.7, **size, **SHAPES[shape])
    strings = [*itertools.product(range(3), repeat=FREE)]
    logits = logits_of(model, strings, bos=False)
    edges = np.sort(logits.ravel())
    at = len(edges) // 2
    assume(edges[at] - edges[at - 1] > 1e-6)
    threshold = float(edges[at - 1] + edges[at]) / 2
    sets = {
        x: tuple(np.flatnonzero(row > threshold)) for x, row in zip(strings, logits, strict=True)
    }
    assume(any(sets.values()))

    def task(sets: Any) -> AutomatonTask:
        return AutomatonTask(
            name="sets", symbols=[*SYMBOLS], start=(), moves=partial(of_sets, sets, order),
            places=[*order, FREE], asked=[FREE - 1],
        )  # fmt: skip

    how: dict[str, Any] = {"property": "allowed", "threshold": threshold}
    proof = prove_language(model, task(sets), **how)
    n = sum(map(bool, sets.values()))
    assert "exactly if it is one that its state asks for, after each of" in proof.says
    assert f"each of {n} strings of 3 to 3 tokens" in proof.says
    facts, arrays = unpacked(proof.content)
    assert check_automaton.check(facts, arrays) == proof.says
    one = data.draw(st.sampled_from([x for x in strings if sets[x]]))
    flipped = data.draw(st.integers(0, 2))
    other = {**sets, one: tuple(sorted({*sets[one]} ^ {flipped}))}
    assume(other[one])
    with pytest.raises(NoProofError, match="on the wrong side of the threshold") as caught:
        prove_language(model, task(other), **how)
    assert f"on {one} a logit" in str(caught.value)
    changed = [each and sorted({*each} ^ {0}) for each in facts["parts"][0]["answers"]]
    facts["parts"][0]["answers"] = [each or None for each in changed]
    with pytest.raises((ProofError, StopIteration)):
        check_automaton.check(facts, arrays)


@pytest.mark.parametrize(
    ("model", "how", "message"),
    [
        ({"n_layers": 2}, {}, "one-layer"),
        ({}, {"length": 3}, "nothing is asked: addition-1 has no place that short"),
        ({}, {"length": 4}, "another logit is larger"),
    ],
)
def test_what_has_no_proof(model: Any, how: Any, message: str) -> None:
    task = addition_task(1, base=2)
    network = random_model(task, 0, 1.0, **model)
    if model:
        with torch.no_grad():
            network.pos_embed.W_pos.zero_()
    with pytest.raises(NoProofError, match=message):
        prove_language(network, task, **how)
