"""Each judged method against another computation of its answer, on judged cases."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from tests.judge.methods.cases import judged
from tests.judge.methods.table import ORACLES, OWN, Oracle
from tl_dyck.judge import WithError, methods, table_of_methods
from tl_dyck_hooks.methods import adaptation, edges, gradients, interventions

#: What scores 0.5 or 1 by what it is told, and reads no model: `test_scoring` holds them to that.
CONTROLS = {name for name in OWN if methods.get(name).__module__.endswith("controls")}

#: The listing of a model of full size; "exact" and "broken" show yes and no on small ones.
SLOW = {("certificate", "balanced")}

PAIRS = [
    pytest.param(
        name,
        oracle,
        case,
        id=f"{name}, {oracle.by}, {case}",
        marks=[pytest.mark.slow] if (name, case) in SLOW else [],
    )
    for name, oracles in ORACLES.items()
    for oracle in oracles
    for case in oracle.cases
]


def test_every_method_has_an_oracle() -> None:
    where = "the oracle of a method is a row of ORACLES in tests/judge/methods/table.py"
    assert set(ORACLES) == OWN - CONTROLS, where


@pytest.mark.filterwarnings("ignore")  # of packages, where they are installed
def test_methods_declare_what_they_answer() -> None:
    table = table_of_methods()
    assert set(table.index) == set(methods.names()) - set(methods.unavailable())
    assert (table[["asked", "yes", "about"]] != "").all(axis=None)
    for name, oracles in ORACLES.items():
        assert set(table.loc[name, "asked"].split(", ")) == {
            kind for oracle in oracles for kind in oracle.kinds
        }, name


@pytest.mark.parametrize(("name", "oracle", "at"), PAIRS)
def test_a_method_says_what_its_oracle_says(
    name: str, oracle: Oracle, at: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of as many steps as a method begins with: `tests.judge.test_convergence` takes more."""
    for module in (adaptation, edges, gradients, interventions):
        monkeypatch.setattr(module, "_MOST", 1)
    case, questions = judged(at)
    before = {key: value.clone() for key, value in case.model.state_dict().items()}
    compared = 0
    for kind, asked in questions.items():
        scores = methods.get(name)(case, asked)
        if kind not in oracle.kinds:
            assert scores is None, kind
            continue
        wanted = oracle.scores(case, asked)
        assert scores is not None, kind
        scores = scores.values if isinstance(scores, WithError) else scores
        for question, score, value in zip(asked, scores, wanted, strict=True):
            if value is None:  # the oracle leaves it open
                continue
            assert (score is None) == bool(np.isnan(value)), question
            if score is not None:
                assert score == pytest.approx(value, abs=oracle.atol, rel=1e-6), question
                compared += 1
    assert compared
    for key, value in case.model.state_dict().items():
        assert torch.equal(value, before[key]), "the method changed the model"
