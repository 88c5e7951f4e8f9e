"""What would have no end, or ask for all memory, is refused at once; what has no order, too."""

from __future__ import annotations

import time
from typing import Any

import pytest
import torch

from tl_dyck import AutomatonTask, DyckLanguage, DyckTask, Vocabulary
from tl_dyck.language import VocabularyError
from tl_dyck.models import get_config

LANGUAGE = DyckLanguage(2, 4)
VOCABULARY = Vocabulary(LANGUAGE, (4, 5, 2, 3), bos=1, padding=0)


def counting(lengths: Any, **fields: Any) -> AutomatonTask:
    values: dict[str, Any] = {
        "name": "counter", "symbols": ("a", "b"), "start": 0, "long_lengths": (10, 20),
        "moves": lambda n: {"a": n + 1, **({"b": n - 1} if n else {})},
    }  # fmt: skip
    return AutomatonTask(**{**values, **fields}, train_lengths=lengths)


def task(**fields: Any) -> DyckTask:
    return DyckTask(**{"name": "x", "n_types": 2, "max_depth": 4, **fields})


ONCE = {"moves": lambda n: {"a": n, "b": n}}


@pytest.mark.parametrize(
    ("call", "said"),
    [
        (lambda: counting((10**9,)), "train_lengths must be at most 100000"),
        (lambda: counting((2,), long_lengths=(2, 10**9)), "long_lengths must be at most 100000"),
        (lambda: counting((20_000,)), "more than 50,000,000 entries"),
        (lambda: task(n_types=10**9), "n_types must be at most 10000, got 1000000000"),
        (lambda: task(max_depth=10**12), "max_depth must be at most 10000000"),
        (lambda: task(train_lengths=range(2, 10**12, 2)), "train_lengths must be at most 10000000"),
        (lambda: Vocabulary(LANGUAGE, (0, 1, 2, 2**70), bos=9), "id of a bracket must be at most"),
        (
            lambda: get_config("minimal-yao", task(max_depth=10**7)),
            "table of a minimal first layer",
        ),
    ],
)  # fmt: skip
@pytest.mark.filterwarnings("ignore")
def test_no_end_is_refused_at_once(call: Any, said: str) -> None:
    start = time.perf_counter()
    with pytest.raises(ValueError, match=said) as refusal:
        call()
    assert time.perf_counter() - start < 5
    assert len(str(refusal.value)) < 400
    assert "\n" not in str(refusal.value)


def test_long_strings_of_few_states_are_drawn() -> None:
    drawn = counting((100_000,), **ONCE).sample(1, seed=0)
    assert drawn.shape == (1, 100_001)


@pytest.mark.parametrize("given", [{4, 5, 2, 3}, frozenset({4, 5, 2, 3})])
def test_a_set_has_no_order(given: Any) -> None:
    with pytest.raises(TypeError):
        Vocabulary(LANGUAGE, given, bos=1)


@pytest.mark.parametrize("dtype", [torch.float64, torch.float16, torch.bool, torch.complex64])
def test_ids_are_integers(dtype: torch.dtype) -> None:
    with pytest.raises(TypeError):
        VOCABULARY.to_ours(torch.tensor([[1, 4]]).to(dtype))


@pytest.mark.parametrize("dtype", [torch.int64, torch.int32, torch.int16])
def test_ids_become_ours_whatever_integers_they_are(dtype: torch.dtype) -> None:
    """By a dictionary, written by hand."""
    ours = {1: 4, 0: 4, 4: 0, 5: 1, 2: 2, 3: 3}
    ids = [[1, 4, 2, 3, 5, 0, 0], [1, 2, 3, 4, 5, 4, 5]]
    found = VOCABULARY.to_ours(torch.tensor(ids, dtype=dtype))
    assert found.tolist() == [[ours[token] for token in row] for row in ids]


@pytest.mark.parametrize("token", [6, -1, 2**40, 2**62, -(2**40)])
def test_an_id_that_is_not_named_costs_nothing(token: int) -> None:
    with pytest.raises(VocabularyError, match=rf"id {token} is not named"):
        VOCABULARY.to_ours(torch.tensor([[1, 4, token]]))
    big = Vocabulary(DyckLanguage(1, 1), (2**40, 7), bos=2**41)
    assert big.to_ours(torch.tensor([2**41, 2**40, 7])).tolist() == [2, 0, 1]
