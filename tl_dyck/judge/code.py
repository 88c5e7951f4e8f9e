"""What a method is made of, in a few letters: changed code is another method under the same name.

Knows: what of a function decides what it returns. Read is what runs, compiled code and not source
text, so that lambdas, closures, wrappers, partials and whatever a notebook defines count; comments
and places in a file do not. Followed are functions, classes and values that the code names, as far
as they are its author's: in ``__main__``, in the package that the method is in, or in modules that
are not installed. Not seen is what lies in files, in compiled extensions, inside objects of other
packages, and other packages themselves; and another minor version of Python compiles otherwise.
"""

from __future__ import annotations

import functools
import hashlib
import importlib
import itertools
import re
import sys
import types
from collections.abc import Callable, Iterable, Mapping, Set
from contextlib import suppress
from dataclasses import fields, is_dataclass
from pathlib import Path
from typing import Any

import numpy as np
from torch import Tensor, nn

from tl_dyck.kit.files import sha256

_PLAIN = (bool, int, float, complex, str, bytes, type(None), type(...))
_OURS = ("tl_dyck", "tl_dyck_hooks")
_INSTALLED = {"site-packages", "dist-packages"}
#: Of a class: what does not change what it does.
_UNREAD = {
    *("__dict__", "__weakref__", "__module__", "__doc__", "__firstlineno__", "_abc_impl"),
    *("__static_attributes__", "__annotations__", "__annotate_func__", "__annotations_cache__"),
}


def code_digest(function: Callable[..., Any]) -> str:
    """16 hexadecimal digits that change with the code of a function, or of what it uses.

    Args:
        function: anything that can be called.
    """
    inner = function
    while (below := _inside(inner)) is not None:
        inner = below
    return sha256(_Reader(_root(_module_of(inner))).read(function))[:16]


def _inside(item: Any) -> Any:
    """What a wrapper, a partial or a bound method is made of; None of anything else."""
    if isinstance(item, functools.partial):
        return item.func
    return getattr(item, "__wrapped__", None) or getattr(item, "__func__", None)


def _module_of(item: Any) -> str:
    name = getattr(item, "__globals__", {}).get("__name__") or getattr(item, "__module__", None)
    return str(name or type(item).__module__)


def _root(module: str) -> str:
    return module.partition(".")[0]


class _Reader:
    """Turns what it reads into JSON.

    Args:
        home: the package that the method is in.
    """

    def __init__(self, home: str) -> None:
        self.home = home
        self._seen: dict[int, tuple[int, Any]] = {}  # with the object, so that its id stays its own

    def read(self, item: Any) -> Any:
        if isinstance(item, _PLAIN):
            return [type(item).__name__, repr(item)]
        if id(item) in self._seen:
            return ["seen", self._seen[id(item)][0]]
        self._seen[id(item)] = len(self._seen), item
        return [type(item).__name__, *self._parts(item)]

    def _parts(self, item: Any) -> Iterable[Any]:
        if isinstance(item, types.CodeType):
            return self._code(item)
        if isinstance(item, types.FunctionType):
            return self._function(item)
        if isinstance(item, type):
            return self._class(item)
        if isinstance(item, functools.partial):
            return [self.read(part) for part in (item.func, item.args, item.keywords)]
        if isinstance(item, (staticmethod, classmethod, types.MethodType)):
            return [self.read(item.__func__), self.read(getattr(item, "__self__", None))]
        if isinstance(item, property):
            return [self.read(part) for part in (item.fget, item.fset)]
        if isinstance(item, types.CellType):
            with suppress(ValueError):  # not yet filled
                return [self.read(item.cell_contents)]
            return []
        return self._value(item)

    def _value(self, item: Any) -> Iterable[Any]:
        if isinstance(item, Mapping):
            return [[self.read(key), self.read(value)] for key, value in item.items()]
        if isinstance(item, Set):
            return sorted(repr(part) if isinstance(part, _PLAIN) else "" for part in item)
        if isinstance(item, (tuple, list)):
            return [self.read(part) for part in item]
        if isinstance(item, np.ndarray):
            return [str(item.dtype), list(item.shape), hashlib.sha256(item.tobytes()).hexdigest()]
        if isinstance(item, Tensor):
            numbers = item.detach().cpu().contiguous().flatten()
            content = b"" if item.is_meta else bytes(numbers.clone().untyped_storage())
            return [str(item.dtype), list(item.shape), hashlib.sha256(content).hexdigest()]
        if isinstance(item, re.Pattern):
            return [repr(item.pattern), item.flags]
        if isinstance(item, nn.Module) and not self._followed(type(item)):
            return [type(item).__qualname__, self.read(dict(item.state_dict()))]
        return self._object(item)

    def _object(self, item: Any) -> Iterable[Any]:
        name = f"{_module_of(item)}.{getattr(item, '__qualname__', type(item).__qualname__)}"
        if getattr(item, "__wrapped__", None) is not None:  # functools.cache
            return [name, self.read(item.__wrapped__)]
        if self._followed(type(item)):
            return [name, self.read(type(item)), self.read(getattr(item, "__dict__", None))]
        if is_dataclass(item):
            return [name, [self.read(getattr(item, field.name, None)) for field in fields(item)]]
        return [name]

    def _code(self, code: types.CodeType) -> Iterable[Any]:
        sizes = [code.co_argcount, code.co_posonlyargcount, code.co_kwonlyargcount, code.co_flags]
        names = [code.co_names, code.co_varnames, code.co_freevars, code.co_cellvars]
        return [code.co_code.hex(), sizes, names, [self.read(part) for part in code.co_consts]]

    def _function(self, function: types.FunctionType) -> Iterable[Any]:
        wrapped = getattr(function, "__wrapped__", None)
        given = function.__defaults__, function.__kwdefaults__, function.__closure__, wrapped
        parts = [self.read(part) for part in given]
        if not self._followed(function):
            return [f"{_module_of(function)}.{function.__qualname__}", *parts]
        return [self.read(function.__code__), *parts, *self._named(function)]

    def _named(self, function: types.FunctionType) -> Iterable[Any]:
        """What the code means by the names that it takes from its module."""
        names = _names(function.__code__)
        for name in names:
            if name in function.__globals__:
                yield [name, self._global(function.__globals__[name], names)]
            elif _root(name) == self.home and "." in name:  # imported by the function itself
                with suppress(ImportError):
                    yield [name, self._global(importlib.import_module(name), names)]

    def _global(self, value: Any, names: Iterable[str]) -> Any:
        """A value; of a module, what of it the code may name."""
        if not isinstance(value, types.ModuleType):
            return self.read(value)
        if not self._at_home(value.__name__):
            return value.__name__
        inside = vars(value)
        return [
            [name, self._global(inside[name], [each for each in names if each != name])]
            for name in names
            if name in inside
        ]

    def _class(self, item: type) -> Iterable[Any]:
        name = f"{item.__module__}.{item.__qualname__}"
        if not self._at_home(item.__module__):
            return [name]
        members = [[key, self.read(vars(item)[key])] for key in sorted({*vars(item)} - _UNREAD)]
        return [members, [self.read(base) for base in item.__bases__]]

    def _followed(self, item: Any) -> bool:
        return self._at_home(item.__module__ if isinstance(item, type) else _module_of(item))

    def _at_home(self, module: str) -> bool:
        root = _root(module)
        if root in (self.home, "__main__"):
            return True
        if root in _OURS or root in sys.stdlib_module_names:
            return False
        file = getattr(sys.modules.get(root), "__file__", None)
        return file is not None and not _INSTALLED & set(Path(file).parts)


def _names(code: types.CodeType) -> list[str]:
    """The names that code and what is defined in it take from a module, or from objects."""
    inner = [_names(part) for part in code.co_consts if isinstance(part, types.CodeType)]
    return list(dict.fromkeys(itertools.chain(code.co_names, *inner)))
