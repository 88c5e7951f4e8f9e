"""Values behind Tab are those that there are, and nothing heavy is loaded for them."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tl_dyck.cli import completion
from tl_dyck.judge import SUITES, methods
from tl_dyck.models import list_models
from tl_dyck.runs.backends import backends
from tl_dyck.tasks import tasks
from tl_dyck_papers.stack_use import SCALES as STACK_USE
from tl_dyck_papers.wen_2023.scales import SCALES


def test_names_that_are_known_are_those_that_there_are() -> None:
    assert sorted(completion.KNOWN["models"]) == list_models(), "see tl_dyck/cli/completion.py"
    where = "its names are in tl_dyck/cli/completion.py"
    assert completion.named("tasks")("") == tasks.names(), where
    assert completion.named("backends")("") == backends.names(), where
    assert completion.named("methods")("") == methods.names()
    assert sorted(completion.SUITES) == sorted(SUITES)
    assert sorted(completion.SCALES) == sorted({*SCALES, *STACK_USE})


def test_several_names_are_completed_at_the_last() -> None:
    assert completion.named("models")("gpt,minimal-o") == ["gpt,minimal-onehot"]


def test_saved_models_are_folders_and_what_is_in_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "results" / "study").mkdir(parents=True)
    (tmp_path / ".hidden").mkdir()
    (tmp_path / "results" / "file").touch()
    assert completion.saved_models("") == ["results"]
    assert completion.saved_models("results/s") == ["results/study"]
    assert completion.saved_models("results/") == ["results/study"]
    assert completion.saved_models("results/study:minimal-o") == ["results/study:minimal-onehot"]
    assert completion.saved_models("nowhere/") == completion.saved_models("nowhere:g") == []
    assert completion.saved_models("ref") == ["reference"]


TYPED = {
    "tl-dyck train minimal-on": "minimal-onehot",
    "tl-dyck train gpt --task dyck-3-8-p": "dyck-3-8-prefix",
    "tl-dyck judge --methods zero-a": "zero-ablation",
    "tl-dyck judge --scale ed": "edges",
}


def test_tab_completes_values_without_torch() -> None:
    code = "import contextlib, os, sys; sys.argv[0] = 'tl-dyck'; from tl_dyck.cli import main\n"
    code += f"for os.environ['_TYPER_COMPLETE_ARGS'] in {[*TYPED]}:\n"
    code += "    with contextlib.suppress(SystemExit): main()\n    print('END')\n"
    code += "print('loaded torch' * ('torch' in sys.modules))"
    words = {"_TL_DYCK_COMPLETE": "complete_zsh"}
    run = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, env={**os.environ, **words}
    )
    *said, loaded = run.stdout.split("END\n")
    assert [name in each for name, each in zip(TYPED.values(), said, strict=True)] == [True] * 4
    assert loaded == "\n"
