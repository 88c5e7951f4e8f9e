"""What people look at: the report of a study (one HTML file, offline), and what the command line prints."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tl_dyck.report.page import write_report

__all__ = ["write_report"]


def __getattr__(name: str) -> Any:
    """Load the report when it is asked for: commands that need no plots and no TransformerLens start at once."""
    if name == "write_report":
        from tl_dyck.report.page import write_report

        return write_report
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
