"""One good artefact of each kind, made once; tests spoil copies."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.hostile.tools import POINT, RUN
from tl_dyck.models import build_model, get_config, save_model
from tl_dyck.rnn import export_rnn, save_rnn
from tl_dyck.runs import Sweep
from tl_dyck.runs.store import Store
from tl_dyck.studies import Study
from tl_dyck.tasks import DyckTask
from tl_dyck.training import TrainConfig, train
from tl_dyck_text.model import TextConfig, build_text_model, save_text_model

TASK = DyckTask(name="tiny", n_types=2, max_depth=2, train_lengths=(2, 4, 6), long_lengths=(8, 9))
RECORD = {
    "id": RUN,
    "point": POINT,
    "experiment": "mine",
    "parameters": {"x": 1},
    "seed": 0,
    "started": "2026-01-01T00:00:00+00:00",
    "seconds": 0.1,
    "metrics": {"score": 0.5, "word": "é"},
    "environment": dict.fromkeys(
        ("host", "cpu_cores", "gpu", "python", "platform", "tl_dyck", "torch", "transformer_lens"),
        "x",
    ),
}


@pytest.fixture(autouse=True)
def _here(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """In a folder of its own; without waiting for the disk."""
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path / "here")
    monkeypatch.setattr(os, "fsync", lambda descriptor: None)


class _Killed(BaseException):
    pass


def _stop(row: dict[str, Any]) -> None:
    if row["step"] >= 4:
        raise _Killed


def _make_runs(folder: Path) -> None:
    config = get_config("minimal-onehot", TASK, d_model=10, d_mlp=4)
    options = TrainConfig(
        steps=6,
        batch_size=3,
        check_every=2,
        check_size=9,
        checkpoint_every=2,
        warmup_steps=2,
        target=None,
    )
    shared: dict[str, Any] = {"seed": 1, "options": options, "progress": False}
    train(config, TASK, folder=folder / "run", **shared)
    with pytest.raises(_Killed):
        train(config, TASK, folder=folder / "checkpoint", on_check=_stop, **shared)
    shutil.copy(folder / "checkpoint/checkpoint.json", folder / "checkpoint/as-it-was.json")


def _make_sweep(folder: Path) -> None:
    sweep = Sweep(common={"x": 1}, seeds=2, experiment="mine").to_dict()
    note = {"experiment": "mine", "parameters": {"x": 1}, "identity": {"x": 1}}
    store = Store.create(folder, sweep, (POINT,), {POINT: note})
    (store.start(RUN) / "file.txt").write_text("kept")
    store.write_record(RUN, RECORD, took=0.0)


@pytest.fixture(scope="session")
def _originals(tiny_study: Study, tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("originals")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(os, "fsync", lambda descriptor: None)
        model = build_model(get_config("minimal-onehot", TASK, d_model=10, d_mlp=4))
        save_model(model, path / "model")
        save_rnn(export_rnn(model), path / "rnn")
        save_text_model(
            build_text_model(TextConfig(words=("<unk>", "<cls>", "good", "bad"), d_model=4)),
            path / "text",
        )
        (path / "corpus").mkdir()
        (path / "corpus" / "train.tsv").write_text("good film\t1\nbad film\t0\n" * 5)
        (path / "corpus" / "dev.tsv").write_text("good\t1\nbad\t0\n")
        (path / "corpus" / "brackets.txt").write_text("[ ( ) ] END\n")
        (path / "corpus" / "synonyms.json").write_text(json.dumps({"good": ["bad"]}))
        _make_runs(path)
        _make_sweep(path / "sweep")
        shutil.copytree(tiny_study.folder, path / "study")
    return path


@pytest.fixture
def original(_originals: Path, tmp_path: Path) -> Callable[[str], Path]:
    """Copy a good artefact to spoil: model, rnn, text, corpus, run, checkpoint, sweep, study."""

    def copy(name: str) -> Path:
        return Path(shutil.copytree(_originals / name, tmp_path / name))

    return copy


@pytest.fixture(scope="session")
def place(_originals: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Good artefacts of all kinds; a pipe; and a sweep of a million million points."""
    path = tmp_path_factory.mktemp("place")
    for name in ("model", "rnn", "text", "corpus", "sweep", "study"):
        shutil.copytree(_originals / name, path / name)
    (path / "small.yaml").write_text("seeds: 1\ncommon: {task: dyck-2-4, model: gpt}\n")
    if hasattr(os, "mkfifo"):
        os.mkfifo(path / "pipe")
    grid = "".join(f"  p{i}: [0, 1, 2, 3, 4, 5, 6, 7, 8, 9]\n" for i in range(12))
    (path / "huge.yaml").write_text(f"grid:\n{grid}")
    return path
