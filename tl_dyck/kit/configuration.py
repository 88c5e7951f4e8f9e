"""A base of configurations: frozen dataclasses that are checked, go to JSON and come back.

Knows: that JSON has lists where Python has tuples, and what a part of a configuration is called in
a point of a sweep: ``training.steps``.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping
from dataclasses import MISSING, dataclass, field, fields
from functools import partial
from typing import Any, get_args, get_type_hints

from typing_extensions import Self

from tl_dyck.kit.arguments import check_field, checked
from tl_dyck.kit.check import (
    MOST_DRAWS,
    WrongTypeError,
    WrongValueError,
    check_integer,
    check_number,
    shown,
)
from tl_dyck.kit.json_values import plain
from tl_dyck.kit.registry import unknown_name


def whole(default: Any = MISSING, least: int = 1, most: int | None = None) -> Any:
    """A field that holds an integer of a range, or None if its type says so."""
    return field(
        default=default, metadata={"check": partial(check_integer, least=least, most=most)}
    )


drawn = partial(whole, most=MOST_DRAWS)
"""A field that holds how many strings, resamples or the like are drawn at once."""


def number(
    default: float | None, least: float = 0.0, most: float = math.inf, above: bool = False
) -> Any:
    """A field that holds a finite number of a range, or None if its type says so."""
    check = partial(check_number, least=least, most=most, above=above)
    return field(default=default, metadata={"check": check})


def choice(default: str | None, known: Collection[str]) -> Any:
    """A field that holds one of some names, or None if its type says so."""

    def check(name: str, value: Any) -> Any:
        if not isinstance(value, str) or value not in known:
            raise unknown_name(name, value, known)
        return value

    return field(default=default, metadata={"check": check})


@dataclass(frozen=True, kw_only=True)
class Configuration:
    """Options by name. Lists become tuples, and objects of JSON the configurations they are of.

    Raises:
        WrongTypeError: a field is of another type; the message names it.
        WrongValueError: a number is out of its range.
        UnknownNameError: a name is none of those that a field may hold.
    """

    def __post_init__(self) -> None:
        for entry in fields(self):
            value = getattr(self, entry.name)
            if "check" in entry.metadata:
                # annotations are texts here: "int | None" lets None pass
                if value is not None or "None" not in str(entry.type):
                    value = entry.metadata["check"](entry.name, value)
            else:
                if isinstance(value, (list, Mapping)):
                    part = self._part(entry.name)
                    value = _tuple(value) if part is None else part.from_dict(value)
                check_field(type(self), entry.name, value)
            # the class is frozen; a check may return another value, such as an int for a numpy
            # integer
            object.__setattr__(self, entry.name, value)

    @classmethod
    def _part(cls, name: str) -> type[Configuration] | None:
        """The configuration that a field holds, if it holds one."""
        hint = get_type_hints(cls)[name]
        kinds = [kind for kind in (hint, *get_args(hint)) if isinstance(kind, type)]
        return next((kind for kind in kinds if issubclass(kind, Configuration)), None)

    def to_dict(self) -> dict[str, Any]:
        """The fields as JSON values."""
        return {entry.name: plain(getattr(self, entry.name)) for entry in fields(self)}

    @classmethod
    @checked
    def from_dict(cls, values: Any, called: str = "") -> Self:
        """The inverse of `to_dict`; fields that are left out have their default.

        Messages have `called`, such as "training.", before the fields' names.
        """
        if not isinstance(values, Mapping):
            raise WrongTypeError(f"{cls.__name__} must be an object, got {shown(values)}")
        known = [f"{called}{entry.name}" for entry in fields(cls)]
        for name in values:
            if f"{called}{name}" not in known:
                raise unknown_name("parameter", f"{called}{name}", known)
        lacks = [
            f"{called}{entry.name}"
            for entry in fields(cls)
            if entry.default is MISSING and entry.default_factory is MISSING
            if entry.name not in values
        ]
        if lacks:
            raise WrongValueError(f"{cls.__name__} lacks {', '.join(lacks)}")
        return cls(**values)


def _tuple(value: Any) -> Any:
    return tuple(map(_tuple, value)) if isinstance(value, list) else value


def parameters_of(part: str, values: Any) -> dict[str, Any]:
    """The fields of a configuration, or of another dataclass, as parameters of a point.

    For example ``training.steps``, ``measure.n_long``.
    """
    known = (entry.name for entry in fields(values) if entry.init)
    return {f"{part}.{name}": plain(getattr(values, name)) for name in known}


def nested(values: Mapping[str, Any]) -> dict[str, dict[str, Any]]:
    """Parameters by the parts of their dotted names: the inverse of `parameters_of`."""
    found: dict[str, Any] = {}
    for name, value in values.items():
        *path, last = name.split(".")
        inner = found
        for part in path:
            inner = inner.setdefault(part, {})
        inner[last] = value
    return found
