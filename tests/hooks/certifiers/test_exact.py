"""The exact certifier against running every string, over random networks and spaces."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.cases import CASES, Case, thinned
from tests.certify.oracles import (
    READOUTS,
    Problem,
    RNNRecipe,
    SpaceRecipe,
    favouring,
    margins,
    problems,
    random_rnn,
    rnns,
    spaces,
    strings_of,
    tokens,
)
from tl_dyck.certify import Delete, Duplicate, PerturbationSpace, Substitute, SwapAdjacent, certify
from tl_dyck.certify.exact.network import Network
from tl_dyck.certify.objectives import Objectives
from tl_dyck.rnn import TwoLayerRNN, export_rnn
from tl_dyck_hooks.certifiers.exact import exact

TOLERANCE = 1e-9


def check(
    rnn: Any,
    string: tuple[int, ...],
    target: int,
    space: PerturbationSpace,
    *,
    tight: bool,
    **options: Any,
) -> None:
    """`exact` agrees with a list of all strings: bounds hold, witness is real, verdict is right.

    What a search may leave between the proved and the seen margin is its tolerance, 1e-9 · max(1,
    |margin|), and the rounding of the strings' own margins: a listed string proves mid - rad and is
    seen at mid + rad, and with one head and a linear readout the first proof is tried four radii
    below what was seen. The largest radius was 2e-9 of the margin in 68 random networks (for most
    2e-10 or less), and 1e-8 with scores beyond ±1000.
    """
    strings = strings_of(rnn, space, string)
    least = margins(rnn, strings, target).min()
    radius = (
        Network(rnn)
        .values_of(strings, Objectives.margins(target, rnn.config.d_vocab_out))
        .rad.max()
    )
    # most spaces of tests are so small that they would be run, and nothing bounded
    options = {"always_listed": 0, **options}
    certificate = exact(rnn, string, target, space, tight=tight, **options)
    assert certificate.worst is not None
    assert certificate.worst.tokens in strings
    seen = margins(rnn, [certificate.worst.tokens], target)[0]
    assert -1e-12 <= certificate.upper - seen <= 2 * radius + 1e-12
    slack = TOLERANCE * max(1.0, abs(certificate.upper)) + 4 * radius
    assert certificate.lower <= least + 1e-12
    assert certificate.upper >= least - 1e-12
    if tight:
        assert certificate.upper - certificate.lower <= slack
    if abs(least) > slack:
        assert certificate.status == ("proved" if least > 0 else "refuted")
    else:
        assert certificate.status != ("proved" if least < 0 else "refuted")


def readable(rnn: TwoLayerRNN, space: PerturbationSpace, string: tuple[int, ...]) -> bool:
    """Whether the model has logits on every string; without BOS it has none on the empty one."""
    return rnn.config.bos_token is not None or not space.contains(string, ())


@settings(max_examples=14)
@given(
    recipe=rnns(),
    problem=problems(),
    target=st.integers(0, 1),
    tight=st.booleans(),
    few=st.sampled_from([4, 2048]),
    small=st.sampled_from([0, 1, 64]),
)
def test_exact_is_exhaustive(
    recipe: RNNRecipe, problem: Problem, target: int, tight: bool, few: int, small: int
) -> None:
    """Edits meet the string; most parts are bounded and split, not listed, so a lost one shows."""
    rnn, (space, string) = recipe.build(), problem.build()
    if readable(rnn, space, string):
        check(rnn, string, target, space, tight=tight, max_listed=few, always_listed=small)


@settings(max_examples=18)
@given(
    rnn_recipe=rnns(),
    space_recipe=spaces(),
    string=tokens(),
    target=st.integers(0, 1),
    small=st.sampled_from([0, 64]),
)
def test_exact_is_exhaustive_on_short_strings_and_odd_spaces(
    rnn_recipe: RNNRecipe,
    space_recipe: SpaceRecipe,
    string: tuple[int, ...],
    target: int,
    small: int,
) -> None:
    """Strings of one word, budgets of 0, edits of words that do not occur."""
    rnn, space = rnn_recipe.build(), space_recipe.build()
    if readable(rnn, space, string):
        check(rnn, string, target, space, tight=True, always_listed=small)


@settings(max_examples=12)
@given(
    recipe=rnns([{}, {"residual": False}, {"ln1": "ln"}], max_heads=1),
    problem=problems(),
    target=st.integers(0, 1),
)
def test_one_head_and_a_linear_readout_need_no_search(
    recipe: RNNRecipe, problem: Problem, target: int
) -> None:
    rnn, (space, string) = recipe.build(), problem.build()
    if readable(rnn, space, string):
        check(rnn, string, target, space, tight=True)
        assert "parts" not in exact(rnn, string, target, space).stats


@settings(max_examples=7)
@given(
    recipe=rnns(sharpness=(60.0, 1000.0, 30_000.0)), problem=problems(), target=st.integers(0, 1)
)
def test_saturated_attention(recipe: RNNRecipe, problem: Problem, target: int) -> None:
    """Softmax is a hard maximum, weights underflow; which token wins depends on the edits."""
    rnn, (space, string) = recipe.build(), problem.build()
    if readable(rnn, space, string):
        check(rnn, string, target, space, tight=True, always_listed=8)


WIDE = PerturbationSpace(
    [(Duplicate(), 1), (Delete([1, 2]), 1), (Substitute({0: [1, 2], 3: [4], 5: [0]}), 2)]
)


def test_ties_are_unknown() -> None:
    """Two classes with the same weights: all margins are 0, and neither verdict may be claimed."""
    rnn = random_rnn(0, n_heads=2, act_fn="relu", d_vocab_out=2)
    weights = {name: weight.clone() for name, weight in rnn.weights.items()}
    weights["W_U"][:, 1], weights["b_U"][1] = weights["W_U"][:, 0], weights["b_U"][0]
    certificate = exact(type(rnn)(rnn.config, weights), (0, 3, 1), 0, WIDE)
    assert certificate.status == "open"
    assert certificate.lower <= 0 <= certificate.upper
    assert certificate.upper - certificate.lower < 1e-8


def test_a_tie_with_one_string_is_not_certified() -> None:
    """The margin is shifted so that the worst string sits exactly at 0."""
    rnn = random_rnn(3, d_vocab_out=2)
    least = margins(rnn, strings_of(rnn, WIDE, (0, 3, 1)), 0).min()
    for listed in (0, None):
        found = exact(favouring(rnn, 1, least), (0, 3, 1), 0, WIDE, always_listed=listed)
        assert found.status == "open"


@pytest.mark.parametrize("fields", [{}, {"state": "position"}, {"act_fn": "relu", "n_heads": 2}])
def test_small_spaces_are_run_and_large_ones_bounded(fields: dict[str, Any]) -> None:
    rnn, few = random_rnn(3, **fields), PerturbationSpace([(Duplicate(), 1)])
    many = PerturbationSpace([(Duplicate(), 2), (SwapAdjacent(), 2), (Delete(None), 1)])
    for space, string in ((few, (0, 3, 1)), (many, (0, 3, 1, 2, 4, 1, 5))):
        check(rnn, string, 0, space, tight=True, always_listed=None)
    found, size = exact(rnn, (0, 3, 1), 0, few), few.size((0, 3, 1))
    assert dict(found.stats) == {"strings_run": size}  # no graph was laid out
    assert "nodes" in exact(rnn, (0, 3, 1, 2, 4, 1, 5), 0, many).stats
    assert "nodes" in exact(rnn, (0, 3, 1), 0, few, always_listed=0).stats


def test_verdicts_are_right_up_to_rounding() -> None:
    for at, readout in enumerate(READOUTS):
        rnn = random_rnn(3, d_vocab_out=2, n_heads=2, **readout)
        least = exact(rnn, (0, 3, 1), 0, WIDE, tight=True).upper
        for shift, status in ((1e-6, "proved"), (-1e-6, "refuted")):
            shifted = favouring(rnn, 1, least - shift)
            listed = None if at % 4 == 0 else 0  # None: all are run
            assert exact(shifted, (0, 3, 1), 0, WIDE, always_listed=listed).status == status


def test_many_heads_share_few_patterns() -> None:
    """Beyond four heads, the rest get the penalty of a fixed weight; still exact."""
    rnn = random_rnn(1, n_heads=7, scale=0.3)
    check(rnn, (0, 3, 1, 5), 0, WIDE, tight=True, max_listed=8)
    check(
        random_rnn(2, n_heads=6, act_fn="relu", scale=0.3),
        (0, 3, 1, 5),
        0,
        WIDE,
        tight=True,
        max_listed=8,
    )


def test_branching_to_the_end() -> None:
    """With nothing listed but the smallest parts, branching alone must come to the same answer."""
    for seed, readout in enumerate(READOUTS[::2]):
        rnn = random_rnn(seed, n_heads=2, state="position", **readout)
        check(rnn, (0, 3, 1), 0, WIDE, tight=True, max_listed=1)


@pytest.mark.parametrize(
    "readout", [{}, {"act_fn": "gelu", "ln2": "ln", "ln_final": "ln"}], ids=str
)
def test_out_of_time(readout: dict[str, Any]) -> None:
    """Whatever was proved by then holds, and the certificate says that time ran out."""
    rnn = random_rnn(4, n_heads=2, d_vocab_out=2, **readout)
    string = (0, 3, 1, 5, 2, 4)
    space = PerturbationSpace(
        [(Duplicate(), 1), (Substitute({t: [0, 1, 2, 3, 4, 5] for t in range(6)}), 2)]
    )
    least = exact(rnn, string, 0, space, tight=True).upper
    weights = {name: weight.clone() for name, weight in rnn.weights.items()}
    weights["b_U"][1] += least - 0.001  # certified, but barely
    close = type(rnn)(rnn.config, weights)
    true = exact(close, string, 0, space, tight=True)
    assert true.status == "proved"
    bounds = []
    for seconds in (1e-6, 0.02, 0.1):
        early = exact(close, string, 0, space, time_limit=seconds)
        assert early.lower <= true.upper
        assert early.upper >= true.lower
        bounds.append(early.lower)
        if early.status == "open":
            assert "time limit" in early.reason
    assert bounds[0] == -float("inf")


@pytest.mark.parametrize("entry", thinned(CASES), ids=lambda entry: entry.name)
def test_every_model_of_the_table(entry: Case) -> None:
    """Every model that exports: exact against all strings, run by the model itself in float64."""
    model = entry.build(torch.float64)
    rnn = export_rnn(model)
    bos = rnn.config.bos_token
    words = [t for t in range(min(rnn.config.d_vocab, 4)) if t != bos]
    if rnn.config.d_vocab_out < 2 or len(words) < 2:
        return
    string = tuple(words[i % len(words)] for i in (0, 1, 0, 1))
    space = PerturbationSpace(
        [(Duplicate(), 1), (Substitute({words[0]: words[1:3]}), 1), (SwapAdjacent(), 1)]
    )
    certificate = certify(model, string, None, space, tight=True)
    strings = strings_of(rnn, space, string)
    least = np.inf
    with torch.no_grad():
        for text in strings:
            logits = (
                model(torch.tensor([text if bos is None else (bos, *text)]))[0, -1].double().numpy()
            )
            least = min(
                least, logits[certificate.target] - np.delete(logits, certificate.target).max()
            )
    scale = max(1.0, abs(least))
    assert certificate.lower - 1e-9 * scale <= least <= certificate.upper + 1e-9 * scale
    if abs(least) > 1e-6 * scale:
        assert certificate.status == ("proved" if least > 0 else "refuted")
        assert certificate.upper - certificate.lower < 1e-5 * scale
