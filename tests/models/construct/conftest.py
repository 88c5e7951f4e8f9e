"""What is true of a prefix, by a plain stack, and prefixes drawn by bracket; not the library's."""

from __future__ import annotations

import random
from collections.abc import Callable

import pytest
import torch
from torch import Tensor

from tests.enumerated import stacks
from tl_dyck import DyckLanguage


def true_probabilities(tokens: list[int], k: int, deepest: int, q: float) -> Tensor:
    """P(next token) after each token, ``[pos, 2k + 1]``."""
    rows = []
    for stack in stacks(tokens):
        chance = 1.0 if not stack else 0.0 if len(stack) == deepest else q
        row = [0.0] * (2 * k + 1)
        for t in range(k):
            row[2 * t] = chance / k
        if stack:
            row[tokens[stack[-1]] + 1] = 1 - chance
        rows.append(row)
    return torch.tensor(rows, dtype=torch.float64)


def random_prefix(language: DyckLanguage, length: int, q: float, rng: random.Random) -> list[int]:
    """BOS and `length` brackets."""
    tokens, stack = [language.bos_token], []
    for _ in range(length):
        if not stack or (len(stack) < language.max_depth and rng.random() < q):
            stack.append(rng.randrange(language.n_types))
            tokens.append(2 * stack[-1])
        else:
            tokens.append(2 * stack.pop() + 1)
    return tokens


def check_exact(
    model: object, language: DyckLanguage, tokens: list[int], q: float, tolerance: float = 1e-6
) -> None:
    """Next-token probabilities at every position, and the one right close wherever there is one."""
    with torch.no_grad():
        logits = model(torch.tensor([tokens]))[0].double()
    truth = true_probabilities(tokens, language.n_types, language.max_depth, q)
    assert (logits.softmax(-1) - truth).abs().max() <= tolerance
    closes = slice(1, 2 * language.n_types, 2)
    closable = truth[:, closes].sum(-1) > 0
    assert torch.equal(logits[closable, closes].argmax(-1), truth[closable, closes].argmax(-1))


@pytest.fixture(scope="session")
def exact() -> Callable[..., None]:
    """Check a model against the truth on one prefix."""
    return check_exact


@pytest.fixture(scope="session")
def prefix() -> Callable[..., list[int]]:
    """Draw a prefix: ``prefix(language, length, q=0.5, seed=0)``."""

    def draw(language: DyckLanguage, length: int, q: float = 0.5, seed: int = 0) -> list[int]:
        return random_prefix(language, length, q, random.Random(seed))

    return draw
