"""``--set training.learning_rate=3e-3``: any field of a command's configuration.

Knows: what a dotted name leads to, and what a text means where a value of a type stands.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Annotated, Any, TypeVar

from tl_dyck.cli.options import option, refuse_twice
from tl_dyck.kit.check import WrongTypeError, WrongValueError
from tl_dyck.kit.registry import unknown_name

if TYPE_CHECKING:
    from tl_dyck.kit.configuration import Configuration

T = TypeVar("T", bound="Configuration")


def settings_of(example: str) -> Any:
    """The option ``--set`` of a command, with one of its fields and a value as the example."""
    return Annotated[
        list[str] | None,
        option(
            "NAME=VALUE", f"Any field of the configuration: {example}. May be repeated.", "--set"
        ),
    ]


def configured(config: T, settings: Iterable[str] | None) -> T:
    """A configuration with some of its fields set; see `changed`."""
    return type(config).from_dict(changed(config.to_dict(), settings)) if settings else config


def changed(values: Mapping[str, Any], settings: Iterable[str] | None) -> dict[str, Any]:
    """The fields of a configuration, as JSON values, with some of them set.

    Args:
        values: the fields; mappings are parts with fields of their own.
        settings: texts ``name.of.field=value``: a number, true, false, none, a name, or several
            with commas between.

    Raises:
        UnknownNameError: there is no such field; the message names the nearest.
        WrongTypeError: a value is of another type than the field's.
        WrongValueError: a text without an equals sign.
        ValueError: a field is set twice.
    """
    found: dict[str, Any] = _copied(values)
    settings = tuple(settings or ())
    refuse_twice("--set", settings)
    for setting in settings:
        name, equals, text = (part.strip() for part in setting.partition("="))
        if not equals:
            raise WrongValueError(
                f"--set {setting!r}: give a field and its value, such as training.steps=500"
            )
        *path, last = name.split(".")
        inner: Any = found
        for part in path:
            inner = inner.get(part) if isinstance(inner, dict) else None
        if not isinstance(inner, dict) or last not in inner:
            raise unknown_name("setting", name, _names(found))
        inner[last] = _read(text, inner[last], f"--set {name}")
    return found


def _copied(values: Any) -> Any:
    """Values of which parts can be changed."""
    if isinstance(values, Mapping):
        return {name: _copied(value) for name, value in values.items()}
    return values


def _names(values: Mapping[str, Any], before: str = "") -> list[str]:
    """The dotted names of all fields."""
    found = []
    for name, value in values.items():
        here = f"{before}{name}"
        found += _names(value, f"{here}.") if isinstance(value, Mapping) else [here]
    return found


def _read(text: str, now: Any, what: str) -> Any:
    """A text as a value like another."""
    if text.lower() == "none":
        return None
    if text.lower() in ("true", "false") and isinstance(now, bool | None):
        return text.lower() == "true"
    if isinstance(now, bool):
        raise WrongTypeError(f"{what} must be true or false, got {text!r}")
    if isinstance(now, (list, tuple)):
        like = now[0] if now else None
        return [_read(part.strip(), like, what) for part in text.split(",") if part.strip()]
    if isinstance(now, str):
        return text
    for kind in (int, float):
        if now is None or isinstance(now, kind):
            with contextlib.suppress(ValueError):
                return kind(text)
    if now is None:
        return text
    words = {int: "an integer", float: "a number"}.get(type(now), "none, or name a field in it")
    raise WrongTypeError(f"{what} must be {words}, got {text!r}")
