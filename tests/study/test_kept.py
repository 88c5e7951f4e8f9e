"""Measurements beside a run are believed if they are of that run and this version, and made again otherwise."""

from __future__ import annotations

import json
import shutil
from functools import partial
from pathlib import Path

import pytest

from tl_dyck.files import read_json
from tl_dyck.models import get_config
from tl_dyck.study import StudyConfig, kept
from tl_dyck.study import measure as study
from tl_dyck.study.reproduce import Scale
from tl_dyck.study.reproduce import measure as reproduction
from tl_dyck.study.reproduce.scales import Group
from tl_dyck.tasks import load_task
from tl_dyck.training import TrainConfig, load_result, train

FEW = {"n_accuracy": 20, "n_long": 2, "n_strings": 20, "n_bootstrap": 5}
CONFIG = StudyConfig(families=("minimal-onehot",), **FEW, n_certified=1, n_inserted=1)
SCALE = Scale(
    **{"name": "tiny", "seeds": 1, "table_seeds": 1, "contrastive_seeds": 1, "weights": (0.0,), "lengths": ()},
    **{"to_the_end": 3, **FEW},
)
GROUP = Group(name="minimal-onehot", family="minimal-onehot", task="dyck-2-4", seeds=1, training=TrainConfig())
#: What measures, the file that it keeps, and the pictures beside it.
WAYS = {
    "study": (partial(study.measure, config=CONFIG), "measures.json", ["patterns", "certificate"]),
    "reproduce": (partial(reproduction.measure, group=GROUP, scale=SCALE), "reproduce.json", ["reproduce"]),
}


@pytest.fixture(scope="module")
def runs(tmp_path_factory) -> list[Path]:
    """Two seeds, measured in every way."""
    folders = [tmp_path_factory.mktemp("runs") / f"seed-{seed}" for seed in range(2)]
    task = load_task("dyck-2-4")
    for seed, folder in enumerate(folders):
        options = TrainConfig(steps=4, batch_size=4, check_every=4, check_size=10)
        result = train(
            get_config("minimal-onehot", task), task, seed=seed, options=options, folder=folder, progress=False
        )
        for measure, _, _ in WAYS.values():
            measure(result, folder)
    return folders


def measured(way: str, folder: Path) -> tuple[bool, dict]:
    """Whether it is measured again, and what is there then."""
    measure, name, _ = WAYS[way]
    before = (folder / name).stat().st_ino  # files are replaced, not written to
    measure(load_result(folder), folder)
    return (folder / name).stat().st_ino != before, read_json(folder / name)


@pytest.mark.parametrize("way", WAYS)
def test_once_is_enough(way, runs):
    assert not measured(way, runs[0])[0]


@pytest.mark.parametrize("way", WAYS)
def test_copied_from_another_seed(way, runs, tmp_path):
    _, name, _ = WAYS[way]
    mine = shutil.copytree(runs[0], tmp_path / "mine")
    shutil.copy(runs[1] / name, mine)
    again, found = measured(way, mine)
    assert again
    right, other = (read_json(run / name)["row"]["loss"] for run in runs)
    assert found["row"]["loss"] == pytest.approx(right, rel=1e-5)
    assert abs(right / other - 1) > 1e-4


@pytest.mark.parametrize("way", WAYS)
def test_pictures_copied_from_another_seed(way, runs, tmp_path):
    mine = shutil.copytree(runs[0], tmp_path / "mine")
    for picture in WAYS[way][2]:
        other = (runs[1] / f"{picture}.safetensors").read_bytes()
        (mine / f"{picture}.safetensors").write_bytes(other)
        assert measured(way, mine)[0]
        assert (mine / f"{picture}.safetensors").read_bytes() != other
        assert not measured(way, mine)[0]


@pytest.mark.parametrize("way", WAYS)
def test_left_by_another_version(way, runs, monkeypatch, tmp_path):
    mine = shutil.copytree(runs[0], tmp_path / "mine")
    monkeypatch.setattr(kept, "version", lambda name: "0.0.1")
    assert measured(way, mine)[0]
    assert not measured(way, mine)[0]
    monkeypatch.undo()
    assert measured(way, mine)[0]


@pytest.mark.parametrize("way", WAYS)
def test_left_from_before_there_was_an_identity(way, runs, tmp_path):
    mine = shutil.copytree(runs[0], tmp_path / "mine")
    path = mine / WAYS[way][1]
    saved = read_json(path)
    path.write_text(json.dumps({"settings": saved["identity"]["settings"], "row": {}, "heads": []}))
    assert measured(way, mine)[0]


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("change", [{"weights": "0" * 64}, {"run": "0" * 64}, {"settings": {}}, {"code": "other/1"}])
def test_every_part_counts(way, change, runs, tmp_path):
    mine = shutil.copytree(runs[0], tmp_path / "mine")
    path = mine / WAYS[way][1]
    saved = read_json(path)
    path.write_text(json.dumps({**saved, "identity": {**saved["identity"], **change}}))
    assert measured(way, mine)[0]
