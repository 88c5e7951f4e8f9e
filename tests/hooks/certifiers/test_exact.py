"""The exact certifier against running every string, over random networks and spaces."""

from __future__ import annotations

from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from tests.certify.oracles import (
    RNNRecipe,
    SpaceRecipe,
    margins,
    rnns,
    spaces,
    strings_of,
    tokens,
)
from tl_dyck.certify import PerturbationSpace
from tl_dyck_hooks.certifiers.exact import exact

TOLERANCE = 1e-9


def check(
    rnn: Any, string: tuple[int, ...], target: int, space: PerturbationSpace, *, tight: bool, **options: Any
) -> None:
    """`exact` agrees with a list of all strings: the bounds hold, the witness is real, the verdict is right."""
    strings = strings_of(rnn, space, string)
    least = margins(rnn, strings, target).min()
    certificate = exact(rnn, string, target, space, tight=tight, **options)
    assert certificate.worst is not None
    assert certificate.worst.tokens in strings
    seen = margins(rnn, [certificate.worst.tokens], target)[0]
    # the rounding bound of the worst string's margin: proved, so wider than what the forward pass really loses
    rounding = certificate.upper - seen
    assert -1e-12 <= rounding <= 1e-6 * max(1.0, abs(seen))
    slack = TOLERANCE * max(1.0, abs(least)) + 2 * rounding
    assert certificate.lower <= least + 1e-12
    assert certificate.upper >= least - 1e-12
    if tight:
        assert certificate.upper - certificate.lower <= 2 * slack + 1e-6 * max(1.0, abs(seen))
    if abs(least) > slack:
        assert certificate.status == ("certified" if least > 0 else "falsified")
    else:
        assert certificate.status != ("certified" if least < 0 else "falsified")


@settings(max_examples=80)
@given(
    rnn_recipe=rnns(),
    space_recipe=spaces(),
    string=tokens(),
    target=st.integers(0, 1),
    tight=st.booleans(),
    few=st.booleans(),
)
def test_exact_is_exhaustive(
    rnn_recipe: RNNRecipe, space_recipe: SpaceRecipe, string: tuple[int, ...], target: int, tight: bool, few: bool
) -> None:
    rnn, space = rnn_recipe.build(), space_recipe.build()
    if not strings_of(rnn, space, string) or (rnn.config.bos_token is None and space.contains(string, ())):
        return
    check(rnn, string, target, space, tight=tight, max_listed=4 if few else 2048)
