"""Spaces with more strings than float64 can count: no part may be lost, and no certificate beats an attack."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from tests.certify.oracles import free, margins, random_rnn
from tl_dyck.certify import PerturbationSpace, Substitute, certify
from tl_dyck.certify.network import Network, Objectives
from tl_dyck.rnn import TwoLayerRNN
from tl_dyck_hooks.certifiers._minimise import minimise

READOUTS: list[dict[str, Any]] = [{}, {"act_fn": "relu"}, {"n_heads": 2}]


def attacked(rnn: TwoLayerRNN, string: tuple[int, ...], target: int, words: int) -> float:
    """The least margin that a greedy search sees: one block of places after the other is filled with the worst word."""
    best = margins(rnn, [string], target)[0]
    for block in np.array_split(np.arange(len(string) - 1), 6):
        tries = [np.array(string) for _ in range(words)]
        for word, text in enumerate(tries):
            text[block] = word
        texts = [tuple(text.tolist()) for text in tries]
        found = margins(rnn, texts, target)
        if found.min() < best:
            best, string = found.min(), texts[int(found.argmin())]
    return float(best)


def favouring(rnn: TwoLayerRNN, target: int, by: float) -> TwoLayerRNN:
    """The same network with a bias for one logit."""
    weights = {name: weight.clone() for name, weight in rnn.weights.items()}
    weights["b_U"][target] += by
    return TwoLayerRNN(rnn.config, weights)


@pytest.mark.parametrize("readout", READOUTS, ids=str)
@pytest.mark.parametrize(
    ("words", "places", "by"),
    [(4, 500, 0.0), (4, 500, 40.0), (7, 368, 0.0), (7, 368, 40.0), (7, 3551, 40.0)],
    ids=["1e301", "1e301 certified", "1e311", "1e311 certified", "1e3001 certified"],
)
def test_no_part_of_a_large_space_is_lost(
    words: int, places: int, readout: dict[str, Any], by: float, ticking: Callable[[], int]
) -> None:
    """Searched for 20 looks at the clock; `seen` is not trivial, for the attack gets below the original."""
    string = tuple(np.random.default_rng(1).integers(0, words, places + 1).tolist())
    rnn = random_rnn(1, **readout)
    target = int(np.argmax([margins(rnn, [string], t)[0] for t in range(3)]))
    rnn = favouring(rnn, target, by)
    seen = attacked(rnn, string, target, words)
    found = minimise(Network(rnn), free(string, words), Objectives.margins(target, 3), decide=by > 0, time_limit=20.0)
    assert found.lower <= min(seen, found.upper)
    assert seen < margins(rnn, [string], target)[0]


@pytest.mark.parametrize("certifier", ["exact", "interval"])
def test_a_certificate_over_1e314_strings_stands_up_to_an_attack(certifier: str) -> None:
    """As users ask: any of 175 words may be replaced by any other of 62, and only the last stays."""
    words, n = 62, 176
    string = (*np.random.default_rng(0).integers(0, words, n - 1).tolist(), words)
    table = {word: [other for other in range(words) if other != word] for word in range(words)}
    rnn = favouring(random_rnn(0, act_fn="relu", n_ctx=n, d_vocab=words + 1), 0, 20.0)
    seen = attacked(rnn, string, 0, words)
    assert certify(rnn, string, 0, PerturbationSpace([(Substitute(table), n)]), certifier).lower <= seen
