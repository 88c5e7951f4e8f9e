"""How ``tl-dyck text table`` shows its means."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tl_dyck.cli.answers import Answer, Rows

if TYPE_CHECKING:
    import pandas as pd


_COLUMNS = {
    "space": "{space}",
    "objective": "{objective}",
    "clean": "{clean:.1%}",
    "certified": "{certified}",
    "interval": "{interval:.1%}",
    "ms": "{median_ms:.1f}",
    "95 %": "{p95_ms:.1f}",
}


def _share(row: Any, name: str) -> str:
    """A mean with its interval; one seed has none."""
    value, low, high = (getattr(row, f"{name}{end}") for end in ("", "_low", "_high"))
    return f"{value:.1%}" if low != low else f"{value:.1%} [{low:.1%}, {high:.1%}]"


def said_means(means: pd.DataFrame) -> Answer:
    """A table for each number of synonyms."""
    for k, group in means.groupby("k", sort=False):
        rows = [
            {**row._asdict(), "certified": _share(row, "certified")} for row in group.itertuples()
        ]
        yield Rows("", rows, _COLUMNS, title=f"\n{k} synonym{'s' * (k != 1)} a word")


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
