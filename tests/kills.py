"""Jobs that are killed, or stopped by Ctrl-C, at any moment, and done again.

A job takes a folder, works in it, and returns what it has made. What comes back from here is to be
held to what one that nobody interrupted has made.
"""

from __future__ import annotations

import itertools
import os
import random
import signal
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from types import FrameType
from typing import Any

Job = Callable[[Path], Any]
OPERATIONS = [
    *((os, name) for name in ("replace", "unlink", "fsync", "chmod", "mkdir")),
    (tempfile, "mkstemp"),
    (Path, "unlink"),
]


class Killed(BaseException):
    """The process ends here."""


def kill(*arguments: object) -> None:
    """A callback in which the process ends."""
    raise Killed


def _dies(work: Callable[[], object]) -> bool:
    """Whether a process of its own, which does some work, was killed by it."""
    child = os.fork()
    if child == 0:
        try:
            work()
        finally:
            os._exit(0)
    return os.WTERMSIG(os.waitpid(child, 0)[1]) == signal.SIGKILL


def kill_9() -> None:
    """The end of this process."""
    os.kill(os.getpid(), signal.SIGKILL)


def at_file_operations(job: Job, folder: Path, every: int = 1) -> Iterator[tuple[Path, Any]]:
    """Folder and result of a job that was killed once: at its first file operation, and so on."""
    for number in itertools.count(step=every):
        own, left = folder / f"killed-{number}", itertools.count(-number)

        def mortal(function: Callable[..., Any], left: Iterator[int] = left) -> Callable[..., Any]:
            return lambda *args, **kwargs: (
                kill_9() if next(left) == 0 else function(*args, **kwargs)
            )

        def work(own: Path = own, mortal: Callable[..., Any] = mortal) -> None:
            for module, name in OPERATIONS:
                setattr(module, name, mortal(getattr(module, name)))
            job(own)

        if not _dies(work):
            return
        yield own, job(own)


class Countdown:
    """Counts calls and returns of functions and acts at a given one: a moment without a clock.

    Not within the type checker of the tests, but after it, for it would be left with its locks
    held.
    """

    def __init__(self, moment: float, act: Callable[[], object]) -> None:
        self.count, self.moment, self.act = 0, moment, act

    def __call__(self, frame: FrameType, event: str, argument: object) -> None:
        self.count += 1
        if self.moment > 0 and self.count >= self.moment and not _checks_types(frame):
            self.moment = -1
            self.act()

    def around(self, job: Job, folder: Path) -> Any:
        """Do a job, counting."""
        sys.setprofile(self)
        try:
            return job(folder)
        finally:
            sys.setprofile(None)


def _checks_types(frame: FrameType | None) -> bool:
    while frame is not None:
        if str(frame.f_globals.get("__name__")).startswith("beartype"):
            return True
        frame = frame.f_back
    return False


def _calls(job: Job, folder: Path) -> int:
    """How many calls and returns a job is, uninterrupted."""
    counter = Countdown(-1, print)
    counter.around(job, folder)
    return counter.count


def by_kill_9(job: Job, folder: Path, seed: int = 0) -> Any:
    """What a job makes that was killed at six random moments of its own process, or nearly."""
    count, chance, killed = _calls(job, folder / "whole"), random.Random(seed), 0
    for _ in range(6):
        countdown = Countdown(count * chance.uniform(0.1, 0.3), kill_9)
        killed += _dies(lambda countdown=countdown: countdown.around(job, folder / "killed"))
    assert killed > 2
    return job(folder / "killed")


def by_ctrl_c(job: Job, folder: Path, seed: int = 1) -> Any:
    """What a job makes that heard Ctrl-C at random moments until it was done nevertheless."""
    count, chance = _calls(job, folder / "whole"), random.Random(seed)
    for pressed in itertools.count():
        countdown = Countdown(
            # a run that was begun again gets ahead in a fifth of the calls of a whole one
            count * chance.uniform(0.05, 0.4),
            lambda: signal.raise_signal(signal.SIGINT),
        )
        try:
            result = countdown.around(job, folder / "pressed")
        except KeyboardInterrupt:
            continue
        assert pressed > 2
        return result
