"""What people look at: pages (one HTML file each, offline), figures, widgets for notebooks.

Knows: figures, what is said beside them, and how a page is put together.
Does not know: how a number was computed, and commands (`tl_dyck.cli`).
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tl_dyck.report import widgets as widgets
    from tl_dyck.report.playground import write_playground
    from tl_dyck.report.write import write_report

__all__ = ["widgets", "write_playground", "write_report"]


def __getattr__(name: str) -> Any:
    """Load the report when asked for: commands without plots or TransformerLens start at once."""
    if name == "widgets":
        return import_module("tl_dyck.report.widgets")
    if name in __all__:
        room = {"write_report": "write", "write_playground": "playground"}[name]
        return getattr(import_module(f"tl_dyck.report.{room}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
