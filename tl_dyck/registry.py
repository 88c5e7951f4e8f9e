"""One registry class for everything a third party may plug in: tasks, models, probes and certifiers.

A name is registered in one of two ways:

- by decorator, in code that is imported anyway: ``@models.register("my-model", summary="...")``;
- by entry point, found without importing anything: in ``pyproject.toml``::

      [project.entry-points."tl_dyck.models"]
      my-model = "my_package.models:my_model"

The entry point names the very object that the decorator would receive.
"""

from __future__ import annotations

import difflib
from collections.abc import Callable, Iterable
from importlib import metadata
from typing import Any, Generic, TypeVar, final

__all__ = ["Registry", "RegistryError", "UnknownNameError", "unknown_name"]

T = TypeVar("T")


class RegistryError(ValueError):
    """A name cannot be registered, or what stands behind it cannot be loaded."""


class UnknownNameError(ValueError):
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
    return UnknownNameError(f"unknown {kind} {name!r}.{hint} Known: {', '.join(names) or '(none)'}.")


@final
class Registry(Generic[T]):
    """Names and what they stand for.

    Args:
        kind: what is registered, in the singular; used in messages.
        group: the entry-point group in which third parties announce theirs.
    """

    def __init__(self, kind: str, group: str) -> None:
        self.kind = kind
        self.group = group
        self._items: dict[str, T] = {}
        self._summaries: dict[str, str] = {}

    def register(self, name: str, summary: str = "") -> Callable[[T], T]:
        """Register the decorated object under `name`.

        Raises:
            RegistryError: the name is taken by another object.
        """

        def decorate(item: T) -> T:
            if name in self._items and self._items[name] is not item:
                raise RegistryError(
                    f"{self.kind} {name!r} is already registered; choose another name for {item!r}."
                )
            self._items[name] = item
            self._summaries[name] = summary or _first_line(item)
            return item

        return decorate

    def get(self, name: str) -> T:
        """Return what `name` stands for, loading its entry point if need be.

        Raises:
            UnknownNameError: no such name.
            RegistryError: the entry point exists but cannot be loaded; the cause is chained.
        """
        if name in self._items:
            return self._items[name]
        point = self._entry_points().get(name)
        if point is None:
            raise unknown_name(self.kind, name, self.names())
        try:
            item: T = point.load()
        except Exception as error:
            raise RegistryError(
                f"{self.kind} {name!r} is announced by entry point {point.value!r} but cannot be loaded: {error}"
            ) from error
        return self.register(name)(item)

    def names(self) -> list[str]:
        """Every known name, registered in code or announced by entry point (which is not loaded)."""
        return sorted({*self._items, *self._entry_points()})

    def summary(self, name: str) -> str:
        """One line on what `name` is. Loads its entry point."""
        self.get(name)
        return self._summaries[name]

    def unregister(self, name: str) -> None:
        """Forget a name that was registered in code. Meant for tests and notebooks."""
        self._items.pop(name, None)
        self._summaries.pop(name, None)

    def _entry_points(self) -> dict[str, metadata.EntryPoint]:
        return {point.name: point for point in metadata.entry_points(group=self.group)}


def _first_line(item: Any) -> str:
    return ((getattr(item, "__doc__", None) or "").strip().splitlines() or [""])[0]
