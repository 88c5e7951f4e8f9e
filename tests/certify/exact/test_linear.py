"""One head and a linear readout: verdicts near ties."""

from __future__ import annotations

import pytest

from tests.certify.oracles import STATES, favouring, margins, random_rnn, strings_of
from tl_dyck.certify import Delete, Duplicate, PerturbationSpace, Substitute
from tl_dyck_hooks.certifiers.exact import exact

STRING = (0, 3, 1, 5)
SPACE = PerturbationSpace(
    [(Duplicate(), 1), (Delete([1, 5]), 1), (Substitute({0: [1, 2], 3: [4], 5: [0]}), 2)]
)


@pytest.mark.parametrize("shift", [1e-3, 1e-6, 1e-8])
@pytest.mark.parametrize("sharpness", [1.0, 30.0, 1000.0])
def test_near_ties_are_those_of_running_every_string(sharpness: float, shift: float) -> None:
    """The least margin is set to ± shift by enumeration; weights underflow at the sharpest."""
    for seed in range(10):
        rnn = random_rnn(seed, sharpness=sharpness, d_vocab_out=2, state=STATES[seed % len(STATES)])
        least = margins(rnn, strings_of(rnn, SPACE, STRING), 0).min()
        for sign, status in ((1, "certified"), (-1, "falsified")):
            tied = favouring(rnn, 1, least - sign * shift)
            found = exact(tied, STRING, 0, SPACE, always_listed=0)  # else all are run
            assert found.status == status
            assert found.lower <= sign * shift + 1e-12
            assert found.upper >= sign * shift - 1e-12
