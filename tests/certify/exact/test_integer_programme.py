"""The exact certifier beside a mixed-integer programme that scipy's HiGHS solves.

It shares nothing with the shortest paths but the options of the space: budgets are constraints, a
variable says of each option whether it is taken, and the ratio that one head without positions
computes is minimised by Dinkelbach's iteration.
"""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import optimize, sparse

from tests.certify.oracles import LANGUAGE, random_rnn
from tl_dyck.certify import (
    Delete,
    Duplicate,
    InsertMatchedPairs,
    PerturbationSpace,
    Substitute,
    SwapAdjacent,
    certify,
)
from tl_dyck.certify.lattice import Lattice
from tl_dyck.rnn import TwoLayerRNN


class Programme:
    """x_o, whether option o is taken, and y_o, whether it emits the last token."""

    def __init__(self, lattice: Lattice) -> None:
        self.options = lattice.options
        n, rows, low, high = len(self.options), [], [], []

        def constrain(least: float, terms: dict[int, float], most: float) -> None:
            row = np.zeros(2 * n)
            row[list(terms)] = list(terms.values())
            rows.append(row)
            low.append(least)
            high.append(most)

        for level in range(lattice.last_level + 1):  # what comes in goes on
            terms = {}
            for o, option in enumerate(self.options):
                if level in (option.source, option.target):
                    terms[o] = float(option.source == level) - float(option.target == level)
            flow = float(level == 0) - float(level == lattice.last_level)
            constrain(flow, terms, flow)
        for kind, budget in enumerate(lattice.budgets):
            spent = {o: 1.0 for o, option in enumerate(self.options) if option.kind == kind}
            constrain(0, spent, budget)
        constrain(1, {n + o: 1.0 for o in range(n)}, 1)
        for o, option in enumerate(self.options):
            constrain(-1, {n + o: 1.0, o: -1.0}, 0)
            for later, other in enumerate(self.options):
                if other.emits and other.source >= option.target:
                    constrain(0, {n + o: 1.0, later: 1.0}, 1)
        self.limits = optimize.LinearConstraint(sparse.csr_matrix(np.array(rows)), low, high)

    def least(self, costs: np.ndarray, last: int) -> tuple[float, np.ndarray] | None:
        """The least sum of costs over the paths that end with a token, and the options taken."""
        n = len(self.options)
        upper = np.ones(2 * n)
        for o, option in enumerate(self.options):
            if not option.emits or option.emits[-1] != last:
                upper[n + o] = 0
        found = optimize.milp(
            np.concatenate([costs, np.zeros(n)]),
            constraints=self.limits,
            integrality=np.ones(2 * n),
            bounds=optimize.Bounds(0, upper),
        )
        if not found.success:
            return None  # no string ends so
        return float(found.fun), found.x[:n].round()


def least_margin(rnn: TwoLayerRNN, lattice: Lattice, target: int) -> float:
    """Over all strings, by formula: Σ weight · (value · readout) / Σ weight, and the residual."""
    w = {name: weight.numpy() for name, weight in rnn.named_buffers()}
    q, k, v = (w["W_E"] @ w[f"W_{name}"][0] + w[f"b_{name}"][0] for name in "QKV")
    written = v @ w["W_O"][0] + w["b_O"]
    programme, best = Programme(lattice), np.inf
    bos = rnn.config.bos_token
    for last in sorted({o.emits[-1] for o in lattice.options if o.emits}):
        scores = k @ q[last] / rnn.config.attn_scale
        weight = np.exp(scores - scores.max())
        for other in set(range(rnn.config.d_vocab_out)) - {target}:
            axis = w["W_U"][:, target] - w["W_U"][:, other]
            value = written @ axis
            always = w["b_U"][target] - w["b_U"][other]
            if rnn.config.residual:
                always += w["W_E"][last] @ axis
            ratio = value.max() + 1.0
            while True:  # Dinkelbach: the least of numerator - ratio · denominator, until it is 0
                gain = weight * (value - ratio)
                costs = np.array([gain[list(o.emits)].sum() for o in lattice.options])
                # in units of the largest, for the solver takes what is below 1e-6 for nothing
                found = programme.least(costs / abs(costs).max(), last)
                if found is None:
                    break
                taken = found[1] > 0.5
                tokens = [t for o, use in zip(lattice.options, taken, strict=True) if use
                          for t in o.emits]  # fmt: skip
                tokens += [] if bos is None else [bos]
                new = (weight * value)[tokens].sum() / weight[tokens].sum()
                if new >= ratio - 1e-12:
                    break
                ratio = new
            if found is not None:
                best = min(best, ratio + always)
    return float(best)


SPACES = [
    [(Duplicate(), 2), (Substitute({0: (2, 5), 1: (3,), 4: (5, 0)}), 2)],
    [(Delete([0, 1, 4]), 2), (SwapAdjacent(), 1)],
    [(InsertMatchedPairs(LANGUAGE), 2)],
    [(Substitute({t: tuple({0, 3, 4} - {t}) for t in range(6)}), 3), (Delete([5]), 1)],
]


@given(
    seed=st.integers(0, 10_000),
    string=st.lists(st.integers(0, 5), min_size=3, max_size=7),
    space=st.integers(0, len(SPACES) - 1),
    residual=st.booleans(),
    sharpness=st.sampled_from([0.5, 2.0, 6.0]),
)
@settings(max_examples=25)
def test_the_least_margin_is_that_of_an_integer_programme(
    seed: int, string: list[int], space: int, residual: bool, sharpness: float
) -> None:
    rnn = random_rnn(seed, sharpness=sharpness, residual=residual)
    around = PerturbationSpace(SPACES[space])
    found = certify(rnn, tuple(string), 0, around, tight=True)
    expected = least_margin(rnn, around.lattice(tuple(string)), 0)
    assert found.lower == pytest.approx(expected, abs=1e-7)
    assert found.status == ("certified" if expected > 0 else "falsified")


def test_the_programme_spends_no_more_than_the_budgets() -> None:
    """It is an oracle: with a budget more, the optimum is another one here."""
    rnn = random_rnn(3, sharpness=2.0, residual=False)
    values = [
        least_margin(rnn, PerturbationSpace([(Duplicate(), n)]).lattice((0, 2, 5, 1)), 0)
        for n in range(4)
    ]
    assert values == sorted(values, reverse=True)
    assert len({round(value, 9) for value in values}) > 2
