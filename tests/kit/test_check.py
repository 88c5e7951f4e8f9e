"""What counts as an integer, a number, a length and a time limit, and that nothing is expanded."""

from __future__ import annotations

import dataclasses
import math
from functools import partial

import numpy as np
import pytest
import torch

from tl_dyck.kit.check import (
    check_integer,
    check_integer_fields,
    check_lengths,
    check_number,
    check_seed,
    check_time_limit,
)
from tl_dyck.kit.errors import DyckError

integer, share = partial(check_integer, "n"), partial(check_number, "share", least=0, most=1)


@pytest.mark.parametrize(
    ("found", "value"),
    [
        *((integer(six), 6) for six in (6, np.int64(6), np.uint8(6), torch.tensor(6))),
        *((integer(edge, 1, 9), edge) for edge in (1, 9)),
        (check_time_limit(None), None),
        (check_time_limit(np.float32(0.5)), 0.5),
        (check_time_limit(2), 2.0),
        (check_number("rate", np.float64(0.5), least=0, above=True), 0.5),
        (check_lengths(np.int64(3)), (3,)),
        (check_lengths(range(3, 0, -1)), (3, 2, 1)),
        (check_lengths(n for n in (4, 2)), (4, 2)),
        (check_seed(2**63 - 1), 2**63 - 1),
    ],
)
def test_what_is_one_is_a_plain_one(found, value):
    assert (found, type(found)) == (value, type(value))


SECONDS = "time_limit must be a finite number of seconds above 0"


@pytest.mark.parametrize(
    ("call", "values", "error", "words"),
    [
        (integer, [True, 6.0, "6", None, [6], np.float64(6), torch.tensor([6, 7])], TypeError,
         "n must be an integer, got "),
        (partial(integer, least=1), [0], ValueError, "n must be at least 1, got 0"),
        (partial(integer, most=9), [10], ValueError, "n must be at most 9, got 10"),
        (partial(integer, most=9), [10**6000], ValueError, r"at most 9, got one of \d+ bits"),
        (check_time_limit, [math.nan, math.inf, -math.inf, 0, -1, 0.0, np.float32("nan")],
         ValueError, SECONDS),
        (check_time_limit, ["2", True, [2]], TypeError, "time_limit must be a number"),
        (share, [math.nan, math.inf, -1, 2, 10**400], ValueError, "share must be"),
        (partial(check_number, "rate", least=0, above=True), [0], ValueError,
         "rate must be above 0, got 0"),
        # before they are expanded
        (check_lengths, [10**12, range(10**12), iter(int, 1), [3, 10**30], range(0), [], [-1],
                         range(-1, 3)], ValueError, "lengths must be"),
        (check_lengths, ["12"], TypeError, "lengths must be an integer, got '12'"),
        (check_seed, [-1, 2**63], ValueError, "seed must be at"),
    ],
)  # fmt: skip
def test_what_is_none_is_named_however_large(call, values, error, words):
    for value in values:
        with pytest.raises(error, match=words) as caught:
            call(value)
        assert isinstance(caught.value, DyckError)
        assert len(str(caught.value)) < 200


def test_fields_become_plain_integers():
    @dataclasses.dataclass(frozen=True)
    class Box:
        size: int

        def __post_init__(self):
            check_integer_fields(self, size=1)

    assert type(Box(np.int64(3)).size) is int
    with pytest.raises(ValueError, match="size must be at least 1"):
        Box(0)
