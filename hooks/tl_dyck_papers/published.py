"""What the commands about published models share.

Knows: their options, and what they leave in a folder, from which `docs/tables.py` fills a page.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

from tl_dyck.kit.environment import environment
from tl_dyck.kit.files import write_bytes, write_json
from tl_dyck.kit.json_values import plain

Rows = list[dict[str, Any]]


def options_of(description: str, out: str, until: str) -> argparse.ArgumentParser:
    """A folder of weights, where results go, and how far each model is decided."""
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument("folder", type=Path, help="with the authors' files")
    parser.add_argument("--out", type=Path, default=Path(out))
    parser.add_argument("--until", default=until, help="see certify_language")
    parser.add_argument("--time-limit", type=float, help="seconds for each")
    return parser


def leave(out: Path, found: Iterable[dict[str, Any]], table: Callable[[Rows], str]) -> None:
    """Say each verdict as it is found; then write all, and their table, into a folder."""
    rows: Rows = []
    for row in found:
        rows.append(row)
        print(f"{row['name']}: {row['status']}, {row['seconds']:.0f} s", flush=True)
    out.mkdir(parents=True, exist_ok=True)
    # a bound that is infinite is null there
    write_json(out / "results.json", plain({"environment": environment(), "rows": rows}))
    write_bytes(out / "table.md", table(rows).encode())
    print(out / "table.md")
