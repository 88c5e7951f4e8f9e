"""One registry class for everything a third party may plug in: tasks, models, probes, and so on.

A name is registered in one of two ways:

- by decorator, in code that is imported anyway: ``@models.register("my-model", summary="...")``;
- by entry point, found without importing anything: in ``pyproject.toml``::

      [project.entry-points."tl_dyck.models"]
      my-model = "my_package.models:my_model"

The entry point names the very object that the decorator would receive. A name means one thing: two
different objects under the same name are an error, whoever came first.

What code registers is known to its own process only. Worker processes, here or on a cluster, are
sent it along with their work (see `tl_dyck.kit.processes.Sent`), and load what they are asked for.
"""

from __future__ import annotations

import difflib
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, Generic, TypeVar, final

from tl_dyck.kit.announced import announced
from tl_dyck.kit.arguments import checked
from tl_dyck.kit.check import check_instance, shown
from tl_dyck.kit.errors import DyckError
from tl_dyck.kit.processes import NotSentError, Told, told_here, told_to

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
    """The error for a name that is none of those known, with the nearest one in its message.

    What is looked up is of a `kind`, in the singular: "task", "model", "option of family 'gpt'".
    """
    names = sorted(known)
    near = difflib.get_close_matches(str(name), names, n=1, cutoff=0.5)
    hint = f" Did you mean {near[0]!r}?" if near else ""
    what = repr(name) if isinstance(name, str) else shown(name)
    return UnknownNameError(f"unknown {kind} {what}.{hint} Known: {', '.join(names) or '(none)'}.")


@dataclass(eq=False)
class _Entry:
    """What stands under a name.

    Attributes:
        item: what was registered.
        summary: the line for listings.
        replaces: whether it took the name over from another; None if no code registered it.
        settled: whether it need not be held against an entry point of its name any more.
        told: what it came from, if it came with work.
        value: what `item` is when it is looked up.
    """

    item: Any
    summary: str
    replaces: bool | None = None
    settled: bool = False
    told: Told | None = None
    value: Any = None


@final
@checked
class Registry(Generic[T]):
    """Names and what they stand for.

    Args:
        kind: what is registered, in the singular; used in messages.
        group: the entry-point group in which third parties announce theirs.
        check: called with a name and what is to be registered under it; raises `RegistryError` if
            that will not do.
        make: called likewise when a name is first looked up; returns what it stands for, by default
            what was registered.
    """

    def __init__(
        self,
        kind: str,
        group: str,
        check: Callable[[str, Any], None] = lambda name, item: None,
        make: Callable[[str, Any], T] = lambda name, item: item,
    ) -> None:
        self.kind, self.group, self.check, self.make = kind, group, check, make
        self._entries: dict[str, _Entry] = {}
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
            RegistryError: the name is empty or taken by another object, or the object will not do.
        """
        if not isinstance(name, str):
            raise RegistryError(
                f'a {self.kind} is registered under a name: @register("my-{self.kind}"), '
                f"not @register on {described(name)} itself."
            )
        check_instance("summary", summary, str, "a text")
        check_instance("replace", replace, bool, "True or False")
        if not name or name != name.strip() or not name.isprintable():
            raise RegistryError(
                f"{name!r} cannot name a {self.kind}: it is empty or has outer white "
                "space, or control characters."
            )

        def decorate(item: Item) -> Item:
            self.check(name, item)
            entry = self._entries.get(name)
            if replace or entry is None:
                if not replace:
                    self._refuse_announced(name, item)
                entry = _Entry(item, _first_line(item), settled=replace)
                self._entries[name] = entry
            elif entry.item is not item:
                raise self._taken(name, entry.item, described(item))
            entry.summary, entry.replaces = summary or entry.summary, replace
            return item

        return decorate

    @checked
    def include(self, name: str, item: T, summary: str) -> None:
        """Have what the library itself brings under a name, as if it were announced."""
        self._entries[name] = _Entry(item, summary)

    @checked
    def get(self, name: str) -> T:
        """Return what `name` stands for, loading its entry point if need be.

        Raises:
            UnknownNameError: no such name.
            RegistryError: its entry point cannot be loaded (the cause is chained), or two different
                objects claim the name.
        """
        entry = self._entry(name)
        if entry.value is None:
            entry.value = self.make(name, entry.item)
        return entry.value  # type: ignore[no-any-return]

    @checked
    def resolve(self, named: str | T) -> T:
        """What `get` returns for a name; anything else is returned as it is."""
        return self.get(named) if isinstance(named, str) else named

    def names(self) -> list[str]:
        """Every known name, registered in code or announced by entry point (left unloaded)."""
        told = (name for group, name in told_here if group == self.group)
        return sorted({*self._entries, *told, *announced(group=self.group).names})

    def unavailable(self) -> dict[str, str]:
        """Names whose entry point needs what cannot be imported here, and what that is.

        Raises:
            RegistryError: an entry point cannot be loaded for another reason.
        """
        found = {}
        for name in self.names():
            try:
                self.get(name)
            except RegistryError as error:
                if not isinstance(error.__cause__, ImportError):
                    raise
                found[name] = str(error.__cause__)
        return found

    @checked
    def summary(self, name: str) -> str:
        """One line on what `name` is. Loads its entry point.

        Raises:
            UnknownNameError: no such name.
            RegistryError: as for `get`.
        """
        self.get(name)
        return self._entries[name].summary

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

    @checked
    def unregister(self, name: str) -> None:
        """Forget a name that was registered in code. Meant for tests and notebooks."""
        self._entries.pop(name, None)

    def in_code(self) -> dict[tuple[str, str], Told]:
        """What was registered in code, by group and name, for other processes."""
        return {
            (self.group, name): Told.of(entry.item, entry.summary, entry.replaces)
            for name, entry in self._entries.items()
            if entry.replaces is not None
        }

    def _entry(self, name: str) -> _Entry:
        self._listen(name)
        entry = self._entries.get(name)
        if entry is not None and entry.settled:
            return entry
        point = self._entry_point(name)
        if point is not None:
            item = self._load(point)
            self.check(name, item)
            if entry is None:
                entry = self._entries[name] = _Entry(item, _first_line(item))
            if entry.item is not item:
                raise self._taken(name, entry.item, f"{described(item)} of {_origin(point)}")
        if entry is None:
            raise unknown_name(self.kind, name, self.names())
        entry.settled = True
        return entry

    def _listen(self, name: str) -> None:
        """Register what came with work under a name, unless this process knows it by itself."""
        told, entry = told_here.get((self.group, name)), self._entries.get(name)
        if told is None:
            return
        if entry is not None and (entry.told == told or (entry.told is None and not told.replace)):
            return
        try:
            item = told.load()
        except NotSentError as error:
            raise RegistryError(f"{self.kind} {name!r}: {error}") from error
        self._entries[name] = _Entry(item, told.summary, replaces=True, settled=True, told=told)

    def _taken(self, name: str, by: Any, other: str) -> RegistryError:
        return RegistryError(
            f"{self.kind} {name!r} is already registered as {described(by)}, so it cannot also be "
            f"{other}. Choose another name, or pass replace=True to take it over."
        )

    def _refuse_announced(self, name: str, item: Any) -> None:
        """Refuse a name that another package announces; its entry point is not loaded for that."""
        point, module = self._entry_point(name), getattr(item, "__module__", None)
        if point is None or not hasattr(item, "__qualname__"):
            return
        if point.value.partition(".")[0].partition(":")[0] != str(module).partition(".")[0]:
            raise RegistryError(
                f"{self.kind} {name!r} is announced by {_origin(point)}, so it cannot also be "
                f"{described(item)}. Choose another name, or pass replace=True to take it over."
            )

    def _entry_point(self, name: str) -> _EntryPoint | None:
        """The entry point of that name, else None; an error if two packages disagree about it."""
        points = {point.value: point for point in announced(group=self.group, name=name)}
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


def _origin(point: _EntryPoint) -> str:
    package = point.dist.metadata["Name"] if point.dist is not None else "an unknown package"
    return f"{package} (entry point {point.value!r})"


def described(item: object) -> str:
    """Name a function or class by where it is defined, anything else by its value."""
    name = getattr(item, "__qualname__", None)
    place = getattr(item, "__module__", None)
    return f"{place}.{name}" if name and place else shown(item)


def _first_line(item: object) -> str:
    """First line of a function's or class's docstring; an instance's says nothing of it."""
    if not hasattr(item, "__qualname__"):
        return ""
    return ((item.__doc__ or "").strip().splitlines() or [""])[0]
