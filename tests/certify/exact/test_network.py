"""The numpy network: its values against an extended-precision pass, and its error bounds."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.certify.oracles import READOUTS, in_long_double, random_rnn, rnns, tokens
from tl_dyck.certify.exact.network import Network
from tl_dyck.certify.objectives import Objectives
from tl_dyck.rnn import TwoLayerRNN


def slow_logits(rnn: TwoLayerRNN, string: tuple[int, ...]) -> np.ndarray:
    """The transformer in long double, one token at a time, written from the formulas."""
    bos = rnn.config.bos_token
    return in_long_double(rnn, string if bos is None else (bos, *string))[1]


@settings(max_examples=60)
@given(recipe=rnns(), strings=st.lists(tokens(6), min_size=1, max_size=4), target=st.integers(0, 1))
def test_values_lie_in_their_balls(
    recipe: Any, strings: list[tuple[int, ...]], target: int
) -> None:
    rnn = recipe.build()
    values = Network(rnn).values_of(strings, Objectives.margins(target, rnn.config.d_vocab_out))
    for row, string in enumerate(strings):
        logits = slow_logits(rnn, string)
        exact = logits[target] - np.delete(logits, target)
        assert (abs(values.mid[row] - exact) <= values.rad[row]).all()


@pytest.mark.parametrize("readout", READOUTS, ids=str)
@pytest.mark.parametrize("n_heads", [1, 3])
def test_error_bounds_are_small(readout: dict[str, Any], n_heads: int) -> None:
    """No larger than rounding can explain, but where a layer norm of almost nothing magnifies."""
    rnn = random_rnn(0, n_heads=n_heads, **readout)
    values = Network(rnn).values_of([(0, 2, 4, 1, 3), (5,), (1, 1)], Objectives.margins(0, 3))
    several = readout.get("gated") and readout.get("ln_final")  # norms in a row
    assert (values.rad <= (1e-9 if several else 1e-10) * abs(values.mid).max()).all()


def test_float32_weights_are_taken_as_they_are() -> None:
    rnn = random_rnn(3, n_heads=2)
    single = TwoLayerRNN(rnn.config, {name: weight.float() for name, weight in rnn.weights.items()})
    double = TwoLayerRNN(
        rnn.config, {name: weight.double() for name, weight in single.weights.items()}
    )
    objectives = Objectives.margins(0, 3)
    values = Network(single).values_of([(0, 1)], objectives)
    assert np.array_equal(values.mid, Network(double).values_of([(0, 1)], objectives).mid)
    assert single.dtype == torch.float32
