"""Networks on profiles, against the RNN's forward pass on concrete strings."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from tests.certify.oracles import random_rnn
from tl_dyck.certify.language import forms
from tl_dyck.certify.language.claims import quotient_error
from tl_dyck.certify.language.counted import Counted, NetworkSymbols
from tl_dyck.certify.language.forms import Form, has_form
from tl_dyck.certify.language.profiles import Profiles, compositions
from tl_dyck.certify.objectives import Objectives
from tl_dyck.certify.protocol import CertifyError
from tl_dyck.language import DyckDistribution, DyckLanguage
from tl_dyck.rnn import TwoLayerRNN

LANGUAGE = DyckLanguage(3, 3)
PROFILES = Profiles(DyckDistribution(LANGUAGE))
MLP = {"act_fn": "relu", "d_mlp": 7}
FORMS: list[dict[str, Any]] = [
    {},
    {"residual": False},
    {"ln_c": 1e-5, **MLP},
    {"ln_c": 0.3, "residual": False, **MLP},
    {"ln_mid": 1.5, **MLP},
    {"ln1": "ln", "state": "none", "ln_c": 2.0, **MLP},
    {"ln_c": 1.0, **MLP},  # the floor of the norm is in play
    {"ln_mid": 30.0, **MLP},
    MLP,
]
OTHERS: list[dict[str, Any]] = [
    {"n_heads": 2, "ln_c": 0.3, **MLP},
    {"ln2": "ln", "ln_final": "ln", "act_fn": "gelu", "d_mlp": 5},
]


def network(readout: dict[str, Any], seed: int = 0, sharpness: float = 1.0) -> TwoLayerRNN:
    fields = {"state": "depth", "bos_token": 6, "d_vocab_out": 7, **readout}
    return random_rnn(seed, sharpness=sharpness, **fields)


@pytest.mark.parametrize(
    ("readout", "sharpness"),
    [(readout, (1.0, 20.0)[i % 2]) for i, readout in enumerate(FORMS + OTHERS)],
    ids=str,
)
def test_what_holds_of_a_profile_holds_of_its_strings(
    readout: dict[str, Any], sharpness: float
) -> None:
    rnn = network(readout, sharpness=sharpness)
    symbols = NetworkSymbols(rnn, LANGUAGE)
    kinds = [Counted, Form] if readout in FORMS else [Counted]
    assert has_form(rnn.config) == (readout in FORMS)
    objectives = Objectives.margins(3, 7)
    rng = np.random.default_rng(0)
    for ending in list(PROFILES.endings())[:40:5]:
        rows = np.concatenate([compositions(9, total) for total in range(4)])
        rows = rng.permutation(rows[PROFILES.occur(ending, rows)])[:12]
        strings = [(6, *PROFILES.string(ending, row)) for row in rows]
        logits = [rnn(torch.tensor([string]))[0, -1].numpy() for string in strings]
        expected = np.array([logit[3] - np.delete(logit, 3) for logit in logits]).reshape(-1, 6)
        extended = np.concatenate([np.ones((len(rows), 1)), rows], axis=1)
        for kind in kinds:
            values, error, factors = kind(symbols, ending, objectives).values(extended)
            factor = factors[:, :1]
            assert np.all(abs(values - expected * factor) <= error + 1e-12 * factor)
            assert np.all(error < 1e-9 * factor)


def test_a_form_bounds_its_rounding_where_pairs_cancel() -> None:
    """The opening brackets' values are the negated closing ones': what is left is rounding."""
    rnn = network({"ln_c": 1e-9, **MLP})
    with torch.no_grad():
        rnn.W_Q.zero_(), rnn.b_Q.zero_(), rnn.b_V.zero_(), rnn.b_O.zero_()
        rnn.W_E[0:6:2, 1:] = -rnn.W_E[1:6:2, :-1] * (1 + 1e-15)
    symbols, ending = NetworkSymbols(rnn, LANGUAGE), list(PROFILES.endings())[20]
    form, counted = (make(symbols, ending, Objectives.margins(3, 7)) for make in (Form, Counted))
    rows = np.array([[1, *[total] * 9] for total in (0, 1, 100, 10_000)], dtype=float)
    (f, error, factor), (g, other, _) = form.values(rows), counted.values(rows)
    rho = factor[:, :1]
    assert np.all(abs(f / rho - g) <= error / rho + other)
    assert np.all(error / rho < 1e-6)
    assert np.all(abs(f / rho - (f / rho)[0]) < 1e-6)  # Theorem 1: pairs change nothing


def test_what_is_divided_by_a_length_is_off_by_no_more_than_is_said(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Of a root that is off by a millionth: g is F over ρ as it is computed, not as it is."""
    root_of = forms._root
    monkeypatch.setattr(forms, "_root", lambda u: root_of(u) * (1 + 1e-6))
    rnn = network({"ln_c": 1e-5, "residual": False})
    with torch.no_grad():
        rnn.b_U.zero_()
    symbols, ending = NetworkSymbols(rnn, LANGUAGE), list(PROFILES.endings())[20]
    form, counted = (make(symbols, ending, Objectives.margins(3, 7)) for make in (Form, Counted))
    rows = np.array([[1, *[total] * 9] for total in (0, 1, 100)], dtype=float)
    (f, error, factor), (g, other, _) = form.values(rows), counted.values(rows)
    quotient = f / factor[:, :1]
    off = sum(quotient_error(abs(quotient).max(1), error, factor))
    assert np.all(abs(quotient - g) <= off[:, None] + other)
    assert np.all(off < 1e-5)


def test_nothing_is_known_where_all_weights_underflow() -> None:
    """Scores thousands apart: what takes all attention need not occur in a prefix."""
    rnn = network({"n_heads": 2, "ln_c": 0.3, **MLP}, seed=1, sharpness=1e3)
    symbols, unknown = NetworkSymbols(rnn, LANGUAGE), []
    for ending in PROFILES.endings():
        pairs = np.array([[0] * 9, [2] * 9], dtype=np.int16)
        pairs = pairs[PROFILES.occur(ending, pairs)]
        rows = np.concatenate([np.ones((len(pairs), 1)), pairs], axis=1)
        values, error, _ = Counted(symbols, ending, Objectives.margins(3, 7)).values(rows)
        assert np.isfinite(values).all()
        lost = np.isinf(error).all(1)
        unknown += lost.tolist()
        for row, value, off in zip(pairs[~lost], values[~lost], error[~lost], strict=True):
            logits = rnn(torch.tensor([[6, *PROFILES.string(ending, row)]]))[0, -1].numpy()
            assert np.all(abs(value - (logits[3] - np.delete(logits, 3))) <= off + 1e-9)
    assert {*unknown} == {True, False}


def test_other_tokens_are_refused() -> None:
    with pytest.raises(CertifyError, match="reads 7 tokens"):
        NetworkSymbols(network({}), DyckLanguage(4, 2))
