"""A lock for every run of a folder: one byte of the file `locks`, which the kernel takes back."""

from __future__ import annotations

import contextlib
import errno
import os
import threading
from pathlib import Path

try:
    import fcntl
except ImportError:  # Windows
    fcntl = None  # type: ignore[assignment]

# A POSIX lock belongs to a process, not to a thread, and goes when the process closes *any*
# descriptor of the file. So each process opens the file once and never closes it, and keeps in mind
# what its own threads hold.

_descriptors: dict[tuple[int, str], int] = {}
_held: dict[tuple[int, str, str], int] = {}
#: Held while the file is opened or made: to close it would drop the locks of this process.
guard = threading.Lock()


def lock(folder: Path, run: str) -> bool:
    """Take the lock of a run, if nobody has it, in this process or any other."""
    # the process, too: after a fork the child has this dictionary, and none of the locks
    mine = (os.getpid(), str(folder), run)
    with guard:
        if mine in _held:
            return False
        if fcntl is None:
            # no file; within this process `_held` is lock enough
            _held[mine] = -1
            return True
        descriptor = _descriptor(folder)
        try:
            # without waiting, one byte long
            fcntl.lockf(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB, 1, _byte(run))
        except OSError as error:
            # POSIX allows either for "someone else has it"
            if error.errno in (errno.EACCES, errno.EAGAIN):
                return False
            raise
        _held[mine] = descriptor
        return True


def _descriptor(folder: Path) -> int:
    """The open file; opened again if the folder was removed or moved away, and made again."""
    key = (os.getpid(), str(folder))
    path = folder / "locks"
    if key in _descriptors:
        with contextlib.suppress(FileNotFoundError):
            if os.path.samestat(os.fstat(_descriptors[key]), os.stat(path)):
                return _descriptors[key]
    # 0o644: written by its owner, read by all
    _descriptors[key] = os.open(path, os.O_RDWR | os.O_CREAT, 0o644)
    return _descriptors[key]


def unlock(folder: Path, run: str) -> None:
    """Give the lock of a run back."""
    with guard:
        descriptor = _held.pop((os.getpid(), str(folder), run))
        if fcntl is not None:
            fcntl.lockf(descriptor, fcntl.LOCK_UN, 1, _byte(run))


def _byte(run: str) -> int:
    return int(run[:15], 16)  # 60 bits: files may be that long, though this one is empty
