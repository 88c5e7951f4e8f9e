"""The line of progress of many runs."""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest
from rich.console import Console

from tl_dyck.runs import progress as module
from tl_dyck.runs import run_sweep
from tl_dyck.runs.progress import SweepProgress


class Clock:
    """A clock that is turned by hand, and the screen that it stands on."""

    def __init__(self) -> None:
        self.now = 100.0
        self.screen = Console(
            width=100, force_terminal=True, color_system=None, get_time=lambda: self.now
        )

    @contextmanager
    def shown(self) -> Iterator[Callable[[], tuple[str, str]]]:
        """Yields what reads the count and the time left off the last line."""
        found: list[str] = []
        with self.screen.capture() as said:
            yield lambda: re.findall(r"(\d+/\d+)[^/]*?left: (\S+)", found[0])[-1]
        found.append(said.get())


@dataclass
class Seconds:
    """An experiment that turns the clock."""

    turn: Callable[[int], None]
    name = "seconds"

    def prepare(self, point: object) -> Seconds:
        return self

    def identity(self) -> dict[str, int]:
        return {}

    def run(self, seed: int, folder: Path) -> dict[str, int]:
        self.turn(seed)
        return {"value": seed}


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    made = Clock()
    monkeypatch.setattr(time, "monotonic", lambda: made.now)
    monkeypatch.setattr(module, "console", lambda: made.screen)
    return made


def test_the_time_left_is_told_by_the_mean_rate(clock: Clock) -> None:
    """Four of sixteen runs end at once after ten seconds: thirty are left, not one."""
    with clock.shown() as last, SweepProgress(16) as bar:
        clock.now += 10
        for run in range(4):
            clock.now += 0.001
            bar.add("done", str(run))
    assert last() == ("4/16", "0:00:30")


@pytest.mark.parametrize("first", [True, False], ids=["listed first", "listed among others"])
def test_what_was_done_before_sets_no_pace(clock: Clock, first: bool) -> None:
    """74 of 200 were there; 20 take 14 seconds; the other 106 will take 74."""
    old = [("done", str(run), False) for run in range(74)]
    new = [("done", str(run), True) for run in range(74, 94)]
    with clock.shown() as last, SweepProgress(200, before=74) as bar:
        for status, run, made in [*old, *new] if first else [*new, *old]:
            clock.now += 0.7 * made
            bar.add(status, run, made=made)
    assert last() == ("94/200", "0:01:14")


def test_what_other_processes_made_is_not_left_and_sets_no_pace(clock: Clock) -> None:
    with clock.shown() as last, SweepProgress(20) as bar:
        for run in range(4):
            clock.now += 5
            bar.add("done", str(run))
        for run in range(4, 10):
            bar.add("done", str(run), made=False)
    assert last() == ("10/20", "0:00:50")


@pytest.mark.parametrize(
    ("limit", "made", "shown"), [(12, 3, ("3/12", "0:00:45")), (12, 12, ("12/12", "0:00:00"))]
)
def test_with_a_limit_it_counts_to_it(
    clock: Clock, limit: int, made: int, shown: tuple[str, str]
) -> None:
    with clock.shown() as last, SweepProgress(200, before=50, limit=limit) as bar:
        for run in range(50):
            bar.add("done", str(run), made=False)
        for run in range(50, 50 + made):
            clock.now += 5
            bar.add("done", str(run))
    assert last() == shown


def test_a_limit_beyond_what_is_left_is_what_is_left(clock: Clock) -> None:
    with clock.shown() as last, SweepProgress(10, before=8, limit=5) as bar:
        clock.now += 5
        bar.add("done", "9")
    assert last() == ("1/2", "0:00:05")


def test_nothing_is_known_before_a_run_of_this_call_ends(clock: Clock) -> None:
    with clock.shown() as last, SweepProgress(4, before=2) as bar:
        clock.now += 9
        bar.add("done", "0", made=False)
        bar.add("done", "1", made=False)
    assert last() == ("2/4", "-:--:--")


def test_a_sweep_that_goes_on(clock: Clock, tmp_path: Path) -> None:
    """Each run takes a second; one of the first twelve fails, which counts as ended."""

    def second(seed: int) -> None:
        clock.now += 1
        if seed == 5:
            raise ValueError("no")

    def run(**how: object) -> tuple[str, str]:
        done: list[tuple[int, str]] = []
        with clock.shown() as last:
            run_sweep(
                {"seeds": 40},
                tmp_path,
                experiment=Seconds(second),
                n_jobs=1,
                on_result=lambda row: done.append((row["seed"], row["status"])),
                **how,  # type: ignore[arg-type]
            )
        seen.append(len(done))
        return last()

    seen: list[int] = []
    assert run(limit=12) == ("12/12", "0:00:00")
    assert run(limit=12) == ("12/12", "0:00:00")
    assert run(limit=1, retry_failed=True) == ("1/1", "0:00:00")
    assert run() == ("40/40", "0:00:00")
    assert seen == [12, 12, 1, 15]


def test_half_way_through_a_sweep_that_goes_on(clock: Clock, tmp_path: Path) -> None:
    def run(stop: int) -> tuple[str, str]:
        def second(seed: int) -> None:
            if seed == stop:
                raise KeyboardInterrupt
            clock.now += 2

        with clock.shown() as last, pytest.raises(KeyboardInterrupt):
            run_sweep({"seeds": 40}, tmp_path, experiment=Seconds(second), n_jobs=1)
        return last()

    assert run(10) == ("10/40", "0:01:00")
    # nine in 18 seconds; the run that was stopped comes last
    assert run(20) == ("19/40", "0:00:42")
