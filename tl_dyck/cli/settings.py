"""``--set training.learning_rate=3e-3``: any field of a command's configuration.

Knows: what a dotted name leads to, and what a text means for a field of a type.
"""

from __future__ import annotations

import dataclasses
import types
import typing
from collections.abc import Iterable, Mapping
from typing import Annotated, Any, TypeVar, Union

import typer

from tl_dyck.check import WrongTypeError, WrongValueError
from tl_dyck.registry import unknown_name

T = TypeVar("T")

Settings = Annotated[
    list[str] | None,
    typer.Option(
        "--set",
        metavar="NAME=VALUE",
        help="Any field of the configuration: training.learning_rate=3e-3. May be repeated.",
    ),
]


def configured(config: T, settings: Iterable[str] | None) -> T:
    """A configuration, a dataclass, with some of its fields set.

    Args:
        config: what is changed; fields that are dataclasses or mappings have fields of their own.
        settings: texts ``name.of.field=value``: a number, true, false, none, a name, or several
            with commas between.

    Raises:
        UnknownNameError: there is no such field; the message names the nearest.
        WrongTypeError: a value is of another type than the field.
        ValueError: a text without an equals sign, or a value that the configuration refuses.
    """
    tree: dict[str, Any] = {}
    for setting in settings or ():
        name, equals, text = (part.strip() for part in setting.partition("="))
        if not equals:
            raise WrongValueError(
                f"--set {setting!r}: give a field and its value, such as training.steps=500"
            )
        kinds = _kinds(config)
        if name not in kinds:
            raise unknown_name("setting", name, kinds)
        *path, last = name.split(".")
        inner = tree
        for part in path:
            inner = inner.setdefault(part, {})
            if not isinstance(inner, dict):
                raise WrongValueError(f"--set names {part!r}, and {name!r} in it: leave one out")
        inner[last] = _read(text, kinds[name], name)
    found: T = _with(config, tree)
    return found


def _with(value: Any, tree: Mapping[str, Any]) -> Any:
    """A dataclass or mapping with other values, all at once, for each must fit the others."""
    now = value if isinstance(value, Mapping) else vars(value)
    new = {
        name: _with(now[name], given) if isinstance(given, dict) else given
        for name, given in tree.items()
    }
    if isinstance(value, Mapping):
        return {**value, **new}
    return dataclasses.replace(value, **new) if new else value


def _kinds(value: Any, before: str = "") -> dict[str, Any]:
    """The types of all fields that can be set, by their dotted names."""
    if isinstance(value, Mapping):
        fields = {str(name): (type(each), each) for name, each in value.items()}
    elif dataclasses.is_dataclass(value):
        hints = typing.get_type_hints(type(value))
        names = [each.name for each in dataclasses.fields(value) if each.init]
        fields = {name: (hints[name], getattr(value, name)) for name in names}
    else:
        return {}
    found = {}
    for name, (kind, inner) in fields.items():
        below = _kinds(inner, f"{before}{name}.")
        if not below or type(None) in typing.get_args(kind):
            found[f"{before}{name}"] = kind
        found |= below
    return found


def _read(text: str, kind: Any, name: str) -> Any:
    """A text as a value of a type.

    Raises:
        WrongTypeError: it is none.
    """
    origin, of = typing.get_origin(kind), typing.get_args(kind)
    if origin in (Union, types.UnionType):
        if type(None) in of and text.lower() == "none":
            return None
        return _read(text, next(each for each in of if each is not type(None)), name)
    if origin is tuple:
        return tuple(_read(part.strip(), of[0], name) for part in text.split(",") if part.strip())
    if kind is bool and text.lower() in ("true", "false"):
        return text.lower() == "true"
    if kind is str:
        return text
    if kind in (int, float):
        try:
            return kind(text)
        except ValueError:
            pass
    words = {bool: "true or false", int: "an integer", float: "a number"}
    raise WrongTypeError(f"--set {name}: {text!r} is not {words.get(kind, 'one value')}")
