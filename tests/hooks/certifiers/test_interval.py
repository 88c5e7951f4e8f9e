"""The interval certifier: sound on every string, exact on none but trivial spaces."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.certify.oracles import (
    READOUTS,
    STATES,
    RNNRecipe,
    SpaceRecipe,
    margins,
    random_rnn,
    rnns,
    spaces,
    strings_of,
    tokens,
)
from tl_dyck.certify import Delete, Duplicate, PerturbationSpace, Substitute
from tl_dyck_hooks.certifiers.exact import exact
from tl_dyck_hooks.certifiers.interval import interval

SPACE = PerturbationSpace(
    [(Duplicate(), 1), (Delete([1, 2]), 1), (Substitute({0: [1, 2], 3: [4], 5: [0]}), 2)]
)


@settings(max_examples=40)
@given(recipe=rnns(), space_recipe=spaces(), string=tokens(), target=st.integers(0, 1))
def test_no_string_is_below_the_bound(
    recipe: RNNRecipe, space_recipe: SpaceRecipe, string: tuple[int, ...], target: int
) -> None:
    rnn, space = recipe.build(), space_recipe.build()
    if rnn.config.bos_token is None and space.contains(string, ()):
        return
    certificate = interval(rnn, string, target, space)
    every = margins(rnn, strings_of(rnn, space, string), target)
    own = margins(rnn, [string], target)[0]
    scale = max(1.0, abs(every).max())
    assert certificate.lower <= every.min() + 1e-12 * scale
    if certificate.status == "refuted":
        assert own < 0
    assert certificate.worst is not None
    assert certificate.worst.tokens == string


@pytest.mark.parametrize("sharpness", [20.0, 400.0, 8000.0])
@pytest.mark.parametrize("readout", [{}, {"act_fn": "relu"}, {"ln_c": 0.3}], ids=str)
def test_saturated_scores_stay_sound_and_finite(sharpness: float, readout: dict[str, Any]) -> None:
    """Where 1/Z overflows, a weighted mean still lies between the values: nothing is added to Z."""
    for seed in range(3):
        rnn = random_rnn(seed, sharpness=sharpness, n_heads=2, scale=0.8, **readout)
        certificate = interval(rnn, (0, 3, 1, 5, 2), 0, SPACE)
        least = margins(rnn, strings_of(rnn, SPACE, (0, 3, 1, 5, 2)), 0).min()
        assert -np.inf < certificate.lower <= least + 1e-12 * max(1.0, abs(least))


@pytest.mark.parametrize("readout", READOUTS, ids=str)
def test_a_single_string_leaves_nothing_to_join(readout: dict[str, Any]) -> None:
    rnn = random_rnn(0, state=STATES[READOUTS.index(readout) % len(STATES)], n_heads=2, **readout)
    certificate = interval(rnn, (0, 2, 4, 1, 3), 0, PerturbationSpace([(Duplicate(), 0)]))
    assert certificate.upper - certificate.lower < 1e-9
    assert certificate.status != "open"


def test_joins_lose_something_and_more_so_with_more_edits() -> None:
    """Otherwise it would not be the baseline that it claims to be."""
    rnn, string = random_rnn(2, n_heads=1), (0, 3, 1, 5, 2)
    gaps = []
    for budget in range(4):
        space = PerturbationSpace([(Substitute({0: [1, 2], 3: [4], 5: [0], 1: [4]}), budget)])
        gaps.append(exact(rnn, string, 0, space).upper - interval(rnn, string, 0, space).lower)
    assert gaps[0] < 1e-9
    assert gaps == sorted(gaps)
    assert gaps[3] > 0.1
