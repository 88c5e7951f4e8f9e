"""What an annotation means: which values are of it, in words too.

Knows: that NumPy's integers are integers and booleans are none, that a text is no collection, and
how tensors are told by their numbers and dimensions; and that nothing is too large to be held. A
name that only type checkers import stands for a class that is called so, so that nothing is
imported to look at a value.
"""

from __future__ import annotations

import builtins
import operator
import os
import sys
import types
import typing
from collections import abc
from collections.abc import Callable, Sized
from dataclasses import dataclass
from pathlib import Path
from typing import Any, SupportsFloat, SupportsIndex, TypeVar, cast

from tl_dyck.kit.check import LARGEST, too_many

LOOKED_AT = 1000
"""Elements of a sequence that are looked at, so that this costs nothing beside the work."""


@dataclass(frozen=True)
class Meaning:
    """What an annotation means, in words, and whether a value is of it."""

    words: str
    fits: Callable[[Any], bool]
    depth: int = 0
    """Of collections, how deep they are nested, as arrays in place of them have dimensions."""


class _ByName(type):
    """The class of stand-ins for classes that only type checkers import."""

    def __getattr__(cls, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return _ByName(name, (), {})

    def __getitem__(cls, item: Any) -> Any:
        return cls


class Scope(dict[str, Any]):
    """What the names in annotations mean, where they are known."""

    def __getitem__(self, name: str) -> Any:
        found = super().__getitem__(name)
        return eval(found, {}, self) if isinstance(found, str) else found  # an alias, in quotes

    def __missing__(self, name: str) -> Any:
        for module in (abc, typing, builtins, *map(sys.modules.get, ("jaxtyping", "torch"))):
            if hasattr(module, name):
                return getattr(module, name)
        return _ByName(name, (), {})


def meaning(hint: Any, scope: Scope) -> Meaning | None:
    """What an annotation means; None where it says nothing that can be looked at."""
    if isinstance(hint, (str, typing.ForwardRef)):
        text = hint if isinstance(hint, str) else hint.__forward_arg__
        return meaning(eval(text.strip(), {}, scope), scope)
    if isinstance(hint, _ByName):
        return _instance(hint)
    if hint in _PLAIN:
        return _PLAIN[hint]
    origin, parts = typing.get_origin(hint), typing.get_args(hint)
    if origin in (typing.Union, types.UnionType):
        return _union([meaning(part, scope) for part in parts])
    if origin is typing.Literal:
        return Meaning(f"one of {', '.join(map(repr, parts))}", lambda value: _among(value, parts))
    if origin is typing.Annotated:
        return meaning(parts[0], scope)
    if origin is type:
        base = parts[0] if isinstance(parts[0], type) and not _is_stand_in(parts[0]) else object
        return Meaning(
            f"a class of {base.__name__}",
            lambda value: isinstance(value, type) and issubclass(value, base),
        )
    if origin is None and hasattr(hint, "array_type"):
        return _array(hint)
    if origin in (abc.Callable, Callable):
        return Meaning("a function", callable)
    if isinstance(origin or hint, type) and issubclass(origin or hint, (abc.Iterable, Sized)):
        return _container(origin or hint, parts, scope)
    if isinstance(hint, TypeVar):
        return None if hint.__bound__ is None else meaning(hint.__bound__, scope)
    return _instance(origin or hint) if isinstance(origin or hint, type) else None


def _instance(kind: Any) -> Meaning | None:
    """Objects of a class, or of what is called so; of a protocol, what can be called if it can."""
    words = f"{'an' if kind.__name__[0] in 'AEIO' else 'a'} {kind.__name__}"
    if isinstance(kind, _ByName):
        return Meaning(
            words, lambda value: kind.__name__ in {c.__name__ for c in type(value).__mro__}
        )
    if getattr(kind, "_is_protocol", False):
        if "__call__" in vars(kind):
            return Meaning("a function", callable)
        members = _members(kind)
        return Meaning(words, lambda value: not isinstance(value, type) and _has(value, members))
    return Meaning(words, lambda value: isinstance(value, kind))


def _is_stand_in(kind: type) -> bool:
    return isinstance(kind, _ByName)


def _name(kind: type) -> str:
    return kind.__name__


def _members(kind: type) -> tuple[str, ...]:
    """What a class must have to follow a protocol."""
    names = {*vars(kind), *getattr(kind, "__annotations__", {})}
    return tuple(sorted(name for name in names if not name.startswith("_")))


def _has(value: Any, members: tuple[str, ...]) -> bool:
    return all(hasattr(type(value), name) or hasattr(value, name) for name in members)


def _union(kinds: list[Meaning | None]) -> Meaning | None:
    known = [kind for kind in kinds if kind is not None]
    if len(known) < len(kinds):
        return None
    if _PLAIN[Path] in known and _PLAIN[str] in known:  # a text is a path as well
        known = [_PATH, *(kind for kind in known if kind not in (_PLAIN[Path], _PLAIN[str]))]
    words = " or ".join(dict.fromkeys(kind.words for kind in known))
    return Meaning(words, lambda value: any(kind.fits(value) for kind in known))


def _container(origin: type, parts: tuple[Any, ...], scope: Scope) -> Meaning:
    """A collection and what is in it; a text is no collection of letters, nor a set in order."""
    if issubclass(origin, abc.Mapping):
        return Meaning("a mapping", lambda value: isinstance(value, abc.Mapping))
    if getattr(origin, "__module__", "").split(".")[0] not in ("builtins", "collections", "typing"):
        return cast(Meaning, _instance(origin))
    alike = len(parts) == 1 or (len(parts) == 2 and parts[1] is ...)
    inside = meaning(parts[0], scope) if parts and alike else None
    among = f" of {_plural(inside.words)}" if inside is not None else ""
    if issubclass(origin, tuple) and parts and not alike:
        each = [meaning(part, scope) for part in parts]
        return Meaning(
            f"a tuple of {len(parts)}",
            lambda value: (
                _is_collection(value, True)
                and len(value) == len(each)
                and all(
                    kind is None or kind.fits(one) for kind, one in zip(each, value, strict=True)
                )
            ),
        )
    if origin is list:  # which callers tell from a tensor, or change
        return Meaning(
            f"a list{among}",
            lambda value: isinstance(value, (list, tuple)) and (_elements(value, inside)),
        )
    in_order = issubclass(origin, abc.Sequence)
    return Meaning(
        f"{'a sequence' if in_order else 'a collection'}{among}",
        lambda value: _is_collection(value, in_order) and _elements(value, inside),
        1 + (0 if inside is None else inside.depth),
    )


def _is_collection(value: Any, in_order: bool) -> bool:
    if isinstance(value, (str, bytes, bytearray, type, abc.Mapping)):
        return False
    if getattr(value, "is_meta", False):
        return False
    if getattr(value, "ndim", 1) == 0 or too_many(value) is not None:
        return False
    if in_order:
        unordered = isinstance(value, abc.Set)
        return hasattr(value, "__len__") and hasattr(value, "__getitem__") and not unordered
    return isinstance(value, abc.Iterable)


def _elements(value: Any, inside: Meaning | None) -> bool:
    """Whether what is in a list or tuple fits; nothing is taken from what can be read but once."""
    if inside is None:
        return True
    if hasattr(value, "dtype") and hasattr(value, "tolist"):
        flat = value.reshape(-1)[:1].tolist() if inside.depth == 0 else []
        return bool(value.ndim == 1 + inside.depth and all(map(inside.fits, flat)))
    if not isinstance(value, (list, tuple, set, frozenset)):
        return True
    return len(value) > LOOKED_AT or all(inside.fits(one) for one in value)


def _array(hint: Any) -> Meaning:
    """A tensor or array by its kind of number and its number of dimensions."""
    words, numbers = _NUMBERS[hint.__name__.partition("[")[0]]
    dims = hint.dim_str.split()
    some = any(dim.startswith(("*", "...")) for dim in dims)
    least = len(dims) - some

    def fits(value: Any) -> bool:
        if not isinstance(value, hint.array_type) or getattr(value, "is_meta", False):
            return False
        right = value.ndim >= least if some else value.ndim == least
        return right and str(value.dtype).rpartition(".")[2].startswith(numbers)

    what = "tensor" if hint.array_type.__name__ == "Tensor" else "array"
    return Meaning(f"a {what} of {words} [{', '.join(dim.lstrip('_') for dim in dims)}]", fits)


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
    if isinstance(value, bool) or getattr(value, "ndim", 0) != 0:
        return False
    try:
        return -LARGEST <= operator.index(value) <= LARGEST
    except (TypeError, RuntimeError):  # RuntimeError: a tensor without numbers
        return False


def _is_number(value: Any) -> bool:
    if isinstance(value, (bool, str, bytes, bytearray)) or getattr(value, "ndim", 0) != 0:
        return False
    try:
        float(value)
    except (TypeError, ValueError, RuntimeError, OverflowError):
        return False
    return True


def _is_bool(value: Any) -> bool:
    return isinstance(value, bool) or type(value).__name__ in ("bool_", "bool")


def _is_path(value: Any) -> bool:
    return isinstance(value, (str, os.PathLike)) and str(value) != "" and "\0" not in str(value)


_INTEGER, _NUMBER = Meaning("an integer", _is_integer), Meaning("a number", _is_number)
_PATH = Meaning("a path", _is_path)
_PLAIN: dict[Any, Meaning | None] = {
    Any: None,
    object: None,
    None: (_NONE := Meaning("None", lambda value: value is None)),
    type(None): _NONE,
    int: _INTEGER,
    SupportsIndex: _INTEGER,
    float: _NUMBER,
    SupportsFloat: _NUMBER,
    bool: Meaning("True or False", _is_bool),
    str: Meaning("a text", lambda value: isinstance(value, str)),
    os.PathLike: _PATH,
    Path: (_OBJECT := Meaning("a pathlib.Path", lambda value: isinstance(value, os.PathLike))),
    abc.Hashable: None,
}
