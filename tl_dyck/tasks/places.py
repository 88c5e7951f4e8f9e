"""Strings of one length whose symbols an automaton reads in another order than they stand in.

Digit by digit, a sum has a state of a carry; from left to right, of a whole number. The order in
which an automaton reads is free, for what a model of one layer computes at a place is a sum over
the places that it attends to. Of a causal one these are a prefix, whose last symbol is the query;
of one that looks ahead, all of the string. So of each place that is asked there is an automaton of
its own, which reads the query last.

Knows: what may follow a prefix, as far as the prefix tells.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, final

import numpy as np
from numpy.typing import NDArray

from tl_dyck.kit.check import WrongValueError, check_lengths
from tl_dyck.tasks.tables import MOST_STATES, answer_of, check_state, may_end, moves_of

NONE = -1  # no state, no symbol

_READ, _QUERY, _NEXT, _HIDDEN = "read", "query", "next", "hidden"
"""What is read at a place, of a symbol of a string: it is a key, or the query, or not seen; of
those that are not seen the next one is what a model is asked for."""

_Subset = frozenset[tuple[int, int, int]]
"""What is possible after some symbols: classes of states, the query's symbol, the next symbol."""


@final
@dataclass(frozen=True, eq=False)
class PlacePrefixes:
    """The prefixes of a task's strings that end at one place, and what may follow them.

    Or, of models that look ahead, the whole strings, of which one place is the query.

    Attributes:
        order: ``[length]`` the places of a prefix in the order in which `after` reads them, the
            query last.
        after: ``[state, symbol]`` the state after each symbol; `NONE` where there is none.
        may: ``[state, symbol]`` what may follow a whole prefix that leads here.
        answer: ``[state]`` what must be said after such a prefix: the task's `answer`, else the one
            symbol that may follow; `NONE` if that is not known, and in all other states.
    """

    order: NDArray[np.int64]
    after: NDArray[np.int64]
    may: NDArray[np.bool_]
    answer: NDArray[np.int64]

    def states(self, strings: NDArray[np.int64]) -> NDArray[np.int64]:
        """The state after each string as it stands, ``[n, at least length]``; or `NONE`."""
        state = np.zeros(len(strings), dtype=np.int64)
        for symbols in strings[:, self.order].T:
            # a misstep stays one: the row that is read for it here does not count
            state = np.where(state < 0, NONE, self.after[state, symbols])
        return state


def prefixes_at(task: Any, place: int, *, whole: bool = False) -> PlacePrefixes:
    """The prefixes of an `AutomatonTask` with places that end at one; made once.

    Args:
        task: of places.
        place: the query's.
        whole: the whole strings, as models read them that look ahead.

    Raises:
        ValueError: there are too many states.
    """
    found: PlacePrefixes | None = task.explored.get((place, whole))
    if found is None:
        found = task.explored[place, whole] = _Explored(task, place, whole).prefixes()
    return found


def check_places(task: Any) -> None:
    """Store what a task says about places as tuples of integers, and its one length.

    The task is a frozen dataclass in its ``__post_init__``.

    Raises:
        ValueError: places that are no order, a place that is not there, or what does not go with
            them.
    """
    if task.places is None:
        if task.asked is not None:
            raise WrongValueError(f"asked= is of tasks with places=; {task.name} has none")
        return
    places = check_lengths(task.places, "places", least=0)
    length = len(places)
    if sorted(places) != list(range(length)):
        raise WrongValueError(
            f"places of {task.name} must name each of 0 to {length - 1} once, in the order in "
            f"which its moves read them, got {places[:10]}"
        )
    if task.counted is not None:
        raise WrongValueError(
            f"with places=, what {task.name} asks for is said by asked=, not counted="
        )
    if not {*task.train_lengths, *task.long_lengths} <= {length}:
        raise WrongValueError(
            f"strings of {task.name} have as many symbols as places, {length}; leave out "
            "train_lengths and long_lengths"
        )
    last = length - 1 if task.answer is not None else length - 2
    if last < 0:
        raise WrongValueError(
            f"{task.name} has one place, after which no symbol follows; give it an answer="
        )
    every = tuple(range(last + 1)) if task.answer is None else (last,)
    asked = every if task.asked is None else check_lengths(task.asked, "asked", least=0)
    if max(asked, default=last) > last:
        raise WrongValueError(
            f"asked of {task.name} must be places of 0 to {last}, after which something is to be "
            f"said, got {max(asked)}"
        )
    for name, value in (
        ("places", tuple(places)),
        ("asked", tuple(sorted({*asked}))),
        ("train_lengths", (length,)),
        ("long_lengths", (length, length)),
    ):
        object.__setattr__(task, name, value)


class _Explored:
    """A task's automaton, step by step, as it is seen from a place: up to there, or all of it."""

    def __init__(self, task: Any, place: int, whole: bool) -> None:
        self.task, self.place, self.whole = task, place, whole
        self.kinds = [self._kind(each) for each in task.places]
        self.levels = list(_levels(task))
        self.known: list[list[Any]] = self._classes()

    def _kind(self, place: int) -> str:
        if place == self.place:
            return _QUERY
        if place < self.place or self.whole:
            return _READ
        return _NEXT if place == self.place + 1 and self.task.answer is None else _HIDDEN

    def _classes(self) -> list[list[Any]]:
        """For each step, its classes: where each symbol leads; at the end, what is said there.

        States of a step are of one class if what follows is the same, as far as prefixes show it.
        Where a symbol is hidden, only the set of the classes that it may lead to is kept.
        """
        ends: dict[Hashable, Any] = {}
        for state in self.levels[-1]:
            if may_end(self.task, state):
                ends[state] = None if self.task.answer is None else answer_of(self.task, state)
        number: dict[Any, int] = {}
        which = {state: number.setdefault(each, len(number)) for state, each in ends.items()}
        known: list[list[Any]] = [list(number)]
        for kind, level in zip(reversed(self.kinds), reversed(self.levels[:-1]), strict=True):
            number, before = {}, which
            which = {}
            for state, moves in level.items():
                leads = {s: before[to] for s, to in moves.items() if to in before}
                if leads:
                    seen: Any = frozenset(leads.items())
                    seen = frozenset(leads.values()) if kind == _HIDDEN else seen
                    which[state] = number.setdefault(seen, len(number))
            known.append(list(number))
        if not which:
            raise WrongValueError(f"{self.task.name} has no string of {len(self.kinds)} symbols")
        return known[::-1]

    def prefixes(self) -> PlacePrefixes:
        """The automaton of prefixes: sets of what is possible, where that is not told apart."""
        level: dict[_Subset, int] = {self._unread(frozenset([(0, NONE, NONE)]), 0): 0}
        number, after = 1, []
        for step in [at for at, kind in enumerate(self.kinds) if kind == _READ]:
            then: dict[_Subset, int] = {}
            for subset, state in level.items():
                for symbol, reached in self._read(subset, step).items():
                    closed = self._unread(reached, step + 1)
                    if closed not in then:
                        then[closed] = number
                        number += 1
                    after.append((state, symbol, then[closed]))
            level = then
            if number > MOST_STATES:
                raise WrongValueError(
                    f"the prefixes of {self.task.name} of {self.place + 1} symbols have more than "
                    f"{MOST_STATES:,} states; let its moves read in an order that keeps less"
                )
        finals: dict[frozenset[Any], int] = {}
        reads = self.place >= 0
        for subset, state in level.items():
            said: dict[int, set[Any]] = {}
            for kept, query, following in subset:
                what = following if self.task.answer is None else self.known[-1][kept]
                said.setdefault(query, set()).add(what)
            for query, each in said.items():
                # before all places there is no query, and one state, the first
                final = finals.setdefault(frozenset(each), number + len(finals) if reads else 0)
                after += [(state, query, final)] if reads else []
        return self._tabled(after, finals)

    def _tabled(
        self, after: list[tuple[int, int, int]], finals: dict[frozenset[Any], int]
    ) -> PlacePrefixes:
        n_symbols, size = len(self.task.symbols), 1 + max(finals.values())
        table, may = np.full((size, n_symbols), NONE), np.zeros((size, n_symbols), dtype=bool)
        answer = np.full(size, NONE)
        source, symbol, target = np.array(after, dtype=np.int64).reshape(-1, 3).T
        table[source, symbol] = target
        for said, state in finals.items():
            if self.task.answer is None:
                may[state, [each for each in said if each != NONE]] = True
            (alone,) = said if len(said) == 1 else (None,)
            answer[state] = NONE if alone is None else alone
        kinds = [*zip(self.kinds, self.task.places, strict=True)]
        # the query last
        order = [place for what in (_READ, _QUERY) for kind, place in kinds if kind == what]
        return PlacePrefixes(np.array(order, dtype=np.int64), table, may, answer)

    def _read(self, subset: _Subset, step: int) -> dict[int, _Subset]:
        found: dict[int, set[tuple[int, int, int]]] = {}
        for kept, query, following in subset:
            for symbol, to in self.known[step][kept]:
                found.setdefault(symbol, set()).add((to, query, following))
        return {symbol: frozenset(found[symbol]) for symbol in sorted(found)}

    def _unread(self, subset: _Subset, step: int) -> _Subset:
        """What is possible after the steps that are not read here, up to the next that is."""
        for at, kind in enumerate(self.kinds[step:], step):
            if kind == _READ:
                break
            found: list[tuple[int, int, int]] = []
            for kept, query, following in subset:
                moves = self.known[at][kept]
                if kind == _HIDDEN:
                    found += [(to, query, following) for to in moves]
                elif kind == _QUERY:
                    found += [(to, symbol, following) for symbol, to in moves]
                else:
                    found += [(to, query, symbol) for symbol, to in moves]
            subset = frozenset(found)
        return subset


def _levels(task: Any) -> Iterator[dict[Hashable, dict[int, Hashable]]]:
    """The states before each step, each with where every symbol leads; and those at the end."""
    check_state(task, task.start)
    number = {symbol: at for at, symbol in enumerate(task.symbols)}
    level: Sequence[Hashable] = [task.start]
    for _ in task.places:
        found = {state: moves_of(task, state) for state in level}
        yield {
            state: {number[symbol]: to for symbol, to in moves.items()}
            for state, moves in found.items()
        }
        level = list(dict.fromkeys(to for moves in found.values() for to in moves.values()))
        if len(level) > MOST_STATES:
            raise WrongValueError(
                f"strings of {task.name} reach more than {MOST_STATES:,} states; let its moves "
                "read in an order that keeps less"
            )
    yield {state: {} for state in level}
