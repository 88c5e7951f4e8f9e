"""The automaton of a task, explored: its states numbered, its strings as walks over them."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, final

import numpy as np
from numpy.typing import NDArray

from tl_dyck.kit.check import WrongTypeError, check_integer, check_number, shown
from tl_dyck.language.chain import Chain, Floats

MOST_STATES = 100_000
"""States are looked up one by one."""

MOST_CELLS = 50_000_000
"""Tables have a number for each state and length, or for each state, symbol and length."""


@final
@dataclass(frozen=True, eq=False)
class Table:
    """All states that strings of up to a length reach, in the order in which they are reached.

    Attributes:
        states: the states themselves; the first is where strings begin.
        weight: of each symbol, ``[state, symbol]``; 0 where there is none.
        counted: whether it counts for the accuracy, likewise.
        chain: strings as walks over the numbers of the states.
    """

    states: Sequence[Hashable]
    weight: Floats
    counted: NDArray[np.bool_]
    chain: Chain

    @classmethod
    def explore(cls, task: Any, longest: int) -> Table:
        """Follow the moves of an `AutomatonTask` from its start.

        Raises:
            ValueError: a move with an unknown symbol or a weight that is not positive, or too many
                states.
        """
        check_state(task, task.start)
        symbols = list(task.symbols)
        number: dict[Hashable, int] = {task.start: 0}
        moves: list[Mapping[str, Any]] = []
        level = [task.start]
        for _ in range(longest + 1):
            reached: list[Hashable] = []
            for state in level:
                moves.append(moves_of(task, state))
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
        # one beyond the states: leads nowhere
        after = np.full(shape, len(known))
        weight, counted = np.zeros(shape), np.zeros(shape, dtype=bool)
        for i, (state, found) in enumerate(zip(known, moves, strict=True)):
            for j, symbol in enumerate(symbols):
                if symbol in found and number[found[symbol]] < len(known):
                    after[i, j] = number[found[symbol]]
                    weight[i, j] = _weight(task, state, symbol)
                    # what is the only symbol that may follow counts, unless the task says otherwise
                    alone = len(found) == 1
                    if task.counted is not None:
                        alone = _yes_or_no(task, "counted", state, symbol)
                    counted[i, j] = alone
        if not np.isfinite(weight).all() or ((weight <= 0) & (after < len(known))).any():
            raise ValueError(f"the weights of {task.name} must be positive and finite")
        ends = np.array([may_end(task, state) for state in known])
        with np.errstate(divide="ignore"):
            chain = Chain.of(after, np.log(weight), np.log(ends), longest)
        return cls(known, weight, counted, chain)

    def lengths(self, among: Iterable[int]) -> list[int]:
        """The lengths, of these, that strings can have."""
        return [
            length
            for length in among
            if length <= self.chain.longest and np.isfinite(self.chain.log_ways[length, 0])
        ]

    def to_list(self) -> list[Any]:
        """All numbers that say what strings are drawn and what counts, as JSON values."""
        ends = np.isfinite(self.chain.log_ways[0]).tolist()
        return [self.chain.after.tolist(), self.weight.tolist(), self.counted.tolist(), ends]


def all_strings(task: Any, length: int, most: int) -> NDArray[np.int64] | None:
    """Every string of an `AutomatonTask`, ``[n, length]``, as written; None if there are more.

    Those that go no further are filled up with -1. Of a task with places, whole ones.
    """
    symbols = {symbol: at for at, symbol in enumerate(task.symbols)}
    level: list[tuple[tuple[int, ...], Hashable]] = [((), task.start)]
    ended: list[tuple[int, ...]] = []
    for _ in range(length):
        then = []
        for string, state in level:
            moves = moves_of(task, state)
            then += [((*string, symbols[symbol]), to) for symbol, to in moves.items()]
            ended += [] if moves else [string]
        if len(then) + len(ended) > most:
            return None
        level = then
    if task.places is not None:
        whole = [string for string, state in level if may_end(task, state)]
        return as_written(task.places, np.array(whole, dtype=np.int64).reshape(-1, length))
    rows = [*ended, *(string for string, _ in level)]
    return np.array([(*row, *(-1,) * (length - len(row))) for row in rows], dtype=np.int64)


def as_written(places: Sequence[int], strings: NDArray[np.int64]) -> NDArray[np.int64]:
    """Strings whose symbols stand in the order in which a task reads them, as they are written."""
    found = np.empty_like(strings)
    found[..., list(places)] = strings
    return found


def moves_of(task: Any, state: Hashable) -> Mapping[str, Any]:
    """The symbols that may follow a state, and where each leads.

    Raises:
        WrongTypeError, ValueError: there is no such move.
    """
    found = said_by(task, "moves", state)
    if not isinstance(found, Mapping):
        raise WrongTypeError(
            f"moves of {task.name} must return a mapping from symbols to states, but from "
            f"{state!r} it returned {shown(found)}"
        )
    for symbol, after in found.items():
        if symbol not in task.symbols:
            raise ValueError(
                f"the moves of {task.name} from {state!r} have the symbol {symbol!r}; its symbols "
                f"are {', '.join(map(repr, task.symbols))}"
            )
        check_state(task, after)
    # a copy: what a function returns may be one mapping, which it changes at the next call
    return dict(found)


def check_state(task: Any, state: Any) -> None:
    """Raise `WrongTypeError` for what cannot be a state, as two that are equal must be one."""
    try:
        hash(state)
    except TypeError:
        raise WrongTypeError(
            f"a state of {task.name} (start, or one that moves lead to) must be hashable, as "
            f"texts, numbers and tuples are, got {shown(state)}"
        ) from None


def said_by(task: Any, name: str, *about: Any) -> Any:
    """What a function of the task says of a state, or of a state and a symbol."""
    try:
        return getattr(task, name)(*about)
    except (
        *(ArithmeticError, AssertionError, AttributeError, LookupError),
        *(RuntimeError, TypeError, ValueError),
    ) as error:
        line = (str(error).splitlines() or [""])[0]
        raise WrongTypeError(
            f"{name} of {task.name} fails at {', '.join(map(repr, about))}: "
            f"{type(error).__name__}: {line}"
        ) from error


def may_end(task: Any, state: Hashable) -> bool:
    """Whether a string may end in a state.

    Raises:
        WrongTypeError: the task's `ends` fails there, or says neither yes nor no.
    """
    return task.ends is None or _yes_or_no(task, "ends", state)


def answer_of(task: Any, state: Hashable) -> int | None:
    """The task's `answer` to a state: the index of a logit, or None.

    Raises:
        WrongTypeError, WrongValueError: it is neither.
    """
    said = said_by(task, "answer", state)
    return None if said is None else check_integer(f"an answer of {task.name}", said, least=0)


def _yes_or_no(task: Any, name: str, *about: Any) -> bool:
    said = said_by(task, name, *about)
    if not isinstance(said, (bool, np.bool_)) and not (type(said) is int and said in (0, 1)):
        raise WrongTypeError(
            f"{name} of {task.name} must return True or False, but of "
            f"{', '.join(map(repr, about))} it returned {shown(said)}"
        )
    return bool(said)


def _weight(task: Any, state: Any, symbol: str) -> float:
    if task.weight is None:
        return 1.0
    said = said_by(task, "weight", state, symbol)
    return check_number(f"the weight of {symbol!r} in {state!r}", said)
