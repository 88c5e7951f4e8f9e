"""Sums of two numbers, digit by digit: a task whose automaton reads places in its own order.

Knows: how a sum is written, and that a carry is all there is to remember.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import SupportsIndex

from tl_dyck.kit.arguments import checked
from tl_dyck.kit.check import WrongValueError, check_integer
from tl_dyck.tasks.automaton import AutomatonTask

_MOST_DIGITS = 1000  # of a number; a string then has some 3,000 symbols


@checked
def addition_task(
    digits: SupportsIndex,
    written: str | Sequence[str] = "a+b=s",
    *,
    least_first: str = "s",
    base: SupportsIndex = 10,
    symbols: Sequence[str] | None = None,
) -> AutomatonTask:
    """All sums of two numbers of so many digits, filled up with zeros.

    What is asked is the sum, digit by digit, and what is written behind it, each after the right
    symbols before it: a model that knows them all generates the sum of any two numbers.

    Examples:
        >>> task = addition_task(2)
        >>> task.language.to_string(task.sample(1, seed=0)[0])
        '20+31=150'

    Args:
        digits: of each number; the sum has one more.
        written: how a sum is written, part by part: "a", "b" and "s" for the numbers and their sum,
            anything else for itself, as in ("a", "+", "b", "=", "s", "<EOS>").
        least_first: which of "a", "b" and "s" are written with the least significant digit first.
        base: 2 to 10.
        symbols: in token order; None for the digits, then what else is written.

    Raises:
        ValueError: "a", "b" and "s" are not there once each, `least_first` has others, or symbols
            lack one of those written.
    """
    digits = check_integer("digits", digits, least=1, most=_MOST_DIGITS)
    # 10: a figure is one symbol of ten
    base = check_integer("base", base, least=2, most=10)
    parts = tuple(written)
    if sorted(part for part in parts if part in {"a", "b", "s"}) != ["a", "b", "s"]:
        raise WrongValueError(f"a sum is written with a, b and s, once each, not as {parts}")
    if not {*least_first} <= {"a", "b", "s"}:
        raise WrongValueError(f"least_first must be letters of a, b and s, got {least_first!r:.80}")
    figures = tuple(map(str, range(base)))
    places: dict[tuple[int, str], int] = {}  # of (digit, number); literals come before all digits
    fixed: list[tuple[str, int]] = []
    place = 0
    for part in parts:
        if part not in {"a", "b", "s"}:
            fixed.append((part, place))
            place += 1
            continue
        exponents = range(digits + (part == "s"))
        for exponent in exponents if part in least_first else reversed(exponents):
            places[exponent, part] = place
            place += 1
    plan = tuple(text for text, _ in fixed), tuple(part for _, part in sorted(places))
    first = min(at for (_, part), at in places.items() if part == "s")
    others = dict.fromkeys(text for text in plan[0] if text not in figures)
    return AutomatonTask(
        name=f"addition-{digits}",
        symbols=(*figures, *others) if symbols is None else symbols,
        start=(0, 0),
        moves=partial(_moves, *plan, base),
        places=[*(at for _, at in fixed), *(places[each] for each in sorted(places))],
        asked=range(max(first - 1, 0), place - 1),
    )


def _moves(
    fixed: tuple[str, ...], digits: tuple[str, ...], base: int, state: tuple[int, int]
) -> Mapping[str, tuple[int, int]]:
    """What may be read, of (symbols read, carry plus digits of this place)."""
    read, total = state
    if read < len(fixed):
        return {fixed[read]: (read + 1, total)}
    if read == len(fixed) + len(digits):
        return {}
    if digits[read - len(fixed)] == "s":
        return {str(total % base): (read + 1, total // base)}
    return {str(digit): (read + 1, total + digit) for digit in range(base)}
