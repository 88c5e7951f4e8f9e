"""One line of progress, however many runs there are."""

from __future__ import annotations

from collections import Counter
from datetime import timedelta
from typing import final

from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    TextColumn,
    TimeElapsedColumn,
)
from rich.text import Text

from tl_dyck.kit.screen import Bars, console

_NOT_KNOWN = "-:--:--"
_SHOWN = 5  # kinds of errors that are printed; the rest is in the table


@final
class SweepProgress(Bars):
    """A bar with counts; an error is printed the first time that one of its kind appears.

    The time left is told by the mean rate of the runs that this call made: those that were done
    before took no time of its. With a limit, the bar counts these alone.

    Args:
        total: runs of the sweep.
        before: how many of them had ended before.
        limit: how many are made at most; None for all that are left.
        enabled: whether to show it.
    """

    def __init__(
        self, total: int, *, before: int = 0, limit: int | None = None, enabled: bool = True
    ) -> None:
        columns = (
            BarColumn(),
            MofNCompleteColumn(),
            TextColumn("{task.description}"),
            TimeElapsedColumn(),
            TextColumn("left: {task.fields[left]}"),
        )
        super().__init__(*columns, console=console(), disable=not enabled)
        self._total, self._before, self._limit = total, before, limit
        shown = total if limit is None else min(limit, total - before)
        self._runs = self.add_task("", total=shown, left=_NOT_KNOWN)
        self._counts: Counter[str] = Counter()
        self._made = self._found = 0
        self._errors: Counter[str] = Counter()

    def add(self, status: str, run: str, error: str = "", *, made: bool = True) -> None:
        """One more run has come to this status ("done", "failed"); `made` if this call made it."""
        self._made += made
        # ended before, or meanwhile by other processes
        self._found += not made
        if self._limit is not None and not made:
            return
        self._counts[status] += 1
        if error and not self.disable:
            # the error's class, without its message
            kind = error.split(":")[0]
            self._errors[kind] += 1
            if self._errors[kind] == 1 and len(self._errors) <= _SHOWN:
                self.print(Text(f"run {run} failed: {error}", style="red"))
        failed = f"{self._counts['failed']} failed" if self._counts["failed"] else ""
        self.update(self._runs, advance=1, description=failed, left=self._left())

    def _left(self) -> str:
        """By the mean rate, not the last: runs end in bursts, since seeds are trained together."""
        if not self._made:
            return _NOT_KNOWN
        others = max(self._before, self._found)  # found beyond these: other processes made them
        rest = max(0, self._total - others - self._made)
        if self._limit is not None:
            rest = min(rest, self._limit - self._made)
        elapsed = self.tasks[0].elapsed or 0.0
        return str(timedelta(seconds=round(elapsed * rest / self._made)))
