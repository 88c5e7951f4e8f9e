"""Profiles: all prefixes of a bounded Dyck language, sorted by how often each symbol occurs.

A model without positions sees of a prefix only its last bracket and how often each symbol, a
bracket at a depth, occurs. In a prefix of Dyck(k, D) every symbol belongs to a bracket that is
still open, or to a matched pair. So a *profile* is

- an `Ending`: the stack t_1 … t_d of types that are open, and whether the last bracket opens t_d or
  closes something at level d + 1 (a pair of level l opens at depth l and closes to depth l - 1);
- pairs m: m[a, l] ≥ 0 matched pairs of type a at level l = 1..D.

It occurs iff there is a place for every pair. Let M_l = Σ_a m[a, l], and O_l = M_l + [l ≤ d] the
opening brackets of level l (O_0 = 1, the string itself). Pairs of level l + 1 are children of the
O_l brackets of level l, in order; the bracket of the stack at level l is the last of its level,
and the next one of the stack its last child. So the depths can run in

    Π_l C(M_{l+1} + O_l - 1, M_{l+1})

ways, if the prefix may end anyhow. If it ends with an opening bracket, this one has no children:
at l = d there is O_d - 1 in place of O_d. If it ends with a closing one, the last child belongs to
it: M_{d+1} - 1 in place of M_{d+1}. The types can be chosen in Π_l M_l! / Π_a m[a, l]! ways; those
of the last pair and of the stack are given. All strings of a profile have the same length
2 Σ m + d and, under D(q, k, D), the same probability.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, final

import numpy as np
from numpy.typing import NDArray

from tl_dyck.certify.exact.balls import Array, BoolArray, IntArray, folded
from tl_dyck.kit.arguments import checked
from tl_dyck.language import DyckDistribution

Counts = NDArray[np.int16]


@final
@dataclass(frozen=True)
class Ending:
    """How a prefix ends.

    Attributes:
        stack: types of the brackets that are open, outermost first.
        closes: type that the last bracket closes; None if it opens the top of the stack (or if
            there is no bracket at all).
    """

    stack: tuple[int, ...]
    closes: int | None

    @property
    def depth(self) -> int:
        """Number of open brackets."""
        return len(self.stack)


def n_profiles(kinds: int, total: int) -> int:
    """How many ways there are to distribute `total` pairs over `kinds` kinds."""
    # stars and bars
    return math.comb(total + kinds - 1, kinds - 1)


@lru_cache(maxsize=4)
def compositions(kinds: int, total: int) -> Counts:
    """Every way to distribute `total` pairs over `kinds` kinds, ``[n, kinds]``; do not change it.

    Kind i stands for level ``i // k + 1`` and type ``i % k``.
    """
    rows = _compositions(kinds, total)
    rows.flags.writeable = False
    return rows


def _compositions(kinds: int, total: int) -> Counts:
    if kinds == 1:
        # int16: 1,000 brackets, the most that may be asked for, are 500 pairs; rows are millions
        return np.full((1, 1), total, dtype=np.int16)
    if kinds == 2:
        each = np.arange(total + 1, dtype=np.int16)
        return np.stack([each, total - each], axis=1)
    # halves, not one kind after the other: blocks are copied log(kinds) times
    half, every = kinds // 2, range(total + 1)
    return np.concatenate(
        [_product(_compositions(half, n), _compositions(kinds - half, total - n)) for n in every]
    )


_MOST = 20_000_000
"""Numbers in a table of `compositions` beyond which it is made piece by piece (40 MB)."""


def in_blocks(kinds: int, total: int, size: int) -> Iterator[Counts]:
    """The `compositions` in blocks of at most `size`, however many there are."""
    if n_profiles(kinds, total) * kinds <= _MOST:
        rows = compositions(kinds, total)
        for start in range(0, len(rows), size):
            yield rows[start : start + size]
        return
    # kinds > 2 here: fewer have at most `total` + 1 rows
    half, root = kinds // 2, math.isqrt(size)
    for left in range(total + 1):
        few, many = n_profiles(half, left), n_profiles(kinds - half, total - left)
        # rows of a product are few × many: each side gets about √size, and more if the other has
        # less
        first = few if few <= root else size // min(many, root)
        for a in in_blocks(half, left, first):
            for b in in_blocks(kinds - half, total - left, size // len(a)):
                yield _product(a, b)


def _product(a: Counts, b: Counts) -> Counts:
    """Every row of one beside every row of the other."""
    return np.concatenate([np.repeat(a, len(b), 0), np.tile(b, (len(a), 1))], axis=1)


@final
@checked
class Profiles:
    """The profiles of a language, and what their strings are worth under D(q, k, D).

    Args:
        distribution: gives the language and q.
    """

    def __init__(self, distribution: DyckDistribution) -> None:
        self.distribution = distribution
        self.language = language = distribution.language
        self.k, self.deepest = language.n_types, language.max_depth
        opens = distribution.open_probability()
        with np.errstate(divide="ignore"):
            # each of the k types is as likely
            # `opens` is by the depth before, 0..D: at D nothing opens, at 0 nothing closes
            self._log_open = np.log(opens[:-1] / self.k)  # into level 1..D
            self._log_close = np.log1p(-opens[1:])  # out of level 1..D
        self._log_factorial = np.zeros(1)

    @property
    def kinds(self) -> int:
        """K D: kinds of matched pairs."""
        return self.k * self.deepest

    def endings(self, depths: Iterable[int] | None = None) -> Iterator[Ending]:
        """All endings of some depths, by default of all 0..D."""
        for depth in range(self.deepest + 1) if depths is None else depths:
            closing: list[int | None] = [None]
            closing += range(self.k) if depth < self.deepest else []
            for stack in itertools.product(range(self.k), repeat=depth):
                for closes in closing:
                    yield Ending(stack, closes)

    def per_level(self, pairs: Counts) -> IntArray:
        """M_l, ``[n, D]``."""
        n = len(pairs)
        levels = np.zeros((n, self.deepest), dtype=np.int64)
        for a in range(self.k):
            # kinds are level by level, type by type: every k-th is of one type
            levels += pairs[:, a :: self.k]
        return levels

    def occur(self, ending: Ending, pairs: Counts) -> BoolArray:
        """Which rows of pairs are those of some prefix with this ending."""
        d, levels = ending.depth, self.per_level(pairs)
        if ending.closes is None and d == 0:
            nothing: BoolArray = folded(np.add, levels) == 0
            return nothing
        fine = np.ones(len(pairs), dtype=bool)
        if ending.closes is not None:
            # level d + 1 is index d, kinds being counted from 0
            fine &= pairs[:, d * self.k + ending.closes] > 0
        first = d if ending.closes is None else d + 1  # the level from which on there must be room
        for level in range(first, self.deepest):
            # index `level` is level + 1, whose pairs stand inside those of `level`
            fine &= (levels[:, level] == 0) | (levels[:, level - 1] > 0)
        return fine

    def log_count(self, ending: Ending, pairs: Counts) -> Array:
        """Log of the number of prefixes of each profile; -inf if there are none.

        With r children among n brackets, level by level, the number is the product of
        C(r + n - 1, r) r! / Π_a m[a]! = (r + n - 1)! / (n - 1)! / Π_a m[a]!.
        """
        d, children, of_type = ending.depth, self.per_level(pairs), pairs
        nodes = np.ones_like(children)
        # brackets a level further out: those of pairs, and that of the stack, if it reaches so deep
        nodes[:, 1:] = children[:, :-1] + (np.arange(1, self.deepest) <= d)
        if d < self.deepest:
            if ending.closes is None:
                # the last bracket opens, so it has no children
                nodes[:, d] -= 1
            else:  # the last pair is given
                of_type = pairs.copy()
                of_type[:, d * self.k + ending.closes] -= 1
                # its place is given, too: it is the last child
                children[:, d] -= 1
        # children + nodes - 1 is at most the pairs of two levels and a bracket of the stack
        table = self._factorials(int(2 * children.sum(1).max(initial=0)) + d + 2)
        possible = self.occur(ending, pairs)
        # where there are none there are no children: 0! over 0!, which is 1
        n = np.maximum(nodes, 1)
        places = table.take(np.maximum(children + n - 1, 0)) - table.take(n - 1)
        same = table.take(np.maximum(of_type, 0))
        return np.where(possible, folded(np.add, places) - folded(np.add, same), -np.inf)

    def log_string(self, ending: Ending, pairs: Counts) -> Array:
        """Log-probability of each single prefix of a profile, among the prefixes of its length."""
        levels, d = self.per_level(pairs), ending.depth
        nats: Array = levels @ (self._log_open + self._log_close) + self._log_open[:d].sum()
        return nats

    def best_log_string(self, lengths: Iterable[int]) -> float:
        """Log-probability of the likeliest prefix of any of some lengths; -inf if there is none."""
        wanted = set(lengths)
        best = np.full(self.deepest + 1, -np.inf)
        # the empty prefix has depth 0 and probability 1
        best[0], found = 0.0, -np.inf
        for n in range(max(wanted, default=-1) + 1):
            if n in wanted:
                found = max(found, float(best.max()))
            # entry l − 1 is of level l: into it from l − 1, out of it from l
            up, down = best[:-1] + self._log_open, best[1:] + self._log_close
            best = np.append(down, -np.inf)
            best[1:] = np.maximum(best[1:], up)
        return found

    def of_strings(self, strings: IntArray) -> tuple[list[Ending], Counts]:
        """The profiles of prefixes of one length, ``[n, length]``, without BOS."""
        # token 2a opens, 2a + 1 closes type a
        n, opens = len(strings), strings % 2 == 0
        depth = np.where(opens, 1, -1).cumsum(1)
        rows = np.zeros((n, self.kinds), dtype=np.int16)
        kind = depth * self.k + strings // 2  # of a closing bracket, whose pair is a level deeper
        for i in range(self.kinds):
            rows[:, i] = (~opens & (kind == i)).sum(1)
        stacks = []
        for level in range(1, self.deepest + 1):
            here = opens & (depth == level)  # the last of them is open, if any of the level is
            # argmax finds the first, so the order is turned round
            last = strings.shape[1] - 1 - here[:, ::-1].argmax(1)
            stacks.append(strings[np.arange(n), last] // 2)
        types = np.stack(stacks, axis=1).tolist()
        closes = [int(token) // 2 if token % 2 else None for token in strings[:, -1]]
        endings = [Ending(tuple(types[i][: depth[i, -1]]), closes[i]) for i in range(n)]
        return endings, rows

    def string(self, ending: Ending, row: Any) -> tuple[int, ...]:
        """One prefix of a profile, without BOS; the pairs sit together, nested where they must be.

        Args:
            ending: how it ends.
            row: its pairs, ``[kinds]``; they must occur.
        """
        d = ending.depth
        types = [
            [a for a in range(self.k) for _ in range(int(row[level * self.k + a]))]
            for level in range(self.deepest)
        ]
        if ending.closes is not None:  # the pair that comes last
            types[d].remove(ending.closes)
            types[d].append(ending.closes)

        def nested(level: int) -> list[int]:
            """All pairs of a level (from 0), those of deeper levels inside the first of them."""
            text: list[int] = []
            for index, a in enumerate(types[level]):
                inner = nested(level + 1) if index == 0 and level + 1 < self.deepest else []
                text += [2 * a, *inner, 2 * a + 1]
            return text

        text: list[int] = []
        # before the bracket of the stack at level l come the pairs of level l; deeper ones follow
        # it, unless it is the last bracket of all
        inside = d if ending.closes is None else d + 1
        for level in range(d):
            flat = [token for a in types[level] for token in (2 * a, 2 * a + 1)]
            text += nested(level) if level + 1 == inside else flat
            text.append(2 * ending.stack[level])
        if ending.closes is not None:
            text += nested(d)
        return tuple(text)

    def _factorials(self, n: int) -> Array:
        if len(self._log_factorial) < n + 1:
            # twice as many as are asked for, so that it seldom happens
            self._log_factorial = np.array([math.lgamma(i + 1) for i in range(2 * n + 2)])
        return self._log_factorial
