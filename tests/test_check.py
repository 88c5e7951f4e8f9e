"""What counts as an integer, a number, a length and a time limit, and that nothing is expanded."""

from __future__ import annotations

import dataclasses
import math

import numpy as np
import pytest
import torch

from tl_dyck import check
from tl_dyck.errors import DyckError


@pytest.mark.parametrize("value", [6, np.int64(6), np.uint8(6), torch.tensor(6)])
def test_every_kind_of_integer_is_a_plain_one(value):
    whole = check.check_integer("n", value)
    assert whole == 6
    assert type(whole) is int


@pytest.mark.parametrize("value", [True, 6.0, "6", None, [6], np.float64(6), torch.tensor([6, 7])])
def test_what_is_no_integer_is_named(value):
    with pytest.raises(TypeError, match="n must be an integer, got ") as caught:
        check.check_integer("n", value)
    assert isinstance(caught.value, DyckError)
    assert len(str(caught.value)) < 200


def test_integers_out_of_range_are_named_however_large():
    with pytest.raises(ValueError, match="n must be at least 1, got 0"):
        check.check_integer("n", 0, least=1)
    with pytest.raises(ValueError, match="n must be at most 9, got 10"):
        check.check_integer("n", 10, most=9)
    with pytest.raises(ValueError, match=r"n must be at most 9, got one of \d+ bits"):
        check.check_integer("n", 10**6000, most=9)
    assert [check.check_integer("n", edge, 1, 9) for edge in (1, 9)] == [1, 9]


def test_fields_become_plain_integers():
    @dataclasses.dataclass(frozen=True)
    class Box:
        size: int

        def __post_init__(self):
            check.check_integer_fields(self, size=1)

    assert type(Box(np.int64(3)).size) is int
    with pytest.raises(ValueError, match="size must be at least 1"):
        Box(0)


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf, 0, -1, 0.0, np.float32("nan")])
def test_time_limits_that_never_end_or_never_begin_are_refused(value):
    with pytest.raises(ValueError, match="time_limit must be a finite number of seconds above 0"):
        check.check_time_limit(value)


def test_time_limits():
    assert check.check_time_limit(None) is None
    assert check.check_time_limit(np.float32(0.5)) == 0.5
    assert check.check_time_limit(2) == 2.0
    for wrong in ("2", True, [2]):
        with pytest.raises(TypeError, match="time_limit must be a number"):
            check.check_time_limit(wrong)


@pytest.mark.parametrize("value", [math.nan, math.inf, -1, 2, 10**400])
def test_numbers_out_of_range(value):
    with pytest.raises(ValueError, match="share must be"):
        check.check_number("share", value, least=0, most=1)


def test_numbers_above():
    assert check.check_number("rate", np.float64(0.5), least=0, above=True) == 0.5
    with pytest.raises(ValueError, match="rate must be above 0, got 0"):
        check.check_number("rate", 0, least=0, above=True)


@pytest.mark.parametrize(
    "value", [10**12, range(10**12), iter(int, 1), [3, 10**30], range(0), [], [-1], range(-1, 3)]
)
def test_lengths_are_checked_before_they_are_expanded(value):
    with pytest.raises(ValueError, match="lengths must be"):
        check.check_lengths(value)


def test_lengths():
    assert check.check_lengths(np.int64(3)) == (3,)
    assert check.check_lengths(range(3, 0, -1)) == (3, 2, 1)
    assert check.check_lengths(n for n in (4, 2)) == (4, 2)
    with pytest.raises(TypeError, match="lengths must be an integer, got '12'"):
        check.check_lengths("12")


def test_seeds():
    assert check.check_seed(2**63 - 1) == 2**63 - 1
    for wrong in (-1, 2**63):
        with pytest.raises(ValueError, match="seed must be at"):
            check.check_seed(wrong)
