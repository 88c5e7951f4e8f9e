"""The modules of our packages, parsed once for all tests that look at them."""

from __future__ import annotations

import ast
from functools import cache
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
#: By the name by which a module is imported; a package by its own.
SOURCES = {
    ".".join(path.relative_to(root).with_suffix("").parts).removesuffix(".__init__"): path
    for root in (ROOT, ROOT / "hooks")
    for path in sorted(root.glob("tl_dyck*/**/*.py"))
}


def shown(path: Path) -> str:
    """A file's path from the root."""
    return path.relative_to(ROOT).as_posix()


@cache
def module(path: Path) -> ast.Module:
    """A file's syntax tree."""
    return ast.parse(path.read_text(encoding="utf-8"))


@cache
def nodes(path: Path) -> list[ast.AST]:
    """All that is in it."""
    return [*ast.walk(module(path))]
