"""Perturbation spaces against a recursive definition that shares no code with them."""

from __future__ import annotations

import inspect
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.certify.oracles import SpaceRecipe, brute_force, spaces, tokens
from tl_dyck.certify import (
    Delete,
    Duplicate,
    Edit,
    Insert,
    PerturbationSpace,
    SpaceError,
    SpaceTooLargeError,
    Substitute,
    SwapAdjacent,
    Transformation,
    apply_edits,
)
from tl_dyck.certify.transformations import as_tokens


@settings(max_examples=150)
@given(recipe=spaces(), string=tokens())
def test_a_space_is_what_its_definition_says(recipe: SpaceRecipe, string: tuple[int, ...]) -> None:
    space = recipe.build()
    every = brute_force(space, string)
    distinct = {text for text, _ in every}
    listed = list(space.enumerate(string))
    assert listed == sorted(distinct)
    assert space.size(string) == len(distinct)
    assert space.n_edit_paths(string) == len(every)
    (shortest, longest), (low, high) = (
        space.lattice(string).length_range(),
        space.lattice(string).length_bounds(),
    )
    assert (shortest, longest) == (min(map(len, distinct)), max(map(len, distinct)))
    assert low <= shortest <= longest <= high
    assert string in distinct


@settings(max_examples=60)
@given(recipe=spaces(), string=tokens(4), others=st.lists(tokens(6), max_size=6))
def test_membership_and_the_fewest_edits(
    recipe: SpaceRecipe, string: tuple[int, ...], others: list[tuple[int, ...]]
) -> None:
    space = recipe.build()
    fewest: dict[tuple[int, ...], int] = {}
    for text, count in brute_force(space, string):
        fewest[text] = min(count, fewest.get(text, count))
    for candidate in {*others, *list(fewest)[::7], ()}:
        assert space.contains(string, candidate) == (candidate in fewest)
        edits = space.edits(string, candidate)
        if candidate not in fewest:
            assert edits is None
            continue
        assert edits is not None
        assert len(edits) == fewest[candidate]
        assert apply_edits(string, edits) == candidate
        used = Counter(edit.transformation for edit in edits)
        assert all(used[t.name] <= budget for t, budget in space.transformations)


def test_samples_are_uniform_over_distinct_strings() -> None:
    # 0 1 1: deleting either 1 gives the same string, which must not be drawn twice as often
    space = PerturbationSpace([(Delete([1]), 1), (Substitute({0: [2]}), 1)])
    drawn = Counter(space.sample((0, 1, 1), 2000, generator=torch.Generator().manual_seed(0)))
    assert drawn.keys() == {(0, 1, 1), (0, 1), (2, 1, 1), (2, 1)}
    # five standard deviations of a binomial with p = 1/4
    assert all(abs(count - 500) < 5 * (2000 * 0.25 * 0.75) ** 0.5 for count in drawn.values())


def test_samples_are_reproducible_and_leave_global_randomness_alone() -> None:
    space = PerturbationSpace([(Duplicate(), 2)])
    draws = [
        space.sample(range(9), 5, generator=torch.Generator().manual_seed(seed))
        for seed in (1, 1, 2)
    ]
    assert draws[0] == draws[1] != draws[2]


def test_sizes_are_exact_where_floats_are_not() -> None:
    """C(200, ≤ 20) choices of doubled words, all distinct strings."""
    import math

    n, budget = 100, 15
    size = sum(math.comb(n, k) for k in range(budget + 1))
    assert size > 2**53
    assert PerturbationSpace([(Duplicate(), budget)]).size(range(n)) == size


def test_long_strings_need_no_deep_recursion() -> None:
    string = tuple(range(1200))
    assert PerturbationSpace([(SwapAdjacent(), 1)]).size(string) == 1200
    assert PerturbationSpace([(Duplicate(), 1)]).contains(string, (0, *string))


SWAP_AND_INSERT = [(SwapAdjacent(), 1), (Insert([(7,)]), 1)]


@pytest.mark.parametrize(
    ("transformations", "string", "inside", "outside"),
    [
        ([(Insert([(7,)]), 2), (Insert([(8,)]), 2)], (0,), (8, 0, 7), (7, 8, 0)),  # one at a gap
        ([(Insert([(7,)]), 2), (Insert([(8,)]), 2)], (0,), (0, 7), (0, 7, 8)),
        (SWAP_AND_INSERT, (0, 1), (1, 0, 7), (1, 7, 0)),  # none inside a rewritten span
        ([(Substitute({0: [1], 1: [2]}), 2)], (0,), (1,), (2,)),  # nothing is rewritten twice
        ([(Duplicate(), 1)], torch.tensor([0, 1]), torch.tensor([0, 0, 1]), (0, 0, 1, 1)),
    ],
)
def test_what_the_definition_leaves_open(
    transformations: Any, string: Any, inside: Any, outside: Any
) -> None:
    space = PerturbationSpace(transformations)
    assert space.contains(string, inside)
    assert not space.contains(string, outside)


@pytest.mark.parametrize(
    ("budgets", "message"),
    [
        ([-1], "budget of Duplicate"),
        ([True], "budget of Duplicate"),
        ([1, 2], "listed twice"),
    ],
)
def test_bad_lists_are_refused(budgets: list[Any], message: str) -> None:
    with pytest.raises(SpaceError, match=message):
        PerturbationSpace([(Duplicate(), budget) for budget in budgets])


@dataclass(frozen=True)
class Reverse(Transformation):
    """A user's own transformation, as the documentation shows it."""

    name = "rev"

    def rewrites(
        self, tokens: tuple[int, ...], position: int
    ) -> Iterator[tuple[int, tuple[int, ...]]]:
        if position + 3 <= len(tokens):
            yield 3, tokens[position : position + 3][::-1]


def test_a_transformation_of_ones_own() -> None:
    space = PerturbationSpace([(Reverse(), 1), (Duplicate(), 1)])
    string = (0, 1, 2, 3)
    assert set(space.enumerate(string)) == {text for text, _ in brute_force(space, string)}
    assert space.edits(string, (2, 1, 0, 3, 3)) == (
        Edit("rev", 0, (0, 1, 2), (2, 1, 0)),
        Edit("dup", 3, (3,), (3, 3)),
    )


@pytest.mark.parametrize(
    "yielded",
    [
        *[(5, (1,)), (-1, (1,)), (1.0, (1,)), (True, (1,)), (1, [1])],
        *[(0, (2.5,)), (0, (True,)), (0, (-1,)), (0, (np.int64(1),)), (0, ("a",))],
        *[(0, (1,), 2), 1, None],
    ],
)
def test_a_transformation_that_yields_nonsense_is_named(yielded: object) -> None:
    class Broken(Transformation):
        name = "broken"

        def rewrites(
            self, tokens: tuple[int, ...], position: int
        ) -> list[tuple[int, tuple[int, ...]]]:
            return None if yielded is None else [yielded]  # type: ignore[list-item, return-value]

    with pytest.raises(SpaceError, match=r"Broken.*yields"):
        PerturbationSpace([(Broken(), 1)]).size((0, 1))


def test_listing_refuses_large_spaces_before_it_begins() -> None:
    space = PerturbationSpace([(Duplicate(), 2)])
    with pytest.raises(SpaceTooLargeError, match="more than 1,000 strings"):
        space.enumerate(range(50), limit=1000)
    assert len(list(space.enumerate(range(50), limit=1276))) == 1276


@pytest.mark.parametrize("string", [[0.5], [[1, 2]], 7])
def test_they_are_refused_without_the_tests_type_checker_too(string: object) -> None:
    with pytest.raises(TypeError, match="a string is a 1-dimensional sequence of token ids, not"):
        inspect.unwrap(as_tokens)(string)  # type: ignore[arg-type]


def test_edits_that_do_not_fit_are_refused() -> None:
    with pytest.raises(SpaceError, match="does not fit"):
        apply_edits((0, 1), [Edit("sub", 0, (1,), (2,))])
    with pytest.raises(SpaceError, match="does not fit"):
        apply_edits((0, 1), [Edit("swap", 0, (0, 1), (1, 0)), Edit("sub", 1, (1,), (2,))])
    with pytest.raises(SpaceError, match="does not fit"):
        apply_edits((0, 1), [Edit("ins", 1, (), (7,)), Edit("ins", 1, (), (8,))])
