"""Tasks without a stack of which every string is run: counters, sums, memories.

Knows: what is asked after each symbol, and how many strings there are. Answers are symbols, so that
a model says them by the logits that it has; all strings of a task have one length.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any, final

from tl_dyck.tasks import AutomatonTask

# Moves and answers are classes: a task that is unpickled equals the one that was pickled.


@final
@dataclass(frozen=True)
class _Largest:
    """The largest number so far, of 0 … most."""

    most: int

    def __call__(self, largest: int) -> Mapping[str, int]:
        return {str(number): max(largest, number) for number in range(self.most + 1)}


def _itself(state: int) -> int | None:
    return state if state >= 0 else None  # -1 before the first symbol


def _steps(total: int) -> Mapping[str, int]:
    return {"-": total - 1, "0": total, "+": total + 1}


def _sign(total: int) -> int:
    return 1 + (total > 0) - (total < 0)  # the place in "-0+"


@final
@dataclass(frozen=True)
class _Copy:
    """So many letters, "=", and the same letters again; a state is what has been read."""

    letters: str
    length: int

    def __call__(self, read: str) -> Mapping[str, str]:
        at = len(read) - self.length
        if at < 0:
            return {letter: read + letter for letter in self.letters}
        if at == 0:
            return {"=": read + "="}
        return {read[at - 1]: read + read[at - 1]} if at <= self.length else {}


def _copied(read: str, symbol: str) -> bool:
    return "=" in read


@final
@dataclass(frozen=True)
class _Added:
    """Two numbers and their sum modulo; a state is how many were read, and their sum."""

    modulus: int

    def __call__(self, state: tuple[int, int]) -> Mapping[str, tuple[int, int]]:
        read, total = state
        if read == 2:
            return {}
        return {str(x): (read + 1, (total + x) % self.modulus) for x in range(self.modulus)}


def _sum(state: tuple[int, int]) -> int | None:
    return state[1] if state[0] == 2 else None


def _task(
    name: str,
    symbols: Sequence[str],
    start: Hashable,
    moves: Callable[[Any], Mapping[str, Any]],
    length: int,
    **asks: Any,
) -> AutomatonTask:
    lengths: dict[str, Any] = {"train_lengths": (length,), "long_lengths": (length, length)}
    return AutomatonTask(
        name=name, symbols=tuple(symbols), start=start, moves=moves, **lengths, **asks
    )


_MAKERS: dict[str, Callable[[], AutomatonTask]] = {
    "largest": lambda: _task("largest", "0123", -1, _Largest(3), 4, answer=_itself),
    # 4 steps: of 6, most heads of both circuits carry, and little is left to ask
    "sign": lambda: _task("sign", "-0+", 0, _steps, 4, answer=_sign),
    "modular": lambda: _task("modular", "01234", (0, 0), _Added(5), 2, answer=_sum),
    "copy": lambda: _task("copy", "abc=", "", _Copy("abc", 4), 9, counted=_copied),
}

BRACKETS = "brackets"
#: What is asked, in words; of brackets, of which much else is asked elsewhere, for comparison.
TASKS = {
    BRACKETS: "Brackets of two types, three deep: what closes the one that is open.",
    "largest": "Four numbers, 0 to 3: the largest so far, after each.",
    "sign": "Four steps, - 0 +: the sign of their sum so far, after each.",
    "modular": "Two numbers, 0 to 4: their sum modulo 5.",
    "copy": "Four letters, =, and the same letters again, one by one.",
}


@cache
def small_automaton(name: str) -> AutomatonTask:
    """The task of a name of `TASKS`, but of `BRACKETS`."""
    return _MAKERS[name]()
