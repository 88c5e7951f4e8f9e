"""Saved models are found, in order, with names to tell them apart."""

from __future__ import annotations

from pathlib import Path

import pytest

from tl_dyck.files import CorruptFileError
from tl_dyck.models import build_model, get_config, save_model
from tl_dyck.runs import run_sweep
from tl_dyck.runs.saved import find_models


def test_below_a_folder(tmp_path):
    for family, seed in (("gpt", 10), ("gpt", 9), ("eq6", 1)):
        save_model(
            build_model(get_config(family, "dyck-2-4", d_model=8)),
            tmp_path / "mine" / family / f"seed-{seed}",
        )
    found = find_models(tmp_path)
    assert [model.folder.relative_to(tmp_path / "mine").as_posix() for model in found] == [
        "eq6/seed-1",
        "gpt/seed-9",
        "gpt/seed-10",
    ]
    assert [model.name for model in found] == ["eq6-seed-1", "gpt-seed-9", "gpt-seed-10"]
    assert [model.name for model in find_models(tmp_path / "mine" / "gpt")] == ["seed-9", "seed-10"]
    (alone,) = find_models(tmp_path / "mine" / "gpt" / "seed-9")
    assert (alone.folder, alone.name) == (tmp_path / "mine" / "gpt" / "seed-9", "gpt-seed-9")


def test_by_a_short_path(tmp_path, tiny_study, monkeypatch):
    """From inside of a folder, beside the record of a run or any other JSON file of its name."""
    save_model(build_model(get_config("gpt", "dyck-2-4", d_model=8)), tmp_path / "mine")
    (tmp_path / "mine.json").write_text("{}")
    monkeypatch.chdir(tmp_path)
    assert [model.folder for model in find_models("mine")] == [Path("mine")]
    run = tiny_study.run_folder(tiny_study.config.families[0], tiny_study.config.seeds[0])
    monkeypatch.chdir(run.parent)
    name = f"{tiny_study.config.families[0]}-seed-{tiny_study.config.seeds[0]}"
    assert [(model.folder, model.name) for model in find_models(run.name)] == [
        (Path(run.name), name)
    ]


def test_of_a_study(tiny_study):
    found = find_models(tiny_study.folder)
    families, seeds = tiny_study.config.families, tiny_study.config.seeds
    assert [model.name for model in found] == [
        f"{family}-seed-{seed}" for family in families for seed in seeds
    ]
    for model, (family, seed) in zip(found, [(f, s) for f in families for s in seeds], strict=True):
        assert model.folder.resolve() == tiny_study.run_folder(family, seed)


def nothing(point, seed, folder):
    return {"x": seed}


def test_there_are_none(tmp_path):
    with pytest.raises(CorruptFileError, match="no saved model"):
        find_models(tmp_path)
    run_sweep({"seeds": 2}, tmp_path / "sweep", experiment=nothing, n_jobs=1, progress=False)
    with pytest.raises(CorruptFileError, match="kept no models"):
        find_models(tmp_path / "sweep")
