"""The table of results: complete, typed, up to date; means over seeds; status; folders merged."""

from __future__ import annotations

import itertools
import json
import math
import os
import random
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import binomtest

from tests.runs import toys
from tests.runs.test_execute import go
from tl_dyck.estimates import ENDS, again_words
from tl_dyck.intervals import mean
from tl_dyck.kit.files import CorruptFileError
from tl_dyck.runs import (
    SweepError,
    aggregate,
    load_results,
    merge_sweeps,
    sweep_status,
)
from tl_dyck.runs.results import groups_of, means_shown
from tl_dyck.runs.store import Store, run_id

FIRST = ["id", "point", "experiment"]
LAST = ["error", "seconds", "started", "host", "cpu_cores", "gpu", "python", "platform"]
LAST += ["tl_dyck", "torch", "transformer_lens"]


def table_of(point: dict[str, Any], seed: int, folder: Path) -> dict[str, Any]:
    """What the test has put down for this point and seed; raise if that is an error."""
    found = METRICS[point["key"], seed]
    if isinstance(found, Exception):
        raise found
    return found


METRICS: dict[tuple[str, int], Any] = {}


@pytest.fixture
def folder(tmp_path) -> Path:
    return tmp_path / "sweep"


@pytest.fixture(autouse=True)
def metrics() -> dict[tuple[str, int], Any]:
    METRICS.clear()
    return METRICS


# --- the table ------------------------------------------------------------------------------------


def test_columns_and_order(folder, metrics):
    sweep = {"grid": {"key": ["b", "a"]}, "list": [{"x": 1}, {"x": 2, "y": True}], "seeds": [5, 3]}
    for key, seed in itertools.product("ab", (3, 5)):
        metrics[key, seed] = {"m": seed / 2, "n_steps": seed, "ok": key == "a", "word": key}
    metrics["a", 3] = ValueError("no")
    go(sweep, folder, table_of)
    table = load_results(folder)
    metrics_first = ["x", "y", "key", "seed", "status", "m", "n_steps", "ok", "word"]
    assert list(table) == [*FIRST, *metrics_first, *LAST]
    assert list(zip(table["x"], table["key"], table["seed"], strict=True)) == [
        (x, key, seed) for x in (1, 2) for key in "ba" for seed in (3, 5)
    ]
    assert list(table.index) == list(range(8))
    assert [
        table[name].dtype.kind for name in ("x", "seed", "seconds", "cpu_cores", "m", "n_steps")
    ] == list("iififf")
    assert list(table["ok"]) == [False, False, None, True] * 2
    assert list(table["y"]) == [None] * 4 + [True] * 4
    assert list(table["status"]) == ["done", "done", "failed", "done"] * 2
    assert list(table["error"].dropna()) == ["ValueError: no"] * 2
    assert len(load_results(folder, failures=False)) == 6
    assert set(load_results(folder, failures=False)["status"]) == {"done"}


values = (
    st.none()
    | st.booleans()
    | st.integers(-(2**53), 2**53)
    | st.floats(allow_nan=False, allow_infinity=False, width=32)
    | st.sampled_from(["", "a", "1", "true", "é"])
)


@settings(max_examples=12)
@given(found=st.lists(st.dictionaries(st.sampled_from("pqr"), values), min_size=1, max_size=6))
def test_every_value_is_there_as_itself_or_as_text(found, tmp_path_factory):
    """Whatever types columns turn out to have."""
    folder = tmp_path_factory.mktemp("values")
    METRICS.clear()
    METRICS.update({(f"k{place}", 0): each for place, each in enumerate(found)})
    go({"grid": {"key": [key for key, _ in METRICS]}, "seeds": 1}, folder, table_of)
    table = load_results(folder)
    for (key, _), metrics in METRICS.items():
        for name, value in metrics.items():
            (cell,) = table[table["key"] == key][name]
            assert value is None or cell == value or cell == json.dumps(value)


# --- means ----------------------------------------------------------------------------------------


def test_means_by_hand(folder, metrics):
    drawn = random.Random(0)
    for key in "ab":
        for seed in range(6):
            metrics[key, seed] = {
                "m": drawn.gauss(0, 1),
                "ok": drawn.random() < 0.5,
                "word": "x",
                "sparse": None,
            }
    metrics["a", 1] = ValueError("no")
    metrics["a", 2]["m"] = math.nan
    metrics["b", 3]["sparse"] = 7
    go({"grid": {"key": ["a", "b"]}, "common": {"same": 1}, "seeds": 6}, folder, table_of)
    table = load_results(folder)
    means = aggregate(table)
    columns = ["metric", "n", "seeds", "failed", "mean", *ENDS, "std", "pooled"]
    assert list(means) == ["key", *columns]
    assert list(means["n"]) == list(means["seeds"])
    assert set(means["pooled"]) == {""}
    found = means.set_index(["key", "metric"])
    assert set(found.index) == {(key, name) for key in "ab" for name in ("m", "ok", "sparse")}
    for (key, name), row in found.iterrows():
        numbers = [
            float(metrics[key, seed][name])
            for seed in range(6)
            if isinstance(metrics[key, seed], dict)
            and metrics[key, seed][name] is not None
            and not math.isnan(metrics[key, seed][name])
        ]
        assert row["n"] == len(numbers)
        assert row["failed"] == (key == "a")
        if numbers:
            assert row["mean"] == pytest.approx(np.mean(numbers))
        else:
            assert math.isnan(row["mean"])
        if name == "ok":
            exact = binomtest(int(sum(numbers)), len(numbers)).proportion_ci(0.95)
            assert row[["low", "high"]].tolist() == pytest.approx([exact.low, exact.high])
            assert row["interval"] == "exact"
        if len(numbers) < 2:
            assert math.isnan(row["low"])
            assert math.isnan(row["std"])
            continue
        assert row["std"] == pytest.approx(np.std(numbers, ddof=1))
    assert aggregate(table).equals(means)
    assert found.loc[("b", "sparse"), "mean"] == 7


def test_a_share_of_seeds_that_agree_has_an_interval(folder, metrics):
    """None of 8, or all of them, are no proof; of pooled runs seeds count, not runs."""
    for key, seed in itertools.product("ab", range(8)):
        metrics[key, seed] = {"ok": key == "a"}
    go({"grid": {"key": ["a", "b"]}, "seeds": 8}, folder, table_of)
    table = load_results(folder)
    low, high = aggregate(table, ["ok"])[["low", "high"]].to_numpy().T
    # Clopper and Pearson: (α / 2)^(1 / n) of 8 out of 8, by hand
    assert low == pytest.approx([0.025 ** (1 / 8), 0])
    assert high == pytest.approx([1, 1 - 0.025 ** (1 / 8)])
    without = "no prediction intervals, since of shares there are none"
    assert again_words(aggregate(table, ["ok"])) == without
    pooled = aggregate(table, ["ok"], by=[]).iloc[0]
    assert (pooled["n"], pooled["seeds"], pooled["interval"]) == (16, 8, "t")


def test_means_by_other_columns(folder, metrics):
    for key, seed in itertools.product(["a", "b"], range(4)):
        metrics[key, seed] = {"m": float(seed), "kind": "even" if seed % 2 == 0 else "odd"}
    go({"list": [{"key": "a", "n": 1}, {"key": "b", "n": 2}], "seeds": 4}, folder, table_of)
    table = load_results(folder)
    by_kind = aggregate(table, ["m"], by=["kind"])
    assert dict(zip(by_kind["kind"], by_kind["mean"], strict=True)) == {"even": 1.0, "odd": 2.0}
    assert list(by_kind["n"]) == [4, 4]
    everything = aggregate(table, ["m"], by=[])
    assert everything.loc[0, ["n", "seeds", "mean"]].tolist() == [8, 4, 1.5]
    assert everything.loc[0, "pooled"] == "2 values of key, 2 values of n pooled"
    # a parameter with the name of a column of means is not lost
    by_n = aggregate(table, ["m"])
    assert list(by_n["by n"]) == [1, 2]
    assert list(by_n["n"]) == [4, 4]
    assert list(aggregate(table, ["m"], by=["n"])["by n"]) == [1, 2]
    for arguments, message in (
        ({"by": ["none"]}, "no column 'none'"),
        ({"metrics": ["none"]}, "no column 'none'"),
        ({"metrics": ["kind"]}, "'kind' cannot be averaged"),
    ):
        with pytest.raises(SweepError, match=message):
            aggregate(table, **arguments)


def test_runs_of_one_seed_are_no_seeds(folder, metrics):
    """Two learning rates of three seeds, and one run more: what varies is said, seeds are counted.

    The interval is that of a ratio of two sums over seeds.
    """
    numbers = {("a", 0): 1.0, ("b", 0): 9.0, ("a", 1): 2.0, ("b", 1): 12.0, ("a", 2): 5.0}
    for place, value in numbers.items():
        metrics[place] = {"m": value}
    metrics["b", 2] = ValueError("no")
    go({"grid": {"key": ["a", "b"]}, "common": {"same": 1}, "seeds": 3}, folder, table_of)
    (row,) = aggregate(load_results(folder), ["m"], by=["same"]).to_dict("records")
    assert (row["n"], row["seeds"], row["failed"]) == (5, 3, 1)
    assert row["pooled"] == "2 values of key pooled"
    assert row["mean"] == pytest.approx(np.mean([*numbers.values()]))
    values, seeds = np.array([*numbers.values()]), np.array([seed for _, seed in numbers])
    found = mean(values, clusters=seeds)
    assert (row["low"], row["high"]) == pytest.approx((found.low, found.high))
    alone = mean(values)  # five runs are not five seeds
    assert row["high"] - row["low"] > 1.1 * (alone.high - alone.low)
    (row,) = aggregate(load_results(folder), ["m"], by=["seed"])[:1].to_dict("records")
    assert (row["n"], row["seeds"], row["pooled"]) == (2, 1, "2 values of key pooled")
    assert math.isnan(row["low"])


def test_an_interval_does_not_depend_on_what_else_is_asked(folder, metrics):
    """Any metrics, in any order, of any points: every row is that of the whole table."""
    drawn = random.Random(3)
    names = ["long", "loss", "share", "depth"]
    for key, seed in itertools.product("abcd", range(5)):
        metrics[key, seed] = {name: drawn.expovariate(1) for name in names}
        metrics[key, seed]["loss"] = None if key == "b" else drawn.random()
    go({"grid": {"key": [*"abcd"]}, "seeds": 5}, folder, table_of)
    results = load_results(folder)
    whole = aggregate(results).set_index(["key", "metric"])
    assert np.isfinite(whole.drop(index=("b", "loss"), errors="ignore")["low"].astype(float)).all()
    for _ in range(20):
        some = drawn.sample(names, drawn.randint(1, 4))
        keys = drawn.sample("abcd", drawn.randint(2, 4))
        rows = results[results["key"].isin(keys)]
        found = aggregate(rows.sample(frac=1, random_state=0), some).set_index(["key", "metric"])
        assert len(found) == len(some) * len(keys)
        for at, row in found.iterrows():
            for name in ("mean", "low", "high", "again_low", "again_high"):
                assert row[name] == pytest.approx(whole.loc[at, name], rel=1e-12, nan_ok=True)


# --- status ---------------------------------------------------------------------------------------


def test_status_writes_nothing(folder, metrics):
    metrics.update({(key, seed): {"m": 1.0} for key in "ab" for seed in range(4)})
    metrics["b", 1] = metrics["b", 2] = ValueError("no")
    metrics["a", 2] = KeyError("x")
    go({"grid": {"key": ["a", "b"]}, "seeds": [0, 1, 2]}, folder, table_of)
    go({"grid": {"key": ["a", "b"], "z": [1]}, "seeds": 1}, folder, table_of)
    sweep, points = plan_of({"grid": {"key": ["a", "b"]}, "seeds": [0, 1, 2, 3]})
    Store.create(folder, sweep.to_dict(), points)
    Store(folder).start(run_id(plan_of({"grid": {"key": ["a", "b"]}, "seeds": 4})[1][0], 3))
    before = {path: path.stat().st_mtime_ns for path in folder.rglob("*")}
    status = sweep_status(folder)
    assert {path: path.stat().st_mtime_ns for path in folder.rglob("*")} == before
    assert status.total == 8
    assert status.counts == {"done": 3, "failed": 3, "running": 0, "interrupted": 1, "waiting": 1}
    assert status.axes == {
        "key": {
            "a": {"done": 2, "failed": 1, "interrupted": 1},
            "b": {"done": 1, "failed": 2, "waiting": 1},
        }
    }
    assert status.errors == [("ValueError: no", 2), ("KeyError: 'x'", 1)]
    assert status.others == 2


def plan_of(mapping: dict[str, Any]) -> tuple[Any, tuple[str, ...]]:
    from dataclasses import replace

    from tl_dyck.runs import load_sweep
    from tl_dyck.runs.experiments import as_experiment, check_points

    name, what = as_experiment(table_of)
    sweep = replace(load_sweep(mapping), experiment=name)
    return sweep, tuple(check_points(sweep, name, what))


# --- merging --------------------------------------------------------------------------------------


def machines(tmp_path: Path, *seeds: list[int]) -> list[Path]:
    """The same points on several machines."""
    log = tmp_path / "log"
    for number, mine in enumerate(seeds):
        go(
            {"common": {"log": str(log)}, "grid": {"x": [0, 1]}, "seeds": mine},
            tmp_path / f"m{number}",
        )
    return [tmp_path / f"m{number}" for number in range(len(seeds))]


def test_merge(tmp_path):
    one, two = machines(tmp_path, [0, 1], [1, 2])
    done = merge_sweeps(tmp_path / "all", [one, two])
    assert (done.copied, done.unchanged, done.conflicts, done.corrupt) == (6, 2, (), 0)
    table = load_results(tmp_path / "all")
    assert sorted(zip(table["x"], table["seed"], strict=True)) == [
        (x, seed) for x in (0, 1) for seed in (0, 1, 2)
    ]
    for row in table.to_dict("records"):
        wanted = toys.expected(row["x"], row["seed"])
        assert {name: row[name] for name in wanted} == wanted
        kept = tmp_path / "all" / "runs" / row["id"][:2] / row["id"] / "file.txt"
        assert kept.read_text() == f"{row['x']} {row['seed']}"
    again = merge_sweeps(tmp_path / "all", [two, one, tmp_path / "all"])
    assert (again.copied, again.unchanged, again.conflicts) == (0, 8, ())
    assert Store.at(tmp_path / "all").plan() == Store.at(one).plan()
    # what was merged counts as done
    log = {"log": str(tmp_path / "log")}
    assert go({"common": log, "grid": {"x": [0, 1]}, "seeds": 4}, tmp_path / "all").made == 2


def test_merge_that_was_interrupted(tmp_path, monkeypatch):
    one, two = machines(tmp_path, [0, 1, 2], [3, 4])
    real, calls = os.replace, 0

    def killed(*args: Any) -> None:
        nonlocal calls
        calls += 1
        if calls == 9:
            raise KeyboardInterrupt
        real(*args)

    with monkeypatch.context() as context:
        context.setattr(os, "replace", killed)
        with pytest.raises(KeyboardInterrupt):
            merge_sweeps(tmp_path / "all", [one, two])
    some = len(load_results(tmp_path / "all"))
    assert 0 < some < 10
    assert merge_sweeps(tmp_path / "all", [one, two]).copied == 10 - some
    assert len(load_results(tmp_path / "all")) == 10


def test_merge_with_conflicts_and_failures(tmp_path, metrics):
    sweep = {"grid": {"key": ["a", "b", "c", "d"]}, "seeds": 1}
    first: dict[str, Any] = {"a": {"m": 1.0, "seconds_used": 1.0}, "b": {"m": 1.0}}
    first |= {"c": ValueError("no"), "d": {"m": 2.0}}
    second: dict[str, Any] = {"a": {"m": 1.0 + 1e-9, "seconds_used": 9.0}, "b": {"m": 1.1}}
    second |= {"c": {"m": 3.0}, "d": ValueError("no")}
    for name, found in (("one", first), ("two", second)):
        metrics.update({(key, 0): value for key, value in found.items()})
        go(sweep, tmp_path / name, table_of)
    one = load_results(tmp_path / "one").set_index("key")
    done = merge_sweeps(tmp_path / "one", [tmp_path / "two"])
    assert (done.copied, done.unchanged) == (1, 2)
    assert done.conflicts == (one.loc["b", "id"],)
    table = load_results(tmp_path / "one").set_index("key")
    assert dict(table["m"]) == {
        "a": 1.0,
        "b": 1.0,
        "c": 3.0,
        "d": 2.0,
    }  # what was there stays; done beats failed
    assert set(table["status"]) == {"done"}
    other_way = merge_sweeps(tmp_path / "two", [tmp_path / "one"])
    assert (other_way.copied, other_way.unchanged, len(other_way.conflicts)) == (1, 2, 1)


def test_merge_follows_no_links(tmp_path):
    (one,) = machines(tmp_path, [0])
    (tmp_path / "secret").write_text("a private key")
    (tmp_path / "private").mkdir()
    (tmp_path / "private" / "key").write_text("another")
    run = Store(one).path(load_results(one)["id"][0])
    links = [run / "file", run / "folder", one / "points" / "x.json"]
    for link, target in zip(links, ("secret", "private", "secret"), strict=True):
        link.symlink_to(tmp_path / target)
    done = merge_sweeps(tmp_path / "all", [one])
    assert done.copied == 2
    assert sorted(done.skipped) == sorted(links)
    there = [path for path in (tmp_path / "all").rglob("*") if path.is_file()]
    assert not any(
        path.is_symlink() or path.read_bytes() in (b"a private key", b"another") for path in there
    )
    assert sorted(path.read_text() for path in there if path.name == "file.txt") == ["0 0", "1 0"]


def test_merge_with_what_is_no_sweep(tmp_path):
    one, two = machines(tmp_path, [0], [1])
    with pytest.raises(SweepError, match="nothing to merge"):
        merge_sweeps(tmp_path / "all", [])
    with pytest.raises(CorruptFileError, match="holds no sweep"):
        merge_sweeps(tmp_path / "all", [one, tmp_path / "none"])
    path = two / "sweep.json"
    path.write_text(path.read_text().replace("runs/1", "runs/9"))
    for into, folders in ((tmp_path / "all", [one, two]), (two, [one])):
        with pytest.raises(CorruptFileError, match=r"runs/9"):
            merge_sweeps(into, folders)
    assert not (tmp_path / "all").exists()


def test_a_column_of_means_has_one_name_and_one_order() -> None:
    """The frame's, the page's and the command's."""
    rows = [("a", 1, 0, "done", 0.5), ("a", 1, 1, "done", 1.5)]
    rows += [("b", 2, 0, "done", 2.5), ("b", 2, 1, "failed", math.nan)]
    results = pd.DataFrame(
        [
            {"id": i, "point": point, "experiment": "e", "x": x, "seed": seed, "status": status}
            | {"score": score, **dict.fromkeys(LAST)}
            for i, (point, x, seed, status, score) in enumerate(rows)
        ]
    )
    means = aggregate(results, ["score"], by=["x"])
    assert groups_of(means) == ["x"]
    columns, rows = means_shown(means)
    assert columns == ("seeds", "mean", "interval", "other seeds")
    assert [row[:2] for row in rows] == [["2", "1"], ["1 (+ 1 failed)", "2.5"]]
    columns, rows = means_shown(aggregate(results, ["score"], by=[]))
    assert columns == ("seeds", "runs", "mean", "interval", "other seeds")
    assert rows[0][:2] == ["2", "3 (+ 1 failed)"]
