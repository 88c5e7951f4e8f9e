"""Spaces with more strings than float64 can count: no part may be lost, and no certificate beats an attack."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from tests.certify.oracles import VOCABULARY, margins, random_rnn
from tl_dyck.certify import PerturbationSpace, Substitute, certify
from tl_dyck.certify.lattice import KEEP, Lattice, Option
from tl_dyck.certify.network import Network, Objectives
from tl_dyck.rnn import TwoLayerRNN
from tl_dyck_hooks.certifiers._minimise import minimise

READOUTS: list[dict[str, Any]] = [{}, {"act_fn": "relu"}, {"n_heads": 2}]
SPREAD = {word: [other for other in range(VOCABULARY) if other != word] for word in range(VOCABULARY)}


def free(string: tuple[int, ...], words: int) -> Lattice:
    """Any of `words` words at every place but the last, without a budget: a small graph of words^(n - 1) strings."""
    options = [Option(i, i + 1, KEEP, i, i + 1, (word,)) for i in range(len(string) - 1) for word in range(words)]
    n = len(string)
    return Lattice(string, (), n, (*options, Option(n - 1, n, KEEP, n - 1, n, string[-1:])))


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
@pytest.mark.parametrize(("words", "places"), [(4, 500), (7, 368), (7, 3551)], ids=["1e301", "1e311", "1e3001"])
@pytest.mark.parametrize("by", [0.0, 40.0])
def test_no_part_of_a_large_space_is_lost(
    words: int, places: int, readout: dict[str, Any], by: float, ticking: Callable[[], int]
) -> None:
    """Searched for 80 looks at the clock; `seen` is not trivial, for the attack gets below the original."""
    string = tuple(np.random.default_rng(1).integers(0, words, places + 1).tolist())
    rnn = random_rnn(1, **readout)
    target = int(np.argmax([margins(rnn, [string], t)[0] for t in range(3)]))
    rnn = favouring(rnn, target, by)
    seen = attacked(rnn, string, target, words)
    found = minimise(Network(rnn), free(string, words), Objectives.margins(target, 3), decide=by > 0, time_limit=80.0)
    assert found.lower <= min(seen, found.upper)
    assert seen < margins(rnn, [string], target)[0]


@pytest.mark.parametrize("certifier", ["exact", "interval"])
def test_a_certificate_over_1e310_strings_stands_up_to_an_attack(certifier: str) -> None:
    """As users ask: any of 400 words may be replaced, by any other of 6 (7^400 strings, or so)."""
    string = (*np.random.default_rng(0).integers(0, VOCABULARY - 1, 399).tolist(), VOCABULARY - 1)
    table = {word: others for word, others in SPREAD.items() if word != string[-1]}
    space = PerturbationSpace([(Substitute(table), len(string))])
    assert space.n_edit_paths(string) > 10**310
    rnn = favouring(random_rnn(0, act_fn="relu", n_ctx=len(string)), 0, 20.0)
    assert certify(rnn, string, 0, space, certifier).lower <= attacked(rnn, string, 0, VOCABULARY)
