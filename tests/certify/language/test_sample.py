"""Errors from a sample, against every prefix; and the interval against exact fractions."""

from __future__ import annotations

import itertools
import math
from fractions import Fraction
from typing import Any

import numpy as np
import pytest

from tests.certify.language.test_decide import TASK, random_model, task_of
from tl_dyck.certify import CertifyError
from tl_dyck.certify import deadline as clock
from tl_dyck.certify.deadline import Deadline
from tl_dyck.certify.language import SampledError, certify_language, sample, sample_error
from tl_dyck.intervals import share
from tl_dyck.models import construct


def tail(n: int, least: int, p: Fraction) -> Fraction:
    """P(X ≥ least) of a binomial variable, exactly."""
    return sum(
        (Fraction(math.comb(n, k)) * p**k * (1 - p) ** (n - k) for k in range(least, n + 1)),
        Fraction(0),
    )


@pytest.mark.parametrize(("wrong", "n"), [(0, 40), (1, 40), (7, 60), (60, 60)])
@pytest.mark.parametrize("level", [0.9, 1 - 1e-9])
def test_an_interval_is_clopper_and_pearson_s(wrong: int, n: int, level: float) -> None:
    """At its ends what was seen, or more (less), has probability (1 - level) / 2."""
    found, half = share(wrong, n, level=level), (1 - Fraction(level)) / 2
    if wrong:
        assert float(tail(n, wrong, Fraction(found.low)) / half) == pytest.approx(1, rel=1e-3)
    else:
        assert found.low == 0
    if wrong < n:
        least = 1 - tail(n, wrong + 1, Fraction(found.high))
        assert float(least / half) == pytest.approx(1, rel=1e-3)
    else:
        assert found.high == 1


@pytest.mark.parametrize(
    ("family", "options", "name"),
    [
        *(("minimal-onehot", {}, name) for name in ("any_token", "closing_only", "valid_token")),
        ("gpt-linear", {}, "closing_only"),
        ("eq6", {"n_layers": 2}, "valid_token"),
    ],
)
def test_the_exact_error_lies_within(family: str, options: dict[str, Any], name: str) -> None:
    model = random_model(family, TASK, seed=2, scale=2.0, **options)
    exact = certify_language(model, TASK, [5, 6], name).by_length
    for row, found in zip(exact, sample_error(model, TASK, [6, 5], name, n=1000), strict=True):
        assert (row.length, row.decided, found.n) == (found.length, True, 1000)
        assert found.error.low <= row.error.low <= found.error.high
        spread = math.sqrt(row.error.low * (1 - row.error.low) / found.n)
        assert found.wrong / found.n == pytest.approx(row.error.low, abs=4 * spread + 1e-12)


def test_a_doubt_counts_as_either() -> None:
    task = task_of(1, 3)  # one type: after [ both brackets have probability 1/2
    (found,) = sample_error(construct.uniform_attention(task.language), task, 9, n=50)
    assert (found.wrong, found.error.low) == (0, 0.0)
    assert 0 < found.doubtful <= 50
    assert found.error.high == share(found.doubtful, 50, level=1 - 1e-9).high


def test_long_prefixes_and_what_is_said() -> None:
    model = construct.uniform_attention(TASK.language)
    (found,) = sample_error(model, "dyck-2-4", np.int64(450), n=np.int64(1000), seed=1)
    assert found.error.low == 0
    assert found.error.high == pytest.approx(1 - 5e-10 ** (1 / 1000), rel=1e-6)
    assert str(found) == "0, in [0, 0.0212]: sampled, 1,000 prefixes, level 1 - 1e-09"
    plain = found.to_dict()
    assert (plain["length"], plain["seed"], plain["wrong"]) == (450, 1, 0)
    assert plain["error_high"] == found.error.high


def test_a_seed_gives_the_same_sample() -> None:
    model = random_model("minimal-onehot", TASK, seed=2)
    one, two, other = (sample_error(model, TASK, 9, n=400, seed=seed)[0] for seed in (5, 5, 6))
    assert one == two
    assert one.wrong != other.wrong


def test_without_time_nothing_is_known() -> None:
    (found,) = sample_error(random_model("eq6", TASK, 0), TASK, 9, time_limit=1e-9)
    assert isinstance(found, SampledError)
    assert (found.n, found.error) == (0, (0, 1))
    assert str(found).startswith("[0, 1]: sampled, 0 prefixes")


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"lengths": []}, "lengths must be one to"),
        ({"lengths": [0, 3]}, "lengths must be at least 1"),
        ({"lengths": 1001}, "lengths must be at most 1000"),
        ({"lengths": 100}, "ask for lengths up to 63"),
        ({"lengths": 5, "n": 0}, "n must be at least 1"),
        ({"lengths": 5, "level": 1.0}, "level must be at most"),
        ({"lengths": 5, "level": 0}, "level must be above 0"),
        ({"lengths": 5, "seed": -1}, "seed must be at least 0"),
        ({"lengths": 5, "time_limit": math.nan}, "time_limit must be a finite"),
        ({"lengths": 5, "property": "kl"}, "needs epsilon"),
    ],
)
def test_what_is_refused(options: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        sample_error(random_model("minimal-onehot", TASK, 0), TASK, **options)


def test_a_length_of_which_the_claim_says_nothing_is_refused() -> None:
    task = task_of(2, 1)
    model = random_model("minimal-onehot", task, 0)
    assert sample_error(model, task, 5, n=10)[0].n == 10
    with pytest.raises(CertifyError, match="says nothing of prefixes of 6 brackets"):
        sample_error(model, task, 6)


def test_of_what_was_cut_off_the_interval_is_of_what_was_drawn(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Not of what was asked for: half of the prefixes that were judged are wrong."""
    monkeypatch.setattr(sample, "_AT_ONCE", 10)
    looks = itertools.count()
    monkeypatch.setattr(clock, "now", lambda: float(next(looks)))
    found = sample.draw_errors(lambda n, *rest: (n // 2, 0), 5, 1000, Deadline(2.5), 0.95)
    assert 0 < found.n < 1000
    assert found.wrong == found.n // 2
    assert found.error.low < 0.5 < found.error.high
