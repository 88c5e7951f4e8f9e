"""The page of a sweep: state, means, a figure for each metric, errors; and names are text."""

from __future__ import annotations

import inspect
import itertools
import json
from pathlib import Path
from typing import Any

import pytest

from tests.report.pages import Node, data_block, read_page, table_rows, whole_page
from tl_dyck.report import write_report
from tl_dyck.report.sweep import in_words
from tl_dyck.runs import SweepStatus, aggregate, load_results, run_sweep

EVIL = "<img src=x onerror=alert(1)>"
METRIC = "<img src=x onerror=alert(2)>"


def toy(point: dict[str, Any], seed: int, folder: Path) -> dict[str, Any]:
    if seed == 2 and point["x"] == 1:
        raise ValueError(f"two is too much {EVIL}")
    return {"score": point["x"] + seed / 10, METRIC: 1.0 + seed, "word": "w"}


def three(point: dict[str, Any], seed: int, folder: Path) -> dict[str, Any]:
    return {"score": float(seed), "other": 1.0}


def test_names_of_points_are_within_a_narrow_page(opened: Any, tmp_path: Path) -> None:
    grid = {"task": ["dyck-2-4", "dyck-2-8"], "model": ["minimal-onehot", "gpt"]}
    sweep = {"grid": {**grid, "training.learning_rate": [0.003, 0.006]}, "seeds": 2}
    done = run_sweep(sweep, tmp_path / "three", experiment=three, n_jobs=1, progress=False)
    page = opened(write_report(done), 390, "light").page
    plot = page.locator(".plot").first
    names = plot.locator(".ytick text").all()
    boxes = [name.bounding_box() for name in names]
    assert len(boxes) == 8
    assert "model minimal-onehot" in names[0].text_content()
    assert all(box["x"] >= 0 for box in boxes)
    for above, below in itertools.pairwise(sorted(boxes, key=lambda box: box["y"])):
        assert above["y"] + above["height"] <= below["y"] + 1
    legend = plot.locator(".legend").bounding_box()
    assert legend["y"] + legend["height"] <= min(box["y"] for box in boxes) + 1
    assert page.locator("text=In the text of a mark").count() == 1  # said once, not by each figure
    assert page.locator("text=Every mean is 1.").count() == 1


def with_errors(point: dict[str, Any], seed: int, folder: Path) -> dict[str, Any]:
    name = "long_accuracy_after_close"
    return {name: 0.5, f"{name}_error": 0.1, "miss_error": point["x"]}


@pytest.fixture(scope="module")
def report(tmp_path_factory: pytest.TempPathFactory) -> SweepStatus:
    sweep = {"grid": {"x": [0, 1], EVIL: ["a", EVIL]}, "seeds": 3}
    folder = tmp_path_factory.mktemp("sweep") / "mine"
    return run_sweep(sweep, folder, experiment=toy, n_jobs=1, progress=False)


@pytest.fixture(scope="module")
def page(report: SweepStatus) -> Node:
    assert write_report(report) == report.folder / "sweep.html"
    return whole_page(report.folder / "sweep.html", n_scripts=2)


def test_it_says_how_the_sweep_stands(page):
    assert "12 runs: 10 done, 2 failed." in page.find("section", id="status")[0].text
    rows = table_rows(page, "status")
    assert rows[0] == ["parameter", "done", "failed"]
    assert ["x = 1", "4", "2"] in rows
    assert table_rows(page, "errors")[1] == [f"ValueError: two is too much {EVIL}", "2"]


def test_the_means_are_those_of_the_library(page, report):
    means = aggregate(load_results(report.folder))
    rows = table_rows(page, "means")[1:]
    assert [row[1] for row in rows] == list(means["metric"])
    assert [row[3] for row in rows] == [f"{mean:.4g}" for mean in means["mean"]]
    assert rows[0][0] == f"x 0, {EVIL} a"
    assert rows[-1][2] == "2 (+ 1 failed)"
    plots = data_block(page, "data-plots")
    assert len(plots) == means["metric"].nunique() == 2
    for index, (_, found) in enumerate(means.groupby("metric", sort=False)):
        (dots,) = plots[f"metric-{index}-0"]["data"]
        assert dots["x"] == pytest.approx(list(found["mean"]))
        assert [
            x + part for x, part in zip(dots["x"], dots["error_x"]["array"], strict=True)
        ] == pytest.approx(list(found["high"]))


def test_figures_come_before_tables_and_headings_are_words(page, tmp_path):
    """Standard errors have rows of a table, and no figures."""
    done = run_sweep(
        {"grid": {"x": [0, 1]}, "seeds": 2},
        tmp_path,
        experiment=with_errors,
        n_jobs=1,
        progress=False,
    )
    other = read_page(write_report(done))
    heads = [section.find("h2")[0].text for section in other.find("section")]
    said = ["Accuracy after a closing bracket, long strings", "Miss, standard error"]
    assert heads[1:6] == [*said, "Means over seeds", "Runs", "Errors"]
    assert {row[1] for row in table_rows(other, "means")[1:]} == {
        *("long_accuracy_after_close", "long_accuracy_after_close_error", "miss_error")
    }
    ids = [section.attributes["id"] for section in page.find("section")]
    assert ids[1:6] == ["metric-0", "metric-1", "means", "runs", "errors"]


@pytest.mark.parametrize(
    ("metric", "words"),
    [
        ("accuracy", "Accuracy"),
        ("accuracy_closing_only", "Accuracy among closing brackets"),
        ("long_accuracy_after_open", "Accuracy after an opening bracket, long strings"),
        ("long_accuracy_after_close_error", "Accuracy after a closing bracket, standard error, "
         "long strings"),
        ("proved sub:1,dup:2", "Proved sub:1,dup:2"),
        ("", ""),
    ],
)  # fmt: skip
def test_metrics_in_words(metric, words):
    assert in_words(metric) == words


def test_names_are_text(page):
    plots = page.find("script", id="data-plots")[0].text
    assert "<img" not in json.dumps(json.loads(plots))
    assert "&lt;img" in plots.replace("\\u0026", "&")
    assert METRIC in page.find("section", id="metric-1")[0].find("h2")[0].text


def test_a_sweep_of_which_nothing_has_ended(report, tmp_path, monkeypatch):
    monkeypatch.setattr("tl_dyck.runs.execute._carry_out", lambda *_: [])
    begun = run_sweep(
        {"grid": {"x": [0]}, "seeds": 1},
        tmp_path / "empty",
        experiment=toy,
        n_jobs=1,
        progress=False,
    )
    text = read_page(write_report(begun)).find("main")[0].text
    assert "1 runs: 1 waiting." in text
    assert "No run has returned a number." in text
    assert "No run has failed." in text


def test_what_has_no_page_is_named():
    with pytest.raises(
        TypeError,
        match="no page of a dict; write_report takes one of: Study, Reproduction, Ablation",
    ):
        inspect.unwrap(write_report)({})  # not the check of its annotations
