"""Walks over numbered states: the law of the next symbol, given where and when they must end.

Knows: the recursion over states and lengths that all exact laws here come from, of brackets (where
a state is a depth, `depth_chain`) and of automata (`tl_dyck.tasks.tables`).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import pairwise
from typing import final

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Integers = NDArray[np.int64]


@final
@dataclass(frozen=True, eq=False)
class Chain:
    """Walks from state 0; the weight of one is the product of those of its symbols and its end.

    Attributes:
        after: the number of the state after each symbol, ``[state, symbol]``; where there is none,
            the number of states.
        log_weight: of each symbol, likewise; -inf where there is none.
        log_ways: the log of the weight of all walks that end where they may, r symbols on, from
            each state, ``[r, state]``. In logs, as it leaves the range of float64; exact for
            states that are reached `longest` - r symbols from the start. Do not change it.
    """

    after: Integers
    log_weight: Floats
    log_ways: Floats

    @classmethod
    def of(cls, after: Integers, log_weight: Floats, log_ends: Floats, longest: int) -> Chain:
        """Walks of up to `longest` symbols; `log_ends` is the log-weight of ending in each state.

        ``log_ways[r, s] = log Σ_x exp(log_weight[s, x] + log_ways[r - 1, after[s, x]])``.
        """
        # a column more, for symbols that lead nowhere
        log_ways = np.full((longest + 1, len(after) + 1), -np.inf)
        # row r is r symbols before the end; row 0 is the end itself
        log_ways[0, :-1] = log_ends
        states, weights = np.ascontiguousarray(after.T), log_weight.T.copy()
        for before, here in pairwise(log_ways):
            np.logaddexp.reduce(weights + before.take(states), out=here[:-1])
        return cls(after, log_weight, log_ways[:, :-1])

    @property
    def longest(self) -> int:
        """The greatest length that is known, in symbols."""
        return len(self.log_ways) - 1

    def chance(self, symbol: int) -> Floats:
        """The probability that a symbol comes next, r symbols before the end, ``[r, state]``.

        Where a walk cannot end so, and in row 0, it is 0.
        """
        found = np.zeros_like(self.log_ways)
        (held,) = np.nonzero(self.after[:, symbol] < len(self.after))
        here = self.log_ways[1:].take(held, 1)
        logs = self.log_ways[:-1].take(self.after[held, symbol], 1) + self.log_weight[held, symbol]
        np.subtract(logs, here, out=logs, where=np.isfinite(here))  # both are -inf elsewhere
        found[1:, held] = np.exp(logs, out=logs)
        return found

    def given(self, left: int, states: Integers | slice = slice(None)) -> Floats:
        """The law of the next symbol of a walk that ends in `left` symbols, ``[state, symbol]``.

        Rows from which it cannot end so are 0.
        """
        # `after` names the number of states where there is none: that entry is −inf
        beyond = np.append(self.log_ways[left - 1], -np.inf)[self.after[states]]
        here = self.log_ways[left, states][:, None]
        logs = self.log_weight[states] + beyond
        # −inf − inf is −inf, so that a row without ways becomes 0 and not NaN
        found: Floats = np.exp(logs - np.where(np.isfinite(here), here, np.inf))
        return found

    def log_odds(
        self, lengths: Sequence[int], shares: Floats | None = None
    ) -> Iterator[tuple[Floats, Floats]]:
        """For each number of symbols read, the log of the odds of what follows a state.

        With Z[r, s] the exponential of `log_ways`, and r(N, i) = N - i - 1, entry ``[s, x]`` after
        i symbols is the log of ``Σ_N share(N) weight(s, x) Z[r(N, i), after(s, x)] / Z[N, 0]``
        over the lengths N > i: over the weight of a walk to s, the probability of all that go on
        so, their length unknown. Before it comes the same of each state after the next symbol,
        ``[s]``, without a weight.

        Args:
            lengths: that walks can have.
            shares: of each; None for 1.
        """
        sizes = np.array(lengths)
        with np.errstate(divide="ignore"):
            logs = 0.0 if shares is None else np.log(shares)
        # every length is divided by its own weight: lengths are drawn first, then a walk
        scale = logs - self.log_ways[sizes, 0]
        for read in range(max(lengths)):
            going = sizes > read
            beyond = self.log_ways[sizes[going] - read - 1] + scale[going, None]
            ahead = np.append(np.logaddexp.reduce(beyond, axis=0), -np.inf)
            yield ahead, self.log_weight + ahead[self.after]

    def law(self, lengths: Sequence[int]) -> Floats:
        """The law of the next symbol, ``[read, state, symbol]``, in walks of one of the lengths.

        Rows after which none goes on are 0.
        """
        found = np.zeros((max(lengths) + 1, *self.after.shape))
        for row, (_, odds) in zip(found, self.log_odds(lengths), strict=False):
            total = np.logaddexp.reduce(odds, axis=-1)[:, None]
            row[:] = np.exp(odds - np.where(np.isfinite(total), total, np.inf))
        return found

    def nats(self, lengths: Sequence[int], of_symbols: Floats | float = 0.0) -> float:
        """The expected nats of a walk under `law`, summed over the lengths.

        Args:
            lengths: that walks can have; one given twice counts twice.
            of_symbols: what each symbol costs besides.
        """
        arrived, before = np.eye(1, len(self.after) + 1)[0], np.zeros(len(self.after) + 1)
        nats = 0.0
        for ahead, odds in self.log_odds(lengths):
            mass = arrived[:-1, None] * np.exp(odds - before[:-1, None])
            nats += float(choice_nats(mass).sum() + (mass * of_symbols).sum())
            arrived = np.bincount(self.after.ravel(), mass.ravel(), len(arrived))
            before = np.where(np.isfinite(ahead), ahead, np.inf)
        return nats

    def walk(self, tokens: Integers) -> Integers:
        """The state after each token, -1 from a misstep on; a token that is no symbol stays."""
        n_states, n_symbols = self.after.shape
        table = np.full((n_states + 1, n_symbols + 1), n_states)
        table[:-1, :-1] = self.after
        table[:, -1] = np.arange(n_states + 1)
        states = np.empty_like(tokens)
        state = np.zeros(tokens.shape[:-1], dtype=np.int64)
        for at in range(tokens.shape[-1]):
            state = table[state, tokens[..., at]]
            states[..., at] = state
        return np.where(states == n_states, -1, states)

    def draw(self, numbers: Floats, length: int) -> Integers:
        """Walks of a length, from numbers that are uniform on [0, 1), ``[n, length]``."""
        tokens = np.empty(numbers.shape, dtype=np.int64)
        state = np.zeros(len(numbers), dtype=np.int64)
        for at in range(length):
            reach = self.given(length - at, state).cumsum(-1)
            # scaled by the last one: rounding may keep it from 1
            chosen = (numbers[:, at, None] * reach[:, -1:] >= reach).sum(-1)
            tokens[:, at] = chosen
            state = self.after[state, chosen]
        return tokens


def choice_nats(mass: Floats) -> Floats:
    """Nats of a choice between masses, ``[…, symbol]``, times their sum: T log T - Σ m log m."""
    total = mass.sum(-1)
    least = np.finfo(float).tiny  # 0 log 0 is 0
    found: Floats = total * np.log(np.maximum(total, least))
    for each in np.moveaxis(mass, -1, 0):
        found -= each * np.log(np.maximum(each, least))
    return found


# --- brackets -------------------------------------------------------------------------------------


def free_open_probability(q: float, max_depth: int, deepest: int) -> Floats:
    """o(d) for d = 0..deepest: the probability of an open at depth d.

    That is q, but 1 at depth 0 and 0 at depth D.
    """
    opens = np.full(deepest + 1, q)
    # nothing to close
    opens[0] = 1.0
    if deepest == max_depth:
        opens[-1] = 0.0
    return opens


# Not many are kept: for large D and length one may take hundreds of megabytes.
@lru_cache(maxsize=8)
def depth_chain(q: float, max_depth: int, longest: int, *, complete: bool = True) -> Chain:
    """The walk of D(q, k, D) over depths 0..min(D, longest); symbol 0 opens, 1 closes.

    It ends at depth 0 (`complete`), or at any depth where a closing bracket comes next.
    """
    deepest = min(max_depth, longest)
    depth, opens = np.arange(deepest + 1), free_open_probability(q, max_depth, deepest)
    with np.errstate(divide="ignore"):  # log1p keeps 1 - q exact for small q
        log_weight = np.stack([np.log(opens), np.log1p(-opens)], axis=-1)
        log_ends = np.log(depth == 0) if complete else log_weight[:, 1]
    # deepest + 1 is the number of states, which stands for "nowhere"
    after = np.stack([depth + 1, np.where(depth > 0, depth - 1, deepest + 1)], axis=-1)
    return Chain.of(after, log_weight, log_ends, longest)
