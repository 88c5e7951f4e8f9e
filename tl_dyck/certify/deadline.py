"""Until when a certifier may work; looked at wherever work can pile up.

A limit is of seconds by the clock, for whoever waits. What goes into a record is limited by *work*
instead (`by_work`): then each look at the deadline counts, and not how long it took, so that two
runs of one question stop at the same place, however busy the machine is.
"""

from __future__ import annotations

import contextlib
import math
import time
from collections.abc import Iterator
from contextvars import ContextVar
from dataclasses import dataclass, field, replace
from typing import final

from tl_dyck.kit.check import check_time_limit


class OutOfTime(Exception):
    """The deadline has passed in the middle of something; what was proved before stands."""


def now() -> float:
    """The clock, in seconds; tests put another in its place."""
    return time.perf_counter()


_LOOK = 0.0005
"""Seconds of work that a look at the deadline stands for. Measured on trained models of a study, on
an AMD EPYC: 0.3 ms (boxes of profiles) to 0.6 ms (paths); whoever does more between two looks says
so."""


RUN_A_LOOK = 32
"""Strings that are run through a model while a look's work is done: 14 ms for 1,024 of them, of 11
tokens, by two layers."""


@final
@dataclass
class _Worked:
    """A clock that goes on with work alone.

    Attributes:
        seconds: that were worked, by `_LOOK`.
    """

    seconds: float = 0.0


_WORKED: ContextVar[_Worked | None] = ContextVar("worked", default=None)


@contextlib.contextmanager
def by_work() -> Iterator[None]:
    """Here limits are of work: a second is what takes about a second on a quiet machine.

    The same question then gives the same answer, where time runs out, too: for all that is recorded
    of a model. It also decorates a function. Work is done in this process: see `counts_work`.
    """
    token = _WORKED.set(_Worked())
    try:
        yield
    finally:
        _WORKED.reset(token)


def counts_work() -> bool:
    """Whether limits are of work here; other processes would not count together."""
    return _WORKED.get() is not None


@final
@dataclass(frozen=True)
class Deadline:
    """A moment of `now`, or of the work that was done, or never.

    Attributes:
        at: the moment; inf for never.
    """

    at: float = math.inf
    _worked: _Worked | None = field(default=None, repr=False)

    @classmethod
    def after(cls, seconds: float | None) -> Deadline:
        """So many seconds from now; None for never.

        Raises:
            ValueError: NaN, with which no time would ever have passed.
        """
        if seconds is not None and math.isnan(seconds):
            check_time_limit(seconds)
        if seconds is None:
            return cls()
        worked = _WORKED.get()
        return cls((now() if worked is None else worked.seconds) + seconds, worked)

    def sooner(self, seconds: float) -> Deadline:
        """One by which there are so many seconds left, for what is to come after it."""
        return replace(self, at=self.at - seconds)

    @property
    def left(self) -> float:
        """Seconds that are left; negative once it has passed, inf if it never does."""
        return self._left(1)

    def _left(self, looks: float) -> float:
        if self.at == math.inf:
            return math.inf
        if self._worked is None:
            return self.at - now()
        self._worked.seconds += looks * _LOOK
        return self.at - self._worked.seconds

    @property
    def passed(self) -> bool:
        """Whether the deadline has passed."""
        return self.left < 0

    def check_clock(self) -> None:
        """Raise `OutOfTime` if it has passed by the clock; where work counts, this is none."""
        if self._worked is None and self.at < math.inf and self.at < now():
            raise OutOfTime

    def check(self, looks: float = 1) -> None:
        """Raise `OutOfTime` if it has passed.

        Args:
            looks: how many looks what was done since the last one, or is about to be, is worth.
        """
        if self._left(looks) < 0:
            raise OutOfTime
