"""Processes beside each other: a lock on a folder, and what is sent from one to another."""

from __future__ import annotations

import contextlib
import errno
import os
import pickle
import platform
import uuid
import weakref
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from tl_dyck.kit.errors import DyckError

try:
    import fcntl
except ImportError:  # Windows
    fcntl = None  # type: ignore[assignment]


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
            # 0o644: written by its owner, read by all, as files of a folder of results are
            descriptor = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW, 0o644)
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                # who had it has removed the file between the two steps
                with contextlib.suppress(FileNotFoundError):
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


class NotSentError(DyckError, RuntimeError):
    """What is to be done cannot be sent to worker processes, or not be loaded there."""


@dataclass(frozen=True)
class Told:
    """What one process has registered in code under a name, on its way to another.

    Attributes:
        pickled: the object; None if it cannot be sent.
        why: not.
        summary: the line for listings.
        replace: whether it takes the name over from what has it there.
    """

    pickled: bytes | None
    why: str
    summary: str
    replace: bool

    @classmethod
    def of(cls, item: object, summary: str, replace: bool) -> Told:
        """For sending. What cannot be sent is told of, too: who asks for it shall hear why."""
        try:
            return cls(_pickled(item, "it"), "", summary, replace)
        except NotSentError as error:
            return cls(None, str(error), summary, replace)

    def load(self) -> Any:
        """The object, in the process that it came to; a NotSentError says why it is not there."""
        if self.pickled is None:
            raise NotSentError(
                f"{self.why}, and only the process that started this worker has registered it; "
                "an entry point would make it known to every process"
            )
        return _loaded(self.pickled, "it")


class _HasCode(Protocol):
    """A registry, which is where plugs are; see `tl_dyck.kit.registry`."""

    def in_code(self) -> Mapping[tuple[str, str], Told]:
        """What was registered in code, by group and name."""


#: The registries of this process, and what came to it with work, by group and name.
told_to: weakref.WeakSet[_HasCode] = weakref.WeakSet()
told_here: dict[tuple[str, str], Told] = {}


class Sent:
    """A value for worker processes that is the same for every task.

    A worker reads it once, however many tasks bring it along. What only the code of this process
    has registered (`tl_dyck.kit.registry`) goes with it. Nothing else should be read from it than
    what this process has put in.

    Args:
        value: anything that can be sent to a worker; functions and classes of a script or notebook,
            too.

    Raises:
        NotSentError: it cannot.
    """

    def __init__(self, value: Any) -> None:
        self._key, self._from = uuid.uuid4().hex, _THIS
        self._told = dict(told_here)
        for registry in list(told_to):
            self._told |= registry.in_code()
        self._pickled = _pickled(value, "what is to be done")

    @property
    def value(self) -> Any:
        """What was sent; the same object until something else is asked for."""
        last = _received.get("last")  # read once: another thread may receive something else
        if last is None or last[0] != self._key:
            if self._from != _THIS:
                told_here.clear()
                told_here.update(self._told)
            last = self._key, _loaded(self._pickled, "what is to be done")
            _received["last"] = last
        return last[1]

    def __call__(self, *arguments: Any) -> Any:
        """Call what was sent, where it is a function."""
        return self.value(*arguments)


_THIS = uuid.uuid4().hex  # this process, on whatever machine
_received: dict[str, tuple[str, Any]] = {}


def _pickled(value: object, what: str) -> bytes:
    import cloudpickle

    try:
        return bytes(cloudpickle.dumps(value))
    except Exception as error:  # whatever objects raise that were not made to be sent
        raise NotSentError(
            f"{what} cannot be sent to worker processes ({type(error).__name__}: {error})"
        ) from error


def _loaded(pickled: bytes, what: str) -> Any:
    try:
        return pickle.loads(pickled)
    except Exception as error:
        raise NotSentError(
            f"{what} cannot be loaded by the worker process on {platform.node()!r} "
            f"({type(error).__name__}: {error}); its Python needs the modules that define it"
        ) from error
