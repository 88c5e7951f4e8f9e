"""Closing accuracy against loops over strings, and chance levels against all strings counted."""

from __future__ import annotations

import math
import weakref
from collections import Counter, defaultdict

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.enumerated import SMALL, closing_prefixes, stacks
from tl_dyck.reading.predict import NotCausalError
from tl_dyck.tasks import DyckTask, load_task
from tl_dyck.tasks.closing_accuracy import ClosingAccuracy, closing_strings

TALL = DyckTask(name="tall", n_types=3, max_depth=5, train_lengths=(8,), long_lengths=(6, 7))
ENUMERATED = [*SMALL, TALL]


def seeded(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


class Noise:
    """A causal "model" with random logits that depend on every token so far, and nothing else."""

    def __init__(self, d_vocab: int, seed: int) -> None:
        self.table = torch.randn(40, d_vocab, d_vocab, generator=seeded(seed), dtype=torch.float64)
        self.shapes: list[tuple[int, ...]] = []

    def __call__(self, tokens: torch.Tensor, /) -> torch.Tensor:
        self.shapes.append(tuple(tokens.shape))
        return self.table[torch.arange(tokens.shape[1]) % 40, tokens].cumsum(1)

    def right(self, prefix: tuple[int, ...], bos: int) -> bool:
        """Whether the last bracket has the largest logit, given those before."""
        logits = self(torch.tensor([[bos, *prefix[:-1]]]))[0, -1]
        return int(logits.argmax()) == prefix[-1]


def open_types(prefix: tuple[int, ...]) -> list[int]:
    row = [-1, *prefix]
    return [row[place] // 2 for place in stacks(row)[-1]]


@pytest.mark.parametrize("long", [False, True])
@pytest.mark.parametrize("task", ENUMERATED, ids=lambda task: task.name)
def test_chance_is_that_of_all_prefixes_counted(task, long):
    share, copier, counter, depths = 0.0, 0.0, 0.0, Counter()
    for prefix, p in closing_prefixes(task, long=long).items():
        stack = open_types(prefix[:-1])
        if prefix[-2] % 2 == 0:
            copier += p
            counter += p
            continue
        share += p
        depths[len(stack)] += p
        copier += p / task.n_types
        numbers = Counter(stack)
        likeliest = [kind for kind in numbers if numbers[kind] == max(numbers.values())]
        counter += p * (stack[-1] in likeliest) / len(likeliest)
    found = task.closing_chance(long=long)
    assert found.after_close_share == pytest.approx(share)
    assert (found.copier, found.counter) == pytest.approx((copier, counter))
    assert found.constant == 1 / task.n_types
    assert len(found.depth_shares) == task.max_depth - 1
    if share:
        expected = [depths[level] / share for level in range(1, task.max_depth)]
        assert found.depth_shares == pytest.approx(expected)
        assert found.counter_after_close == pytest.approx((counter - 1 + share) / share)
    else:
        assert math.isnan(found.counter_after_close)


def test_chance_as_published():
    """Figures of an independent computation for two types and depth four."""
    even = DyckTask(name="even", n_types=2, max_depth=4, long_lengths=(400, 400))
    odd = DyckTask(name="odd", n_types=2, max_depth=4, long_lengths=(401, 401))
    assert even.closing_chance(long=True).copier == pytest.approx(0.75, abs=1e-4)
    assert odd.closing_chance(long=True).copier == pytest.approx(0.875, abs=1e-4)
    assert load_task("dyck-2-4").closing_chance().copier == pytest.approx(0.852, abs=5e-4)


@pytest.mark.parametrize("long", [False, True])
@pytest.mark.parametrize("task", ENUMERATED, ids=lambda task: task.name)
def test_in_expectation_it_is_the_share_of_all_prefixes(task, long):
    """Held to every prefix with its probability, within five standard errors as it states them."""
    model, bos = Noise(task.language.d_vocab, 1), task.language.bos_token
    right: dict[str, float] = defaultdict(float)
    share: dict[str, float] = defaultdict(float)
    for prefix, p in closing_prefixes(task, long=long).items():
        depth = len(open_types(prefix[:-1]))
        kinds = ["any_token", "after_open" if prefix[-2] % 2 == 0 else f"after_close {depth}"]
        for kind in kinds:
            right[kind] += p * model.right(prefix, bos)
            share[kind] += p
    found = task.closing_accuracy(model, n=4000, long=long, seed=3)
    assert found.error is not None
    assert found.any_token == pytest.approx(right["any_token"], abs=5 * found.error + 1e-12)
    assert found.after_open == pytest.approx(right["after_open"] / share["after_open"], abs=0.06)
    for depth, value in enumerate(found.after_close_by_depth, start=1):
        kind = f"after_close {depth}"
        expected = right[kind] / share[kind] if share[kind] else None
        assert value == (expected if expected is None else pytest.approx(expected, abs=0.08))
    closes = [kind for kind in share if kind.startswith("after_close") and share[kind]]
    if closes:
        assert found.after_close == pytest.approx(
            sum(right[kind] for kind in closes) / sum(share[kind] for kind in closes),
            abs=5 * found.after_close_error + 1e-12,
        )
    else:
        assert found.after_close is None


def test_the_standard_errors_are_those_of_many_test_sets():
    task = load_task("dyck-2-4")
    model = Noise(5, 0)
    sets = [task.closing_accuracy(model, n=50, seed=seed) for seed in range(200)]
    for value, error in (("any_token", "error"), ("after_close", "after_close_error")):
        spread = np.std([getattr(found, value) for found in sets])
        stated = np.mean([getattr(found, error) for found in sets])
        assert spread == pytest.approx(stated, rel=0.25)  # five standard deviations of `spread`


@settings(max_examples=16)
@given(
    task=st.sampled_from([*SMALL, load_task("dyck-2-4"), load_task("dyck-3-8-prefix")]),
    seed=st.integers(0, 1000),
    n=st.integers(1, 20),
    chunk=st.integers(1, 30),
    long=st.booleans(),
)
def test_metric_by_hand(task, seed, n, chunk, long):
    """One closing bracket at a time, the right one found with a stack."""
    model = Noise(task.language.d_vocab, seed)
    tokens, weights = closing_strings(
        *task.closing_distribution(long=long), n=n, generator=seeded(seed)
    )
    if not weights.any():
        with pytest.raises(ValueError, match="closing bracket to predict; raise n"):
            task.closing_accuracy(model, n=n, long=long, seed=seed, chunk=chunk)
        return
    found = task.closing_accuracy(model, n=n, long=long, seed=seed, chunk=chunk)
    assert all(rows <= chunk for rows, _ in model.shapes)
    assert found.n == n
    total = any_token = closing_only = 0.0
    for row, weight in zip(tokens.tolist(), weights.tolist(), strict=True):
        for end in range(1, len(row)):
            if not weight[end]:
                continue
            assert row[end] == 2 * open_types(tuple(row[1:end]))[-1] + 1
            logits = model(torch.tensor([row[:end]]))[0, -1].tolist()
            total += weight[end]
            best_closing = max(range(1, 2 * task.n_types, 2), key=logits.__getitem__)
            any_token += weight[end] * (max(range(len(logits)), key=logits.__getitem__) == row[end])
            closing_only += weight[end] * (best_closing == row[end])
    expected = pytest.approx((any_token / total, closing_only / total))
    assert (found.any_token, found.closing_only) == expected


def test_a_model_cannot_peek():
    task = load_task("dyck-2-4")

    def peek(tokens: torch.Tensor, /) -> torch.Tensor:
        following = torch.cat([tokens[:, 1:], torch.full_like(tokens[:, :1], 4)], dim=1)
        return torch.nn.functional.one_hot(following, 5).double()

    with pytest.raises(NotCausalError, match=r"token \d+ changes .* \(by 1\)"):
        task.closing_accuracy(peek, n=300)


def test_test_data_depend_on_the_seed_alone():
    task = load_task("dyck-2-4")
    model = Noise(5, 0)
    assert task.closing_accuracy(model, n=80, seed=3) == task.closing_accuracy(
        model, n=80, seed=3, chunk=7
    )
    values = {task.closing_accuracy(model, n=80, seed=seed).any_token for seed in range(6)}
    assert len(values) > 1


def test_the_metric_keeps_the_logits_of_one_chunk():
    """However many prefixes: the model's earlier returns are let go of, with views of them."""
    task = load_task("dyck-2-4")
    returned: list[weakref.ref] = []
    alive = []

    def model(tokens: torch.Tensor, /) -> torch.Tensor:
        alive.append(sum(ref() is not None for ref in returned))
        logits = np.zeros((*tokens.shape, 5))
        returned.append(weakref.ref(logits))
        return torch.from_numpy(logits)  # lives as long as any tensor that shares its memory

    task.closing_accuracy(model, n=60, long=True, chunk=10)
    assert alive == [0, 1, 0, 0, 0, 0, 0]  # the second one sees whether the model is causal


def test_the_metric_keeps_no_gradients():
    task = load_task("dyck-2-4")
    weight = torch.ones(5, 5, requires_grad=True)
    seen = []

    def model(tokens: torch.Tensor, /) -> torch.Tensor:
        seen.append((weight * 2)[tokens].requires_grad)
        return weight[tokens]

    task.closing_accuracy(model, n=10)
    assert set(seen) == {False}


def test_it_is_printed_in_a_line_of_its_main_numbers():
    full = ClosingAccuracy(
        any_token=0.98765,
        closing_only=1.0,
        n=2000,
        error=0.0021,
        after_close=0.5,
        after_close_error=0.03,
        after_close_by_depth=(0.5, None),
    )
    assert str(full) == (
        "ClosingAccuracy(98.8% ± 0.2% of closing brackets, 50.0% ± 3.0% after a closing one; "
        "2,000 strings)"
    )
    assert "after_close_by_depth=(0.5, None)" in repr(full)
    bare = ClosingAccuracy(any_token=1.0, closing_only=1.0, n=30)
    assert str(bare) == "ClosingAccuracy(100.0% of closing brackets; 30 strings)"
