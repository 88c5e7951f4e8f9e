"""Checks of paths and names that take no time, before torch and TransformerLens are loaded."""

from __future__ import annotations

import errno
import os
import stat
import sys
from importlib import metadata
from pathlib import Path

from tl_dyck.addresses import split_address
from tl_dyck.errors import DyckError
from tl_dyck.registry import unknown_name

#: What the two packages register themselves; tests hold these lists to the registries.
FAMILIES = (
    *("gpt", "gpt-learned", "gpt-linear", "gpt-sinusoidal", "gpt-uniform"),
    *("attn-only", "eq6", "eq6-uniform", "eq49"),
    *("minimal-onehot", "minimal-split", "minimal-yao", "minimal-uniform"),
    *("figure2-onehot", "figure2-split", "figure2-yao"),
)
TASKS = tuple(
    f"dyck-{k}-{depth}{mode}" for k in (2, 3) for depth in (4, 8) for mode in ("", "-prefix")
)
#: Their entry points, and the module that registers them.
_REGISTERED = {
    "model": (FAMILIES, "tl_dyck.models", "tl_dyck.models.families"),
    "task": (TASKS, "tl_dyck.tasks", "tl_dyck.tasks"),
}


class NoSuchPathError(DyckError, FileNotFoundError):
    """There is nothing at a path."""


class CannotWriteError(DyckError, OSError):
    """What is to be written cannot be written there; said before anything is computed."""


def existing(*paths: Path | None) -> None:
    """Insist that there is something at each path; None is passed over."""
    for path in paths:
        if path is not None and not path.exists():
            raise NoSuchPathError(f"there is no file or folder {str(path)!r}")


def existing_models(*addresses: str | None) -> None:
    """Insist that there is a folder where each address of a model begins; None is passed over."""
    existing(*(split_address(address)[0] for address in addresses if address is not None))


def study_folder(path: Path) -> Path:
    """The folder of a finished study, from itself or from its ``results.json``."""
    existing(path)
    folder = path.parent if path.name == "results.json" else path
    if not (folder / "results.json").exists():
        raise NoSuchPathError(
            f"{str(path)!r} is not the folder of a finished study: it has no results.json; "
            "tl-dyck study makes one"
        )
    return folder


def writable_folder(path: Path) -> Path:
    """Insist that files can be made in a folder, which need not be there yet."""
    _look(path)
    here = Path(os.path.realpath(path))
    if os.path.lexists(path) and not here.exists():
        raise _cannot(path, "it is a link that leads nowhere")
    while not here.exists() and here != here.parent:
        here = here.parent
    if not here.is_dir():
        raise _cannot(path, f"{str(here)!r} is no folder")
    if not os.access(here, os.W_OK | os.X_OK):
        raise _cannot(path, f"{str(here)!r} is read-only")
    return path


def writable_file(path: Path) -> Path:
    """Insist that a file can be written, as `tl_dyck.files.write_output` writes it."""
    found = _look(path)
    if found is None or stat.S_ISREG(found.st_mode):
        writable_folder(Path(os.path.realpath(path)).parent)
    elif stat.S_ISDIR(found.st_mode):
        raise CannotWriteError(f"{str(path)!r} is a folder: name a file in it")
    elif not (stat.S_ISFIFO(found.st_mode) or stat.S_ISCHR(found.st_mode)):
        raise CannotWriteError(f"{str(path)!r} is neither a file nor a pipe: name another one")
    elif not os.access(path, os.W_OK):
        raise CannotWriteError(f"{str(path)!r} cannot be written to: name another one")
    return path


def _look(path: Path) -> os.stat_result | None:
    """What is at a path; None if there is nothing."""
    try:
        return os.stat(path)
    except ValueError as error:
        raise CannotWriteError(f"{str(path)!r} is no name of a file: {error}") from error
    except OSError as error:
        if error.errno in (errno.ENOENT, errno.ENOTDIR):
            return None
        raise CannotWriteError(f"{str(path)!r} cannot be written: {error.strerror}") from error


def _cannot(path: Path, why: str) -> CannotWriteError:
    return CannotWriteError(f"cannot write to the folder {str(path)!r} ({why}); choose another one")


def known(kind: str, *names: str | None) -> None:
    """Insist that names of models (families) or tasks exist; None is passed over.

    Raises:
        UnknownNameError: one does not; the message names the nearest.
    """
    own, group, registry = _REGISTERED[kind]
    if registry in sys.modules:  # it knows better, and nothing is left to be saved
        return
    every = {*own, *metadata.entry_points(group=group).names}
    for name in names:
        if name is not None and name not in every:
            raise unknown_name(kind, name, every)
