"""Arguments of public functions, held to their annotations whenever one is called.

Knows: which values an annotation means. A signature is the one place that says what a function
takes; `checked` reads it on the first call, and refuses anything else in a line that names the
argument. Ranges, and what depends on other arguments, are left to the function.
"""

from __future__ import annotations

import builtins
import inspect
import operator
import os
import sys
import types
import typing
from collections import abc
from collections.abc import Callable, Iterable, Mapping, Sized
from dataclasses import dataclass
from functools import cache, wraps
from pathlib import Path
from typing import Any, SupportsFloat, SupportsIndex, TypeVar, cast

from tl_dyck import modes
from tl_dyck.check import WrongTypeError, WrongValueError, shown

Target = TypeVar("Target", bound=Callable[..., Any])

_LOOKED_AT = 1000
"""Elements of a sequence that are looked at, so that this costs nothing beside the work."""


@dataclass(frozen=True)
class _Kind:
    """What an annotation means, in words, and whether a value is of it."""

    words: str
    fits: Callable[[Any], bool]


def checked(target: Target) -> Target:
    """Check the arguments of a function, a method or a class (of its constructor) at each call.

    It is run in the modes of `tl_dyck.modes`, whatever the caller's are.

    Raises:
        WrongTypeError: at a call, of an argument that is not what its annotation says.
        WrongValueError: of a path that is empty.
    """
    if isinstance(target, type):
        target.__init__ = checked(target.__init__)  # type: ignore[misc]
        return target
    read: list[_Parameters] = []

    @wraps(target)
    def call(*args: Any, **kwargs: Any) -> Any:
        if modes.is_traced():  # a graph is to hold what is computed, not questions about it
            return target(*args, **kwargs)
        if not read:
            read.append(_parameters(target))
        (parameters,) = read
        for (name, kind), value in zip(parameters.in_order, args, strict=False):
            if kind is not None and not kind.fits(value):
                _refuse(name, value, kind)
        for name, value in kwargs.items():
            kind = parameters.by_name.get(name)
            if kind is not None and not kind.fits(value):
                _refuse(name, value, kind)
        return modes.call(target, args, kwargs)

    return cast(Target, call)


@cache
def _fields(owner: type) -> Mapping[str, _Kind | None]:
    return _parameters(owner).by_name


def check_field(owner: type, name: str, value: Any) -> None:
    """Check what a field of a dataclass is to hold, as `checked` does; for what converts it."""
    kind = _fields(owner)[name]
    if kind is not None and not kind.fits(value):
        _refuse(name, value, kind)


def _refuse(name: str, value: Any, kind: _Kind) -> None:
    error = WrongValueError if isinstance(value, str) and not value else WrongTypeError
    raise error(f"{name} must be {kind.words}, got {shown(value)}")


@dataclass(frozen=True)
class _Parameters:
    """Of a function, what each argument has to be; None where anything goes."""

    in_order: Iterable[tuple[str, _Kind | None]]
    by_name: Mapping[str, _Kind | None]


def _parameters(target: Callable[..., Any]) -> _Parameters:
    scope = _Scope(vars(sys.modules[inspect.unwrap(target).__module__]))
    in_order: list[tuple[str, _Kind | None]] = []
    by_name: dict[str, _Kind | None] = {}
    for name, parameter in inspect.signature(target).parameters.items():
        hint = parameter.annotation
        if parameter.kind is parameter.VAR_KEYWORD:
            by_name.update(_options(hint, scope))
            continue
        kind = None if hint is parameter.empty else _kind(hint, scope)
        if parameter.kind is parameter.VAR_POSITIONAL:
            in_order += [(name, kind)] * _LOOKED_AT
        else:
            by_name[name] = kind
            if parameter.kind is not parameter.KEYWORD_ONLY:
                in_order.append((name, kind))
    return _Parameters(in_order, by_name)


def _options(hint: Any, scope: _Scope) -> dict[str, _Kind | None]:
    """Those of ``**how: Unpack[Options]``, where `Options` says the types of all."""
    typed = eval(hint, {}, scope) if isinstance(hint, str) else hint
    for options in typing.get_args(typed):
        inside = _Scope(vars(sys.modules[options.__module__]))
        return {name: _kind(each, inside) for name, each in options.__annotations__.items()}
    return {}


class _ByName(type):
    """The class of stand-ins for classes that only type checkers import."""

    def __getattr__(cls, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return _ByName(name, (), {})

    def __getitem__(cls, item: Any) -> Any:
        return cls


class _Scope(dict[str, Any]):
    """What the names in annotations mean, where they are known."""

    def __getitem__(self, name: str) -> Any:
        found = super().__getitem__(name)
        return eval(found, {}, self) if isinstance(found, str) else found  # an alias, in quotes

    def __missing__(self, name: str) -> Any:
        for module in (abc, typing, builtins, *map(sys.modules.get, ("jaxtyping", "torch"))):
            if hasattr(module, name):
                return getattr(module, name)
        return _ByName(name, (), {})


def _kind(hint: Any, scope: _Scope) -> _Kind | None:
    """What an annotation means; None where it says nothing that can be looked at."""
    if isinstance(hint, (str, typing.ForwardRef)):
        text = hint if isinstance(hint, str) else hint.__forward_arg__
        return _kind(eval(text.strip(), {}, scope), scope)
    if isinstance(hint, _ByName):
        return _instance(hint)
    if hint in _PLAIN:
        return _PLAIN[hint]
    origin, parts = typing.get_origin(hint), typing.get_args(hint)
    if origin in (typing.Union, types.UnionType):
        return _union([_kind(part, scope) for part in parts])
    if origin is typing.Literal:
        return _Kind(f"one of {', '.join(map(repr, parts))}", lambda value: _among(value, parts))
    if origin is typing.Annotated:
        return _kind(parts[0], scope)
    if origin is type:
        return _Kind("a class", lambda value: isinstance(value, type))
    if origin is None and hasattr(hint, "array_type"):
        return _array(hint)
    if origin in (abc.Callable, Callable):
        return _Kind("a function", callable)
    if isinstance(origin or hint, type) and issubclass(origin or hint, (abc.Iterable, Sized)):
        return _container(origin or hint, parts, scope)
    if isinstance(hint, TypeVar):
        return None if hint.__bound__ is None else _kind(hint.__bound__, scope)
    return _instance(origin or hint) if isinstance(origin or hint, type) else None


def _instance(kind: Any) -> _Kind | None:
    """Objects of a class, or of what is called so; of a protocol, what can be called if it can."""
    words = f"{'an' if kind.__name__[0] in 'AEIO' else 'a'} {kind.__name__}"
    if isinstance(kind, _ByName):
        return _Kind(
            words, lambda value: kind.__name__ in {c.__name__ for c in type(value).__mro__}
        )
    if getattr(kind, "_is_protocol", False):
        if "__call__" in vars(kind):
            return _Kind("a function", callable)
        members = _members(kind)
        return _Kind(words, lambda value: not isinstance(value, type) and _has(value, members))
    return _Kind(words, lambda value: isinstance(value, kind))


def _name(kind: type) -> str:
    return kind.__name__


def _members(kind: type) -> tuple[str, ...]:
    """What a class must have to follow a protocol."""
    names = {*vars(kind), *getattr(kind, "__annotations__", {})}
    return tuple(sorted(name for name in names if not name.startswith("_")))


def _has(value: Any, members: tuple[str, ...]) -> bool:
    return all(hasattr(type(value), name) or hasattr(value, name) for name in members)


def _union(kinds: list[_Kind | None]) -> _Kind | None:
    known = [kind for kind in kinds if kind is not None]
    if len(known) < len(kinds):
        return None
    if _PLAIN[os.PathLike] in known:  # a text beside it is a path as well
        known = [kind for kind in known if kind is not _PLAIN[str]]
    words = " or ".join(dict.fromkeys(kind.words for kind in known))
    return _Kind(words, lambda value: any(kind.fits(value) for kind in known))


def _container(origin: type, parts: tuple[Any, ...], scope: _Scope) -> _Kind:
    """A collection and what is in it; a text is no collection of letters, nor a set in order."""
    if issubclass(origin, abc.Mapping):
        return _Kind("a mapping", lambda value: isinstance(value, abc.Mapping))
    if getattr(origin, "__module__", "").split(".")[0] not in ("builtins", "collections", "typing"):
        return cast(_Kind, _instance(origin))
    alike = len(parts) == 1 or (len(parts) == 2 and parts[1] is ...)
    inside = _kind(parts[0], scope) if parts and alike else None
    among = f" of {_plural(inside.words)}" if inside is not None else ""
    if issubclass(origin, tuple) and parts and not alike:
        each = [_kind(part, scope) for part in parts]
        return _Kind(
            f"a tuple of {len(parts)}",
            lambda value: (
                _is_collection(value, True)
                and len(value) == len(each)
                and all(
                    kind is None or kind.fits(one) for kind, one in zip(each, value, strict=True)
                )
            ),
        )
    in_order = issubclass(origin, abc.Sequence)
    return _Kind(
        f"{'a sequence' if in_order else 'a collection'}{among}",
        lambda value: _is_collection(value, in_order) and _elements(value, inside),
    )


def _is_collection(value: Any, in_order: bool) -> bool:
    if isinstance(value, (str, bytes, bytearray, type)) or getattr(value, "ndim", 1) == 0:
        return False
    if in_order:
        unordered = isinstance(value, (abc.Set, abc.Mapping))
        return hasattr(value, "__len__") and hasattr(value, "__getitem__") and not unordered
    return isinstance(value, abc.Iterable)


def _elements(value: Any, inside: _Kind | None) -> bool:
    """Whether what is in a list or tuple fits; nothing is taken from what can be read but once."""
    if inside is None or not isinstance(value, (list, tuple, set, frozenset)):
        return True
    return len(value) > _LOOKED_AT or all(inside.fits(one) for one in value)


def _array(hint: Any) -> _Kind:
    """A tensor or array by its kind of number and its number of dimensions."""
    words, numbers = _NUMBERS[hint.__name__.partition("[")[0]]
    dims = hint.dim_str.split()
    some = any(dim.startswith(("*", "...")) for dim in dims)
    least = len(dims) - some

    def fits(value: Any) -> bool:
        if not isinstance(value, hint.array_type):
            return False
        right = value.ndim >= least if some else value.ndim == least
        return right and str(value.dtype).rpartition(".")[2].startswith(numbers)

    what = "tensor" if hint.array_type.__name__ == "Tensor" else "array"
    return _Kind(f"a {what} of {words} [{', '.join(dim.lstrip('_') for dim in dims)}]", fits)


#: By the name of an annotation: what such numbers are called, and what their dtypes begin with.
_NUMBERS = {
    "Int": ("integers", ("int", "uint")),
    "Bool": ("booleans", ("bool",)),
    "Float": ("real numbers", ("float", "bfloat")),
    "Float64": ("float64", ("float64",)),
    "Float32": ("float32", ("float32",)),
}


def _plural(words: str) -> str:
    for one, many in (("an integer", "integers"), ("a number", "numbers"), ("a text", "texts")):
        words = words.replace(one, many)
    return words


def _among(value: Any, choices: tuple[Any, ...]) -> bool:
    return any(type(value) is type(choice) and value == choice for choice in choices)


def _is_integer(value: Any) -> bool:
    if isinstance(value, bool):
        return False
    try:
        operator.index(value)
    except (TypeError, RuntimeError):  # RuntimeError: a tensor without numbers
        return False
    return True


def _is_number(value: Any) -> bool:
    if isinstance(value, (bool, str, bytes, bytearray)) or getattr(value, "ndim", 0) != 0:
        return False
    try:
        float(value)
    except OverflowError:
        return True
    except (TypeError, ValueError, RuntimeError):
        return False
    return True


def _is_bool(value: Any) -> bool:
    return isinstance(value, bool) or type(value).__name__ in ("bool_", "bool")


def _is_path(value: Any) -> bool:
    return isinstance(value, (str, os.PathLike)) and str(value) != "" and "\0" not in str(value)


_INTEGER, _NUMBER = _Kind("an integer", _is_integer), _Kind("a number", _is_number)
_PATH = _Kind("a path", _is_path)
_PLAIN: dict[Any, _Kind | None] = {
    Any: None,
    object: None,
    None: (_NONE := _Kind("None", lambda value: value is None)),
    type(None): _NONE,
    int: _INTEGER,
    SupportsIndex: _INTEGER,
    float: _NUMBER,
    SupportsFloat: _NUMBER,
    bool: _Kind("True or False", _is_bool),
    str: _Kind("a text", lambda value: isinstance(value, str)),
    os.PathLike: _PATH,
    Path: _PATH,
    abc.Hashable: None,
}
