"""Results of a study that someone has been at: what would break the report is not believed."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import save_file

from tests.hostile.conftest import FAMILIES, SEEDS
from tests.hostile.tools import JUNK, alter, nest, refusal
from tl_dyck.report import write_report
from tl_dyck.studies import load_study

Make = Callable[[str], Path]

RESULTS: dict[str, tuple[tuple[Any, ...], Any]] = {
    "no environment": (("environment",), ...),
    "a run too few": (("runs", 0), ...),
    "a run that is not there": (("runs", 0), "0" * 20),
    "no config": (("config",), ...),
    "a config with another key": (("config", "owned"), 1),
    "training that is a list": (("config", "training"), []),
    "families that are numbers": (("config", "families"), [1, 2]),
    "a number of prefixes that is a text": (("config", "measurement", "n_long"), "many"),
    "a config that is nested": (("config", "families"), nest(300)),
    "a task that is a number": (("task",), 5),
}


@pytest.mark.parametrize("case", RESULTS)
def test_results(original: Make, case: str):
    folder, (keys, value) = original("study"), RESULTS[case]
    alter(folder / "results.json", *keys, value=value)
    refusal(lambda: load_study(folder), str(folder), "run")


@pytest.mark.parametrize("junk", JUNK)
def test_files_that_are_none(original: Make, junk: str):
    folder = original("study")
    (folder / "results.json").write_bytes(JUNK[junk])
    refusal(lambda: load_study(folder), str(folder))


@pytest.mark.parametrize("file", ["measures.json", "result.json"])
@pytest.mark.parametrize("junk", ["empty", "no format"])
def test_files_of_a_run_that_are_none(original: Make, file: str, junk: str):
    folder = original("study")
    (load_study(folder).run_folder(FAMILIES[0], SEEDS[0]) / file).write_bytes(JUNK[junk])
    refusal(lambda: load_study(folder), str(folder), "to do this run again")


def test_measures_that_someone_changed(original: Make):
    folder = original("study")
    path = load_study(folder).run_folder(FAMILIES[0], SEEDS[0])
    alter(path / "measures.json", "closings", 0, "accuracy", value=1.0)
    refusal(lambda: load_study(folder), "digest", "to do this run again")


@pytest.mark.parametrize("file", ["patterns", "certificate", "language"])
def test_tensors_that_are_gone(original: Make, file: str):
    folder = original("study")
    study = load_study(folder)
    for seed in SEEDS:  # the page shows the worst of them
        save_file(
            {"other": torch.zeros(3)}, study.run_folder(FAMILIES[1], seed) / f"{file}.safetensors"
        )
    refusal(lambda: write_report(load_study(folder), folder / "report.html"), str(folder))


def test_a_study_is_reported_with_markup_in_its_environment(original: Make):
    """And what others wrote stays text in the page; more in tests/report."""
    folder = original("study")
    evil = "</script><script>alert(1)</script>\x1b[2J"
    alter(folder / "results.json", "environment", "platform", value=evil)
    alter(folder / "results.json", "environment", "versions", evil, value=evil)
    page = write_report(load_study(folder), folder / "report.html").read_text()
    assert "<script>alert" not in page
    assert "alert(1)" in page
