"""What we tell people to type next: every command that a page, a message or an error prints.

Knows: how a command is written so that a shell reads it as it was meant.
`tests/kit/test_suggest.py` finds every call of `command` and runs what it made, as it was printed.
"""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import NamedTuple


class Files(NamedTuple):
    """Files of a folder, which a shell finds by a pattern."""

    folder: Path
    pattern: str

    def __str__(self) -> str:
        return f"{shlex.quote(self.folder.as_posix())}/{self.pattern}"


def command(*words: object) -> str:
    """A command of ours, for a shell: words with blanks or other signs are quoted."""
    said = (str(word) if isinstance(word, Files) else shlex.quote(str(word)) for word in words)
    return " ".join(["tl-dyck", *said])
