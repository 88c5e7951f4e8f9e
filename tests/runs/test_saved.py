"""Saved models are found, in order, with names to tell them apart."""

from __future__ import annotations

import re
import shutil
from pathlib import Path

import pytest

from tl_dyck import UnknownNameError
from tl_dyck.kit.files import CorruptFileError, MissingFileError
from tl_dyck.models import build_model, get_config, load_model, save_model
from tl_dyck.runs import run_sweep
from tl_dyck.runs.saved import find_model, find_models


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
    assert [model.name for model in found] == [
        f"mine/{name}" for name in ("eq6/seed-1", "gpt/seed-9", "gpt/seed-10")
    ]
    assert [model.name for model in find_models(tmp_path / "mine")] == [
        "eq6/seed-1",
        "gpt/seed-9",
        "gpt/seed-10",
    ]
    assert [model.name for model in find_models(tmp_path / "mine" / "gpt")] == ["seed-9", "seed-10"]
    (alone,) = find_models(tmp_path / "mine" / "gpt" / "seed-9")
    assert (alone.folder, alone.name) == (tmp_path / "mine" / "gpt" / "seed-9", "gpt/seed-9")


def test_by_a_short_path(tmp_path, tiny_study, monkeypatch):
    """From inside of a folder, beside the record of a run or any other JSON file of its name."""
    save_model(build_model(get_config("gpt", "dyck-2-4", d_model=8)), tmp_path / "mine")
    (tmp_path / "mine.json").write_text("{}")
    monkeypatch.chdir(tmp_path)
    assert [model.folder for model in find_models("mine")] == [Path("mine")]
    run = tiny_study.run_folder(tiny_study.config.families[0], tiny_study.config.seeds[0])
    monkeypatch.chdir(run.parent)
    name = f"{tiny_study.config.families[0]}/seed-{tiny_study.config.seeds[0]}"
    assert [(model.folder, model.name) for model in find_models(run.name)] == [
        (Path(run.name), name)
    ]


def nothing(point, seed, folder):
    return {"x": seed}


def test_there_are_none(tmp_path):
    with pytest.raises(CorruptFileError, match="no saved model"):
        find_models(tmp_path)
    run_sweep({"seeds": 2}, tmp_path / "sweep", experiment=nothing, n_jobs=1, progress=False)
    with pytest.raises(CorruptFileError, match="kept no models"):
        find_models(tmp_path / "sweep")


def test_a_model_is_found_again_by_what_it_is_called(tiny_study, tmp_path):
    """In a study, in a folder of models, and by a colon in the name of a folder."""
    odd = Path(shutil.copytree(tiny_study.folder, tmp_path / "a:b" / "study"))
    seed = tiny_study.config.seeds[-1]
    mine = save_model(
        build_model(get_config("gpt", "dyck-2-4", d_model=8)), tmp_path / "own" / "gpt" / "seed-3"
    )
    for family, place in (("gpt", tiny_study.folder), ("minimal-onehot", odd)):
        found = find_model(f"{place}:{family}/seed-{seed}")
        assert found.folder.name == tiny_study.run_folder(family, seed).name
        assert found == find_model(found.address)
    for address in (mine, tmp_path / "own", f"{tmp_path / 'own'}:gpt/seed-3", f"{tmp_path}:own"):
        assert find_model(address).folder == mine
    for saved in (*find_models(tiny_study.folder), *find_models(tmp_path / "own")):
        assert find_model(saved.address) == saved


def test_the_beginning_of_names_stands_for_all_of_them(tiny_study):
    seeds = tiny_study.config.seeds
    found = [saved.name for saved in find_models(f"{tiny_study.folder}:gpt")]
    assert found == [f"gpt/seed-{seed}" for seed in seeds]
    assert len(find_models(f"{tiny_study.folder}:")) == 2 * len(seeds)
    with pytest.raises(UnknownNameError, match=r"stands for 3 models; .*study:gpt/seed-0'"):
        find_model(f"{tiny_study.folder}:gpt")
    with pytest.raises(UnknownNameError, match="unknown model 'gp' in"):
        find_models(f"{tiny_study.folder}:gp")  # not letters: parts between slashes


def test_what_is_no_name_is_answered_with_the_nearest(tiny_study, tmp_path):
    with pytest.raises(UnknownNameError) as told:
        find_model(f"{tiny_study.folder}:minimal-onehott/seed-3")
    names = re.findall(r"[\w-]+/seed-\d", str(told.value).partition("There are ")[2])
    assert {name.partition("/")[0] for name in names[:3]} == {"minimal-onehot"}
    assert len(names) == 6
    with pytest.raises(MissingFileError, match=r"there is no folder .* as in results/study:gpt/"):
        find_model(tmp_path / "nowhere:gpt")


def test_names_lead_nowhere_else(tiny_study, tmp_path):
    save_model(build_model(get_config("gpt", "dyck-2-4", d_model=8)), tmp_path / "out")
    save_model(build_model(get_config("gpt", "dyck-2-4", d_model=8)), tmp_path / "in" / "a")
    for name in ("../out", "a/../../out", str(tmp_path / "out")):
        for place in (tmp_path / "in", tiny_study.folder):
            with pytest.raises(UnknownNameError):
                find_model(f"{place}:{name}")


def saving(point, seed, folder):
    save_model(build_model(get_config("gpt", "dyck-2-4", d_model=point["width"])), folder)
    return {"x": seed}


def test_a_name_is_the_present_sweeps_where_an_earlier_one_called_a_model_so(tmp_path):
    """Two sweeps in a folder, whose runs differ in what neither varies."""
    for width in (8, 12):
        sweep = {"common": {"width": width, "model": "gpt"}, "seeds": 1}
        run_sweep(sweep, tmp_path, experiment=saving, n_jobs=1, progress=False)
    first, second = find_models(tmp_path)
    assert load_model(find_model(f"{tmp_path}:gpt/seed-0").folder).cfg.d_model == 12
    assert load_model(find_model(second.address).folder).cfg.d_model == 8
    assert (first.name, second.name[:11]) == ("gpt/seed-0", "gpt/seed-0~")
    assert find_models(tmp_path, {"width": "8"}) == [second]
