"""Spaces of more strings than float64 counts: no part is lost, no certificate beats an attack."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from tests.certify.oracles import favouring, free, margins, random_rnn
from tl_dyck.certify import PerturbationSpace, Substitute, certify
from tl_dyck.certify.deadline import Deadline
from tl_dyck.certify.exact.attention import AttentionWeights
from tl_dyck.certify.exact.incumbent import Incumbent
from tl_dyck.certify.exact.layout import build_graph
from tl_dyck.certify.exact.minimise import minimise
from tl_dyck.certify.exact.network import Network
from tl_dyck.certify.exact.search import Search
from tl_dyck.certify.objectives import Objectives
from tl_dyck.rnn import TwoLayerRNN


def attacked(rnn: TwoLayerRNN, string: tuple[int, ...], target: int, words: int) -> float:
    """The least margin a greedy search sees: block after block of places gets the worst word."""
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


@pytest.mark.parametrize(
    ("words", "places", "by", "readout"),
    [
        (4, 500, 0.0, {}),
        (4, 500, 40.0, {"n_heads": 2}),
        (7, 368, 0.0, {"n_heads": 2}),
        (7, 368, 40.0, {}),
        (7, 1184, 40.0, {"act_fn": "relu"}),
    ],
    ids=str,
)
def test_no_bound_of_a_large_space_exceeds_what_an_attack_sees(
    words: int, places: int, readout: dict[str, Any], by: float, ticking: Callable[[], int]
) -> None:
    """10^301, 10^311 and 10^1001 strings, for 20 looks at the clock, below the attack's value."""
    string = tuple(np.random.default_rng(1).integers(0, words, places + 1).tolist())
    rnn = random_rnn(1, **readout)
    target = int(np.argmax([margins(rnn, [string], t)[0] for t in range(3)]))
    rnn = favouring(rnn, target, by)
    seen = attacked(rnn, string, target, words)
    found = minimise(
        Network(rnn),
        free(string, words),
        Objectives.margins(target, 3),
        decide=by > 0,
        time_limit=20.0,
    )
    assert found.lower <= min(seen, found.upper)
    assert seen < margins(rnn, [string], target)[0]


@pytest.mark.parametrize(
    ("words", "places", "n_heads"), [(4, 10, 2), (7, 368, 1)], ids=["1e6", "1e311"]
)
def test_every_string_stays_in_a_part(
    words: int, places: int, n_heads: int, ticking: Callable[[], int]
) -> None:
    """In a search stopped half-way, a string is in an open part, or no less than `closed`."""
    rng = np.random.default_rng(0)
    string = tuple(rng.integers(0, words, places + 1).tolist())
    lattice, rnn = free(string, words), random_rnn(1, act_fn="relu", n_heads=n_heads)
    network = Network(rnn)
    graph = build_graph(network, lattice)
    incumbent = Incumbent(network, graph, Objectives.margins(0, 3))
    incumbent.run_string(string)
    attention = AttentionWeights(network, graph, Deadline.after(60.0))
    search = Search(
        attention, incumbent, decide=False, tolerance=1e-9, most_listed=4, always_listed=0
    )
    with np.errstate(all="ignore"):
        search.run()
    assert len(search.open) > 3
    left = [
        set(graph.option if part.allowed is None else graph.option[part.allowed])
        for part in search.open
    ]
    for _ in range(100):
        level, path = 0, []
        while level < lattice.last_level:
            path.append(int(rng.choice(lattice.options_from[level])))
            level = lattice.options[path[-1]].target
        text = tuple(token for index in path for token in lattice.options[index].emits)
        assert (
            any(options.issuperset(path) for options in left)
            or search.closed <= margins(rnn, [text], 0)[0]
        )


def test_an_interval_certificate_over_1e314_strings_stands_up_to_an_attack(
    ticking: Callable[[], int],
) -> None:
    """As users ask: any of 175 words may become any other of 62, and only the last one stays."""
    words, n = 62, 176
    string = (*np.random.default_rng(0).integers(0, words, n - 1).tolist(), words)
    table = {word: [other for other in range(words) if other != word] for word in range(words)}
    rnn = random_rnn(1, n_ctx=n, d_vocab=words + 1, act_fn="relu")
    rnn = favouring(rnn, 0, 6.0 - margins(rnn, [string], 0)[0])
    seen = attacked(rnn, string, 0, words)
    space = PerturbationSpace([(Substitute(table), n)])
    assert certify(rnn, string, 0, space, "interval", time_limit=40.0).lower <= seen < 5.0
