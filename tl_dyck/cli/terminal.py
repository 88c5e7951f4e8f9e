"""Tables and notes in a terminal of 80 columns, and helps that show flags as flags.

What users named is text, never rich's markup: ``[[]]`` is a bracket string, not a style; see
`tl_dyck.screen`.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

import typer.core
from rich.table import Table
from rich.text import Text

from tl_dyck.screen import console, visible

__all__ = ["Command", "Group", "console", "say_note", "table"]


class _Flags:
    """A flag takes no value in a help; late releases of typer show one, ``<bool>``."""

    def get_params(self, ctx: Any) -> list[Any]:
        found: list[Any] = super().get_params(ctx)  # type: ignore[misc]
        for parameter in found:
            if getattr(parameter, "is_flag", False):
                parameter.metavar = ""
        return found


class Command(_Flags, typer.core.TyperCommand):
    """A command whose help shows flags as flags."""


class Group(_Flags, typer.core.TyperGroup):
    """The same for a group of commands."""


class _Table(Table):
    """A table whose cells are `visible` before their widths are measured."""

    def add_column(self, header: Any = "", *arguments: Any, **options: Any) -> None:
        super().add_column(_shown(header), *arguments, **options)

    def add_row(self, *cells: Any, **options: Any) -> None:
        super().add_row(*map(_shown, cells), **options)


def _shown(cell: Any) -> Any:
    if isinstance(cell, str):
        return visible(cell)
    if isinstance(cell, Text) and visible(cell.plain) != cell.plain:
        return Text(visible(cell.plain), cell.style)
    return cell


def table(*columns: str, right: Collection[int] = ()) -> Table:
    """A table without borders; only its last column wraps, so that names can be copied."""
    made = _Table(box=None, header_style="bold", pad_edge=False, padding=(0, 2, 0, 0))
    for index, column in enumerate(columns):
        last = index == len(columns) - 1
        made.add_column(column, justify="right" if index in right else "left", no_wrap=not last)
    return made


def say_note(text: str) -> None:
    """A line of explanation."""
    console().print(Text(text, style="dim"))
