"""The page of what is measured names every measure there is."""

from __future__ import annotations

from fnmatch import fnmatch
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from tests.docs.test_docs import DOCS, load
from tl_dyck import build_model, get_config
from tl_dyck.ablation import FINETUNED, FROZEN, INTERPRETABILITY, FinetuneConfig
from tl_dyck.probes import probes
from tl_dyck.runs import experiments
from tl_dyck.studies import Measurement, Study, findings
from tl_dyck.studies.heads import AblateConfig
from tl_dyck.studies.measurement import Measures
from tl_dyck.studies.reproduction import papers
from tl_dyck.tasks import load_task
from tl_dyck.training import TrainConfig, TrainResult
from tl_dyck_papers.stack_use.measure import StackUseMeasurement
from tl_dyck_papers.wen_2023.measure import PaperMeasurement

PAGE = load(DOCS / "measured.py")
TEXT = PAGE.PAGE.read_text(encoding="utf-8")


def test_the_page_is_what_is_registered() -> None:
    assert PAGE.page() == TEXT, "run: python docs/measured.py"


def test_no_probe_no_reading_and_no_experiment_is_missing() -> None:
    readings = {
        f"{each.__module__}.{each.__qualname__}"
        for name in papers.names()
        for each in papers.get(name).readings.values()
    }
    there = {*probes.names(), *readings, *FROZEN, *FINETUNED, *INTERPRETABILITY}
    assert [name for name in sorted(there) if f"`{name}`" not in TEXT] == []
    assert len(readings) > 20
    assert set(PAGE.METRICS) == set(experiments.names())


def test_each_line_says_something() -> None:
    rows = [line.split(" | ") for line in TEXT.splitlines() if line.startswith("| ")]
    lines = [row[1].strip(" |") for row in rows]
    assert [line for line in lines if len(line) < 4] == []
    assert len(lines) > 70
    assert [line for line in lines if line.endswith("Eq.") or line.count("`") % 2] == []


def test_what_a_study_finds_is_there(tiny_study: Study) -> None:
    assert len(PAGE.findings()) >= len({found.figure for found in findings(tiny_study)}) > 1


def untrained(experiment: str) -> TrainResult:
    """Of a family of which all is measured."""
    family = "gpt-learned" if experiment == "stack-use" else "minimal-onehot"
    task = load_task("dyck-2-4")
    model = build_model(get_config(family, task, initializer_range=0.5), seed=3)
    return TrainResult(
        model=model, task=task, options=TrainConfig(steps=1), seed=3, status="target", steps=1,
        seconds=0.0, accuracy=task.closing_accuracy(model, n=20, seed=0), history=pd.DataFrame(),
    )  # fmt: skip


MEASURES: dict[str, Measures] = {
    "train": Measurement(n_accuracy=20, n_long=2, n_strings=20, n_certified=1, n_inserted=1,
                         decided_length=2),
    "heads": AblateConfig(finetune=FinetuneConfig(steps=2), leave_one_out=FinetuneConfig(steps=2),
                          n=10),
    "paper": PaperMeasurement(n_accuracy=20, n_long=2, n_strings=20, forecast=True),
    "stack-use": StackUseMeasurement(n_accuracy=20, n_far=20, n_depth=10, n_pairs=8),
}  # fmt: skip


@pytest.mark.parametrize("experiment", MEASURES)
def test_every_metric_of_a_run_is_named(experiment: str, tmp_path: Path) -> None:
    found: dict[str, Any] = MEASURES[experiment].measure(untrained(experiment), tmp_path)
    named = [row[0].replace("…", "*") for row in PAGE.METRICS[experiment]]
    missing = [metric for metric in found if not any(fnmatch(metric, name) for name in named)]
    assert missing == []
    idle = [name for name in named if not any(fnmatch(metric, name) for metric in found)]
    assert set(idle) <= {"outcome", "learned", "steps", "train_seconds"}  # of all trained models
    if experiment == "heads":
        columns = {name for names in PAGE.HEADS.values() for name in names}
        table = pd.read_parquet(tmp_path / "heads.parquet")
        assert set(table.columns) - {"layer", "head"} == columns
