"""The numpy network: its values against an extended-precision pass, and its error bounds."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.certify.oracles import READOUTS, random_rnn, rnns, tokens
from tl_dyck.certify.exact.network import Network
from tl_dyck.certify.objectives import Objectives
from tl_dyck.rnn import TwoLayerRNN

LONG = np.longdouble
ERF_POINTS = 400


def erf(x: np.ndarray) -> np.ndarray:
    """The error function in extended precision: Gauss-Legendre on the integral of exp(-t²)."""
    nodes, weights = (part.astype(LONG) for part in np.polynomial.legendre.leggauss(ERF_POINTS))
    half = np.clip(x, -7, 7)[..., None] / 2
    return (
        (np.exp(-((half * (nodes + 1)) ** 2)) * weights).sum(-1)
        * half[..., 0]
        * 2
        / np.sqrt(LONG(np.pi))
    )


def slow_logits(rnn: TwoLayerRNN, string: tuple[int, ...]) -> np.ndarray:
    """The transformer in long double, one token at a time, written from the formulas."""
    c = rnn.config
    w = {name: weight.numpy().astype(LONG) for name, weight in rnn.weights.items()}
    full = string if c.bos_token is None else (c.bos_token, *string)
    states = rnn.states(torch.tensor([full]))[0]
    r = rnn.embed(torch.tensor(full), states).numpy().astype(LONG)

    def norm(name: str, x: np.ndarray) -> np.ndarray:
        kind = getattr(c, name)
        if kind is None:
            return x
        x = x - x.mean(-1, keepdims=True)
        x = x / np.sqrt((x**2).mean(-1, keepdims=True) + LONG(c.eps))
        return x * w[f"{name}_w"] + w[f"{name}_b"] if kind == "ln" else x

    x = norm("ln1", r)
    attn = w["b_O"].copy()
    for h in range(c.n_heads):
        q, k, v = (x @ w[f"W_{n}"][h] + w[f"b_{n}"][h] for n in "QKV")
        scores = k @ q[-1] / LONG(c.attn_scale)
        p = np.exp(scores - scores.max())
        attn = attn + (p @ v / p.sum()) @ w["W_O"][h]
    if c.ln_c is not None:
        centred = attn - attn.mean()
        attn = centred / max(np.sqrt((centred**2).sum()), LONG(c.ln_c))
    m = r[-1] + attn if c.residual else attn
    if c.ln_mid is not None:
        m = m - m.mean()
        m = m / max(np.sqrt((m**2).sum()), LONG(c.ln_mid))
    if c.act_fn is not None:
        p = norm("ln2", m) @ w["W_in"] + w["b_in"]
        inner = np.sqrt(LONG(2) / LONG(np.pi)) * (p + LONG("0.044715") * p**3)
        hidden = {
            "relu": np.maximum(p, 0),
            "gelu": p / 2 * (1 + erf(p / np.sqrt(LONG(2)))),
            "gelu_new": p / 2 * (1 + np.tanh(inner)),
            "silu": p / (1 + np.exp(-p)),
        }[c.act_fn]
        m = m + hidden @ w["W_out"] + w["b_out"]
    return norm("ln_final", m) @ w["W_U"] + w["b_U"]


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
    """No larger than rounding can explain.

    (Not for any model: a layer norm of almost nothing magnifies errors.)
    """
    rnn = random_rnn(0, n_heads=n_heads, **readout)
    values = Network(rnn).values_of([(0, 2, 4, 1, 3), (5,), (1, 1)], Objectives.margins(0, 3))
    assert (values.rad <= 1e-10 * abs(values.mid).max()).all()


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
