"""Processes beside each other: a lock on a folder, and workers that end with their starter."""

from __future__ import annotations

import contextlib
import errno
import os
import pickle
import threading
import time
import uuid
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tl_dyck.errors import DyckError

try:
    import fcntl
except ImportError:  # Windows
    fcntl = None  # type: ignore[assignment]

__all__ = ["FolderBusyError", "FolderLock", "Sent", "Watched"]

_SECONDS = 0.5  # between two looks at the parent


class FolderBusyError(DyckError, OSError):
    """Another process is at work in a folder."""


class FolderLock:
    """A lock that one process at a time has; the kernel takes it back however the process ends.

    Where the operating system has no such locks (Windows), everybody gets it.

    Raises:
        FolderBusyError: someone else has it.
        OSError: the file system cannot lock.
    """

    def __init__(self, folder: Path) -> None:
        self._path, self._descriptor = folder / ".lock", -1
        if fcntl is None:
            return
        while self._descriptor < 0:
            descriptor = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW, 0o644)
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                with contextlib.suppress(
                    FileNotFoundError
                ):  # who had it has removed the file between the two steps
                    if os.path.samestat(os.fstat(descriptor), os.stat(self._path)):
                        self._descriptor = descriptor
            except OSError as error:
                name = repr(str(folder))
                if error.errno in (errno.EACCES, errno.EAGAIN):
                    raise FolderBusyError(
                        error.errno, f"another process is at work in {name}"
                    ) from error
                raise OSError(
                    error.errno, f"cannot lock {name} ({error.strerror}); choose another folder"
                ) from error
            finally:
                if self._descriptor < 0:
                    os.close(descriptor)

    def release(self) -> None:
        """Give it back, whatever happens meanwhile; again does nothing."""
        descriptor, self._descriptor = self._descriptor, -1
        if descriptor >= 0:
            try:
                with contextlib.suppress(OSError):
                    os.unlink(self._path)
            finally:
                os.close(descriptor)


@dataclass(frozen=True)
class Watched:
    """A function for worker processes; a worker that has been given it ends when its parent does.

    Whoever is killed without warning cannot stop its workers, and they would go on beside those of
    the next attempt.

    Attributes:
        function: what the worker is to do.
        parent: the process that made this, by number; only a child of it ends with it.
    """

    function: Callable[..., Any]
    parent: int

    @classmethod
    def by_this_process(cls, function: Callable[..., Any]) -> Watched:
        """For the workers of this process."""
        return cls(function, os.getpid())

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Call the function."""
        if self.parent == os.getppid() and self.parent not in _watched:
            _watched.add(self.parent)
            threading.Thread(target=_end_with, args=(self.parent,), daemon=True).start()
        return self.function(*args, **kwargs)


_watched: set[int] = set()


def _end_with(parent: int) -> None:
    while os.getppid() == parent:
        time.sleep(_SECONDS)
    os._exit(
        1
    )  # files are written whole or not at all, so nothing is lost that a checkpoint does not have


class Sent:
    """A value for worker processes that is large and the same for every task.

    joblib shares large arrays between processes and sends anything else with every task; so the
    value travels as an array of bytes, and a worker reads it once. Nothing else should be read
    from it than what this process has put in.

    Args:
        value: anything that can be sent to a worker.
    """

    def __init__(self, value: Any) -> None:
        import cloudpickle
        import numpy as np

        self._key = uuid.uuid4().hex
        self._bytes = np.frombuffer(cloudpickle.dumps(value), dtype=np.uint8)

    @property
    def value(self) -> Any:
        """What was sent; the same object until something else is asked for."""
        if self._key not in _received:
            _received.clear()
            _received[self._key] = pickle.loads(self._bytes.data)
        return _received[self._key]


_received: dict[str, Any] = {}
