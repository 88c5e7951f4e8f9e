"""Counting, listing and drawing the *distinct* strings of a perturbation space.

Several edits can make the same string (delete either word of a doubled pair), so paths of the
lattice over-count. The lattice is a nondeterministic automaton without cycles; its subset
construction has one path per distinct string. Subsets are made as they are needed, and states that
another state of the same subset makes superfluous (same place, no budget spent more) are dropped,
which keeps them few: about one per place and recent history.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from typing import NamedTuple, final

from tl_dyck.certify.deadline import Deadline
from tl_dyck.certify.lattice import Lattice


class _Place(NamedTuple):
    """A state of the nondeterministic automaton: at a level (option -1), or in an emission."""

    level: int
    option: int
    emitted: int


_State = frozenset[tuple[_Place, int]]
"""A subset: places, each with the code of the budget spent."""


@final
class StringAutomaton:
    """The deterministic automaton of a lattice's strings."""

    def __init__(self, lattice: Lattice) -> None:
        self._lattice = lattice
        self._steps: dict[_State, dict[int, _State]] = {}
        self._counts: dict[_State, int] = {}
        self._start = self._closed([(_Place(0, -1, 0), 0)])

    def size(self) -> int:
        """Number of distinct strings."""
        return self._count(self._start)

    def has_more_than(self, limit: int, deadline: Deadline | None = None) -> bool:
        """Whether there are more than `limit` distinct strings; sooner known than their number."""
        return self._count(self._start, limit, deadline) > limit

    def strings(self, deadline: Deadline | None = None) -> Iterator[tuple[int, ...]]:
        """Every distinct string once, in lexicographic order; `OutOfTime` once time is up."""
        deadline = deadline or Deadline()
        stack: list[tuple[tuple[int, ...], _State]] = [((), self._start)]
        while stack:
            deadline.check()
            string, state = stack.pop()
            if self._accepts(state):
                yield string
            steps = self._next(state)
            stack.extend(((*string, token), steps[token]) for token in sorted(steps, reverse=True))

    def draw(self, rng: random.Random) -> tuple[int, ...]:
        """One string, uniform over the distinct ones."""
        string: list[int] = []
        state = self._start
        while True:
            # ticket -1 is the string that ends here, if one does
            ticket = rng.randrange(self._count(state)) - self._accepts(state)
            if ticket < 0:
                return tuple(string)
            for token, following in self._next(state).items():
                ticket -= self._count(following)
                if ticket < 0:
                    string.append(token)
                    state = following
                    break

    def _count(
        self, state: _State, enough: int | None = None, deadline: Deadline | None = None
    ) -> int:
        """Strings that lead from here to the end; an explicit stack, since strings may be long.

        Or some number above `enough`, as soon as any state on the way has that many: `state` has no
        fewer.
        """
        deadline = deadline or Deadline()
        stack = [state]
        while stack:
            deadline.check()
            top = stack[-1]
            pending = [s for s in self._next(top).values() if s not in self._counts]
            if top not in self._counts and pending:
                stack.extend(pending)
                continue
            stack.pop()
            self._counts[top] = self._accepts(top) + sum(
                self._counts[s] for s in self._next(top).values()
            )
            if enough is not None and self._counts[top] > enough:
                return self._counts[top]
        return self._counts[state]

    def _accepts(self, state: _State) -> bool:
        last = _Place(self._lattice.last_level, -1, 0)
        return any(place == last for place, _ in state)

    def _next(self, state: _State) -> dict[int, _State]:
        if state not in self._steps:
            moves: dict[int, list[tuple[_Place, int]]] = {}
            for place, code in state:
                for token, reached in self._moves(place, code):
                    moves.setdefault(token, []).append(reached)
            self._steps[state] = {token: self._closed(reached) for token, reached in moves.items()}
        return self._steps[state]

    def _moves(self, place: _Place, code: int) -> Iterator[tuple[int, tuple[_Place, int]]]:
        """Return the tokens that can be read next, each with the states it leads to."""
        options = self._lattice.options
        if place.option >= 0:
            started = [(place.option, code)]
        else:
            after = ((i, self._lattice.after(code, options[i].kind)) for i in self._from(place))
            started = [(i, new) for i, new in after if new is not None]
        for index, new in started:
            option, emitted = options[index], place.emitted
            if emitted < len(option.emits):
                done = emitted + 1 == len(option.emits)
                inside = _Place(option.source, index, emitted + 1)
                yield option.emits[emitted], (_Place(option.target, -1, 0) if done else inside, new)

    def _closed(self, reached: list[tuple[_Place, int]]) -> _State:
        """Add what can be reached without reading anything, then drop what is superfluous."""
        codes: dict[_Place, set[int]] = {}
        stack = list(reached)
        while stack:
            place, code = stack.pop()
            if code in codes.setdefault(place, set()):
                continue
            codes[place].add(code)
            for index in self._from(place) if place.option < 0 else ():
                option = self._lattice.options[index]
                new = self._lattice.after(code, option.kind)
                if new is not None and not option.emits:
                    stack.append((_Place(option.target, -1, 0), new))
        return frozenset(
            (place, code) for place, found in codes.items() for code in self._cheapest(found)
        )

    def _from(self, place: _Place) -> tuple[int, ...]:
        return self._lattice.options_from[place.level]

    def _cheapest(self, codes: set[int]) -> Iterator[int]:
        """Codes for which no other has spent at most as much of everything."""
        spent = {code: self._lattice.spent(code) for code in codes}
        for code, uses in spent.items():
            if not any(
                other != code and all(a <= b for a, b in zip(less, uses, strict=True))
                for other, less in spent.items()
            ):
                yield code
