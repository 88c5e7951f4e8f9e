"""All strings of small tasks, with their probabilities, grown bracket by bracket."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any

from tl_dyck.tasks import DyckTask

SMALL = [
    DyckTask(name="a", n_types=2, max_depth=2, train_lengths=(2, 4), long_lengths=(2, 5)),
    DyckTask(name="b", n_types=1, max_depth=3, q=0.3, train_lengths=(6,), long_lengths=(3, 6)),
    DyckTask(name="c", n_types=1, max_depth=1, train_lengths=(2, 6), long_lengths=(4, 7)),
    DyckTask(
        name="d",
        n_types=2,
        max_depth=2,
        mode="prefix",
        train_lengths=(1, 2, 3, 4),
        long_lengths=(4, 4),
    ),
    DyckTask(
        name="e",
        n_types=3,
        max_depth=4,
        mode="prefix",
        q=0.8,
        train_lengths=(3, 1),
        long_lengths=(2, 3),
    ),
]


def grown(n_types: int, max_depth: int, q: Any, length: int) -> dict[tuple[int, ...], Any]:
    """Every prefix of a length and its probability under D(q, k, D), grown bracket by bracket.

    Exact, if q is a fraction.
    """
    found = {(): (q / q, ())}
    for _ in range(length):
        longer = {}
        for string, (p, stack) in found.items():
            opening = 1 if not stack else 0 if len(stack) == max_depth else q
            for kind in range(n_types):
                if opening:
                    longer[(*string, 2 * kind)] = (p * opening / n_types, (*stack, kind))
            if opening < 1:
                longer[(*string, 2 * stack[-1] + 1)] = (p * (1 - opening), stack[:-1])
        found = longer
    return {string: p for string, (p, _) in found.items()}


def prefixes(task: DyckTask, length: int) -> dict[tuple[int, ...], float]:
    return grown(task.n_types, task.max_depth, task.q, length)


def normalised(weights: dict) -> dict:
    total = sum(weights.values())
    return {key: value / total for key, value in weights.items()}


def strings_of_length(task: DyckTask, length: int) -> dict[tuple[int, ...], float]:
    found = prefixes(task, length)
    if task.mode == "complete":
        found = {
            string: p for string, p in found.items() if 2 * sum(t % 2 for t in string) == length
        }
    return normalised(found)


def training_strings(task: DyckTask) -> dict[tuple[int, ...], float]:
    mixture: Counter = Counter()
    for length in task.train_lengths:
        for string, p in strings_of_length(task, length).items():
            mixture[string] += p / len(task.train_lengths)
    return mixture


def closing_prefixes(task: DyckTask, *, long: bool) -> dict[tuple[int, ...], float]:
    """What `sample_closing` should draw."""
    mixture: Counter = Counter()
    if task.mode == "complete" and not long:
        for string, p in training_strings(task).items():
            ends = [i for i, token in enumerate(string) if token % 2]
            for end in ends:
                mixture[string[: end + 1]] += p / len(ends)
        return mixture
    lengths = range(task.long_lengths[0], task.long_lengths[1] + 1) if long else task.train_lengths
    each = []
    for length in lengths:
        found = {string: p for string, p in prefixes(task, length).items() if string[-1] % 2}
        if found:
            each.append(normalised(found))
    for found in each:
        for string, p in found.items():
            mixture[string] += p / len(each)
    return mixture


def stacks(row: Sequence[int]) -> list[list[int]]:
    """Of a string that starts with BOS, and may be filled up with it: places of open brackets.

    After each token, by a plain stack.
    """
    stack: list[int] = []
    found = []
    for place, token in enumerate(row):
        if token != row[0] and token % 2 == 0:
            stack.append(place)
        elif token != row[0]:
            assert row[stack.pop()] == token - 1
        found.append([*stack])
    return found
