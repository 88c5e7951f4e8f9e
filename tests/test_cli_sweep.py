"""``tl-dyck sweep``: run, status, resume, results, merge, and one clear line for every mistake."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from tests.report.pages import read_page, table_rows
from tests.test_cli import call, flat
from tl_dyck.runs import experiments, load_results


@pytest.fixture(autouse=True)
def experiment() -> Any:
    """An experiment by name, as sweep files need one."""

    @experiments.register("toy")
    def toy(point: dict[str, Any], seed: int, folder: Path) -> dict[str, Any]:
        if seed == 2 and point["x"] == 1 and not Path(point["repaired"]).exists():
            raise ValueError("two is too much")
        return {"score": point["x"] + seed / 10, "word": "w"}

    yield toy
    experiments.unregister("toy")


@pytest.fixture
def file(tmp_path) -> Path:
    path = tmp_path / "mine.yaml"
    path.write_text(
        f"experiment: toy\nseeds: 3\ncommon: {{repaired: {tmp_path / 'repaired'}}}\ngrid: {{x: "
        f"[0, 1], y: [a, b]}}\n"
    )
    return path


def one_job(*words: object) -> Any:
    return call("sweep", *words, "--jobs", 1)


def test_dry_run(file, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    said = call("sweep", file, "--dry-run")
    assert said.exit_code == 0
    text = flat(said.output)
    assert "4 points × 3 seeds = 12 runs of 'toy'" in text
    assert "x 0, 1" in text
    assert "y a, b" in text
    assert {path.name for path in tmp_path.iterdir()} == {"mine.yaml"}
    file.write_text("experiment: toy\nseeds: 3\nlist: [{x: 0, y: a}, {x: 1, y: a, seeds: 5}]\n")
    counted = flat(call("sweep", file, "--dry-run").output)
    assert "2 points × 3 to 5 seeds = 8 runs of 'toy'" in counted
    assert counted.endswith("Every point can be run.")
    file.write_text("experiment: train\nlist: [{task: dyck-2-4, model: gpt, model.d_mode: 8}]\n")
    said = call("sweep", file, "--dry-run")  # what is in the file, and then what is wrong in it
    assert said.exit_code == 2
    assert (
        "1 points × 8 seeds = 8 runs of 'train' parameter values task dyck-2-4 model gpt"
        in flat(said.stdout)
    )
    assert "d_mode" in said.stderr
    assert "can be run" not in said.output


def test_run_status_resume_results(file, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    said = one_job(file)
    assert said.exit_code == 1  # runs failed
    text = flat(said.output)
    assert "10 of 12 runs done, 2 failed; 12 of them now" in text
    assert "resume results/mine --retry-failed" in text
    folder = tmp_path / "results" / "mine"
    assert len(load_results(folder)) == 12

    text = flat(call("sweep", "status", folder).output)
    assert "12 runs: 10 done, 2 failed" in text
    assert "ValueError: two is too much" in text
    screen = call("sweep", "status", folder).output.replace("│", " ").splitlines()
    assert [line.split() for line in screen if line.split()[:1] == ["1"]] == [
        ["1", "4", "2"]
    ]  # x = 1: done, failed

    again = one_job("resume", folder)
    assert again.exit_code == 1
    assert "0 of them now" in flat(again.output)
    (tmp_path / "repaired").touch()
    repaired = one_job("resume", folder, "--retry-failed")
    assert repaired.exit_code == 0
    assert "12 of 12 runs done; 2 of them now" in flat(repaired.output)

    text = flat(call("sweep", "results", folder).output)
    assert "95 % t intervals over seeds" in text
    assert "prediction intervals" in text
    assert "1.1" in text
    by_x = flat(call("sweep", "results", folder, "--by", "x", "--metrics", "score").output)
    assert "score" in by_x
    assert "0.1" in by_x
    for name, read in (("out.csv", pd.read_csv), ("deep/out.parquet", pd.read_parquet)):
        said = call("sweep", "results", folder, "--out", tmp_path / name)
        assert said.exit_code == 0
        table = read(tmp_path / name)
        assert list(table["score"]) == list(load_results(folder)["score"])
        assert list(table) == list(load_results(folder))


def test_merged_folders_and_the_page_of_all_that_they_hold(file, tmp_path):
    """Two sweeps that share a seed; links are skipped, and said to be."""
    (tmp_path / "repaired").touch()
    for number in range(2):
        text = file.read_text().replace("seeds: 3", f"seeds: [{number}, 5]")
        (tmp_path / f"m{number}.yaml").write_text(text)
        words = (tmp_path / f"m{number}.yaml", "-o", tmp_path / f"m{number}", "--records-only")
        assert one_job("run", *words, "--no-wait").exit_code == 0
        assert not [
            path for path in (tmp_path / f"m{number}" / "runs").glob("*/*") if path.is_dir()
        ]
    said = call("sweep", "merge", tmp_path / "all", tmp_path / "m0", tmp_path / "m1")
    assert said.exit_code == 0
    assert "12 runs copied, 4 were there already." in flat(said.output)
    assert "skipped" not in said.output
    assert len(load_results(tmp_path / "all")) == 12
    assert "4 further runs" in flat(call("sweep", "status", tmp_path / "all").output)
    (tmp_path / "m0" / "points" / "x.json").symlink_to(file)
    said = call("sweep", "merge", tmp_path / "more", tmp_path / "m0")
    assert said.exit_code == 0
    words = "1 links (or pipes, devices) were skipped, neither followed nor copied"
    assert words in flat(said.output)
    assert call("sweep", "report", tmp_path / "all").exit_code == 0
    page = read_page(tmp_path / "all" / "sweep.html")
    (lead,) = page.find("p", class_="lead")
    assert "8 runs of a sweep, 8 of them done" in lead.text
    words = "holds 4 more, of other sweeps; all 12 runs that have ended are in the tables"
    assert words in lead.text
    rows = table_rows(page, "means")[1:]
    assert sum(int(row[2]) for row in rows) == len(load_results(tmp_path / "all")) == 12


def test_what_is_pooled_is_said_and_seeds_are_counted(file, tmp_path):
    """In the table, as JSON; with all parameters nothing is pooled."""
    (tmp_path / "repaired").touch()
    assert one_job(file, "-o", tmp_path / "there").exit_code == 0
    said = call("sweep", "results", tmp_path / "there", "--by", "x", "--metrics", "score")
    text = flat(said.output)
    assert "2 values of y pooled: a mean is over all of them; --by keeps them apart." in text
    rows = [line.split()[:3] for line in said.output.splitlines() if line[:1] in "x01"]
    assert rows[:3] == [["x", "seeds", "runs"], ["0", "3", "6"], ["1", "3", "6"]]
    found = json.loads(call("sweep", "results", tmp_path / "there", "--by", "x", "--json").output)
    assert [(row["seeds"], row["n"], row["pooled"]) for row in found["means"]] == [
        (3, 6, "2 values of y pooled")
    ] * 2
    assert "pooled" not in call("sweep", "results", tmp_path / "there").output


def test_nothing_to_show_yet(file, tmp_path, monkeypatch):
    monkeypatch.setattr("tl_dyck.runs.execute._carry_out", lambda *_: [])
    one_job(file, "-o", tmp_path / "empty")
    assert "No run has ended yet." in flat(call("sweep", "results", tmp_path / "empty").output)
    assert "12 runs: 12 waiting" in flat(call("sweep", "status", tmp_path / "empty").output)
