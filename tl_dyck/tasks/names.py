"""Tasks by name: the registry, the names that are made on demand, and tasks of saved runs."""

from __future__ import annotations

import inspect
import re
from collections.abc import Mapping
from dataclasses import fields, is_dataclass, replace
from typing import Any

from tl_dyck.kit.arguments import checked
from tl_dyck.kit.check import WrongTypeError
from tl_dyck.kit.registry import Registry, RegistryError, UnknownNameError, described
from tl_dyck.language import DyckLanguage, Language
from tl_dyck.tasks.dyck import DyckTask, complete_strings
from tl_dyck.tasks.protocol import MEMBERS, Task, is_task, missing_members


def _check(name: str, item: Any) -> None:
    if not (is_task(item) or _is_maker(item)):
        raise RegistryError(
            f"task {name!r} must be of type Task, not {described(item)}{_lacks(item)}; a function "
            "without arguments that makes one will do."
        )


def _make(name: str, item: Any) -> Any:
    """What a name stands for: a task, or what the function makes that was registered."""
    made = item if is_task(item) else item()
    if not is_task(made):
        raise RegistryError(
            f"task {name!r} is made by {described(item)}, which returned {described(made)}, not a "
            f"Task{_lacks(made)}."
        )
    return made


def _is_maker(item: object) -> bool:
    """Whether it is a function that can be called without arguments."""
    if not callable(item) or isinstance(item, type):
        return False
    try:
        inspect.signature(item).bind()
    except (TypeError, ValueError):
        return False
    return True


def _lacks(item: Any) -> str:
    """What an object would have to have besides, if it has some of it."""
    missing = missing_members(item)
    return f", which lacks {', '.join(missing)}" if 0 < len(missing) < len(MEMBERS) else ""


tasks: Registry[Task] = Registry("task", "tl_dyck.tasks", _check, _make)
register_task = tasks.register
"""Decorator that registers a task of your own: see `Registry.register`."""

# 18 digits are read fast, and are refused by name where they are more than a language may have
_SYSTEMATIC = re.compile(r"dyck-([1-9]\d{0,17})-([1-9]\d{0,17})(-prefix)?", re.ASCII)


def _dyck_task(n_types: int, max_depth: int, *, prefix: bool) -> DyckTask:
    """The task of a systematic name: strings of up to 26 brackets, or prefixes of up to 27."""
    name = f"dyck-{n_types}-{max_depth}"
    if not prefix:
        return DyckTask(name=name, n_types=n_types, max_depth=max_depth)
    return DyckTask(
        name=f"{name}-prefix",
        n_types=n_types,
        max_depth=max_depth,
        mode="prefix",
        train_lengths=tuple(range(1, 28)),
    )


@checked
def load_task(name: str) -> Any:
    """A task by name, such as ``load_task("dyck-2-4")``: two bracket types, depth at most four.

    Registered ones are listed by `list_tasks`; any other ``dyck-<types>-<depth>``, with ``-prefix``
    or without, is made on demand, of as many types and as deep as a `DyckLanguage` may be.

    Examples:
        >>> load_task("dyck-3-8").language.alphabet
        ('[', ']', '(', ')', '{', '}')
        >>> load_task("dyck-1-6").language.max_depth
        6

    Returns:
        A `DyckTask`, or another `Task`.

    Raises:
        UnknownNameError: no such task; the message suggests the nearest.
        ValueError: more types, or deeper, than a language may be.
    """
    if not isinstance(name, str):
        raise WrongTypeError(f"a task is loaded by its name, a text, not by {name!r:.80}")
    asked = _SYSTEMATIC.fullmatch(name)
    if asked is not None and name not in tasks:
        return _dyck_task(int(asked[1]), int(asked[2]), prefix=asked[3] is not None)
    return tasks.get(name)


def list_tasks() -> list[str]:
    """The names of all tasks, third parties' included."""
    return tasks.names()


def task_of(language: Language) -> Any:
    """A task for a model that does not say what it was trained on.

    Of brackets, complete strings; else the task that is registered by the language's name.
    """
    if isinstance(language, DyckLanguage):
        return complete_strings(language)
    try:
        found = load_task(str(language))
    except UnknownNameError as error:
        raise _not_registered(str(language)) from error
    if found.language != language:
        raise RegistryError(f"the task registered here as {str(language)!r} has other symbols")
    return found


def task_fields(task: Any) -> list[str]:
    """The fields of a task that a point of a sweep, or a saved run, may have otherwise."""
    if isinstance(task, DyckTask):
        return [entry.name for entry in fields(DyckTask) if entry.init]
    if not is_dataclass(task):
        return []
    lengths = ("train_lengths", "long_lengths")
    return [entry.name for entry in fields(task) if entry.init and entry.name in lengths]


def task_from_dict(values: Mapping[str, Any], known: Task | None = None) -> Any:
    """The task that ``to_dict`` described: a `DyckTask`, or the one registered by its name.

    If it is `known`, it need not be registered.

    Raises:
        RegistryError: no task of that name is registered here, or one that differs in more than its
            lengths.
        TypeError, ValueError: it describes no task.
    """
    if "n_types" in values:
        return DyckTask(**values)
    if known is not None and known.to_dict() == dict(values):
        return known
    name = values["name"]
    try:
        found = load_task(name)
    except UnknownNameError as error:
        raise _not_registered(name) from error
    given = {key: tuple(values[key]) for key in task_fields(found) if key in values}
    if given:
        found = replace(found, **given)
    if found.to_dict() != dict(values):
        raise RegistryError(
            f"the task registered here as {name!r} is not the one that was saved under that name; "
            "its strings, law or counted positions have changed"
        )
    return found


def _not_registered(name: str) -> RegistryError:
    return RegistryError(
        f"the task {name!r} is not registered here; import the module that registers it first, "
        "or install the package that announces it"
    )


for _k in (2, 3):  # "dyck-2-4", "dyck-2-4-prefix", "dyck-2-8", …
    for _depth in (4, 8):
        _name = f"dyck-{_k}-{_depth}"
        tasks.register(_name, f"balanced strings of {_k} bracket types, depth at most {_depth}")(
            _dyck_task(_k, _depth, prefix=False)
        )
        tasks.register(
            f"{_name}-prefix", f"prefixes of such strings: {_k} types, depth at most {_depth}"
        )(_dyck_task(_k, _depth, prefix=True))
