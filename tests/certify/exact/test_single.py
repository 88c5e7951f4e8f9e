"""Strings in single precision: bounds that hold, that say something, and that change no verdict."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.cases import thinned
from tests.certify.oracles import READOUTS, Problem, RNNRecipe, problems, random_rnn, rnns
from tests.hooks.certifiers.test_exact import check, readable
from tl_dyck.certify import Delete, PerturbationSpace, Substitute
from tl_dyck.certify.exact import incumbent
from tl_dyck.certify.exact.incumbent import Incumbent
from tl_dyck.certify.exact.layout import build_graph
from tl_dyck.certify.exact.network import Network
from tl_dyck.certify.exact.paths import count_paths, emission_costs, enumerate_below, sweep
from tl_dyck.certify.exact.single import SingleRun, is_plain
from tl_dyck.certify.objectives import Objectives
from tl_dyck.rnn import TwoLayerRNN

PLAIN = [each for each in READOUTS if not {"ln_c", "ln_mid", "gated"} & set(each)]
STRING = (0, 3, 1, 5, 2)
SPACE = PerturbationSpace(
    [(Substitute({w: [(w + 1) % 6, (w + 3) % 6] for w in range(6)}), 2), (Delete([0, 3]), 1)]
)
LOGITS = 30


def bounds(rnn: TwoLayerRNN, enough: float = np.inf) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Of every string: its bound in single precision, and the ends of the ball around its value."""
    network = Network(rnn)
    graph = build_graph(network, SPACE.lattice(STRING))
    seen = Incumbent(network, graph, Objectives.margins(4, LOGITS))
    single = SingleRun(network, graph.symbols, seen.unembedding)
    nothing, found = np.zeros((len(graph.symbols.tokens), 1)), []
    for group in np.flatnonzero(count_paths(graph, np.arange(len(graph.groups)))):
        swept = sweep(graph, emission_costs(graph, nothing, np.array([group])))
        paths = enumerate_below(swept, 0, np.inf, 10**6)
        assert paths is not None
        for rows, symbols in seen._by_length(paths):
            low = single.lower(symbols, np.arange(LOGITS - 1), enough)
            found.append(np.stack([low, *seen.values(paths[rows])]))
    lower, *ends = np.concatenate(found, axis=1)
    return lower, *ends


@pytest.mark.parametrize(
    ("readout", "heads"),
    thinned((each, (1, 3)[i // 2 % 2]) for i, each in enumerate(PLAIN)),
    ids=str,
)
def test_bounds_are_below_values_and_close(readout: dict[str, Any], heads: int) -> None:
    for seed, state in enumerate(("none", "position")):  # symbols that a string has twice, or once
        rnn = random_rnn(seed, d_vocab_out=LOGITS, n_heads=heads, state=state, **readout)
        lower, low, high = bounds(rnn)
        assert (lower <= high).all()
        assert (low - lower <= 0.01 * (1 + abs(low))).all()
        enough = float(np.median(low))  # of others it need only be known that they are above
        lower, low, high = bounds(rnn, enough)
        assert (lower <= high).all()
        assert (low - lower <= 0.01 * (1 + abs(low)))[lower < enough].all()


@pytest.mark.parametrize("readout", thinned(PLAIN), ids=str)
def test_what_single_precision_cannot_hold_is_not_claimed(readout: dict[str, Any]) -> None:
    """Weights that underflow, numbers beyond 10^38: a bound that holds, or none."""
    for scale, sharpness in ((0.6, 300.0), (1e20, 1.0), (1e-25, 1.0)):
        shape = {"d_vocab_out": LOGITS, "n_heads": 2, **readout}
        with np.errstate(all="ignore"):
            lower, _, high = bounds(random_rnn(0, scale=scale, sharpness=sharpness, **shape))
        assert (lower <= high).all()


@settings(max_examples=14)
@given(
    recipe=rnns([each for each in PLAIN if each.get("act_fn") or "ln_final" in each]),
    problem=problems(),
    target=st.integers(0, 1),
    tight=st.booleans(),
    small=st.sampled_from([0, 64, 10**6]),
)
def test_exact_stays_exhaustive_where_strings_are_run_in_single_precision_first(
    recipe: RNNRecipe, problem: Problem, target: int, tight: bool, small: int
) -> None:
    rnn, (space, string) = recipe.build(), problem.build()
    assert is_plain(Network(rnn))
    if readable(rnn, space, string):
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(incumbent, "_MANY", 1)
            check(rnn, string, target, space, tight=tight, always_listed=small)
