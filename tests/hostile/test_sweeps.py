"""Sweep files and folders of sweeps that someone has been at."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.hostile.conftest import POINT, RUN
from tests.hostile.tools import JUNK, alter, refusal
from tl_dyck.runs import Sweep, SweepError, load_results, load_sweep, sweep_status
from tl_dyck.runs.store import Store

Make = Callable[[str], Path]

MILLION_MILLION = b"grid:\n" + b"".join(
    b"  p%d: [0, 1, 2, 3, 4, 5, 6, 7, 8, 9]\n" % i for i in range(12)
)
YAML = {
    **{name: data for name, data in JUNK.items() if name not in ("no format", "many digits")},
    "nested": b"common: {x: " + b"[" * 500,
    "an object": b"common: {x: !!python/object/apply:os.system ['touch owned']}",
    "itself": b"common: &a {x: *a}",
    "an alias of nothing": b"common: {x: *a}",
    "twice": b"seeds: 1\nseeds: 2",
    "infinity": b"common: {x: .inf}",
    "a date": b"common: {x: 2026-01-01}",
    "a list as a name": b"common: {[1, 2]: 3}",
    "a number as a name": b"common: {1: 3}",
    "tabs": b"common:\n\tx: 1",
    "a null byte": b"common: {x: \0}",
    "two documents": b"common: {}\n---\ncommon: {}",
    "an unknown key": b"gird: {x: [1]}",
    "a list that is none": b"list: {x: 1}",
    "a million million points": MILLION_MILLION,
    "ten million seeds": b"seeds: 10000000",
    "seeds without end": b"seeds: 99999999999999999999",
}


@pytest.mark.parametrize("case", YAML)
def test_yaml(tmp_path: Path, case: str):
    path = tmp_path / "sweep.yaml"
    path.write_bytes(YAML[case])
    assert isinstance(SweepError("x"), ValueError)
    refusal(lambda: load_sweep(path), "sweep.yaml")


JSON = {
    **JUNK,
    "NaN": b'{"common": {"x": NaN}}',
    "seeds without end": b'{"seeds": {"start": 0, "count": 1e400}}',
}


@pytest.mark.parametrize(
    "case", [name for name in JSON if name != "no format"]
)  # {} is a sweep: eight seeds
def test_json(tmp_path: Path, case: str):
    path = tmp_path / "sweep.json"
    path.write_bytes(JSON[case])
    refusal(lambda: load_sweep(path), "sweep.json")


def test_the_largest_sweeps_are_counted_not_enumerated():
    assert Sweep(seeds=100_000, grid={"x": list(range(10))}).n_points == 10
    with pytest.raises(SweepError, match=r"11 points × 100,000 seeds = 1,100,000 runs are too"):
        Sweep(seeds=100_000, grid={"x": list(range(11))})


PLAN: dict[str, tuple[tuple[Any, ...], Any]] = {
    "no sweep": (("sweep",), ...),
    "a sweep that is a list": (("sweep",), []),
    "no points": (("points",), ...),
    "points that are a number": (("points",), 5),
    "more points than the sweep has": (("points",), [POINT, "x" * 20]),
    "ten million seeds": (("sweep", "seeds"), {"start": 0, "count": 10_000_000}),
    "a million million points": (("sweep", "grid"), {f"p{i}": list(range(10)) for i in range(12)}),
    "seeds of NaN": (("sweep", "seeds"), [float("nan")]),
}


@pytest.mark.parametrize("case", PLAN)
def test_plans(original: Make, case: str):
    folder, (keys, value) = original("sweep"), PLAN[case]
    alter(folder / "sweep.json", *keys, value=value)
    for look in (sweep_status, load_results, Store.open):
        refusal(lambda look=look: look(folder), str(folder))


@pytest.mark.parametrize("junk", JUNK)
def test_plans_that_are_none(original: Make, junk: str):
    folder = original("sweep")
    (folder / "sweep.json").write_bytes(JUNK[junk])
    refusal(lambda: sweep_status(folder), str(folder))


def test_odd_names_in_the_folder_are_left_alone(original: Make):
    folder = original("sweep")
    shelf = folder / "runs" / RUN[:2]
    for name in ("x", "x" * 20 + ".json.corrupt", f"{RUN}.other", ".tl_dyck-x.tmp", "\udcff"):
        (shelf / name).write_bytes(b"x")
    assert sweep_status(folder).counts["done"] == 1
    assert len(load_results(folder)) == 1


def test_what_killed_processes_left_is_removed_and_nothing_else(original: Make):
    folder = original("sweep")
    places = (folder, folder / "points", shelf := folder / "runs" / RUN[:2])
    old = [place / ".tl_dyck-a.tmp" for place in places]
    kept = [shelf / ".tl_dyck-f.txt", shelf / "mine.tmp"]
    for path in (*old, *kept):
        path.touch()
        os.utime(path, (time.time() - 2 * 24 * 3600,) * 2)
    (young := shelf / ".tl_dyck-g.tmp").touch()
    Store.open(folder).tidy()
    assert [path.name for path in old if path.exists()] == []
    assert all(path.exists() for path in (*kept, young))
