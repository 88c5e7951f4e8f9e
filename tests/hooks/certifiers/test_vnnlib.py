"""VNN-LIB properties: their polarity, their boxes, and the reader that evaluates them."""

from __future__ import annotations

import itertools
from fractions import Fraction
from functools import cache

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.cases import CASES, case
from tests.hooks.certifiers.vnnlib_reader import parse_vnnlib
from tl_dyck.rnn import RNNInputError, TwoLayerRNN, export_rnn
from tl_dyck_hooks.certifiers.vnnlib import embedding_box, vnnlib_property

exported = cache(lambda name: export_rnn(case(name).build()))

SMALL = [entry.name for entry in CASES if entry.name not in ("one-token",)]


def logits_of(rnn: TwoLayerRNN, r: torch.Tensor) -> torch.Tensor:
    """What the ONNX network computes from embeddings: written out here, not taken from the code."""
    scores = torch.einsum("he,phe->ph", rnn.query(r[-1]), rnn.key(r))
    z = torch.einsum("ph,phe->he", scores.softmax(0), rnn.value(r))
    return rnn.readout(r[-1], z)


@settings(max_examples=40)
@given(st.sampled_from(SMALL), st.data())
def test_a_string_is_a_counterexample_exactly_if_the_target_does_not_win(
    name: str, data: st.DataObject
) -> None:
    rnn = exported(name)
    c = rnn.config
    length = data.draw(st.integers(1, 3))
    tokens = st.integers(0, c.d_vocab - 1)
    allowed = [
        data.draw(st.lists(tokens, min_size=1, max_size=3, unique=True)) for _ in range(length)
    ]
    target = data.draw(st.integers(0, c.d_vocab_out - 1))
    lower, upper = embedding_box(rnn, allowed)
    prop = parse_vnnlib(vnnlib_property(lower, upper, target, c.d_vocab_out))
    for string in itertools.islice(itertools.product(*allowed), 4):
        row = torch.tensor(string)
        r = rnn.embed(row, rnn.states(row))
        logits = logits_of(rnn, r)
        wins = all(logits[target] > logits[j] for j in range(c.d_vocab_out) if j != target)
        assert prop.is_counterexample(r, logits) is not wins
    # the same logits outside the box are none
    assert not prop.is_counterexample(upper + 1, logits)
    assert not prop.is_counterexample(lower - 1, logits)


def test_a_tie_is_a_counterexample() -> None:
    box = torch.zeros(1, 2)
    prop = parse_vnnlib(vnnlib_property(box, box, 0, 3))
    assert prop.is_counterexample(box, torch.tensor([1.0, 1.0, 0.0]))
    assert not prop.is_counterexample(box, torch.tensor([1.0, 0.5, 0.0]))
    assert prop.is_counterexample(box, torch.tensor([1.0, 0.0, 2.0]))


@settings(max_examples=40)
@given(st.sampled_from(SMALL), st.data())
def test_the_box_is_the_smallest_around_all_strings(name: str, data: st.DataObject) -> None:
    rnn = exported(name)
    tokens = st.integers(0, rnn.config.d_vocab - 1)
    length = data.draw(st.integers(1, 4))
    allowed = [data.draw(st.lists(tokens, min_size=1, max_size=3)) for _ in range(length)]
    strings = torch.tensor(list(itertools.product(*allowed)))
    r = rnn.embed(strings, rnn.states(strings))
    lower, upper = embedding_box(rnn, allowed)
    assert torch.equal(lower, r.amin(0))
    assert torch.equal(upper, r.amax(0))


@settings(max_examples=50)
@given(st.lists(st.floats(-3e38, 3e38), min_size=1, max_size=4), st.floats(0, 1e3))
def test_bounds_are_rounded_outwards_and_written_exactly(values: list[float], width: float) -> None:
    lower = torch.tensor([values], dtype=torch.float64)
    upper = lower + width
    text = vnnlib_property(lower, upper, 0, 2)
    bounds = parse_vnnlib(text).assertions[:-1]
    assert len(bounds) == 2 * len(values)
    for i, (low, high) in enumerate(zip(lower[0].tolist(), upper[0].tolist(), strict=True)):
        (ge, name, least), (le, same, largest) = bounds[2 * i : 2 * i + 2]
        assert (ge, le, name, same) == (">=", "<=", f"X_{i}", f"X_{i}")
        assert Fraction(least) <= Fraction(low) <= Fraction(high) <= Fraction(largest)
        for written, value in ((least, low), (largest, high)):
            exact = torch.tensor(float(written))
            assert Fraction(written) == Fraction(float(exact))  # a float32, not its neighbour
            spacing = float(torch.nextafter(exact.abs(), torch.tensor(torch.inf)) - exact.abs())
            assert abs(float(written) - value) <= 2 * spacing
    assert "e" not in "".join(word for word in text.split() if word[0] in "-0123456789")


def test_a_bound_that_float32_does_not_have() -> None:
    with pytest.raises(RNNInputError, match=r"too large for torch\.float32"):
        vnnlib_property(
            torch.zeros(1, 2).double(), torch.full((1, 2), 1e39, dtype=torch.float64), 0, 2
        )
