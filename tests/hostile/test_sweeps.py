"""Sweep files and folders of sweeps that someone has been at."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from tests.hostile.conftest import POINT, RECORD, RUN
from tests.hostile.tools import JUNK, alter, nest, refusal
from tl_dyck.records import sealed
from tl_dyck.runs import Sweep, SweepError, load_results, load_sweep, merge_sweeps, sweep_status
from tl_dyck.runs.store import Store, run_id

Make = Callable[[str], Path]

BOMB = "".join(
    f"a{i}: &a{i} [{', '.join([f'*a{i - 1}' if i else 'x'] * 10)}]\n" for i in range(10)
).encode()
MERGE_BOMB = b"a0: &a0 {x: 1}\n" + b"".join(
    b"a%d: &a%d {<<: [*a%d, *a%d]}\n" % (i, i, i - 1, i - 1) for i in range(1, 40)
)
MILLION_MILLION = b"grid:\n" + b"".join(
    b"  p%d: [0, 1, 2, 3, 4, 5, 6, 7, 8, 9]\n" % i for i in range(12)
)
YAML = {
    **{name: data for name, data in JUNK.items() if name not in ("no format", "many digits")},
    "nested": b"common: {x: " + b"[" * 500,
    "an object": b"common: {x: !!python/object/apply:os.system ['touch owned']}",
    "a name": b"common: {x: !!python/name:os.system }",
    "a new object": b"common: !!python/object/new:pathlib.Path ['owned']",
    "a module": b"common: {x: !!python/module:os }",
    "a bomb": BOMB,
    "a bomb of merge keys": MERGE_BOMB,
    "itself": b"common: &a {x: *a}",
    "an alias of nothing": b"common: {x: *a}",
    "twice": b"seeds: 1\nseeds: 2",
    "twice, inside": b"common: {a: {b: 1, b: 2}}",
    "infinity": b"common: {x: .inf}",
    "NaN": b"common: {x: .nan}",
    "70 bits": b"common: {x: 1180591620717411303424}",
    "a date": b"common: {x: 2026-01-01}",
    "no date": b"common: {x: 2026-99-99}",
    "a set": b"common: {x: !!set {a, b}}",
    "bytes": b"common: {x: !!binary aGVsbG8=}",
    "a list as a name": b"common: {[1, 2]: 3}",
    "a number as a name": b"common: {1: 3}",
    "an empty name": b"common: {'': 3}",
    "tabs": b"common:\n\tx: 1",
    "a null byte": b"common: {x: \0}",
    "an escape": b"common: {x: \x1b[2J}",
    "two documents": b"common: {}\n---\ncommon: {}",
    "an unknown key": b"gird: {x: [1]}",
    "a point twice": b"grid: {x: [1, 1]}",
    "no values": b"grid: {x: []}",
    "a list that is none": b"list: {x: 1}",
    "a million million points": MILLION_MILLION,
    "ten million seeds": b"seeds: 10000000",
    "seeds without end": b"seeds: 99999999999999999999",
    "seeds that are a text": b"seeds: many",
    "seeds below zero": b"seeds: [-1]",
    "an experiment that is a list": b"experiment: [train]",
}


@pytest.mark.parametrize("case", YAML)
def test_yaml(tmp_path: Path, case: str):
    path = tmp_path / "sweep.yaml"
    path.write_bytes(YAML[case])
    assert isinstance(SweepError("x"), ValueError)
    refusal(lambda: load_sweep(path), "sweep.yaml")


JSON = {
    **JUNK,
    "twice": b'{"seeds": 1, "seeds": 2}',
    "NaN": b'{"common": {"x": NaN}}',
    "half a character": b'{"common": {"x": "\\ud800"}}',
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
    assert Sweep(seeds=1_000_000, grid={"x": list(range(10))}).n_points == 10
    with pytest.raises(
        SweepError, match=r"11 points × 1,000,000 seeds = 11,000,000 runs are too many"
    ):
        Sweep(seeds=1_000_000, grid={"x": list(range(11))})
    with pytest.raises(SweepError, match=r"2,000,000 points × 1 seeds"):
        Sweep(seeds=1, grid={"x": list(range(2000))}, list=[{"y": y} for y in range(1000)])


PLAN: dict[str, tuple[tuple[Any, ...], Any]] = {
    "no sweep": (("sweep",), ...),
    "a sweep that is a list": (("sweep",), []),
    "a sweep that is nested": (("sweep", "common", "x"), nest(100)),
    "no points": (("points",), ...),
    "points that are a number": (("points",), 5),
    "more points than the sweep has": (("points",), [POINT, "x" * 20]),
    "ten million seeds": (("sweep", "seeds"), {"start": 0, "count": 10_000_000}),
    "a million million points": (("sweep", "grid"), {f"p{i}": list(range(10)) for i in range(12)}),
    "seeds of NaN": (("sweep", "seeds"), [float("nan")]),
    "a parameter with half a character": (("sweep", "common"), {"\ud800": 1}),
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


RECORDS: dict[str, Any] = {
    **JUNK,
    "no digest": json.dumps(RECORD).encode(),
    "of another run": sealed(RECORD, run_id(POINT, 1)),
    "of another run, sealed": sealed({**RECORD, "seed": 5}, RUN),
    "metrics that are a list": sealed({**RECORD, "metrics": []}, RUN),
    "seconds that are a text": sealed({**RECORD, "seconds": "1"}, RUN),
    "a metric with the name of a column": sealed({**RECORD, "metrics": {"host": 1}}, RUN),
    "no environment": sealed({**RECORD, "environment": 1}, RUN),
    "NaN": sealed(RECORD, RUN).replace(b"0.5", b"NaN"),
}


@pytest.mark.parametrize("case", RECORDS)
def test_records_that_are_none_count_as_not_done(original: Make, case: str):
    store = Store.open(original("sweep"))
    path = store.path(RUN, ".json")
    path.write_bytes(RECORDS[case])
    refusal(lambda: store.read(path), path.name)
    assert store.ended(RUN) == ""
    assert load_results(store.folder).empty
    assert merge_sweeps("merged", [store.folder]).corrupt == 1


@pytest.mark.parametrize("junk", [*JUNK, "another table"])
def test_a_table_is_only_a_copy(original: Make, junk: str):
    folder = original("sweep")
    wanted = load_results(folder)
    assert len(wanted) == 1
    if junk == "another table":
        pd.DataFrame({"id": [1, 1], "x": [None, "y"]}).to_parquet(folder / "results.parquet")
    else:
        (folder / "results.parquet").write_bytes(JUNK[junk])
    pd.testing.assert_frame_equal(load_results(folder), wanted)


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
