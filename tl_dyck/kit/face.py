"""Modules that are called: ``from tl_dyck import certify`` names a module, and people call it."""

from __future__ import annotations

import sys
from collections.abc import Callable
from inspect import signature
from types import ModuleType
from typing import Any


class _Callable(ModuleType):
    """A module that is called as one of its functions is."""

    def __call__(self, *given: Any, **named: Any) -> Any:
        return self._called(*given, **named)


def make_callable(module: str, function: Callable[..., Any]) -> None:
    """Make a call of a module a call of its function.

    Type checkers know the function by its own name only: a module has no type of its own.
    """
    found = sys.modules[module]
    found.__class__ = _Callable
    vars(found).update(_called=function, __signature__=signature(function))
