"""The automaton of a task as arrays: strings by dynamic programming over states and lengths."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, final

import numpy as np
from numpy.typing import NDArray

MOST_STATES = 100_000
"""States are looked up one by one."""

MOST_CELLS = 50_000_000
"""Tables have a number for each state and length, or for each state, symbol and length."""

Floats = NDArray[np.float64]
Integers = NDArray[np.int64]


@final
@dataclass(frozen=True, eq=False)
class Table:
    """All states that strings of up to a length reach, in the order in which they are reached.

    Attributes:
        longest: the length.
        states: the states themselves; the first is where strings begin.
        after: the number of the state after each symbol, ``[state, symbol]``; where there is none,
            the number of states.
        weight: of each symbol, likewise; 0 where there is none.
        counted: whether it counts for the accuracy, likewise.
        log_ways: the log of the weight of all strings that end where they may, r symbols on, from
            each state, ``[r, state]``; exact for states that are reached `longest` - r symbols
            from the start.
    """

    longest: int
    states: Sequence[Hashable]
    after: Integers
    weight: Floats
    counted: NDArray[np.bool_]
    log_ways: Floats

    @classmethod
    def explore(cls, task: Any, longest: int) -> Table:
        """Follow the moves of an `AutomatonTask` from its start.

        Raises:
            ValueError: a move with an unknown symbol or a weight that is not positive, or too many
                states.
        """
        symbols = list(task.symbols)
        number: dict[Hashable, int] = {task.start: 0}
        moves: list[Mapping[str, Any]] = []
        level = [task.start]
        for _ in range(longest + 1):
            reached: list[Hashable] = []
            for state in level:
                moves.append(_moves(task, state))
                for symbol in symbols:
                    if symbol in moves[-1] and moves[-1][symbol] not in number:
                        number[moves[-1][symbol]] = len(number)
                        reached.append(moves[-1][symbol])
            if len(number) > MOST_STATES:
                raise ValueError(
                    f"strings of {task.name} of up to {longest} symbols reach more than "
                    f"{MOST_STATES:,} states; give it shorter train_lengths and long_lengths"
                )
            level = reached
            if not level:
                break
        if len(moves) * (longest + 1) > MOST_CELLS:
            raise ValueError(
                f"a table of the {len(moves):,} states of {task.name} and lengths up to "
                f"{longest:,} has more than {MOST_CELLS:,} entries; give it shorter train_lengths "
                "and long_lengths"
            )
        known = list(number)[: len(moves)]  # the last level's successors are beyond `longest`
        shape = len(known), len(symbols)
        after = np.full(shape, len(known))
        weight, counted = np.zeros(shape), np.zeros(shape, dtype=bool)
        for i, (state, found) in enumerate(zip(known, moves, strict=True)):
            for j, symbol in enumerate(symbols):
                if symbol in found and number[found[symbol]] < len(known):
                    after[i, j] = number[found[symbol]]
                    weight[i, j] = 1.0 if task.weight is None else task.weight(state, symbol)
                    alone = len(found) == 1
                    counted[i, j] = alone if task.counted is None else task.counted(state, symbol)
        if not np.isfinite(weight).all() or ((weight <= 0) & (after < len(known))).any():
            raise ValueError(f"the weights of {task.name} must be positive and finite")
        ends = np.array([task.ends is None or bool(task.ends(state)) for state in known])
        log_ways = _log_ways(after, weight, ends, longest)
        return cls(longest, known, after, weight, counted, log_ways)

    def lengths(self, among: Iterable[int]) -> list[int]:
        """The lengths, of these, that strings can have."""
        return [
            length
            for length in among
            if length <= self.longest and np.isfinite(self.log_ways[length, 0])
        ]

    def walk(self, tokens: Integers) -> Integers:
        """The state after each token, -1 from a misstep on; BOS changes none."""
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
        """Strings of a length, from numbers that are uniform on [0, 1), ``[n, length]``."""
        tokens = np.empty(numbers.shape, dtype=np.int64)
        state = np.zeros(len(numbers), dtype=np.int64)
        for at in range(length):
            reach = self._next(length - at, state).cumsum(-1)
            chosen = (numbers[:, at, None] * reach[:, -1:] >= reach).sum(-1)
            tokens[:, at] = chosen
            state = self.after[state, chosen]
        return tokens

    def law(self, lengths: Sequence[int]) -> Floats:
        """The law of the next symbol, ``[read, state, symbol]``, in strings of one of the lengths.

        After i symbols and in state s a string has length N with odds of Z[N - i, s] / Z[N, start],
        where Z is `log_ways`' exponential; rows after which none goes on are 0.
        """
        longest = max(lengths)
        found = np.zeros((longest + 1, *self.after.shape))
        sizes, copies = np.unique(np.array(lengths), return_counts=True)
        for read in range(longest):
            longer = sizes > read
            left = sizes[longer] - read
            odds = np.log(copies[longer])[:, None] - self.log_ways[sizes[longer], :1]
            odds = odds + self.log_ways[left]
            top = odds.max(0)
            posterior = np.exp(odds - np.where(np.isfinite(top), top, 0.0))
            total = posterior.sum(0)
            posterior = np.divide(posterior, total, out=np.zeros_like(posterior), where=total > 0)
            for share, rest in zip(posterior, left, strict=True):
                found[read] += share[:, None] * self._next(int(rest))
        return found

    def floor(self, lengths: Sequence[int]) -> float:
        """The mean of the entropy of `law` over the tokens of strings of these lengths."""
        law, nats = self.law(lengths), 0.0
        with np.errstate(divide="ignore", invalid="ignore"):
            entropy = -np.where(law > 0, law * np.log(law), 0.0).sum(-1)
        for length in lengths:
            share = np.zeros(len(self.states))
            share[0] = 1.0
            for read in range(length):
                nats += float(share @ entropy[read])
                flow = share[:, None] * self._next(length - read)
                share[:] = np.bincount(
                    self.after.ravel(), flow.ravel(), minlength=len(self.states) + 1
                )[:-1]
        return nats / sum(lengths)

    def to_list(self) -> list[Any]:
        """All numbers that say what strings are drawn and what counts, as JSON values."""
        ends = np.isfinite(self.log_ways[0]).tolist()
        return [self.after.tolist(), self.weight.tolist(), self.counted.tolist(), ends]

    def _next(self, left: int, states: Integers | None = None) -> Floats:
        """The law of the next symbol where a string is known to end in `left` symbols."""
        rows = np.arange(len(self.states)) if states is None else states
        beyond = np.append(self.log_ways[left - 1], -np.inf)[self.after[rows]]
        here = self.log_ways[left, rows][:, None]
        with np.errstate(divide="ignore"):
            logs = np.log(self.weight[rows]) + beyond
        found: Floats = np.exp(logs - np.where(np.isfinite(here), here, np.inf))
        return found


def _moves(task: Any, state: Hashable) -> Mapping[str, Any]:
    found: Mapping[str, Any] = task.moves(state)
    for symbol in found:
        if symbol not in task.symbols:
            raise ValueError(
                f"the moves of {task.name} from {state!r} have the symbol {symbol!r}; its symbols "
                f"are {' '.join(task.symbols)}"
            )
    return found


def _log_ways(after: Integers, weight: Floats, ends: NDArray[np.bool_], longest: int) -> Floats:
    found = np.full((longest + 1, len(ends)), -np.inf)
    found[0, ends] = 0.0
    with np.errstate(divide="ignore"):
        log_weight = np.log(weight)
        for row in range(longest):
            padded = np.append(found[row], -np.inf)
            found[row + 1] = np.logaddexp.reduce(log_weight + padded[after], axis=-1)
    return found
