"""Random questions of every kind, each with an answer that enumeration knows."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tools.fuzz_proofs import CASES, run_case


@pytest.mark.parametrize("examples", [3, pytest.param(12, marks=pytest.mark.slow)])
@pytest.mark.parametrize("kind", [0, 2, 3], ids=lambda kind: CASES[kind].__name__)
def test_what_holds_has_a_proof_that_is_accepted_and_nothing_else_has(kind, examples):
    """As `tools/fuzz_proofs.py` does for the night: near ties of every kind, by enumeration."""

    @settings(max_examples=examples)
    @given(st.integers(0, 10**6))
    def holds(number):
        assert ": " in run_case(number * len(CASES) + kind)

    holds()
