"""How a sweep stands: counts, errors, what is damaged."""

from __future__ import annotations

from collections import Counter, defaultdict
from dataclasses import dataclass
from pathlib import Path
from typing import final

import pandas as pd

from tl_dyck.kit.arguments import checked
from tl_dyck.kit.files import CorruptFileError
from tl_dyck.runs.results import load_results, text_of_value
from tl_dyck.runs.store import Store, run_id


@final
@dataclass(frozen=True, kw_only=True)
class SweepStatus:
    """Counts of a sweep's runs: done, failed, running, waiting.

    Attributes:
        folder: where it is.
        total: runs of the sweep that was last asked for in it.
        counts: how many of them are "done", "failed", "running" (in some process, on any machine),
            "interrupted" (begun by a process that is gone), "waiting" (not begun).
        axes: for each parameter that varies, each of its values, as text, with such counts.
        errors: first lines of failures, most frequent first, with how often they occur.
        corrupt: files that were set aside because their digest did not match.
        others: runs in the folder that are not of this sweep, but of others before it.
        made: runs that `run_sweep`, which returned this, carried out, failed ones included.
        seconds: that it took.
    """

    folder: Path
    total: int
    counts: dict[str, int]
    axes: dict[str, dict[str, dict[str, int]]]
    errors: list[tuple[str, int]]
    corrupt: int
    others: int
    made: int = 0
    seconds: float = 0.0

    @property
    def done(self) -> int:
        """Runs with a record."""
        return self.counts["done"]

    @property
    def failed(self) -> int:
        """Runs that raised, and were not tried again."""
        return self.counts["failed"]

    @property
    def elsewhere(self) -> int:
        """Runs that have not ended: what `run_sweep` leaves, other processes had at the time."""
        return self.total - self.done - self.failed


@checked
def sweep_status(folder: str | Path) -> SweepStatus:
    """Count a sweep's runs by their state; writes nothing.

    Raises:
        CorruptFileError: the folder holds no sweep, or one of another version.
    """
    store = Store.at(folder)
    sweep, points = store.plan()
    names = dict(store.names())
    counts: Counter[str] = Counter()
    axes: dict[str, dict[str, Counter[str]]] = {name: {} for name in sweep.axes}
    total, mine = 0, 0
    errors: Counter[str] = Counter()
    for point, (parameters, seeds) in zip(points, sweep.points_and_seeds(), strict=True):
        found: Counter[str] = Counter()
        for seed in seeds:
            run = run_id(point, seed)
            status = names.get(run, "waiting")
            mine += status != "waiting"
            if status == "started":
                # a started run has a folder; who is at it holds its lock
                status = "running" if store.is_claimed(run) else "interrupted"
            if status == "failed":
                errors[_error(store, run)] += 1
            found[status] += 1
        total += len(seeds)
        counts += found
        for name in axes:
            axes[name].setdefault(text_of_value(parameters.get(name)), Counter()).update(found)
    return SweepStatus(
        folder=store.folder,
        total=total,
        counts={
            name: counts[name] for name in ("done", "failed", "running", "interrupted", "waiting")
        },
        axes={
            name: {value: dict(found) for value, found in values.items()}
            for name, values in axes.items()
        },
        errors=errors.most_common(),
        corrupt=sum(1 for _ in (store.folder / "runs").glob("*/*.corrupt")),
        others=len(names) - mine,
    )


@checked
def time_left(folder: str | Path) -> pd.DataFrame:
    """What is left of a sweep, by point, and how long it will take by what its runs have taken.

    Returns:
        One row for each point with runs that have not ended: the parameters that vary, left (runs),
        seconds (a run: the mean of the point's own that are done, or else of all), total (seconds
        of one worker for all that are left; NaN while no run is done).

    Raises:
        CorruptFileError: the folder holds no sweep, or one of another version.
    """
    store = Store.at(folder)
    sweep, points = store.plan()
    results = load_results(folder)
    ended, took = set(results["id"]), defaultdict(list)
    done = results[results["status"] == "done"]
    for point, seconds in zip(done["point"], done["seconds"], strict=True):
        took[point].append(float(seconds))
    overall = [seconds for found in took.values() for seconds in found]
    rows = []
    for point, (parameters, seeds) in zip(points, sweep.points_and_seeds(), strict=True):
        left = sum(run_id(point, seed) not in ended for seed in seeds)
        known = took[point] or overall
        each = sum(known) / len(known) if known else float("nan")
        named = {name: text_of_value(parameters.get(name)) for name in sweep.axes}
        # no row where nothing is left
        rows += [{**named, "left": left, "seconds": each, "total": left * each}] * bool(left)
    return pd.DataFrame(rows, columns=[*sweep.axes, "left", "seconds", "total"])


def _error(store: Store, run: str) -> str:
    try:
        return str(store.read(store.path(run, ".failed.json")).get("error"))
    except CorruptFileError as error:
        return str(error)
