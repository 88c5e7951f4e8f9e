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

from tl_dyck.screen import Bars, console

_SHOWN = 5  # kinds of errors that are printed; the rest is in the table


@final
class SweepProgress(Bars):
    """A bar with counts; an error is printed the first time that one of its kind appears."""

    def __init__(self, total: int, *, enabled: bool = True) -> None:
        columns = (
            BarColumn(),
            MofNCompleteColumn(),
            TextColumn("{task.description}"),
            TimeElapsedColumn(),
            TextColumn("left: {task.fields[left]}"),
        )
        super().__init__(*columns, console=console(), disable=not enabled)
        self._total, self._runs = total, self.add_task("", total=total, left="-:--:--")
        self._counts: Counter[str] = Counter()
        self._errors: Counter[str] = Counter()

    def add(self, status: str, run: str, error: str = "") -> None:
        """One more run has come to this status ("done", "failed")."""
        self._counts[status] += 1
        if error and not self.disable:
            kind = error.split(":")[0]
            self._errors[kind] += 1
            if self._errors[kind] == 1 and len(self._errors) <= _SHOWN:
                self.print(Text(f"run {run} failed: {error}", style="red"))
        failed = f"{self._counts['failed']} failed" if self._counts["failed"] else ""
        # by the mean rate: runs end in bursts, since seeds are trained together
        ended, elapsed = self._counts.total(), self.tasks[0].elapsed or 0.0
        left = timedelta(seconds=round(elapsed * max(0, self._total - ended) / ended))
        self.update(self._runs, advance=1, description=failed, left=left)
