"""One line of progress, however many runs there are."""

from __future__ import annotations

from collections import Counter
from datetime import timedelta
from types import TracebackType
from typing import final

from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    ProgressColumn,
    Task,
    TextColumn,
    TimeElapsedColumn,
)
from rich.text import Text

from tl_dyck.screen import Bars, console

_SHOWN = 5  # kinds of errors that are printed; the rest is in the table


@final
class _Left(ProgressColumn):
    """Time that is left, by the mean rate so far.

    Runs end in bursts, since seeds are trained together: rich's rate over the last half minute is
    that of a burst.
    """

    max_refresh = 0.5

    def render(self, task: Task) -> Text:
        """``left: 0:12:30``."""
        if not task.completed or not task.total or task.elapsed is None:
            return Text("left: -:--:--")
        seconds = task.elapsed * (task.total - task.completed) / task.completed
        return Text(f"left: {timedelta(seconds=round(seconds))}")


@final
class SweepProgress:
    """A bar with counts; an error is printed the first time that one of its kind appears.

    Args:
        total: number of runs.
        enabled: whether to show anything.
    """

    def __init__(self, total: int, *, enabled: bool = True) -> None:
        columns = (
            BarColumn(),
            MofNCompleteColumn(),
            TextColumn("{task.description}"),
            TimeElapsedColumn(),
            _Left(),
        )
        self._enabled = enabled
        self._bar = Bars(*columns, console=console(), disable=not enabled)
        self._task = self._bar.add_task("", total=total)
        self._counts: Counter[str] = Counter()
        self._errors: Counter[str] = Counter()

    def __enter__(self) -> SweepProgress:
        self._bar.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._bar.stop()

    def add(self, status: str, run: str, error: str = "") -> None:
        """One more run has come to this status ("done", "failed")."""
        self._counts[status] += 1
        if error and self._enabled:
            kind = error.split(":")[0]
            self._errors[kind] += 1
            if self._errors[kind] == 1 and len(self._errors) <= _SHOWN:
                self._bar.print(Text(f"run {run} failed: {error}", style="red"))
        failed = f"{self._counts['failed']} failed" if self._counts["failed"] else ""
        self._bar.update(self._task, advance=1, description=failed)
