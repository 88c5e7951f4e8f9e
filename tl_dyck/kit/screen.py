r"""What is printed: the terminal obeys nothing that others wrote (names, paths, messages).

Rich's markup is off, so ``[/]`` and ``loss[train]`` are text; and characters that a terminal would
act on are shown as escapes, ``\x1b`` and the like, wherever they come from.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable, Iterator
from typing import Any

from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    TextColumn,
    TimeElapsedColumn,
)
from rich.segment import Segment

from tl_dyck.kit.visible import UNSAFE, in_a_line, visible

__all__ = ["Bars", "busy", "console", "in_a_line", "progress_bar", "share_bar", "visible"]


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


class Bars(Progress):
    """Progress bars whose last state is shown in notebooks, too: rich leaves it out there."""

    def stop(self) -> None:
        """Stop them."""
        if self.console.is_jupyter:
            self.refresh()
        super().stop()


def progress_bar(enabled: bool) -> Progress:
    """A progress bar with a note (the field "note" of its task), which fits a narrow terminal."""
    bar = BarColumn(bar_width=None)  # gives way
    columns = (
        TextColumn("{task.description}"),
        bar,
        MofNCompleteColumn(),
        TextColumn("{task.fields[note]}"),
    )
    return Bars(*columns, disable=not enabled)


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
