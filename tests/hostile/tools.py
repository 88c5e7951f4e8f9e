"""What hostile files have in common: how they are made, and what a decent refusal is."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tl_dyck.screen import visible

__all__ = ["JUNK", "alter", "nest", "refusal"]

#: What no JSON file of ours begins with.
JUNK = {
    "empty": b"",
    "half": b"{",
    "a list": b"[]",
    "null": b"null",
    "a number": b"5",
    "a text": b'"x"',
    "no UTF-8": b"\xff\xfe\x00{",
    "nested": b"[" * 100_000,
    "nested in objects": b'{"config":' * 50_000,
    "many digits": b"1" * 10_000,
    "no format": b"{}",
    "another format": b'{"format": "tl_dyck.other/9"}',
    "a format that is a list": b'{"format": []}',
    "a pickle": b"\x80\x04\x95\x1a\x00\x00\x00cos\nsystem\n(S'touch owned'\ntR.",
}


def nest(depth: int) -> Any:
    """A list in a list in a list …"""
    value: Any = []
    for _ in range(depth):
        value = [value]
    return value


def alter(path: Path, *keys: Any, value: Any = ...) -> None:
    """Set (or without `value` delete) an entry deep in a JSON file."""
    saved = json.loads(path.read_text())
    where = saved
    for key in keys[:-1]:
        where = where[key]
    if value is ...:
        del where[keys[-1]]
    else:
        where[keys[-1]] = value
    path.write_text(json.dumps(saved))


def refusal(call: Callable[[], Any], *names: str) -> str:
    """Call, and check that it raises an error of the library's.

    It is one line that a terminal can show and that names.
    """
    files = sorted(os.listdir("."))
    with pytest.raises((ValueError, OSError)) as caught:
        call()
    said = str(caught.value)
    assert visible(said) == said
    assert 0 < len(said.splitlines()[0]) == len(said) < 1000
    for name in names:
        assert name in said
    assert sorted(os.listdir(".")) == files  # nothing was executed that leaves a file here
    return said
