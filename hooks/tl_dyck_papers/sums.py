"""The sums that AdderBoard tests, and sums as a task writes them.

Knows: the board's ten sums at the ends, and how it draws the others.
"""

from __future__ import annotations

import random
from collections.abc import Iterable

import torch
from torch import Tensor

from tl_dyck.tasks import AutomatonTask


def written_sums(task: AutomatonTask, pairs: Iterable[tuple[int, int]]) -> Tensor:
    """Sums of two numbers as a task writes them, ``[n, places]``: what is not forced is a digit."""
    assert task.places is not None
    rows = []
    for pair in pairs:
        digits = (str(x // 10**k % 10) for k in range(10) for x in pair)
        state, row = task.start, [0] * len(task.places)
        for place in task.places:
            moves = task.moves(state)
            symbol = next(iter(moves)) if len(moves) == 1 else next(digits)
            row[place], state = task.symbols.index(symbol), moves[symbol]
        rows.append(row)
    return torch.tensor(rows)


def board_sums() -> list[tuple[int, int]]:
    """The 10,010 that the board tests: ten at the ends, and 10,000 that Python draws."""
    most, draw = 10**10 - 1, random.Random(2025)
    ends = [(0, 0), (0, 1), (most, 0), (most, 1), (most, most), (most // 2 + 1, most // 2 + 1)]
    ends += [(most // 9, most // 9 * 8 + 1), (1234567890, 9876543210), (most, most), (1, most)]
    return ends + [(draw.randint(0, most), draw.randint(0, most)) for _ in range(10_000)]
