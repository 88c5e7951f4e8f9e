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


PATTERNS = {
    "nothing of that name": {"other": torch.zeros(1, 1, 17, 17)},
    "none at all": {},
    "a vector": {"patterns": torch.zeros(3)},
    "of another string": {"patterns": torch.zeros(1, 1, 5, 5)},
    "not square": {"patterns": torch.zeros(1, 1, 17, 16)},
    "whole numbers": {"patterns": torch.zeros(1, 1, 17, 17, dtype=torch.int64)},
    "of more heads than the other seed's": {"patterns": torch.zeros(1, 2, 17, 17)},
}
WORST = {
    "nothing of that name": {"original": torch.zeros(1, 3, 3)},
    "a number": {"original": torch.zeros(()), "worst": torch.zeros(1, 5, 5)},
    "of another string": {"original": torch.zeros(1, 4, 4), "worst": torch.zeros(1, 5, 5)},
}


LIKELIEST = {
    "nothing of that name": {"other": torch.zeros(1, 4, 4)},
    "a vector": {"likeliest": torch.zeros(4)},
    "of another string": {"likeliest": torch.zeros(1, 9, 9)},
}
SAVED = {"patterns": PATTERNS, "certificate": WORST, "language": LIKELIEST}


@pytest.mark.parametrize(
    ("file", "case"), [(file, case) for file, cases in SAVED.items() for case in cases]
)
def test_patterns(original: Make, file: str, case: str):
    folder = original("study")
    tensors = SAVED[file][case]
    study = load_study(folder)
    for seed in SEEDS if file != "patterns" else SEEDS[:1]:  # the page shows the worst of them
        save_file(tensors, study.run_folder(FAMILIES[1], seed) / f"{file}.safetensors")
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
