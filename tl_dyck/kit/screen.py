r"""What is printed: the terminal obeys nothing that others wrote (names, paths, messages).

Rich's markup is off, so ``[/]`` and ``loss[train]`` are text; and characters that a terminal would
act on are shown as escapes, ``\x1b`` and the like, wherever they come from.
"""

from __future__ import annotations

import contextlib
import math
from collections.abc import Callable, Iterable, Iterator
from typing import Any, TypeVar

from rich.console import Console, RenderableType
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    ProgressColumn,
    Task,
    TextColumn,
    TimeElapsedColumn,
)
from rich.segment import Segment
from rich.text import Text

from tl_dyck.kit.visible import UNSAFE, in_a_line, visible

__all__ = [
    "Bars",
    "busy",
    "console",
    "counted",
    "in_a_line",
    "progress_bar",
    "share_bar",
    "visible",
]

_T = TypeVar("_T")


class _SafeConsole(Console):
    """A console that writes `visible` text only, apart from rich's own control sequences."""

    def render(self, renderable: Any, options: Any = None) -> Iterable[Segment]:
        for segment in super().render(renderable, options):
            if segment.control or not UNSAFE.search(segment.text):
                yield segment
            else:
                yield Segment(visible(segment.text), segment.style)


def console(*, stderr: bool = False) -> Console:
    """Standard output (or error) as it is now; no coloured numbers, and no markup in texts."""
    return _SafeConsole(highlight=False, markup=False, emoji=False, stderr=stderr)


#: Seconds between two lines of progress, where it goes to a file or a pipe.
_LINE_EVERY = 60.0
_FIRST_AFTER = 2.0  # the first of them


class Bars(Progress):
    """Progress bars that also do for logs: there they are a line a minute on standard error.

    The first comes after two seconds.

    Rich shows a log only how it ended, and a notebook all but that; here both see both.
    """

    _said: float | None = None  # when the last line was printed; None where none is to be

    def start(self) -> None:
        """Start them."""
        if not (self.disable or self.console.is_terminal or self.console.is_jupyter):
            # the first line soon; of what is done before, none
            self._said = self.get_time() - _LINE_EVERY + min(_FIRST_AFTER, _LINE_EVERY)
        super().start()

    def get_renderable(self) -> RenderableType:
        """The bars; rich asks for them ten times a second, whether or not there is a terminal."""
        if self._said is not None and self.get_time() - self._said >= _LINE_EVERY:
            self._said = self.get_time()
            for task in self.tasks:
                words = " ".join(_in_words(column, task) for column in self.columns).split()
                console(stderr=True).print(Text(" ".join(words)), soft_wrap=True)
        return super().get_renderable()

    def stop(self) -> None:
        """Stop them."""
        self._said = None  # how it ended is a line of its own
        if self.console.is_jupyter:
            self.refresh()
        super().stop()


def _in_words(column: str | ProgressColumn, task: Task) -> str:
    """What a column of a bar says, for a log: a bar is a percentage there."""
    if isinstance(column, BarColumn):
        return "" if task.total is None else f"{math.floor(task.percentage)} %"
    return str(column(task)) if isinstance(column, ProgressColumn) else ""


def progress_bar(enabled: bool, *, transient: bool = False) -> Progress:
    """A progress bar with a note (the field "note" of its task), which fits a narrow terminal."""
    bar = BarColumn(bar_width=None)  # gives way
    columns = (
        TextColumn("{task.description}"),
        bar,
        MofNCompleteColumn(),
        TextColumn("{task.fields[note]}"),
    )
    return Bars(*columns, console=console(), transient=transient, disable=not enabled)


def counted(
    values: Iterable[_T], what: str, total: int, *, enabled: bool = True, transient: bool = False
) -> Iterator[_T]:
    """The values, one after the other, under a bar that counts them."""
    if not enabled:
        yield from values
        return
    with progress_bar(True, transient=transient) as bar:
        yield from bar.track(values, total, task_id=bar.add_task(what, total=total, note=""))


@contextlib.contextmanager
def share_bar(
    what: str, *, enabled: bool = True, transient: bool = False, total: float | None = 1.0
) -> Iterator[Callable[[float], None]]:
    """A progress bar for work that counts nothing; to be told the share, in 0..1, that is done.

    With None for a total it moves, and tells the time, until the work is done.
    """
    columns = (TextColumn("{task.description}"), BarColumn(), TimeElapsedColumn())
    with Bars(*columns, console=console(), transient=transient, disable=not enabled) as bar:
        shown = bar.add_task(what, total=total)
        yield lambda share: bar.update(shown, completed=share)


def busy(what: str, enabled: bool = True) -> contextlib.AbstractContextManager[Any]:
    """A bar that moves while something is done of which no share is known; then it is gone."""
    return share_bar(what, enabled=enabled, transient=True, total=None)
