"""The results of a study, in a terminal of 80 columns.

What users named is text, never rich's markup: ``[[]]`` is a bracket string, not a style; see `tl_dyck.screen`.
"""

from __future__ import annotations

from collections.abc import Collection
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from tl_dyck.screen import console, visible

if TYPE_CHECKING:
    from tl_dyck.studies import Study

__all__ = ["console", "say_note", "say_path", "say_study", "table"]

_MEASURES = (("accuracy", ".1%"), ("long_accuracy", ".1%"), ("entropy_gap", ".3f"))


def say_study(study: Study, path: Path) -> None:
    """Print the three most interesting findings, a small table, and where the report is."""
    from tl_dyck.studies import findings  # brings TransformerLens, which other commands do without

    out = console()
    out.print()
    for number, finding in enumerate(findings(study)[:3], start=1):
        out.print(Text(f"{number}. {finding.title}", style="bold"))
        out.print(Padding(Text(finding.text), (0, 0, 1, 3)))
    rows = table("family", "learned", "accuracy", "at length", "entropy gap", "variation", right=range(1, 6))
    variation = study.variation.groupby("family", sort=False)["variation"].max().to_dict()
    for family, facts in study.summary["families"].items():
        cells = [f"{facts[name]['mean']:{form}}" if name in facts else "–" for name, form in _MEASURES]
        cells.append(f"{variation[family]:.2f}" if family in variation else "–")
        rows.add_row(Text(family), f"{facts['reached']} of {facts['n']}", *cells)
    out.print(rows)
    say_note("Means over seeds. entropy gap: nats per token; variation: of attention, in the layer that varies most.")
    say_path("Report", path)


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


def say_path(what: str, path: Path) -> None:
    """Where something is, on a line of its own that is never broken."""
    out = console()
    out.print()
    out.print(Text.assemble((f"{what}: ", "bold"), str(path)), soft_wrap=True)
