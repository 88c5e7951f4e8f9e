"""What a search has open holds every string, once, whatever was cut before a bound."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from functools import partial
from itertools import chain, repeat
from typing import Any

import numpy as np
import pytest

from tests.certify.exact.test_paths import listed
from tests.certify.oracles import random_rnn
from tl_dyck.certify import PerturbationSpace, Substitute
from tl_dyck.certify.deadline import OutOfTime
from tl_dyck.certify.exact import search
from tl_dyck.certify.exact.attention import AttentionWeights
from tl_dyck.certify.exact.incumbent import Incumbent
from tl_dyck.certify.exact.layout import build_graph
from tl_dyck.certify.exact.network import Network
from tl_dyck.certify.objectives import Objectives


def out_of_time(*_: Any) -> None:
    raise OutOfTime


def call_next(calls: Iterator[Callable[..., Any]], *given: Any) -> Any:
    return next(calls)(*given)


def begun(seed: int, words: int = 4) -> search.Search:
    """A search that has guessed, and examined nothing."""
    string = tuple(np.random.default_rng(seed).integers(0, words, 4).tolist())
    network = Network(random_rnn(seed, act_fn="relu", scale=1.0))
    space = PerturbationSpace([(Substitute({word: range(words) for word in range(words)}), 3)])
    graph = build_graph(network, space.lattice(string))
    incumbent = Incumbent(network, graph, Objectives.margins(0, 3))
    incumbent.run_string(string)
    found = search.Search(
        AttentionWeights(network, graph), incumbent, decide=False, tolerance=1e-9, always_listed=0
    )
    with np.errstate(all="ignore"):
        found.run()
    return found


@pytest.mark.parametrize("counted", [True, False], ids=["in time", "stopped while it cuts"])
def test_what_a_guess_cuts_stays_open(monkeypatch: pytest.MonkeyPatch, counted: bool) -> None:
    monkeypatch.setattr(search, "_LARGE", 0)
    monkeypatch.setattr(search.Search, "_examine", out_of_time)
    both, count = 0, search.count_paths
    for seed in range(12):
        if not counted:  # the first call is of whole groups, the next of halves
            calls = chain([count], repeat(out_of_time))
            monkeypatch.setattr(search, "count_paths", partial(call_next, calls))
        found = begun(seed)
        graph = found.graph
        held: list[Counter[tuple[int, ...]]] = [Counter() for _ in graph.groups]
        for part in found.open:
            held[part.group].update(map(tuple, listed(graph, part.allowed)[part.group]))
        assert held == [Counter(map(tuple, paths)) for paths in listed(graph)]
        whole = sum(part.allowed is None for part in found.open)
        both += 0 < whole < len(found.open)
    assert (both > 3) == counted
