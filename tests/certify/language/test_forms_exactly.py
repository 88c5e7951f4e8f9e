"""Forms of profiles and their bounds on boxes, against fractions of the strings."""

from __future__ import annotations

import itertools
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
import torch

from tests.cases import thinned
from tests.certify.exact.rational import Exacts, Rational, centred, cut, exact, exp, root
from tests.certify.language.test_forms import FORMS, LANGUAGE, PROFILES, network
from tl_dyck.certify.exact.balls import Array
from tl_dyck.certify.language import forms
from tl_dyck.certify.language.boxes import Boxes
from tl_dyck.certify.language.counted import NetworkSymbols
from tl_dyck.certify.language.forms import Form
from tl_dyck.certify.language.profiles import Ending, compositions
from tl_dyck.certify.objectives import Objectives
from tl_dyck.rnn import TwoLayerRNN

OBJECTIVES = Objectives.margins(3, 7)
ENDINGS = list(PROFILES.endings())


class Account:
    """F = ρ g and ρ of strings in fractions, where weights are what the form takes them times."""

    def __init__(self, rnn: TwoLayerRNN, symbols: NetworkSymbols, ending: Ending) -> None:
        self.rational, self.c, self.ending = Rational(rnn), rnn.config, ending
        query = np.array([symbols.last(ending)])
        self.top = Fraction(float(symbols.table.scores(query)[0][0].max()))

    def of(self, row: Any) -> tuple[Exacts, Fraction]:
        """F, [K], and ρ, after the prefix of some pairs."""
        rational, c = self.rational, self.c
        read, times, last = rational.counted((6, *PROFILES.string(self.ending, row)))
        e = times * np.array([exp(x - self.top) for x in rational.scores(read, last)[:, 0]], object)
        z = e.sum()
        logits = rational.after_attention(
            read, last, np.vectorize(cut, otypes=[object])((e @ read.v[:, 0])[None] / z)
        )
        rho = z
        if c.ln_c is not None or c.ln_mid is not None:
            x = (e @ read.v[:, 0]) @ rational.w["W_O"][0] + z * rational.w["b_O"]
            if c.ln_c is None and c.residual:
                x = x + z * read.r[last]
            x = centred(x)
            rho = max(root((x * x).sum()), z * Fraction(c.ln_c or c.ln_mid))
        return rho * (logits[3] - np.delete(logits, 3)), rho


def cancelling() -> TwoLayerRNN:
    """The opening brackets' values are the negated closing ones: what is left is rounding."""
    rnn = network({"ln_c": 1e-9, "act_fn": "relu", "d_mlp": 7})
    with torch.no_grad():
        rnn.W_Q.zero_(), rnn.b_Q.zero_(), rnn.b_V.zero_(), rnn.b_O.zero_()
        rnn.W_E[0:6:2, 1:] = -rnn.W_E[1:6:2, :-1] * (1 + 1e-15)
    return rnn


MADE = [*((str(each), each, sharp) for each in FORMS for sharp in (1.0, 20.0)), ("pairs", None, 1)]


def check(rnn: TwoLayerRNN, ending: Ending, rows: Any, most: float) -> None:
    """Values and ρ are off by no more than is said of a row, of all rows, and that is not much."""
    symbols = NetworkSymbols(rnn, LANGUAGE)
    form, account = Form(symbols, ending, OBJECTIVES), Account(rnn, symbols, ending)
    extended = np.concatenate([np.ones((len(rows), 1)), rows], axis=1)
    values, error, factor = form.values(extended)
    rho = factor[:, :1]
    _, off = form._rho(extended)
    top = extended.max(0)
    worst, worst_rho = form.worst_error(top[None], rho.min() * np.array([1 - 1e-5]))
    clear = rho.min() > 1.01 * form.floor * (top @ form.z)  # else the floor may be ρ
    for i, row in enumerate(rows):
        f, true = account.of(row)
        wrong, rho_wrong = abs(exact(values[i]) - f).max(), abs(Fraction(rho[i, 0]) - true)
        assert wrong <= Fraction(error[i, 0])
        assert rho_wrong <= Fraction(off[i])
        assert not clear or wrong <= Fraction(worst[0])
        assert not clear or rho_wrong <= Fraction(worst_rho[0])
    size = 1 + abs(values).max() + extended.max() * rho.max()
    assert max(error.max(), off.max()) <= most * size
    assert not clear or error.max() <= worst[0] * (1 + 1e-9)
    assert not clear or off.max() <= worst_rho[0] * (1 + 1e-9)


def some_rows(ending: Ending, rng: np.random.Generator) -> Any:
    """Of up to three pairs, and of many."""
    rows = np.concatenate([compositions(9, total) for total in range(4)])
    rows = rng.permutation(rows[PROFILES.occur(ending, rows)])[:3]
    return np.concatenate([rows, 40 * rows[-1:]]).astype(float)


@pytest.mark.parametrize(("name", "readout", "sharpness"), thinned(MADE))
def test_a_form_is_off_by_no_more_than_it_says_and_says_little(
    name: str, readout: dict[str, Any] | None, sharpness: float
) -> None:
    rnn = cancelling() if readout is None else network(readout, sharpness=sharpness)
    rng = np.random.default_rng(0)
    for ending in ENDINGS[2:40:14]:
        check(rnn, ending, some_rows(ending, rng), 1e-10 if readout is not None else 1e-6)


@pytest.mark.parametrize("readout", FORMS[2:5], ids=str)
def test_how_far_a_root_is_off_is_measured(
    readout: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of one that is off by a millionth, as no factorization is."""
    rng, root_of = np.random.default_rng(0), forms._root

    def off(u: Any) -> Any:
        found = root_of(u)
        return found * (1 + 1e-6 * rng.normal(size=found.shape))

    monkeypatch.setattr(forms, "_root", off)
    for ending in ENDINGS[2:40:14]:
        check(network(readout), ending, some_rows(ending, rng), 1e-2)


def linear(account: Account) -> tuple[Array, Array, Array]:
    """u, [1 + kinds, d], and Z, [1 + kinds], of rows (1, m), and the last symbol's stream."""
    rational, ending = account.rational, account.ending
    deep = range(LANGUAGE.max_depth)
    pairs = [((2 * a, level + 1), (2 * a + 1, level)) for level in deep for a in range(3)]
    stack = [(6, 0), *((2 * a, level + 1) for level, a in enumerate(ending.stack))]
    last = stack[-1] if ending.closes is None else (2 * ending.closes + 1, ending.depth)
    names = sorted({last, *stack, *itertools.chain(*pairs)})
    read = rational.read(*zip(*names, strict=True))
    at = names.index(last)
    e = np.array([exp(x - account.top) for x in rational.scores(read, at)[:, 0]], object)
    c, x = account.c, read.v[:, 0] @ rational.w["W_O"][0] + rational.w["b_O"]
    if c.ln_c is None and c.residual:  # before the norm, if there is one
        x = x + read.r[at]
    x = centred(x) if c.ln_c is not None or c.ln_mid is not None else x
    rows = [stack, *pairs]
    u = np.array([sum(e[names.index(s)] * x[names.index(s)] for s in row) for row in rows])
    z = np.array([sum(e[names.index(s)] for s in row) for row in rows])
    return u.astype(float), z.astype(float), read.r[at].astype(float)


def boxed(account: Account, about: tuple[Array, ...], low: Array, high: Array) -> list[float]:
    """The least that the recipe of `boxes` shows of F on a box, objective by objective.

    ρ lies between its tangent T at the centre and T + e; so do pre-activations between lines.
    """
    w, c = {name: each.astype(float) for name, each in account.rational.w.items()}, account.c
    u, z, r = about
    mid, reach = np.concatenate([[1.0], (low + high) / 2]), (high - low) / 2
    at = mid @ u
    if c.ln_c is None and c.ln_mid is None:
        rho, slope, e = mid @ z, z[1:], 0.0
    else:
        rho = float(np.sqrt(at @ at))
        slope = u[1:] @ at / rho
        e = sum(
            reach[i] * reach[j] * abs((u[1 + i] * u[1 + j]).sum())
            for i in range(len(reach))
            for j in range(len(reach))
        ) / (2 * rho)
        assert rho - abs(slope) @ reach > (z[0] + high @ z[1:]) * (c.ln_c or c.ln_mid)
    own = r if c.residual and c.ln_c is not None else 0 * r
    found = []
    for k in (0, 1, 2, 4, 5, 6):
        towards = w["W_U"][:, 3] - w["W_U"][:, k]
        alpha, per_rho = u @ towards, own @ towards + w["b_U"][3] - w["b_U"][k]
        value, gradient = mid @ alpha, alpha[1:]
        if c.act_fn is not None:
            per_rho += w["b_out"] @ towards
            for j in range(w["W_in"].shape[1]):
                beta, s = u @ w["W_in"][:, j], own @ w["W_in"][:, j] + w["b_in"][j]
                v = w["W_out"][j] @ towards
                pre, tilt = mid @ beta + s * rho, beta[1:] + s * slope
                bottom = pre - abs(tilt) @ reach + min(s, 0) * e
                top = pre + abs(tilt) @ reach + max(s, 0) * e
                line, rest = float(bottom >= 0), 0.0  # off, or on
                if bottom < 0 < top:
                    chord = top / (top - bottom)
                    # below v relu: through 0 of slope 0 or 1, or the chord
                    line = float(top > -bottom) if v > 0 else chord
                    rest = 0.0 if v > 0 else -chord * bottom
                value += v * (line * mid @ beta + rest)
                gradient = gradient + v * line * beta[1:]
                per_rho += v * line * s
        gradient = gradient + per_rho * slope
        least = value + per_rho * rho - abs(gradient) @ reach + min(per_rho, 0) * e
        found.append(float(least))
    return found


@pytest.mark.parametrize("readout", [*FORMS[:4], FORMS[8], {"ln_mid": 1e-3}], ids=str)
def test_a_box_is_bounded_as_the_recipe_says(readout: dict[str, Any]) -> None:
    """No lower, no higher: with one line for each ReLU, and one number for what bends."""
    fields = {**readout, **({"ln_c": 1e-5} if readout.get("ln_c") else {})}
    rnn, rng = network(fields), np.random.default_rng(0)
    symbols, known, loosest = NetworkSymbols(rnn, LANGUAGE), 0, 0.0
    for ending in ENDINGS[5:40:9]:
        form, account = Form(symbols, ending, OBJECTIVES), Account(rnn, symbols, ending)
        about = linear(account)
        low = rng.integers(0, 5, (12, 9)).astype(float)
        high = low + rng.integers(0, 3, (12, 9)) * (rng.random((12, 9)) < 0.4)
        bounds, longest, width = Boxes(form).lower(low, high)
        for i in np.flatnonzero(np.isfinite(bounds).all(1)):
            known += 1
            wanted = boxed(account, about, low[i], high[i])
            np.testing.assert_allclose(bounds[i], wanted, rtol=1e-6, atol=1e-6 * longest[i])
            assert (width[i] >= 0).all()
            assert (width[i][low[i] == high[i]] == 0).all()
            loosest = max(loosest, float(width[i].max()))
    assert known >= 12
    assert loosest > 0
