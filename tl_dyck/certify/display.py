"""How results say themselves: lines of text, a table in a notebook, JSON values."""

from __future__ import annotations

import html
from abc import ABC, abstractmethod
from dataclasses import fields
from typing import Any, ClassVar

from tl_dyck.kit.json_values import plain

_COLOURS = {"proved": "#1a7f37", "refuted": "#cf222e", "open": "#9a6700"}


class Plain:
    """Base of dataclasses that can be written as JSON."""

    #: Fields that `to_dict` leaves out, and properties that it has besides.
    _unsaid: ClassVar[tuple[str, ...]] = ()
    _derived: ClassVar[tuple[str, ...]] = ()

    def to_dict(self) -> dict[str, Any]:
        """Plain JSON types; whatever is infinite or no number becomes None."""
        known = [entry.name for entry in fields(self) if entry.name not in self._unsaid]  # type: ignore[arg-type]
        return {name: plain(getattr(self, name)) for name in (*known, *self._derived)}


class Shown(Plain, ABC):
    """Base of those, made with ``repr=False``, that say what they come to."""

    @abstractmethod
    def summary(self) -> list[tuple[str, str]]:
        """What there is to say, as names and texts; the first is the status."""

    def __repr__(self) -> str:
        rows = self.summary()
        width = max(len(name) for name, _ in rows)
        lines = "\n".join(f"  {name:<{width}}  {value}" for name, value in rows)
        return f"{type(self).__name__}\n{lines}"

    def _repr_html_(self) -> str:
        (_, status), *rows = self.summary()
        cells = "".join(
            f'<tr><th style="text-align:left">{html.escape(name)}</th>'
            f'<td style="text-align:left">{html.escape(value)}</td></tr>'
            for name, value in rows
        )
        colour = _COLOURS.get(status, "inherit")
        return f'<div><b style="color:{colour}">{status}</b><table>{cells}</table></div>'
