"""``--json``, exit statuses of verdicts, and completion."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
import typer

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

import tl_dyck
import tl_dyck.tasks
from tests.patience import PATIENCE
from tests.test_cli import call, commands, flat, runs  # noqa: F401
from tl_dyck import construct, load_task, save_model
from tl_dyck.cli.answers import end_with
from tl_dyck.kit.errors import DyckError, is_refusal
from tl_dyck.kit.json_values import plain
from tl_dyck.models.hooked import installed

ROOT = Path(__file__).resolve().parent.parent


def answer_of(*words: object, status: int = 0) -> dict[str, Any]:
    result = call(*words, "--json")
    assert result.exit_code == status, result.output
    assert result.stderr == ""
    found: dict[str, Any] = json.loads(result.stdout)
    return found


@dataclass
class Point:
    x: float
    y: Any


def test_what_values_are_in_json():
    value = {
        1: Point(float("nan"), np.float32(0.5)),
        "tensor": torch.tensor([[1, 2]]),
        "table": pd.DataFrame({"a": [1.5, float("inf")], "b": ["x", None]}),
        "rest": (Path("a/b"), range(2), np.bool_(True), None, {"z"}),
        "language": load_task("dyck-2-4").language,
    }
    found = plain(value)
    assert json.loads(json.dumps(found, allow_nan=False)) == found
    assert found["1"] == {"x": None, "y": 0.5}
    assert found["tensor"] == [[1, 2]]
    assert found["table"] == [{"a": 1.5, "b": "x"}, {"a": None, "b": None}]
    assert found["rest"] == ["a/b", [0, 1], True, None, ["z"]]
    assert found["language"]["max_depth"] == 4


def test_every_command_has_it():
    found = [command for _, command in commands() if not getattr(command, "commands", None)]
    assert len(found) == 23
    for command in found:
        assert "--json" in [name for each in command.params for name in each.opts], command.name


def test_tasks_and_models():
    tasks = {each["name"]: each for each in answer_of("tasks")["tasks"]}
    assert list(tasks) == tl_dyck.list_tasks()
    assert tasks["dyck-3-8"]["entropy_floor"] == load_task("dyck-3-8").entropy_floor
    assert tasks["dyck-2-4-prefix"]["mode"] == "prefix"
    models = {each["name"]: each for each in answer_of("models", "-t", "dyck-3-8")["models"]}
    assert set(models) == set(tl_dyck.list_models())
    assert models["gpt"]["n_layers"] == 2


def test_train_and_report(tiny_study: Study, tmp_path):
    found = answer_of(
        "train", "gpt", "--steps", "1", "--seeds", "0,2", "-o", tmp_path / "runs", "--jobs", "1"
    )
    assert [(run["seed"], run["steps"]) for run in found["runs"]] == [(0, 1), (2, 1)]
    kept = tl_dyck.training.load_result(tmp_path / "runs" / "seed-2")
    assert found["runs"][1]["accuracy"]["any_token"] == kept.accuracy.any_token
    assert found["models"] == str(tmp_path / "runs")
    found = answer_of("report", tiny_study.folder, "-o", tmp_path / "page.html")
    assert found["report"] == str(tmp_path / "page.html")
    assert found["summary"]["probe_string"] == tiny_study.summary["probe_string"]
    assert found["findings"][0]["title"]


def test_one_head_of_several_is_probed(tmp_path):
    model = tl_dyck.build_model(tl_dyck.get_config("minimal-onehot", "dyck-2-4", n_heads=2), seed=1)
    save_model(model, tmp_path)
    options = ("-p", "balance_violation", tmp_path)
    assert "balance_violation(model, head=0)" in call("probe", *options).stderr
    found = answer_of("probe", *options, "--head", "1")["balance_violation"][0]["value"]
    assert found == pytest.approx(tl_dyck.balance_violation(model, head=1).beta)


def test_a_mistake_prints_no_json():
    result = call("models", "--task", "x", "--json")
    assert (result.exit_code, result.stdout) == (2, "")


@pytest.fixture(scope="module")
def exact(tmp_path_factory: pytest.TempPathFactory) -> Path:
    model = construct.uniform_attention(load_task("dyck-2-4").language, n_ctx=60)
    return save_model(model, tmp_path_factory.mktemp("exact"))


@pytest.mark.parametrize(
    ("options", "status", "verdict"),
    [
        (("--text", "[()", "--space", "pairs:1"), 0, ["proved"]),
        (("--text", "[()", "--text", "[(", "--space", "dup:1"), 1, ["refuted", "proved"]),
        (("--text", "[()", "--space", "pairs:1", "--certifier", "interval"), 3, ["open"]),
    ],
)
def test_certify_ends_as_its_verdict(exact, options, status, verdict):
    found = answer_of("certify", exact, *options, status=status)
    assert [each["status"] for each in found["certificates"]] == verdict
    assert call("certify", exact, *options).exit_code == status


@pytest.mark.parametrize(
    ("refuted", "undecided", "status"),
    [(False, False, None), (True, False, 1), (True, True, 1), (False, True, 3)],
)
def test_what_is_refuted_counts_more_than_what_is_undecided(refuted, undecided, status):
    try:
        end_with(refuted, undecided)
        found = None
    except typer.Exit as end:
        found = end.exit_code
    assert found == status


def test_another_transformer_lens_is_named_in_one_line():
    code = (
        "import sys\nfrom importlib import metadata\nold = metadata.version\n"
        "metadata.version = lambda name: '2.16.1' if name == 'transformer_lens' else old(name)\n"
        "from tl_dyck.cli import main\nsys.argv = ['tl-dyck', 'models']\nmain()\n"
    )
    run = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=PATIENCE
    )
    assert run.returncode == 2
    assert run.stderr.splitlines() == [
        "Error: tl_dyck needs TransformerLens 3 or 4, and it is 2.16.1, which is too old: "
        "pip install 'transformer_lens>=3,<5'"
    ]


@pytest.mark.parametrize(
    ("version", "said"),
    [("5.0.0", "it is 5.0.0, which is too new"), (None, "it is not installed: pip install")],
)
def test_a_new_transformer_lens_and_none_are_named_too(version, said, monkeypatch):
    def told(name: str) -> str:
        if version is None:
            raise installed.metadata.PackageNotFoundError(name)
        return version

    monkeypatch.setattr(installed.metadata, "version", told)
    with pytest.raises(ImportError, match=f"and {said}") as found:
        installed._supported_major()
    assert isinstance(found.value, DyckError)
    assert is_refusal(found.value)


def test_what_is_supported_is_what_is_asked_for():
    asked = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["dependencies"]
    least, most = installed._SUPPORTED
    assert f"transformer_lens>={least},<{most + 1}" in asked


def test_as_a_module_and_completion():
    run = subprocess.run([sys.executable, "-m", "tl_dyck", "-V"], capture_output=True, text=True)
    assert run.stdout == f"tl_dyck {tl_dyck.__version__}\n"
    words = {"_TYPER_COMPLETE_ARGS": "tl-dyck certify", "_TL_DYCK_COMPLETE": "complete_zsh"}
    run = subprocess.run(
        [
            sys.executable,
            "-c",
            "import sys; sys.argv[0] = 'tl-dyck'; from tl_dyck.cli import main; main()",
        ],
        capture_output=True,
        text=True,
        env={**os.environ, **words},
    )
    assert "certify-language" in run.stdout


def test_the_help_shows_flags_as_flags_and_says_what_a_space_is():
    text = flat(call("certify", "--help").output)
    assert "<bool>" not in text
    assert "pairs:2: at most two blocks of matched brackets are inserted anywhere" in text
