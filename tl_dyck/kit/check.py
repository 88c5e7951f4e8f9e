"""Checks of what comes from outside: integers, numbers, lengths, time limits, weights.

Knows: what counts as an integer (NumPy's do, booleans and 4.7 do not), how long a string may be
asked for, and what a time limit is. Nothing is expanded or computed before it is checked.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Iterable, Mapping
from itertools import islice
from reprlib import Repr
from typing import Any

from tl_dyck.kit.errors import DyckError

LONGEST = 10_000_000  # tokens in a string
MOST_LENGTHS = 100_000  # lengths in one question
MOST_GIVEN = 1_000_000  # strings, tokens, edits and the like in one collection
MOST_SEEDS = 2**63  # torch's generators take no larger seed
MOST_IDS = 2**24  # tokens of a vocabulary, sixty times those of the largest tokenizers
MOST_DRAWS = 10_000_000  # strings, resamples and the like, drawn at once
LARGEST = 2**64 - 1  # of any number that counts or names something: torch and NumPy hold no larger


class WrongValueError(DyckError, ValueError):
    """A value that is of the right type and out of range; the message names it."""


class WrongTypeError(DyckError, TypeError):
    """A value of another type than is asked for; the message names both."""


def check_integer(
    name: str, value: object, least: int | None = None, most: int | None = None
) -> int:
    """An integer of a range as a plain int, whatever its type (`numpy.int64` too).

    Raises:
        WrongTypeError: it is no integer; booleans are none, nor is 2.0.
        WrongValueError: it is too small or too large; without `most`, `LARGEST` is the most.
    """
    try:
        if isinstance(value, bool) or _dimensions(value):
            raise TypeError
        whole = operator.index(value)  # type: ignore[arg-type]
    except TypeError:
        raise WrongTypeError(f"{name} must be an integer, got {shown(value)}") from None
    if whole < (least := -LARGEST if least is None else least):
        raise WrongValueError(f"{name} must be at least {least}, got {_shortly(whole)}")
    if whole > (most := LARGEST if most is None else most):
        raise WrongValueError(f"{name} must be at most {most}, got {_shortly(whole)}")
    return whole


def check_integer_fields(owner: object, **least: int) -> None:
    """Check fields of a (frozen) dataclass by `check_integer`, and store them as plain ints."""
    for name, low in least.items():
        object.__setattr__(owner, name, check_integer(name, getattr(owner, name), low))


def check_number(
    name: str, value: object, least: float = -math.inf, most: float = math.inf, above: bool = False
) -> float:
    """A finite number of a range as a float; with `above` it must be larger than `least`.

    Raises:
        WrongTypeError: it is no number.
        WrongValueError: it is NaN, infinite or out of range.
    """
    real = _real(name, value)
    if not math.isfinite(real):
        raise WrongValueError(f"{name} must be finite, got {real}")
    if real < least or (above and real == least):
        raise WrongValueError(
            f"{name} must be {'above' if above else 'at least'} {least:g}, got {real:g}"
        )
    if real > most:
        raise WrongValueError(f"{name} must be at most {most:g}, got {real:g}")
    return real


def check_time_limit(value: object, name: str = "time_limit") -> float | None:
    """A time limit in seconds: a finite number above 0, or None for no limit."""
    if value is None:
        return None
    seconds = _real(name, value)
    if not 0 < seconds < math.inf:
        raise WrongValueError(
            f"{name} must be a finite number of seconds above 0, or None for no limit; "
            f"got {shown(value)}"
        )
    return seconds


def check_seed(value: object, name: str = "seed") -> int:
    """A seed: an integer from 0 below 2**63."""
    return check_integer(name, value, least=0, most=MOST_SEEDS - 1)


def check_draws(value: object, name: str = "n") -> int:
    """How many strings, resamples or the like are to be drawn: 1 to `MOST_DRAWS`."""
    return check_integer(name, value, least=1, most=MOST_DRAWS)


def check_level(value: object) -> float:
    """The level of an interval, between 0 and 1."""
    level = _real("level", value)
    if not 0 < level < 1:
        raise WrongValueError(f"level must be between 0 and 1, not {level}")
    return level


def check_instance(name: str, value: object, kind: type | tuple[type, ...], what: str) -> None:
    """Raise `WrongTypeError` for a value of other classes; `what` says which, in words."""
    if not isinstance(value, kind):
        raise WrongTypeError(f"{name} must be {what}, got {shown(value)}")


def check_length(value: object, name: str = "length", least: int = 0, most: int = LONGEST) -> int:
    """The length of a string, in tokens."""
    return check_integer(name, value, least, most)


def check_lengths(
    value: object, name: str = "lengths", least: int = 0, most: int = LONGEST
) -> tuple[int, ...]:
    """Lengths of strings: an integer, a range or an iterable, checked before they are expanded.

    Raises:
        WrongTypeError: they are no integers.
        WrongValueError: one is too small or too large, or there are none, or too many.
    """
    if isinstance(value, range):
        if len(value):
            check_length(value[0], name, least, most)
            check_length(value[-1], name, least, most)
        _count(name, len(value))
        return tuple(value)
    if isinstance(value, (str, bytes)) or not isinstance(value, Iterable):
        return (check_length(value, name, least, most),)
    given = tuple(islice(value, MOST_LENGTHS + 1))
    _count(name, len(given))
    return tuple(check_length(one, name, least, most) for one in given)


def check_several(name: str, values: Iterable[Any], most: int = MOST_GIVEN) -> tuple[Any, ...]:
    """Values as a tuple, of which there may be so many: what has no end is refused."""
    if (many := too_many(values)) is not None:
        raise WrongValueError(f"{name} must be {many}")
    given = tuple(islice(values, most + 1))
    if len(given) > most:
        raise WrongValueError(f"{name} must be at most {most:,}, got more")
    return given


def check_distinct(name: str, values: Iterable[Any]) -> tuple[Any, ...]:
    """Values, at least one and none of them twice."""
    given = tuple(values)
    if not given or len(set(given)) < len(given):
        raise WrongValueError(
            f"{name} must be different from each other and at least one, not {given}"
        )
    return given


def not_finite(weights: Mapping[str, Any]) -> str | None:
    """What is wrong with tensors that are no finite numbers, in words; None if all are."""
    for name, weight in weights.items():
        # a finite sum has finite terms, and costs a fraction; one that is not may have overflowed
        if not math.isfinite(weight.detach().sum()) and not bool(weight.isfinite().all()):
            return f"weight {name} holds nan or infinite values"
    return None


def _count(name: str, count: int) -> None:
    if not 0 < count <= MOST_LENGTHS:
        raise WrongValueError(
            f"{name} must be one to {MOST_LENGTHS:,} lengths, got {count or 'none'}"
        )


def _real(name: str, value: object) -> float:
    try:
        if isinstance(value, (bool, str, bytes)) or _dimensions(value):
            raise TypeError
        return float(value)  # type: ignore[arg-type]
    except (TypeError, ValueError, RuntimeError):  # RuntimeError: a tensor of many elements
        raise WrongTypeError(f"{name} must be a number, got {shown(value)}") from None
    except OverflowError:
        return math.inf


def _dimensions(value: Any) -> int:
    """Of a tensor or array, which stands for a number only if it has none."""
    return int(getattr(value, "ndim", 0))


def shown(value: Any) -> str:
    """A value in a message: a line of it, and its type."""
    if hasattr(value, "dtype") and _dimensions(value):  # not its numbers
        place = " on meta, without numbers" if getattr(value, "is_meta", False) else ""
        return f"{value.dtype} of shape {list(value.shape)}{place} ({type(value).__name__})"
    return f"{brief(value)} ({type(value).__name__})"


def brief(value: Any) -> str:
    """The beginning of a value's `repr`, on one line."""
    text = _BRIEF.repr(value)
    text = " ".join("".join(c if c.isprintable() else " " for c in text).split())
    # 79 and the dots: a line of a terminal
    return text if len(text) <= 80 else text[:79] + "…"


def _shortly(number: int) -> str:
    """A number in a message: one of 5,000 digits cannot even be printed."""
    # 30 digits fit a line; Python refuses to write more than 4,300
    return str(number) if abs(number) < 10**30 else f"one of {number.bit_length()} bits"


def too_many(value: Any) -> str | None:
    """That a range or a collection holds too much, in words; None if it does not.

    Nothing is expanded, and arrays are left to whoever reads their shape.
    """
    if isinstance(value, range):
        count = -(-abs(value.stop - value.start) // abs(value.step)) if value else 0
        most = MOST_GIVEN
    elif hasattr(value, "dtype") or not hasattr(type(value), "__len__"):
        return None
    else:
        try:
            count = len(value)
        except OverflowError:  # more than any list has
            return f"at most {MOST_DRAWS:,}, got more"
        most = MOST_DRAWS
    return None if count <= most else f"at most {most:,}, got {_shortly(count)}"


def too_large(value: Any) -> str | None:
    """The same, or that an integer has too many bits; those in lists, too."""
    if isinstance(value, int) and abs(value) > LARGEST:
        return f"of at most {LARGEST.bit_length()} bits, got {_shortly(value)}"
    if isinstance(value, (list, tuple)) and len(value) <= MOST_DRAWS:
        return next(filter(None, map(too_large, value[:_LOOKED_AT])), None)
    return too_many(value)


# values of a collection that are looked into: all of a large one would take seconds
_LOOKED_AT = 1000


class _Brief(Repr):
    """The beginning of what `repr` says, whatever the size; nothing that cannot be said fails."""

    def __init__(self) -> None:
        super().__init__()
        self.maxlist = self.maxtuple = self.maxset = self.maxfrozenset = self.maxdict = 80
        self.maxdeque = self.maxarray = self.maxother = self.maxlong = self.maxstring = 400

    def repr_int(self, value: int, level: int) -> str:
        return _shortly(value)


_BRIEF = _Brief()
