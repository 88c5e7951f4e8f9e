"""The page of a sweep of trained models: runs, curves, attention variation; sorted by readers."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest

from tests.report.pages import Node, data_block, table_rows, whole_page
from tl_dyck import attention_variation
from tl_dyck.report import write_report
from tl_dyck.runs import load_models, load_results, run_sweep, sweep_status
from tl_dyck.training import load_result

RATES = [3e-3, 6e-3]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("trained") / "sweep"
    sweep = {
        "grid": {"model": ["gpt", "minimal-onehot"], "training.learning_rate": RATES},
        "common": {
            "task": "dyck-2-4",
            "training": {"steps": 6, "check_every": 2, "check_size": 10},
            "measure": {"n_accuracy": 10, "n_long": 2, "n_strings": 10},
        },
        "seeds": 2,
    }
    status = run_sweep(sweep, folder, n_jobs=1, progress=False, limit=7)
    assert (status.done, status.elsewhere) == (7, 1)
    write_report(status)
    return folder


@pytest.fixture(scope="module")
def page(folder: Path) -> Node:
    return whole_page(folder / "sweep.html", n_scripts=2)


def test_every_run_has_a_row(page, folder):
    heads, *rows = table_rows(page, "runs")
    results = load_results(folder)
    assert heads[:4] == ["model", "training.learning rate", "seed", "status"]
    assert len(rows) == len(results) == 7
    at = heads.index("accuracy")
    assert [row[at] for row in rows] == [f"{value:.4g}" for value in results["accuracy"]]


def test_what_is_left_stands_by_point(page):
    rows = table_rows(page, "status")
    assert rows[0] == ["model", "training.learning_rate", "runs left", "a run", "of one worker"]
    assert rows[1][:3] == ["minimal-onehot", "0.006", "1"]


def test_curves_are_the_histories_of_the_runs(page, folder):
    plots, found = data_block(page, "data-plots"), []
    for index in range(4):
        plot = plots[f"curves-{index}"]
        found += [[plot["layout"]["title"]["text"], each["x"], each["y"]] for each in plot["data"]]
    results = load_results(folder)
    wanted = []
    for row in results.itertuples(index=False):
        history = load_result(folder / "runs" / row.id[:2] / row.id).history
        rate = row[list(results).index("training.learning_rate")]
        name = f"model {row.model}, learning_rate {rate}"
        wanted.append([name, list(history["step"]), pytest.approx(list(history["loss"]))])
    assert len(wanted[0][1]) == 3
    assert found == wanted


def test_variation_is_that_of_the_models(page, folder):
    (plot,) = (data_block(page, "data-plots")["variation-0"]["data"],)
    wanted = []
    for model, rate in (("gpt", RATES[0]), ("gpt", RATES[1]), ("minimal-onehot", RATES[0])):
        models = load_models(folder, {"model": model, "training.learning_rate": rate})
        wanted += attention_variation(models).matched.tolist()
    assert plot[0]["x"] == pytest.approx(wanted, abs=1e-5)  # of one seed nothing varies


def test_metrics_are_outcomes(page):
    titles = {each.text for each in page.find("h2")}
    assert {"Accuracy", "Learned", "Training curves", "Attention variation"} <= titles
    assert not {"steps", "train_seconds"} & titles


@pytest.mark.parametrize("spoilt", [1, 7])
def test_curves_are_of_the_histories_that_can_be_read(folder: Path, tmp_path: Path, spoilt: int):
    copied = shutil.copytree(folder, tmp_path / "sweep")
    for history in sorted(copied.glob("runs/*/*/result.json"))[:spoilt]:
        history.write_text("{", encoding="utf-8")
    page = whole_page(write_report(sweep_status(copied)), n_scripts=2)
    assert len(table_rows(page, "runs")) == 1 + 7
    curves = [name for name in data_block(page, "data-plots") if name.startswith("curves")]
    lines = sum(len(data_block(page, "data-plots")[name]["data"]) for name in curves)
    assert lines == 7 - spoilt
    assert ("Training curves" in {each.text for each in page.find("h2")}) == (spoilt < 7)


def test_readers_sort_and_filter(opened: Any, folder: Path):
    seen = opened(folder / "sweep.html", 390)
    page = seen.page
    assert not seen.scrolls_sideways

    def column(index: int) -> list[str]:
        rows = page.locator("#runs tbody tr:not([hidden])").all()
        return [row.locator("th, td").nth(index).inner_text() for row in rows]

    heads = page.locator("#runs thead th")
    names = [head.inner_text().split(" ↕")[0] for head in heads.all()]
    at = names.index("accuracy")
    values = [float(value) for value in column(at)]
    for order in ("ascending", "descending"):
        heads.nth(at).locator("button").click()
        assert heads.nth(at).get_attribute("aria-sort") == order
        found = [float(value) for value in column(at)]
        assert found == sorted(values, reverse=order == "descending")
    page.locator("#runs input").fill("GPT 0.006")
    assert column(0) == ["gpt", "gpt"]
    assert "2 of 7 rows" in page.inner_text("#runs .filter")
    page.locator("#runs input").fill("")
    assert len(column(0)) == 7
    page.set_viewport_size({"width": 1280, "height": 900})
    assert not seen.scrolls_sideways
    assert not [line for line in seen.said if line.startswith("error")]
