"""Until when a certifier may work; looked at wherever work can pile up."""

from __future__ import annotations

import math
import time
from dataclasses import dataclass
from typing import final

from tl_dyck.check import check_time_limit


class OutOfTime(Exception):
    """The deadline has passed in the middle of something; what was proved before stands."""


def now() -> float:
    """The clock, in seconds; tests put another in its place."""
    return time.perf_counter()


@final
@dataclass(frozen=True)
class Deadline:
    """A moment of `now`, or never.

    Attributes:
        at: the moment; inf for never.
    """

    at: float = math.inf

    @classmethod
    def after(cls, seconds: float | None) -> Deadline:
        """So many seconds from now; None for never.

        Raises:
            ValueError: NaN, with which no time would ever have passed.
        """
        if seconds is not None and math.isnan(seconds):
            check_time_limit(seconds)
        return cls() if seconds is None else cls(now() + seconds)

    @property
    def left(self) -> float:
        """Seconds that are left; negative once it has passed, inf if it never does."""
        return math.inf if self.at == math.inf else self.at - now()

    @property
    def passed(self) -> bool:
        """Whether the deadline has passed."""
        return self.left < 0

    def check(self) -> None:
        """Raise `OutOfTime` if it has passed."""
        if self.passed:
            raise OutOfTime
