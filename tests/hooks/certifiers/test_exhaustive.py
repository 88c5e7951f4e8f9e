"""The exhaustive certifier: the least margin of all strings, each run once."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.certify.oracles import (
    RNNRecipe,
    SpaceRecipe,
    margins,
    random_rnn,
    rnns,
    spaces,
    strings_of,
    tokens,
)
from tl_dyck.certify import Duplicate, PerturbationSpace, SpaceTooLargeError
from tl_dyck_hooks.certifiers.exhaustive import exhaustive


@given(recipe=rnns(), space_recipe=spaces(), string=tokens(), target=st.integers(0, 1))
def test_it_finds_the_least_margin(
    recipe: RNNRecipe, space_recipe: SpaceRecipe, string: tuple[int, ...], target: int
) -> None:
    rnn, space = recipe.build(), space_recipe.build()
    if rnn.config.bos_token is None and space.contains(string, ()):
        return
    every = strings_of(rnn, space, string)
    expected = margins(rnn, every, target)
    certificate = exhaustive(rnn, string, target, space)
    scale = max(1.0, abs(expected).max())
    assert certificate.lower <= expected.min() + 1e-12 * scale
    assert certificate.upper >= expected.min() - 1e-12 * scale
    assert certificate.worst is not None
    assert certificate.worst.tokens in every
    assert certificate.stats["strings_run"] == len(every)


def test_spaces_that_are_too_large_are_refused_before_anything_runs() -> None:
    space = PerturbationSpace([(Duplicate(), 9)])
    with pytest.raises(SpaceTooLargeError, match=r"more than 100 strings around this one"):
        exhaustive(random_rnn(0), tuple(range(6)) * 3, 0, space, max_strings=100)
