"""What a saved model is called: a folder, or a name in a folder, ``results/study:gpt/seed-3``.

Knows nothing of what is in folders; `tl_dyck.runs.saved` does. It loads nothing heavy.
"""

from __future__ import annotations

from pathlib import Path


def split_address(address: str | Path) -> tuple[Path, str]:
    """The folder that an address begins with, and what follows its colon.

    A path that exists is a folder, whatever colons are in it. Otherwise it is split at its last
    colon before which a folder stands.

    Returns:
        Folder and name; the whole as a path, and no name, if there is no such folder.
    """
    text = str(address)
    if not Path(address).exists():
        for place in reversed([at for at, letter in enumerate(text) if letter == ":"]):
            if place and Path(text[:place]).is_dir():
                return Path(text[:place]), text[place + 1 :].strip("/")
    return Path(address), ""
