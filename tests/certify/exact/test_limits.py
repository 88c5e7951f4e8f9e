"""Time limits and sizes, looked at before and while work piles up, by a clock that tests turn."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from tests.certify.oracles import LANGUAGE, STATES, random_rnn
from tl_dyck.certify import (
    CertifyError,
    Delete,
    Duplicate,
    InsertMatchedPairs,
    PerturbationSpace,
    SpaceTooLargeError,
    SwapAdjacent,
    certify,
    deadline,
)

STRING = (0, 2, 3, 1) * 5


def edits(budget: int) -> PerturbationSpace:
    """Four kinds of edits, so that budgets multiply."""
    kinds = (Duplicate(), Delete([0, 2]), SwapAdjacent(), InsertMatchedPairs(LANGUAGE))
    return PerturbationSpace([(kind, budget) for kind in kinds])


@pytest.mark.parametrize("certifier", ["exact", "interval", "exhaustive"])
@pytest.mark.parametrize("state", STATES)
def test_a_limit_holds_while_the_space_is_laid_out(
    certifier: str, state: str, ticking: Callable[[], int]
) -> None:
    """A few looks at the clock are too few for anything: nobody exceeds them by more than one."""
    options = {"max_strings": 10**30} if certifier == "exhaustive" else {}
    for limit in (0.5, 3.5):
        before = ticking()
        rnn = random_rnn(0, n_ctx=200, state=state)
        found = certify(rnn, STRING, None, edits(2), certifier, time_limit=limit, **options)
        assert (found.lower, found.stats.get("strings_run", 0)) == (-np.inf, 0)
        assert f"the time limit of {limit} s was reached" in found.reason
        assert ticking() - before <= limit + 3


@pytest.mark.parametrize("certifier", ["exact", "interval"])
@pytest.mark.parametrize("n_ctx", [200, 30], ids=["roomy", "length_range"])
def test_budgets_that_cannot_be_laid_out_are_refused_before_it_begins(
    certifier: str, n_ctx: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The second n_ctx is one for which the lengths would have to be counted, code by code."""
    monkeypatch.setattr("tl_dyck.certify.exact.layout._product", None)
    monkeypatch.setattr("tl_dyck.certify.lattice.Lattice.after", None)
    with pytest.raises(
        SpaceTooLargeError, match=r"= [\d,]+ ways at each of 41 places, more than the 524,288 nodes"
    ):
        certify(random_rnn(0, n_ctx=n_ctx), STRING, None, edits(40), certifier)


def test_states_multiply_the_nodes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tl_dyck.certify.exact.layout._MOST_NODES", 500)
    rnn = random_rnn(0, n_ctx=200, state="position")
    with pytest.raises(SpaceTooLargeError, match=r"more than 500 nodes after \d+ of \d+ places"):
        certify(rnn, STRING, None, edits(1))
    assert certify(random_rnn(0, n_ctx=200), STRING, None, edits(1)).status != "open"


def test_large_spaces_are_refused_without_being_counted(ticking: Callable[[], int]) -> None:
    """A part of the strings is enough to know that there are too many."""
    space = PerturbationSpace([(Duplicate(), 8), (SwapAdjacent(), 8)])
    with pytest.raises(SpaceTooLargeError, match="has more than 1,000 strings"):
        space.enumerate(STRING * 3, limit=1000, deadline=deadline.Deadline(1e9))
    assert ticking() < 2000


def test_overflow_is_unknown_and_no_prediction() -> None:
    """All scores are infinite, so that the network's own logits are NaN."""
    rnn: Any = random_rnn(0, act_fn="relu", attn_scale=1e-320)
    for certifier in ("exact", "interval", "exhaustive"):
        found = certify(rnn, STRING[:4], 0, PerturbationSpace([(Duplicate(), 1)]), certifier)
        assert (found.status, found.lower, found.upper) == ("open", -np.inf, np.inf)
        assert found.to_dict()["worst"]["margin"] is None
        with pytest.raises(CertifyError, match=r"logits on \(0, 2, 3, 1\) are not finite \(nan\)"):
            certify(rnn, STRING[:4], None, PerturbationSpace([(Duplicate(), 1)]), certifier)
