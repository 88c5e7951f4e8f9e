"""What a sweep file may say, and one clear line on everything that it may not."""

from __future__ import annotations

import itertools
import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.runs import toys
from tl_dyck.runs import Sweep, SweepError, load_sweep
from tl_dyck.runs.experiments import as_experiment, check_points
from tl_dyck.runs.store import point_id, run_id

YAML = """
experiment: mine
seeds: {start: 3, count: 2}
common:
  task: dyck-2-4
  training: {steps: 20, target: null}
grid:
  training.learning_rate: [1e-3, 0.01, 2E+2]
  model: [a, b]
list:
  - {extra: 1, training: {batch_size: 8}}
  - {extra: 2, training.batch_size: 16}
"""

names = st.sampled_from(["a", "b", "c", "d.e", "d.f", "g"])
scalars = (
    st.none()
    | st.booleans()
    | st.integers(-(2**63), 2**63 - 1)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(st.characters(codec="utf-8"), max_size=5)
)
values = scalars | st.lists(scalars, max_size=2)


@st.composite
def sweeps(draw: st.DrawFn) -> dict[str, Any]:
    where = {
        name: draw(st.sampled_from(["common", "grid", "list", "nowhere"])) for name in "abcdefg"
    }
    named = {
        place: [name for name in where if where[name] == place]
        for place in ("common", "grid", "list")
    }
    grid = {
        name: draw(st.lists(values, min_size=1, max_size=3, unique_by=repr))
        for name in named["grid"]
    }
    items = draw(st.lists(st.fixed_dictionaries(dict.fromkeys(named["list"], values)), max_size=3))
    seeds = draw(
        st.lists(st.integers(0, 50), min_size=1, max_size=5, unique=True) | st.integers(1, 9)
    )
    common = {name: draw(values) for name in named["common"]}
    return {
        "grid": grid,
        "list": items,
        "common": common,
        "seeds": seeds,
    }  # a checked object would draw, at random


def write(folder: Path, text: str, name: str = "sweep.yaml") -> Path:
    path = folder / name
    path.write_text(text, encoding="utf-8")
    return path


# --- what it means --------------------------------------------------------------------------------


def test_grid_times_list_times_common(tmp_path):
    sweep = load_sweep(write(tmp_path, YAML))
    assert sweep.experiment == "mine"
    assert sweep.all_seeds == (3, 4)
    wanted = [
        {
            "task": "dyck-2-4",
            "training.steps": 20,
            "training.target": None,
            "extra": extra,
            "training.batch_size": size,
            "training.learning_rate": rate,
            "model": model,
        }
        for extra, size in ((1, 8), (2, 16))
        for rate in (0.001, 0.01, 200.0)
        for model in ("a", "b")
    ]
    assert list(sweep.points()) == wanted
    assert sweep.n_points == len(wanted)
    assert sweep.axes == ("training.learning_rate", "model", "extra", "training.batch_size")


def test_yaml_json_mapping_and_sweep_are_the_same(tmp_path):
    sweep = load_sweep(write(tmp_path, YAML))
    again = write(tmp_path, json.dumps(sweep.to_dict()), "sweep.json")
    assert load_sweep(again) == load_sweep(sweep.to_dict()) == load_sweep(str(again)) == sweep
    assert load_sweep(sweep) is sweep


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("1e-3", 1e-3),
        ("-1E+3", -1000.0),
        ("-17", -17),
        ("'1e-3'", "1e-3"),
        ("!!str 010", "010"),
        ("'no'", "no"),
        ("true", True),
        ("~", None),
        # what YAML 1.1 reads differently, by 1.2's tables of its core schema, 10.3.2
        ("010", 10),
        ("09", 9),
        ("1:30", "1:30"),
        ("1_000", "1_000"),
        ("no", "no"),
        ("2026-01-01", "2026-01-01"),
        ("-.5e1", -5.0),
    ],
)
def test_values_of_yaml(tmp_path, text, value):
    found = load_sweep(write(tmp_path, f"common: {{x: {text}}}")).common["x"]
    assert found == value
    assert type(found) is type(value)


@pytest.mark.parametrize(
    ("seeds", "wanted"),
    [
        (3, (0, 1, 2)),
        ([5, 2], (5, 2)),
        ({"start": 7, "count": 2}, (7, 8)),
        (range(2, 4), (2, 3)),
        ((1,), (1,)),
    ],
)
def test_seeds(seeds, wanted):
    assert Sweep(seeds=seeds).all_seeds == wanted


@settings(max_examples=15)
@given(sweeps())
def test_round_trip_and_number_of_points(fields):
    sweep = Sweep(**fields)
    saved = json.loads(json.dumps(sweep.to_dict()))
    again = Sweep.from_dict(saved)
    assert again.to_dict() == sweep.to_dict()
    assert repr(list(again.points())) == repr(
        list(sweep.points())
    )  # 1, 1.0 and True are different values
    assert again.all_seeds == sweep.all_seeds
    points = list(sweep.points())
    assert (
        len(points)
        == sweep.n_points
        == math.prod(map(len, sweep.grid.values())) * max(1, len(sweep.list))
    )
    for name, entry in sweep.common.items():
        assert all(point[name] == entry for point in points)
    for combination in itertools.product(*sweep.grid.values()):
        having = [
            p for p in points if repr([p[name] for name in sweep.grid]) == repr(list(combination))
        ]
        assert len(having) == max(1, len(sweep.list))


@given(sweeps())
def test_axes_are_what_varies(fields):
    sweep = Sweep(**fields)
    for name in sweep.axes:
        if name not in sweep.grid:
            assert len({repr(point.get(name)) for point in sweep.points()}) > 1
    for name in {name for point in sweep.points() for name in point} - set(sweep.axes):
        assert len({repr(point.get(name)) for point in sweep.points()}) == 1


def test_numbers_of_numpy_and_tuples_become_plain():
    sweep = Sweep(grid={"x": [np.float64(0.5), np.int64(3)]}, common={"y": (1, np.bool_(True))})
    assert [type(value) for value in sweep.grid["x"]] == [float, int]
    assert sweep.common == {"y": [1, True]}


# --- what it refuses ------------------------------------------------------------------------------

REFUSED = {
    "not a mapping": ([1], "mapping"),
    "unknown key": ({"grids": {}}, "Did you mean 'grid'"),
    "grid of no mapping": ({"grid": [1]}, "grid must map"),
    "common of no mapping": ({"common": 3}, "common must map"),
    "list of no list": ({"list": {"a": 1}}, "list must be a list"),
    "experiment of no name": ({"experiment": 3}, "experiment must be a name"),
    "no experiment": ({"experiment": ""}, "experiment must be a name"),
    "axis without values": ({"grid": {"x": []}}, "x has no values"),
    "axis of one value": ({"grid": {"x": 3}}, "goes to common"),
    "value twice": ({"grid": {"x": [1, 2, 1]}}, r"value 1 \(int\) twice"),
    "common and grid": (
        {"grid": {"x": [1]}, "common": {"x": 1}},
        "x is given twice: in common and in grid",
    ),
    "list and grid": (
        {"grid": {"x.y": [1]}, "list": [{"x": {"y": 1}}]},
        r"x\.y is given twice: in list\[0\]",
    ),
    "nested and dotted": ({"common": {"x": {"y": 1}, "x.y": 2}}, r"x\.y is given twice"),
    "NaN": ({"common": {"x": math.nan}}, "common: x: nan"),
    "infinity": ({"grid": {"x": [1.0, -math.inf]}}, "grid: x: -inf"),
    "an object": ({"common": {"x": object()}}, "object"),
    "a mapping in a list": ({"grid": {"x": [{"y": 1}]}}, "dict"),
    "a number as name": ({"common": {1: 1}}, "name of a parameter is a string, not 1"),
    "no seeds": ({"seeds": 0}, "at least one"),
    "empty seeds": ({"seeds": []}, "at least one"),
    "negative seed": ({"seeds": [0, -1]}, "a seed must be at least 0, got -1"),
    "a fraction of a seed": ({"seeds": [1.0]}, "a seed must be an integer, got 1.0"),
    "a true seed": ({"seeds": [True]}, "a seed must be an integer, got True"),
    "half a mapping": ({"seeds": {"start": 1}}, "start and count"),
    "far too many seeds": ({"seeds": 10**15}, "must be at most 1000000"),
    "far too many from here": ({"seeds": {"start": 0, "count": 10**15}}, "must be at most"),
    "a seed of 70 bits": ({"seeds": [2**70]}, "a seed must be at most"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_refused(case):
    mapping, message = REFUSED[case]
    with pytest.raises(SweepError, match=message):
        Sweep.from_dict(mapping)  # type: ignore[arg-type]


def test_aliases_are_welcome(tmp_path):
    sweep = load_sweep(write(tmp_path, "list:\n- &first {a: 1, b: 2}\n- {<<: *first, b: 3}\n"))
    assert list(sweep.points()) == [{"a": 1, "b": 2}, {"a": 1, "b": 3}]
    shared = "grid:\n  x: &values [1, 2]\n  y: *values\n"
    assert load_sweep(write(tmp_path, shared)).n_points == 4


# --- identity -------------------------------------------------------------------------------------


def ids(mapping: dict[str, Any]) -> list[str]:
    sweep = load_sweep(mapping)
    return list(check_points(sweep, *as_experiment(toys.nothing)))


def test_spelling_makes_no_difference():
    nested = {"common": {"a": {"b": 1, "c": {"d": 2}}, "e": 3}}
    dotted = {"common": {"e": 3, "a.c.d": 2, "a.b": 1}}
    by_grid = {"grid": {"e": [3], "a": {"b": [1]}}, "list": [{"a.c": {"d": 2}}]}
    assert ids(nested) == ids(dotted) == ids(by_grid)


def test_values_of_different_types_are_different():
    """An experiment can tell 1, 1.0, True and "1" apart: four points, none done for another."""
    different = [1, 1.0, True, "1", [1], None, "", 0, -0.0, 0.0, False, [], [[]], "None", "null"]
    assert len(set(ids({"grid": {"x": different}}))) == len(different)


def test_same_point_twice_is_refused():
    with pytest.raises(SweepError, match="same point"):
        ids({"list": [{"x": 1, "y": {"z": 2}}, {"y.z": 2, "x": 1}]})


@pytest.mark.parametrize("name", ["seed", "id", "status", "seconds", "error", "host"])
def test_columns_of_the_table_are_no_parameters(name):
    with pytest.raises(SweepError, match=f"cannot be called '{name}'"):
        ids({"grid": {name: [1]}})


def test_identities_are_for_ever():
    """If these change, everything that anyone has done is done again."""
    point = point_id("mine", {"b": [1, 2.5, None, True], "a": "é"})
    assert point == "84a06b72eac563121ac4"
    assert run_id(point, 3) == "e9c8b881e78d2c47b1fe"
    assert point_id("yours", {"b": [1, 2.5, None, True], "a": "é"}) != point
    assert run_id(point, 4) != run_id(point, 3)


@given(st.dictionaries(names, values), st.randoms())
def test_identity_does_not_depend_on_order(point, random):
    items = list(point.items())
    random.shuffle(items)
    assert point_id("x", dict(items)) == point_id("x", point)
