"""A sweep with other settings, a part of its runs, their cost, and how long the rest takes."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import pytest

from tests.test_cli import call
from tl_dyck.runs import Sweep, SweepError, aggregate, load_results, run_sweep, time_left
from tl_dyck.runs.spec import read_setting
from tl_dyck.runs.store import Store

SWEEP = Sweep(
    grid={"x": [1, 2], "training.lr": [0.1, 0.2]},
    common={"y": 0},
    list=[{"z": 1}, {"z": 2, "seeds": [7]}],
    seeds=2,
)


def points(sweep: Sweep) -> list[dict[str, Any]]:
    return list(sweep.points())


@pytest.mark.parametrize(
    ("settings", "wanted"),
    [
        ({}, points(SWEEP)),
        ({"x": [5]}, [{**p, "x": 5} for p in points(SWEEP) if p["x"] == 1]),
        ({"y": [3, 4]}, [{**p, "y": y} for p in points(SWEEP) for y in (3, 4)]),
        ({"new": [[1, 2]]}, [{**p, "new": [1, 2]} for p in points(SWEEP)]),
    ],
)
def test_settings_replace_a_parameter_wherever_it_stood(settings, wanted):
    found = points(SWEEP.with_settings(settings))
    assert sorted(found, key=str) == sorted(
        ({name: point[name] for name in found[0]} for point in wanted), key=str
    )
    assert len(found) == len(wanted)


def test_seeds_and_what_becomes_the_same():
    assert SWEEP.with_settings({}, (3, 4, 5)).n_runs == 4 * 3 + 4 * 1  # z = 2 has seeds of its own
    with pytest.raises(SweepError, match=r"x has the value 1 \(int\) twice"):
        SWEEP.with_settings({"x": [1, 1]})


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("a=1", ("a", [1])),
        ("training.learning_rate = 3e-3,6e-3", ("training.learning_rate", [3e-3, 6e-3])),
        ("model=gpt,minimal-onehot", ("model", ["gpt", "minimal-onehot"])),
        ("task.train_lengths=[2,4]", ("task.train_lengths", [[2, 4]])),
        ("a=true, null,'1'", ("a", [True, None, "1"])),
        ("a=b=c", ("a", ["b=c"])),
    ],
)
def test_a_setting_is_read_as_in_a_file(text, wanted):
    assert read_setting(text) == wanted


@pytest.mark.parametrize("text", ["a", "=3", "a=", "a=[", "a={b: 1}", "a=!!python/x"])
def test_what_is_no_setting_is_refused_in_a_line(text):
    with pytest.raises(SweepError) as caught:
        read_setting(text)
    assert text in str(caught.value)
    assert "\n" not in str(caught.value)


def toy(point: dict[str, Any], seed: int, folder: Path) -> dict[str, Any]:
    if point["x"] == 2 and seed == 1:
        raise ValueError("two")
    return {"score": point["x"] + seed, "steps": 10, "train_seconds": 0.5}


def test_a_limit_is_how_many_runs_are_begun(tmp_path):
    sweep = {"grid": {"x": [1, 2, 3]}, "seeds": 2}
    made = []
    for limit in (4, 1, None):
        found = run_sweep(sweep, tmp_path, experiment=toy, n_jobs=1, limit=limit, progress=False)
        made.append((found.made, found.done, found.failed, found.elsewhere))
    assert made == [(4, 3, 1, 2), (1, 4, 1, 1), (1, 5, 1, 0)]
    with pytest.raises(ValueError, match="limit must be at least 1"):
        run_sweep(sweep, tmp_path, experiment=toy, limit=0)


def test_what_a_run_cost_is_no_metric(tmp_path):
    run_sweep({"grid": {"x": [1, 3]}, "seeds": 2}, tmp_path, experiment=toy, n_jobs=1)
    results = load_results(tmp_path)
    assert set(aggregate(results)["metric"]) == {"score"}
    assert list(aggregate(results, ["steps"])["mean"]) == [10, 10]


def test_the_time_left_is_by_what_a_points_runs_have_taken(tmp_path):
    sweep = {"grid": {"x": [1, 2, 3]}, "seeds": 4}
    how: Any = {"experiment": toy, "n_jobs": 1, "progress": False}
    run_sweep(sweep, tmp_path, limit=6, **how)  # all of x = 1, two of x = 2, one failed
    results = load_results(tmp_path)
    done = results[results["status"] == "done"]
    own = done[done["x"] == 2]["seconds"].mean()
    left = time_left(tmp_path)
    assert list(left["x"]) == ["2", "3"]
    assert list(left["left"]) == [2, 4]
    assert list(left["seconds"]) == pytest.approx([own, done["seconds"].mean()])
    assert list(left["total"]) == pytest.approx([2 * own, 4 * done["seconds"].mean()])
    run_sweep(sweep, tmp_path, **how)
    assert time_left(tmp_path).empty
    assert list(time_left(tmp_path)) == ["x", "left", "seconds", "total"]


def test_nothing_is_done_yet(tmp_path):
    sweep = Sweep(grid={"x": [1]}, seeds=1, experiment="train")
    Store.create(tmp_path, sweep.to_dict(), ("0" * 20,))
    assert math.isnan(time_left(tmp_path)["total"].iloc[0])


def test_the_command_sets_limits_and_says_what_is_left(tmp_path):
    file, out = tmp_path / "s.yaml", tmp_path / "out"
    file.write_text(
        "seeds: 4\ncommon: {task: dyck-2-4, model: minimal-onehot, training: {steps: 9}, "
        "measure: {n_accuracy: 10, n_long: 2, n_strings: 10}}\n"
    )
    words = ["sweep", file, "--out", out, "--jobs", "1", "--set", "training.steps=1,2"]
    found = call(*map(str, words), "--seeds", "1-2", "--limit", "3")
    assert "3 of 4 runs done, 1 left; 3 of them now" in found.stdout
    assert sorted(load_results(out)["training.steps"]) == [1, 1, 2]
    assert set(load_results(out)["seed"]) == {1, 2}
    said = call("sweep", "status", str(out)).stdout
    assert "of one worker is left." in said
    refused = call("sweep", str(file), "--set", "steps")
    assert refused.exit_code == 2
    assert refused.stderr.startswith("Error: 'steps': give a parameter and its value")
