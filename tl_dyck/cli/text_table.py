"""How ``tl-dyck text table`` shows its means."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from rich.text import Text

from tl_dyck.cli.terminal import console, table

if TYPE_CHECKING:
    import pandas as pd


def _share(row: Any, name: str) -> str:
    """A mean with its interval; one seed has none."""
    value, low, high = (getattr(row, f"{name}{end}") for end in ("", "_low", "_high"))
    return f"{value:.1%}" if low != low else f"{value:.1%} [{low:.1%}, {high:.1%}]"


def say_means(means: pd.DataFrame) -> None:
    """Print a table for each number of synonyms."""
    for k, group in means.groupby("k", sort=False):
        console().print(Text(f"\n{k} synonym{'s' * (k != 1)} a word", style="bold"))
        shown = table(
            "space", "objective", "clean", "certified", "interval", "ms", "95 %", right=range(2, 7)
        )
        for row in group.itertuples():
            shown.add_row(
                Text(str(row.space)),
                str(row.objective),
                f"{row.clean:.1%}",
                _share(row, "certified"),
                f"{row.interval:.1%}",
                f"{row.median_ms:.1f}",
                f"{row.p95_ms:.1f}",
            )
        console().print(shown)


def markdown_table(means: pd.DataFrame) -> str:
    """The means as a Markdown table."""
    lines = [
        "| k | space | training | clean | certified, exact | certified, "
        "interval | undecided | ms (median, 95 %) |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for row in means.itertuples():
        lines.append(
            f"| {row.k} | {row.space} | {row.objective} | {_share(row, 'clean')} | "
            f"{_share(row, 'certified')} | {row.interval:.1%} | {row.undecided:.1%} | "
            f"{row.median_ms:.1f}, {row.p95_ms:.1f} |"
        )
    return "\n".join(lines) + "\n"
