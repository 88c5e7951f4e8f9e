"""A method in somebody's file, for the command line: no package and no entry point is needed."""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from types import ModuleType
from typing import Any, final

from tl_dyck.judge.protocol import Case, JudgeError, Question, Scores, methods
from tl_dyck.kit.arguments import checked
from tl_dyck.kit.registry import unknown_name


@checked
def method_from_file(address: str) -> str:
    """Register a method that stands in a file, under its own name.

    The file is run as ``import`` would, with its folder to import from, so that what it decides can
    be followed (`tl_dyck.judge.code`): a changed method is asked again. Workers read the file, too.

    Args:
        address: ``path/to/file.py:method``.

    Returns:
        The name: that of the function.

    Raises:
        JudgeError: there is no such file, or it has the name of a module that is imported, or what
            it has under that name is no function, or has the name of another method.
        UnknownNameError: it has nothing under that name.
    """
    place, _, name = address.rpartition(":")
    path = Path(place).absolute()
    if path.suffix != ".py" or not name:
        raise JudgeError(f"{address!r:.80} names no method in a file: path/to/file.py:method")
    if not path.is_file():
        raise JudgeError(f"there is no file {place!r:.200}")
    found = _found(str(path), name)
    known = methods.get(name) if name in methods else None
    if known is not None and getattr(known, "__wrapped__", None) is not found.__wrapped__:
        raise JudgeError(f"{name!r:.80} is the name of another method; give yours another name")
    if known is None:
        methods.register(name)(found)
    return name


@final
class _OfFile:
    """A method that is sent to a worker as the address of its file, which is read there."""

    def __init__(self, path: str, name: str, function: Callable[..., Any]) -> None:
        self._address = path, name
        self.__wrapped__, self.__doc__ = function, function.__doc__
        self.__module__, self.__name__ = Path(path).stem, name
        self.declared = getattr(function, "declared", None)

    def __call__(self, case: Case, questions: Sequence[Question]) -> Scores:
        scores: Scores = self.__wrapped__(case, questions)
        return scores

    def __reduce__(self) -> tuple[Any, ...]:
        return _found, self._address


def _found(path: str, name: str) -> _OfFile:
    module = _imported(Path(path))
    if name not in vars(module):
        raise unknown_name(f"method in {Path(path).name}", name, _callables(module))
    function = getattr(module, name)
    if not callable(function):
        raise JudgeError(f"{name!r:.80} in {Path(path).name} is no function")
    return _OfFile(path, name, function)


def _imported(path: Path) -> ModuleType:
    """The module of a file, under the file's name; of one that was imported, that one."""
    name = path.stem
    known = sys.modules.get(name)
    if known is not None and Path(getattr(known, "__file__", None) or "").absolute() == path:
        return known
    spec = importlib.util.spec_from_file_location(name, path)
    if known is not None or spec is None or spec.loader is None:
        raise JudgeError(f"{path.name} has the name of a module that is imported; rename it")
    module = importlib.util.module_from_spec(spec)
    if str(path.parent) not in sys.path:
        sys.path.append(str(path.parent))  # last: nothing there takes the place of a package
    sys.modules[name] = module
    try:
        spec.loader.exec_module(module)
    except BaseException:
        del sys.modules[name]
        raise
    return module


def _callables(module: ModuleType) -> list[str]:
    """What the file itself defines and can be called."""
    return [
        name
        for name, value in vars(module).items()
        if callable(value) and getattr(value, "__module__", None) == module.__name__
    ]
