"""Experiments for tests, importable by worker processes; and a driver killed at any moment."""

from __future__ import annotations

import os
import random
import signal
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.patience import PATIENCE
from tl_dyck.runs import run_sweep

Point = dict[str, Any]


def note(point: Point, line: str) -> None:
    """Append a line to the file the point names: one system call, so lines cannot mix."""
    descriptor = os.open(point["log"], os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)
    try:
        os.write(descriptor, f"{line}\n".encode())
    finally:
        os.close(descriptor)


def noted(log: str | Path) -> list[str]:
    """The lines of such a file."""
    path = Path(log)
    return path.read_text().splitlines() if path.exists() else []


def expected(x: int, seed: int) -> dict[str, Any]:
    """What `count` returns."""
    return {"score": 10 * x + seed / 7, "even": x % 2 == 0, "name": f"x{x}"}


@dataclass(frozen=True)
class OnDevice:
    """An experiment whose models are somewhere."""

    device: str | None = None

    def prepare(self, point: Point) -> Where:
        return Where(point, self.device)


@dataclass(frozen=True)
class Where:
    point: Point
    device: str | None

    def identity(self) -> Point:
        return self.point

    def run(self, seed: int, folder: Path) -> dict[str, Any]:
        return {"device": str(self.device)}


def count(point: Point, seed: int, folder: Path) -> dict[str, Any]:
    """Take a little time, noting when it begins and ends; maybe only after so many have begun."""
    note(point, f"start {point['x']} {seed} {os.getpid()}")
    (folder / "file.txt").write_text(f"{point['x']} {seed}")
    for _ in range(100 * PATIENCE):
        if sum(line.startswith("start") for line in noted(point["log"])) >= point.get("begun", 0):
            break
        time.sleep(0.01)
    time.sleep(point.get("sleep", 0))
    note(point, f"end {point['x']} {seed} {os.getpid()}")
    return expected(point["x"], seed)


def nothing(point: Point, seed: int, folder: Path) -> dict[str, Any]:
    """Cost nothing."""
    return {"score": 10 * point["x"] + seed}


def raises(point: Point, seed: int, folder: Path) -> dict[str, Any]:
    """Raise for odd seeds, until the file that the point names is there."""
    if "log" in point:
        note(point, f"{point['x']} {seed}")
    if seed % 2 and not os.path.exists(point.get("repaired", "")):
        raise ValueError(f"seed {seed} is odd")
    return {"score": float(seed)}


def dies(point: Point, seed: int, folder: Path) -> dict[str, Any]:
    """Kill the process at some seeds, at others the first time only."""
    note(point, f"{seed}")
    flag = folder / "flag"
    if seed in point["always"] or (seed in point["once"] and not flag.exists()):
        flag.touch()
        os.kill(os.getpid(), signal.SIGKILL)
    time.sleep(0.05)
    return {"score": float(seed)}


def slow(point: Point, seed: int, folder: Path) -> dict[str, Any]:
    """Say that it began, and wait for a file to appear."""
    note(point, f"start {seed} {os.getpid()}")
    for _ in range(100 * PATIENCE):
        if os.path.exists(point["go"]) or seed != point.get("slow_seed", 0):
            note(point, f"end {seed} {os.getpid()}")
            return {"score": float(seed)}
        time.sleep(0.01)
    raise TimeoutError("nobody said go")


def in_child(action: Callable[[], Any]) -> int:
    """Run something in a forked process, which never returns here; its id."""
    pid = os.fork()
    if pid:
        return pid
    try:
        action()
        os._exit(0)
    except BaseException:
        import traceback

        traceback.print_exc()
        os._exit(1)


def storm(folder: Path, *, kills: int, n_points: int, n_seeds: int, writers: int, seed: int) -> int:
    """Start writers on a folder and kill them at random moments, repeatedly; then one nobody kills.

    Meant for a process that does nothing else, since it forks.

    Returns:
        How many kills hit.

    Raises:
        AssertionError: a run was lost, or completed and started again, or a file is not whole.
    """
    from tl_dyck.kit.files import read_json
    from tl_dyck.runs import load_results, sweep_status, worker
    from tl_dyck.runs.store import Store, run_id

    log = folder.with_name(f"{folder.name}.log")
    # a run takes 5 ms at least, so that kills hit runs too, and many are needed before all is done
    sweep = {
        "common": {"log": str(log), "sleep": 0.005},
        "grid": {"x": list(range(n_points))},
        "seeds": n_seeds,
    }
    worker._environment()  # what takes time is done before the fork
    rng = random.Random(seed)

    def write() -> None:
        run_sweep(sweep, folder, experiment=count, n_jobs=1, progress=False)

    store = Store(folder.resolve())
    hit = 0
    recorded: set[str] = set()
    for _ in range(kills):
        # those whose record is there now may never start again
        before, n_lines = set(recorded), len(noted(log))
        children = [in_child(write) for _ in range(writers)]
        time.sleep(rng.random() * 0.05)
        for child in children:
            os.kill(child, signal.SIGKILL)
        hit += sum(os.WIFSIGNALED(os.waitpid(child, 0)[1]) for child in children)
        recorded = {run for run, status in store.names() if status == "done"}
        assert recorded >= before, "a record is gone"
        for run in recorded:
            store.read(store.path(run, ".json"))  # whole, or this raises
        for line in noted(log)[n_lines:]:
            event, x, of, _ = line.split()
            if event == "start":
                again = run_id(_point(store, int(x)), int(of))
                assert again not in before, f"{line}: there was a record of it"
    last = in_child(write)
    assert os.waitpid(last, 0)[1] == 0
    lines = [line.split() for line in noted(log)]
    starts = Counter((int(x), int(of)) for event, x, of, _ in lines if event == "start")
    ends = Counter((int(x), int(of)) for event, x, of, _ in lines if event == "end")
    every = {(x, of) for x in range(n_points) for of in range(n_seeds)}
    assert starts.keys() == ends.keys() == every
    # a run that ended twice was killed between its end and its record, as often as there were kills
    # at most
    again = sum(ends.values()) - len(every)
    assert again <= hit
    table = load_results(folder)
    assert len(table) == len(every)
    assert (table["status"] == "done").all()
    for row in table.to_dict("records"):
        wanted = expected(row["x"], row["seed"])
        assert {name: row[name] for name in wanted} == wanted
    status = sweep_status(folder)
    assert status.counts["done"] == status.total == len(every)
    assert status.corrupt == status.others == 0
    for path in folder.rglob("*.json"):
        read_json(path)
    return hit


def _point(store: Any, x: int, known: dict[tuple[str, int], str] = {}) -> str:  # noqa: B006
    """Id of the point with this x."""
    from tl_dyck.kit.files import read_json

    if (str(store.folder), x) not in known:
        for path in (store.folder / "points").glob("*.json"):
            known[str(store.folder), read_json(path)["parameters"]["x"]] = path.stem
    return known[str(store.folder), x]
