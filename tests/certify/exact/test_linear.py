"""One head and a linear readout: what is taken as known without a path, and verdicts near ties."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tests.certify.exact.test_paths import listed
from tests.certify.oracles import STATES, favouring, margins, random_rnn, strings_of
from tl_dyck.certify import Delete, Duplicate, PerturbationSpace, Substitute
from tl_dyck.certify.exact.attention import AttentionWeights
from tl_dyck.certify.exact.layout import build_graph
from tl_dyck.certify.exact.linear import _descend, denominators
from tl_dyck.certify.exact.network import Network
from tl_dyck_hooks.certifiers.exact import exact

STRING = (0, 3, 1, 5)
SPACE = PerturbationSpace(
    [(Duplicate(), 1), (Delete([1, 5]), 1), (Substitute({0: [1, 2], 3: [4], 5: [0]}), 2)]
)


@pytest.mark.parametrize("sharpness", [1.0, 30.0])
@pytest.mark.parametrize("state", STATES)
def test_denominators_of_all_strings_lie_between_what_is_taken(
    state: str, sharpness: float
) -> None:
    network = Network(random_rnn(0, state=state, sharpness=sharpness, bos_token=6))
    graph = build_graph(network, SPACE.lattice(STRING))
    attention = AttentionWeights(network, graph)
    low, high = denominators(attention)
    for group, paths in enumerate(listed(graph)):
        sums = np.array([attention.weights[group, path].sum(0) for path in paths])
        assert (low[group] < sums).all()
        assert (sums < high[group]).all()


@pytest.mark.parametrize(
    ("sharpness", "shift"), [(1.0, 1e-8), (1.0, 1e-3), (30.0, 1e-8), (30.0, 1e-6), (1000.0, 1e-8)]
)
def test_near_ties_are_those_of_running_every_string(sharpness: float, shift: float) -> None:
    """The least margin is set to ± shift by enumeration; weights underflow at the sharpest."""
    for seed in range(4):  # one of each state
        rnn = random_rnn(seed, sharpness=sharpness, d_vocab_out=2, state=STATES[seed])
        least = margins(rnn, strings_of(rnn, SPACE, STRING), 0).min()
        for sign, status in ((1, "proved"), (-1, "refuted")):
            tied = favouring(rnn, 1, least - sign * shift)
            found = exact(tied, STRING, 0, SPACE, always_listed=0)  # else all are run
            assert found.status == status
            assert found.lower <= sign * shift + 1e-12
            assert found.upper >= sign * shift - 1e-12


class Lines:
    """Columns F(t) = value + slope · t, clear of any string."""

    def __init__(self, value: Any, slope: Any) -> None:
        self.value, self.slope = np.array(value), np.array(slope)
        self.item = np.zeros(len(self.value), dtype=int)

    def take(self, which: Any) -> Lines:
        return Lines(self.value[which], self.slope[which])

    def lowered(self, t: Any) -> Lines:
        return Lines(self.value + self.slope * np.ravel(t), self.slope)

    def least_and_paths(self) -> Any:
        return self.value, lambda found: found


def test_a_column_that_is_dropped_below_0_proves_nothing() -> None:
    """Newton cannot step from where F is below 0 and level, as rounding can make it."""
    for level, proved in ((1e-9, True), (-1e-9, False)):
        lower, _ = _descend(Lines([0.5, level], [-1.0, 0.0]), 0.75, 1.0, 1e-6)  # type: ignore[arg-type]
        assert lower == (pytest.approx(0.5, abs=1e-5) if proved else -np.inf)
