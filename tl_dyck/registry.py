"""One registry class for everything a third party may plug in: tasks, models, probes, and so on.

A name is registered in one of two ways:

- by decorator, in code that is imported anyway: ``@models.register("my-model", summary="...")``;
- by entry point, found without importing anything: in ``pyproject.toml``::

      [project.entry-points."tl_dyck.models"]
      my-model = "my_package.models:my_model"

The entry point names the very object that the decorator would receive. A name means one thing: two
different objects under the same name are an error, whoever came first.

What code registers is known to its own process only. Worker processes, here or on a cluster, are
sent it along with their work (see `tl_dyck.processes.Sent`), and load what they are asked for.
"""

from __future__ import annotations

import difflib
import inspect
from collections.abc import Callable, Iterable
from importlib import metadata
from typing import Any, Generic, TypeVar, final

from tl_dyck.errors import DyckError
from tl_dyck.processes import NotSentError, Told, told_here, told_to

__all__ = ["Registry", "RegistryError", "UnknownNameError"]

T = TypeVar("T")
Item = TypeVar("Item")

#: One of the standard library, or of the backport `importlib_metadata`, which takes its place once
#: it is imported.
_EntryPoint = Any


class RegistryError(DyckError, ValueError):
    """A name cannot be registered, or what stands behind it cannot be loaded."""


class UnknownNameError(DyckError, ValueError):
    """No such name; the message says which are known and which is nearest."""


def unknown_name(kind: str, name: object, known: Iterable[str]) -> UnknownNameError:
    """Build the error for an unknown name.

    Args:
        kind: what is looked up, in the singular ("task", "model", "option of family 'gpt'").
        name: the offending name.
        known: the names that would have been right.

    Returns:
        The error, with the nearest known name in its message if one is near.
    """
    names = sorted(known)
    near = difflib.get_close_matches(str(name), names, n=1, cutoff=0.5)
    hint = f" Did you mean {near[0]!r}?" if near else ""
    return UnknownNameError(
        f"unknown {kind} {name!r}.{hint} Known: {', '.join(names) or '(none)'}."
    )


@final
class Registry(Generic[T]):
    """Names and what they stand for.

    Args:
        kind: what is registered, in the singular; used in messages.
        group: the entry-point group in which third parties announce theirs.
        item_type: if given, a class or a protocol; anything registered must be an instance of it;
            or a function without arguments that makes one, which is called when the name is
            first looked up.
        check: called with a name and what is to be registered under it; raises `RegistryError` if
            that will not do.
    """

    def __init__(
        self,
        kind: str,
        group: str,
        item_type: type[T] | None = None,
        check: Callable[[str, Any], None] | None = None,
    ) -> None:
        self.kind = kind
        self.group = group
        self.item_type = item_type
        self.check = check
        self._items: dict[str, Any] = {}
        self._made: dict[str, T] = {}
        self._summaries: dict[str, str] = {}
        # Names whose entry point, if there is one, has been loaded or deliberately replaced.
        self._settled: set[str] = set()
        # Names registered in code, and whether they took over another's; what came with work.
        self._in_code: dict[str, bool] = {}
        self._taken: dict[str, Told] = {}
        told_to.add(self)

    def __repr__(self) -> str:
        return f"Registry({self.kind!r}, {self.group!r}): {', '.join(self.names()) or '(empty)'}"

    def __contains__(self, name: object) -> bool:
        return name in self.names()

    def register(
        self, name: str, summary: str = "", *, replace: bool = False
    ) -> Callable[[Item], Item]:
        """Register the decorated object under `name`.

        Args:
            name: what users will call it.
            summary: one line for listings; by default the first line of the object's docstring.
            replace: take the name over from whatever has it now (a notebook cell run twice, say).

        Returns:
            A decorator that returns what it is given.

        Raises:
            RegistryError: the name is empty or taken by another object, or the object is of the
                wrong type.
        """
        if not isinstance(name, str):
            raise RegistryError(
                f'a {self.kind} is registered under a name: @register("my-{self.kind}"), '
                f"not @register on {_describe(name)} itself."
            )
        if not name or name != name.strip():
            raise RegistryError(
                f"{name!r} cannot name a {self.kind}: it is empty or has outer white space."
            )

        def decorate(item: Item) -> Item:
            self._add(name, item, summary, replace)
            return item

        return decorate

    def get(self, name: str) -> T:
        """Return what `name` stands for, loading its entry point if need be.

        Raises:
            UnknownNameError: no such name.
            RegistryError: its entry point cannot be loaded (the cause is chained), or two different
                objects claim the name.
        """
        self._listen(name)
        if name not in self._settled:
            point = self._entry_point(name)
            if point is not None:
                self._add(name, self._load(point), "", replace=False, announced=True)
            elif name not in self._items:
                raise unknown_name(self.kind, name, self.names())
            self._settled.add(name)
        return self._as_wanted(name)

    def resolve(self, named: str | T) -> T:
        """What `get` returns for a name; anything else is returned as it is."""
        return self.get(named) if isinstance(named, str) else named

    def names(self) -> list[str]:
        """Every known name, registered in code or announced by entry point (left unloaded)."""
        told = (name for group, name in told_here if group == self.group)
        return sorted({*self._items, *told, *metadata.entry_points(group=self.group).names})

    def summary(self, name: str) -> str:
        """One line on what `name` is. Loads its entry point.

        Raises:
            UnknownNameError: no such name.
            RegistryError: as for `get`.
        """
        self.get(name)
        return self._summaries[name]

    def summaries(self) -> dict[str, str]:
        """One line on every known name.

        Where one cannot be loaded the line says why: others stay usable.
        """
        lines = {}
        for name in self.names():
            try:
                lines[name] = self.summary(name)
            except RegistryError as error:
                lines[name] = f"(unusable: {error})"
        return lines

    def unregister(self, name: str) -> None:
        """Forget a name that was registered in code. Meant for tests and notebooks."""
        self._items.pop(name, None)
        self._made.pop(name, None)
        self._summaries.pop(name, None)
        self._settled.discard(name)
        self._in_code.pop(name, None)

    def in_code(self) -> dict[tuple[str, str], Told]:
        """What was registered in code, by group and name, for other processes."""
        return {
            (self.group, name): Told.of(self._items[name], self._summaries[name], replace)
            for name, replace in self._in_code.items()
        }

    def _listen(self, name: str) -> None:
        """Register what came with work under a name, unless this process knows it by itself."""
        told = told_here.get((self.group, name))
        if told is None or told == self._taken.get(name):
            return
        if told.replace or name in self._taken or name not in self._items:
            try:
                item = told.load()
            except NotSentError as error:
                raise RegistryError(f"{self.kind} {name!r}: {error}") from error
            self._add(name, item, told.summary, replace=True)
        self._taken[name] = told

    def _add(
        self, name: str, item: Any, summary: str, replace: bool, announced: bool = False
    ) -> None:
        if not (self._is_one(item) or _is_maker(item)):
            raise RegistryError(
                f"{self.kind} {name!r} must be of type {self._type_name}, "
                f"not {_describe(item)}{self._lacks(item)}; a function without arguments that "
                "makes one will do."
            )
        if self.check is not None:
            self.check(name, item)
        if replace:
            self._settled.add(name)
            self._made.pop(name, None)
        elif name in self._items and self._items[name] is not item:
            raise RegistryError(
                f"{self.kind} {name!r} is already registered as {_describe(self._items[name])}, so "
                f"it cannot also be {_describe(item)}. Choose another name, "
                "or pass replace=True to take it over."
            )
        elif not announced:
            self._refuse_announced(name, item)
        first_time = self._items.get(name) is not item
        self._items[name] = item
        if not announced:
            self._in_code[name] = replace
        if summary or first_time:
            self._summaries[name] = summary or _first_line(item)

    def _as_wanted(self, name: str) -> T:
        """What a name stands for: itself, or what the function makes that was registered."""
        item = self._items[name]
        if self._is_one(item):
            return item  # type: ignore[no-any-return]
        if name not in self._made:
            made = item()
            if not self._is_one(made):
                raise RegistryError(
                    f"{self.kind} {name!r} is made by {_describe(item)}, which returned "
                    f"{_describe(made)}, not a {self._type_name}{self._lacks(made)}."
                )
            self._made[name] = made
        return self._made[name]

    def _is_one(self, item: Any) -> bool:
        return self.item_type is None or is_instance(item, self.item_type)

    @property
    def _type_name(self) -> str:
        return self.item_type.__name__ if self.item_type is not None else "object"

    def _lacks(self, item: Any) -> str:
        """What a class would have to have besides, if it has some of it."""
        missing = [] if self.item_type is None else lacking(item, self.item_type)
        known = set(members(self.item_type)) if self.item_type is not None else set()
        return f", which lacks {', '.join(missing)}" if missing and {*missing} < known else ""

    def _refuse_announced(self, name: str, item: Any) -> None:
        """Refuse a name that another package announces; its entry point is not loaded for that."""
        point, module = self._entry_point(name), getattr(item, "__module__", None)
        if point is None or name in self._settled or not hasattr(item, "__qualname__"):
            return
        if point.value.partition(".")[0].partition(":")[0] != str(module).partition(".")[0]:
            raise RegistryError(
                f"{self.kind} {name!r} is announced by {_origin(point)}, so it cannot also be "
                f"{_describe(item)}. Choose another name, or pass replace=True to take it over."
            )

    def _entry_point(self, name: str) -> _EntryPoint | None:
        """The entry point of that name, else None; an error if two packages disagree about it."""
        points = {
            point.value: point for point in metadata.entry_points(group=self.group, name=name)
        }
        if len(points) > 1:
            claims = " and ".join(_origin(point) for point in points.values())
            raise RegistryError(
                f"{self.kind} {name!r} is announced by {claims}. Uninstall one of them."
            )
        return next(iter(points.values()), None)

    def _load(self, point: _EntryPoint) -> Any:
        try:
            return point.load()
        except Exception as error:
            raise RegistryError(
                f"{self.kind} {point.name!r} is announced by {_origin(point)} but cannot be "
                f"loaded: {type(error).__name__}: {error}"
            ) from error


def members(kind: Any) -> list[str]:
    """The members of a protocol; none of another type."""
    return [name for name in dir(kind) if name[0] != "_"] if _is_protocol(kind) else []


def lacking(item: Any, kind: Any) -> list[str]:
    """The members of a protocol that an object does not have; none is evaluated."""
    return [name for name in members(kind) if not _has(item, name)]


def is_instance(item: Any, kind: Any) -> bool:
    """Whether an object is of a type, or has all members of a protocol and is no class.

    Unlike Python's own, it evaluates no property, for some take time.
    """
    if not _is_protocol(kind):
        return isinstance(item, kind)
    return not isinstance(item, type) and not lacking(item, kind)


def _is_protocol(kind: Any) -> bool:
    return bool(getattr(kind, "_is_protocol", False))


def _has(item: Any, name: str) -> bool:
    absent = object()
    return inspect.getattr_static(item, name, absent) is not absent


def _origin(point: _EntryPoint) -> str:
    package = point.dist.metadata["Name"] if point.dist is not None else "an unknown package"
    return f"{package} (entry point {point.value!r})"


def _is_maker(item: object) -> bool:
    """Whether it is a function that can be called without arguments."""
    if not callable(item) or isinstance(item, type):
        return False
    try:
        parameters = inspect.signature(item).parameters.values()
    except (TypeError, ValueError):
        return False
    return not any(is_required(parameter) for parameter in parameters)


def is_required(parameter: inspect.Parameter) -> bool:
    """Whether a function cannot be called without this one."""
    optional = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)
    return parameter.default is inspect.Parameter.empty and parameter.kind not in optional


def _describe(item: object) -> str:
    """Name a function or class by where it is defined, anything else by its value."""
    name = getattr(item, "__qualname__", None)
    return f"{item.__module__}.{name}" if name else f"{type(item).__name__} {item!r}"


def _first_line(item: object) -> str:
    """First line of a function's or class's docstring; an instance's says nothing of it."""
    if not hasattr(item, "__qualname__"):
        return ""
    return ((item.__doc__ or "").strip().splitlines() or [""])[0]
