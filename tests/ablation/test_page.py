"""The page of an ablation, and the command line."""

from __future__ import annotations

import json
import re
import shutil
from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
import plotly.graph_objects as go
import pytest

from tests.report.pages import Node, csv, data_block, read_page
from tests.test_cli import call
from tl_dyck.report import write_report
from tl_dyck.report.heads import ablate_command, ablation_figures
from tl_dyck.studies.ablation import Ablation, load_ablation


@pytest.fixture(scope="module")
def page(ablation: Ablation, tmp_path_factory: pytest.TempPathFactory) -> Node:
    return read_page(write_report(ablation, tmp_path_factory.mktemp("page") / "new" / "page.html"))


def test_sections_plots_and_downloads(page, ablation):
    sections = [section.attributes["id"] for section in page.find("main")[0].find("section")]
    names = ["heads", "heads-correlations", "heads-importance", "heads-gates", "heads-cost"]
    assert sections == [*names, "models", "about"]
    assert [link.attributes["download"] for link in page.find("a", class_="download")] == [
        f"{name}.csv" for name in names
    ]
    plots = data_block(page, "data-plots")
    assert {box.attributes["data-plot"] for box in page.find("div", class_="plot")} == set(plots)
    for plot in plots.values():
        go.Figure(json.loads(re.sub(r'"@[a-z0-9]+"', '"#123456"', json.dumps(plot))))
    saved = csv(page, "heads-importance")
    pd.testing.assert_frame_equal(saved, ablation.comparison.heads, check_dtype=False)
    for section in page.find("section")[:5]:
        assert section.find("p", class_="reading")[0].text.endswith(".")
        assert section.find("div", class_="tools")[0].find("code")[0].text == ablate_command(
            ablation
        )


def test_it_shows_the_numbers(page, ablation):
    (section,) = page.find("section", id="heads")
    for answer in ablation.answers:
        assert any(answer.question == heading.text for heading in section.find("h3"))
        assert any(item.text == f"{answer.group}. {answer.text}" for item in section.find("li"))
    plots, heads = data_block(page, "data-plots"), ablation.comparison.heads
    for index, (_, part) in enumerate(heads.groupby("group", sort=False)):
        (marks,) = plots[f"heads-importance-{index}"]["data"]
        np.testing.assert_allclose(marks["x"], part["zero"])
        np.testing.assert_allclose(marks["y"], part["gates"])
        np.testing.assert_allclose(marks["marker"]["color"], part["stack-likeness"])
    first = ablation.trajectories[
        ablation.trajectories["model"] == ablation.models["model"].iloc[0]
    ]
    curve = plots["heads-gates-0"]["data"][1]
    wanted = first[(first["layer"] == 0) & (first["head"] == 1)]
    assert curve["name"] == "L0H1"
    np.testing.assert_allclose(curve["y"], wanted["expected_gate"])
    row = ablation.models.iloc[0]
    path = ablation.paths[ablation.paths["model"] == row["model"]]
    np.testing.assert_allclose(
        plots["heads-cost-0"]["data"][0]["y"][: len(path)], row["metric"] - path["metric"]
    )
    correlations = plots["heads-correlations-0"]["data"][0]
    found = ablation.comparison.correlation(row["group"], "stack-likeness", "zero")["spearman"]
    assert found != found or correlations["x"][0] == pytest.approx(found)


def test_frozen_only_has_what_there_is(ablation):
    heads = ablation.comparison.heads.drop(
        columns=["gates", "leave-one-out", "drift", "stack-likeness"]
    )
    table = ablation.comparison.correlations
    table = table[
        ~table[["a", "b"]].isin(["gates", "leave-one-out", "drift", "stack-likeness"]).any(axis=1)
    ]
    comparison = replace(ablation.comparison, heads=heads, correlations=table)
    empty = pd.DataFrame()
    made = ablation_figures(
        replace(ablation, comparison=comparison, trajectories=empty, paths=empty)
    )
    assert [figure.name for figure in made] == ["heads", "heads-correlations"]


def test_command(ablation, tmp_path):
    run = Path(ablation.models["folder"].iloc[0])
    done = call("ablate", run, "--steps", 0, "--out", tmp_path / "out", "--jobs", 1)
    assert done.exit_code == 0, done.output
    assert max(map(len, done.output.splitlines()[:-1])) <= 80
    assert (
        "Are heads with spread-out attention more important when the model is frozen?"
        in done.output
    )
    assert f"Report: {tmp_path / 'out' / 'ablation.html'}" in done.output
    assert read_page(tmp_path / "out" / "ablation.html").find("section", id="heads")
    assert load_ablation(tmp_path / "out").config["finetune"] is None


def test_default_place_in_a_study(ablation, tmp_path):
    run = Path(ablation.models["folder"].iloc[0])
    study = tmp_path / "study"
    shutil.copytree(run, study / "runs" / "seed-0")
    (study / "results.json").write_text("{}")
    assert call("ablate", study, "--steps", 0, "--jobs", 1).exit_code == 0
    assert (study / "ablation" / "ablation.json").exists()
