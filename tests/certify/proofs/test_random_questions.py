"""Random questions of every kind, each with an answer that enumeration knows."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from tests.fuzz_proofs import CASES, run_case


@settings(max_examples=3 * len(CASES))
@given(st.integers(0, 10**6))
def test_what_holds_has_a_proof_that_is_accepted_and_nothing_else_has(number):
    """As `tests/fuzz_proofs.py` does for the night."""
    assert ": " in run_case(number)
