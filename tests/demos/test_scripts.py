"""Every script in demos/ runs from beginning to end."""

from __future__ import annotations

import runpy
import sys
from functools import partial
from pathlib import Path

import pytest

from tl_dyck.ablation import FinetuneConfig
from tl_dyck.studies import Measurement

DEMOS = Path(__file__).parents[2] / "demos"

pytestmark = [
    pytest.mark.global_rng,  # a HookedTransformer seeds it
    pytest.mark.filterwarnings("default"),  # scripts set filters of their own
]


@pytest.fixture
def run(tmp_path, monkeypatch, capsys):
    """Run a script in this process, which has TransformerLens already; returns what it printed."""

    def go(script, *arguments):
        monkeypatch.chdir(tmp_path)
        monkeypatch.setattr(sys, "argv", [script, *map(str, arguments)])
        runpy.run_path(str(DEMOS / script), run_name="__main__")
        return capsys.readouterr().out

    return go


def test_train_and_look(run, tmp_path):
    assert "AttentionVariation(layer 0" in run("train_and_look.py", 30, tmp_path / "look.html")
    page = (tmp_path / "look.html").read_text()
    assert "attention weight" in page
    assert 'src="http' not in page


def test_ablate_any_model(run, tmp_path, monkeypatch):
    monkeypatch.setattr(
        "tl_dyck.FinetuneConfig", lambda **options: FinetuneConfig(**{**options, "steps": 15})
    )
    printed = run("ablate_any_model.py", 40, tmp_path / "path.html")
    for mode in ("zero", "mean", "resample", "uniform-pattern", "gradient"):
        assert f"HeadImportance({mode}" in printed
    assert "'L1H" in printed.split("removed, first to last: ")[1]
    page = (tmp_path / "path.html").read_text()
    assert "expected gate" in page
    assert 'src="http' not in page


def test_contrast_and_certify(run, tmp_path, monkeypatch):
    fewer = partial(Measurement, n_accuracy=100, n_long=10, n_strings=50)
    monkeypatch.setattr("tl_dyck.studies.Measurement", fewer)
    options = (
        "--seeds",
        1,
        "--weights",
        0,
        1,
        "--steps",
        20,
        "--prefixes",
        1,
        "--out",
        tmp_path / "runs",
    )
    printed = run("contrast_and_certify.py", *options, "--jobs", 1)
    lines = [line.split()[0] for line in printed.splitlines() if line[:1].isdigit()]
    assert lines == ["0", "1"]
    assert "survive every insertion" in printed
