"""What a saved model is called: a folder, or a name in a folder, ``results/study:gpt/seed-3``.

``reference`` is the folder of the study that comes with the package. Knows nothing of what is in
folders; `tl_dyck.runs.saved` does. It loads nothing heavy.
"""

from __future__ import annotations

from pathlib import Path

#: The address of the study whose models come with the package, and its folder.
REFERENCE = "reference"
REFERENCE_FOLDER = Path(__file__).parent.parent / REFERENCE


def split_address(address: str | Path) -> tuple[Path, str]:
    """The folder that an address begins with, and what follows its colon.

    A path that exists is a folder, whatever colons are in it. Otherwise it is split at its last
    colon before which a folder stands. Where no folder of that name is, ``reference`` is the study
    that comes with the package.

    Returns:
        Folder and name; the whole as a path, and no name, if there is no such folder.
    """
    text = str(address)
    if not Path(address).exists():
        first, _, name = text.partition(":")
        if first == REFERENCE and not Path(first).is_dir():
            return REFERENCE_FOLDER, name.strip("/")
        for place in reversed([at for at, letter in enumerate(text) if letter == ":"]):
            if place and Path(text[:place]).is_dir():
                return Path(text[:place]), text[place + 1 :].strip("/")
    return Path(address), ""


def address_of(folder: Path) -> str:
    """What users call a folder of models."""
    return REFERENCE if folder == REFERENCE_FOLDER else str(folder)


def beside(address: str | Path) -> Path:
    """Where what is made of the models of an address is written: their folder.

    Of those that come with the package, the current folder.
    """
    folder = split_address(address)[0]
    return Path() if folder == REFERENCE_FOLDER else folder
