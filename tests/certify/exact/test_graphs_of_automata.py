"""Graphs of automata hold each string once, in as few nodes as can be: against every string."""

from __future__ import annotations

import itertools
from collections import Counter

import numpy as np
import pytest
import torch

from tests.certify.exact.test_paths import listed
from tests.certify.oracles import random_rnn
from tl_dyck.certify.exact.graph import StringGraph
from tl_dyck.certify.exact.network import Network
from tl_dyck.certify.exact.walks import Walks
from tl_dyck.rnn import TwoLayerRNN

Symbols = tuple[tuple[int, int], ...]
"""Tokens and states of the RNN."""


def accepted(after: np.ndarray, accepts: np.ndarray, length: int) -> list[tuple[int, ...]]:
    """Strings by walking, one by one."""
    found = []
    for string in itertools.product(range(after.shape[1]), repeat=length):
        state = 0
        for token in string:
            state = after[state, token] if state >= 0 else -1
        if state >= 0 and accepts[state]:
            found.append(string)
    return found


def symbols(rnn: TwoLayerRNN, string: tuple[int, ...]) -> Symbols:
    full = (*((6,) if rnn.config.bos_token else ()), *string)
    return tuple(zip(full, rnn.states(torch.tensor([full]))[0].tolist(), strict=True))


def n_classes(strings: list[Symbols]) -> int:
    """Of beginnings, of each length, as many as differ in what may follow."""
    classes = set()
    for at in range(len(strings[0]) + 1):
        then: dict[Symbols, set[Symbols]] = {}
        for each in strings:
            then.setdefault(each[:at], set()).add(each[at:])
        classes |= {(at, frozenset(rest)) for rest in then.values()}
    return len(classes)


def held(graph: StringGraph) -> Counter[Symbols]:
    every = [path for paths in listed(graph) for path in paths]
    pairs = np.stack([graph.symbols.tokens, graph.symbols.states], axis=1).tolist()
    return Counter(tuple(tuple(pairs[i]) for i in path) for path in every)


@pytest.mark.parametrize("bos_token", [None, 6])
@pytest.mark.parametrize("state", ["none", "position", "depth"])
def test_each_accepted_string_is_one_path_and_no_node_too_many(
    state: str, bos_token: int | None
) -> None:
    rnn, rng, empty = random_rnn(0, state=state, bos_token=bos_token), np.random.default_rng(1), 0
    for _ in range(12):
        after = rng.integers(-1, 4, size=(4, 3))
        accepts = rng.random(4) < 0.4
        walks = Walks.begin(Network(rnn), after)
        for length in (3, 1, 4):
            strings = [symbols(rnn, each) for each in accepted(after, accepts, length)]
            graph = walks.graph(accepts, length)
            if graph is None:
                assert not strings
                empty += 1
                continue
            assert held(graph) == Counter(strings)
            assert graph.n_nodes == n_classes(strings)
            last = {each[-1] for each in strings}
            tokens, states = graph.symbols.tokens, graph.symbols.states
            assert {(tokens[i], states[i]) for i in graph.groups} == last
    assert 0 < empty < 30
