"""What tasks of any language do to draw strings: check lengths, take a seed, mix lengths."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, SupportsIndex

import torch
from jaxtyping import Int
from torch import Tensor

from tl_dyck.kit.check import LONGEST, MOST_DRAWS, check_integer, check_lengths, check_seed


def check_task_lengths(task: Any, most: int = LONGEST) -> None:
    """Store a task's lengths as tuples of plain integers, if they are lengths that one can have.

    The task is a frozen dataclass in its ``__post_init__``; `most` is its longest string.
    """
    for name in ("train_lengths", "long_lengths"):
        lengths = check_lengths(getattr(task, name), name, least=1, most=most)
        object.__setattr__(task, name, lengths)
    long_lengths = task.long_lengths
    if len(long_lengths) != 2 or long_lengths[0] > long_lengths[1]:
        raise ValueError(
            f"long_lengths must be a shortest and a longest length, not {long_lengths[:5]}"
        )


def of_mixed_lengths(
    n: SupportsIndex,
    lengths: Sequence[int],
    draw: Callable[[int, int], Int[Tensor, "string symbol"]],
    bos_token: int,
    generator: torch.Generator,
) -> Int[Tensor, "n pos"]:
    """Strings whose lengths are drawn uniformly: BOS, then symbols, filled up with BOS.

    Args:
        n: number of strings.
        lengths: to draw from.
        draw: gives so many strings of a length.
        bos_token: of the language.
        generator: of the lengths.
    """
    n = check_integer("n", n, least=0, most=MOST_DRAWS)
    chosen = torch.tensor(lengths)[torch.randint(len(lengths), (n,), generator=generator)]
    tokens = torch.full((n, 1 + max(lengths)), bos_token)
    for length in chosen.unique().tolist():
        rows = (chosen == length).nonzero()[:, 0]
        tokens[rows, 1 : length + 1] = draw(len(rows), length)
    return tokens


def seeded(generator: torch.Generator | None, seed: SupportsIndex | None) -> torch.Generator:
    """The generator, or a new one of that seed; a ValueError unless one of the two is given."""
    if (generator is None) == (seed is None):
        raise ValueError("give a generator or a seed, one of the two: task.sample(3, seed=0)")
    if generator is not None:
        return generator
    return torch.Generator().manual_seed(check_seed(seed))
