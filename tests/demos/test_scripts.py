"""Every script in demos/ runs from beginning to end."""

import os
import subprocess
import sys
from pathlib import Path

DEMOS = Path(__file__).parents[2] / "demos"


def run(script, *arguments, cwd):
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    command = [sys.executable, str(DEMOS / script), *map(str, arguments)]
    return subprocess.run(command, cwd=cwd, env=environment, capture_output=True, text=True, timeout=300, check=False)


def test_train_and_look(tmp_path):
    done = run("train_and_look.py", 30, tmp_path / "look.html", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert "AttentionVariation(layer 0" in done.stdout
    page = (tmp_path / "look.html").read_text()
    assert "attention weight" in page
    assert 'src="http' not in page


def test_ablate_any_model(tmp_path):
    done = run("ablate_any_model.py", 150, tmp_path / "path.html", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    for mode in ("zero", "mean", "resample", "uniform-pattern", "gradient"):
        assert f"HeadImportance({mode}" in done.stdout
    assert "'L1H" in done.stdout.split("removed, first to last: ")[1]
    page = (tmp_path / "path.html").read_text()
    assert "expected gate" in page
    assert 'src="http' not in page


def test_contrast_and_certify(tmp_path):
    options = ("--seeds", 2, "--weights", 0, 1, "--steps", 20, "--prefixes", 2, "--out", tmp_path / "runs")
    done = run("contrast_and_certify.py", *options, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    lines = [line.split()[0] for line in done.stdout.splitlines() if line[:1].isdigit()]
    assert lines == ["0", "1"]
    assert "survive every insertion" in done.stdout
