"""What prefixes are worth: weights by length and depth, and the error that a tally amounts to.

All strings of a length and depth count alike in everything that a task measures: if a prefix x of
length n and depth d has probability P(x) under D(q, k, D), the task asks for its next bracket with
probability P(x) w[n, d]. So the error of a model is Σ w[n, d] P(wrong prefixes of n and d), a sum
over the tables here. They are float64, off by less than 10⁻¹⁰ of their value.
"""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from tl_dyck.certify.exact.balls import Array
from tl_dyck.certify.language.profiles import Profiles
from tl_dyck.language import DyckDistribution, DyckLanguage
from tl_dyck.language.sampling import free_open_probability, log_completion
from tl_dyck.tasks import DyckTask

__all__ = ["best_log_string", "closing_weights", "numbers_of_prefixes", "task_weights"]


def closing_weights(distribution: DyckDistribution) -> Array:
    """Probability that the next bracket closes, at depths 0..D."""
    deepest = distribution.language.max_depth
    return 1 - free_open_probability(distribution.q, deepest, deepest)


def task_weights(task: DyckTask, *, long: bool = False) -> Array:
    """How often `DyckTask.closing_accuracy` asks what follows a prefix, over its P(x).

    Returns:
        w, ``[longest + 1, D + 1]``, with Σ_nd P(n, d) w[n, d] = 1, where P(n, d) is
        `Profiles.reach`.
    """
    distribution, deepest = task.distribution, task.language.max_depth
    closing = closing_weights(distribution)
    lengths = range(task.long_lengths[0], task.long_lengths[1] + 1) if long else task.train_lengths
    weights = np.zeros((max(lengths), deepest + 1))
    if task.mode == "complete" and not long:
        # one of the length / 2 closing brackets of a complete string, each as likely
        for length in lengths:
            table = log_completion(distribution.q, deepest, length)
            for n in range(length):
                last = min(deepest, length - n, table.shape[1])
                after = np.exp(table[length - n - 1, :last] - table[length, 0])
                weights[n, 1 : last + 1] += closing[1 : last + 1] * after * 2 / length
        return weights / len(lengths)
    reach = Profiles(distribution).reach(max(lengths))
    ends = [length for length in lengths if reach[length - 1] @ closing > 0]
    for length in ends:
        weights[length - 1] += closing / (reach[length - 1] @ closing)
    return weights / len(ends)


def numbers_of_prefixes(language: DyckLanguage, length: int) -> list[list[int]]:
    """How many prefixes there are of each length 0..length and depth 0..D, exactly."""
    ways = [1] + [0] * language.max_depth
    table = [ways]
    for _ in range(length):
        longer = [0] * len(ways)
        for depth, number in enumerate(ways):
            if depth < language.max_depth:
                longer[depth + 1] += language.n_types * number
            if depth:
                longer[depth - 1] += number
        ways = longer
        table.append(ways)
    return table


def best_log_string(distribution: DyckDistribution, lengths: Iterable[int]) -> float:
    """Log-probability of the likeliest single prefix of any of some lengths; -inf without any."""
    wanted = set(lengths)
    deepest, k = distribution.language.max_depth, distribution.language.n_types
    opens = free_open_probability(distribution.q, deepest, deepest)
    with np.errstate(divide="ignore"):
        opening, closing = np.log(opens / k), np.log1p(-opens)
    best = np.full(deepest + 1, -np.inf)
    best[0], found = 0.0, -np.inf
    for n in range(max(wanted, default=-1) + 1):
        if n in wanted:
            found = max(found, float(best.max()))
        up, down = best + opening, best + closing
        best = np.full(deepest + 1, -np.inf)
        best[1:] = up[:-1]
        best[:-1] = np.maximum(best[:-1], down[1:])
    return found
