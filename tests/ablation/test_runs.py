"""Saved models: found, measured once, compared, kept, and loaded again."""

from __future__ import annotations

import json
import shutil
from dataclasses import replace

import pandas as pd
import pytest

from tests.ablation.conftest import CONFIG, experiment
from tests.recorded import numbers
from tl_dyck.files import CorruptFileError
from tl_dyck.models import build_model, get_config, save_model
from tl_dyck.runs import FailedRunsError, sweep_status
from tl_dyck.runs.saved import find_models
from tl_dyck.studies import heads
from tl_dyck.studies.ablation import AblateConfig, ablate_runs, load_ablation
from tl_dyck.tasks import list_tasks, load_task


def same(a: pd.DataFrame, b: pd.DataFrame) -> None:
    pd.testing.assert_frame_equal(a, b, check_dtype=False)


def test_experiment(ablation):
    numbers.check("ablation", numbers.of_ablation(ablation))
    groups = [f"gpt, 1 layer × 3 heads, {task}" for task in ("dyck-2-4", "dyck-2-4-prefix")]
    assert ablation.models["group"].tolist() == [group for group in groups for _ in range(2)]
    heads = ablation.comparison.heads
    assert list(heads.groupby(["group", "model"], sort=False).size()) == [3, 3, 3, 3]
    assert heads["model"].nunique() == 4
    assert {"zero", "gates", "leave-one-out", "stack-likeness", "entropy", "drift"} <= set(heads)
    assert set(ablation.trajectories["model"]) == set(ablation.models["model"])
    assert ablation.models["accuracy"].between(0, 1).all()
    found = [model for source in ablation.sources for model in find_models(source)]
    assert [model.folder.resolve().as_posix() for model in found] == ablation.models[
        "folder"
    ].tolist()


def test_it_is_kept_and_not_measured_again(ablation, monkeypatch):
    def fails(*arguments, **options):
        raise AssertionError("measured again")

    monkeypatch.setattr(heads, "measure_heads", fails)
    again = experiment(ablation.folder)
    loaded = load_ablation(ablation.folder)
    for found in (again, loaded):
        same(found.comparison.heads, ablation.comparison.heads)
        same(found.comparison.correlations, ablation.comparison.correlations)
        for name in ("models", "trajectories", "paths"):
            same(getattr(found, name), getattr(ablation, name))
        assert found.answers == ablation.answers
        assert (found.config, found.sources, found.versions) == (
            ablation.config,
            ablation.sources,
            ablation.versions,
        )
    saved = json.loads((ablation.folder / "ablation.json").read_text())
    assert len(saved["heads"]) == 12
    assert saved["config"]["finetune"]["penalties"] == [0.1, 0.2]
    assert [answer["text"] for answer in saved["answers"]] == [
        answer.text for answer in ablation.answers
    ]
    assert "torch" in saved["versions"]


def test_saved_models_give_what_they_gave_as_they_were_trained(ablation, tmp_path):
    """Found in the experiment's folder: the same numbers if measured as closely, else others."""
    config = AblateConfig(finetune=None, leave_one_out=None, n=CONFIG.n, n_bootstrap=5)
    again = ablate_runs([ablation.folder], tmp_path, config=config, n_jobs=1, progress=False)
    mine, theirs = again.comparison.heads, ablation.comparison.heads
    for name in ("zero", "mean", "resample", "gradient", "stack-likeness", "entropy"):
        assert mine[name].tolist() == theirs[name].tolist()
    assert again.models["accuracy"].between(0, 1).all()
    fewer = ablate_runs(
        [ablation.folder],
        tmp_path,
        config=AblateConfig(finetune=None, leave_one_out=None, n=3),
        n_jobs=1,
        progress=False,
    )
    assert fewer.comparison.heads["zero"].tolist() != mine["zero"].tolist()
    assert sweep_status(tmp_path).others == 4


def test_a_model_alone(tmp_path):
    """Without a run around it: complete strings of its language, or a task; frozen only."""
    save_model(build_model(get_config("gpt", "dyck-2-4", n_heads=2, d_model=8)), tmp_path / "mine")
    config = AblateConfig(finetune=None, leave_one_out=None, n=6, n_bootstrap=5)
    found = ablate_runs(
        [tmp_path / "mine"], tmp_path / "a", config=config, n_jobs=1, progress=False
    )
    assert found.comparison.heads["group"].unique().tolist() == [
        "gpt, 2 layers × 2 heads, complete strings"
    ]
    assert found.models["accuracy"].isna().all()
    assert found.trajectories.empty
    assert load_ablation(tmp_path / "a").models["metric"].isna().all()
    other = ablate_runs(
        [tmp_path / "mine"],
        tmp_path / "b",
        task="dyck-2-4-prefix",
        config=config,
        n_jobs=1,
        progress=False,
    )
    assert not other.comparison.heads["zero"].equals(found.comparison.heads["zero"])
    with pytest.raises(FailedRunsError, match="task 'dyck-3-4'"):
        ablate_runs(
            [tmp_path / "mine"],
            tmp_path / "c",
            task=load_task("dyck-3-4"),
            config=config,
            n_jobs=1,
            progress=False,
        )
    with pytest.raises(ValueError, match="named twice"):
        ablate_runs([tmp_path / "mine"] * 2, tmp_path / "d", config=config, n_jobs=1)


def test_a_task_that_is_not_what_its_name_stands_for(tmp_path):
    """A registered task with another q, and one that nobody registered, are sent whole."""
    save_model(build_model(get_config("gpt", "dyck-2-4", n_heads=2, d_model=8)), tmp_path / "mine")
    config = AblateConfig(finetune=None, leave_one_out=None, n=6, n_bootstrap=5)
    usual = load_task("dyck-2-4")
    found = {}
    for name, task in (
        ("usual", usual),
        ("q", replace(usual, q=0.9)),
        ("own", replace(usual, name="own", q=0.9)),
    ):
        ablation = ablate_runs(
            [tmp_path / "mine"], tmp_path / name, task=task, config=config, n_jobs=1, progress=False
        )
        found[name] = ablation.comparison.heads["zero"].tolist()
    assert found["usual"] != found["q"] == found["own"]
    assert "own" not in list_tasks()


def test_what_was_measured_otherwise_is_another_run(tmp_path):
    """A model of the same weights with other settings, in the same place."""
    config = AblateConfig(finetune=None, leave_one_out=None, n=6, n_bootstrap=5)

    def ablate(**options):
        save_model(
            build_model(get_config("gpt", "dyck-2-4", n_heads=2, d_model=8, **options)),
            tmp_path / "mine",
        )
        return ablate_runs(
            [tmp_path / "mine"], tmp_path / "a", config=config, n_jobs=1, progress=False
        )

    first, other, again = ablate(), ablate(eps=0.5), ablate()
    assert first.comparison.heads["zero"].tolist() != other.comparison.heads["zero"].tolist()
    assert first.comparison.heads["zero"].tolist() == again.comparison.heads["zero"].tolist()


@pytest.mark.parametrize("damage", ["gone", "another format", "a table is gone"])
def test_damaged_results(ablation, tmp_path, damage):
    for path in ablation.folder.glob("*.*"):
        shutil.copy(path, tmp_path)
    if damage == "gone":
        (tmp_path / "ablation.json").unlink()
    elif damage == "another format":
        (tmp_path / "ablation.json").write_text("[]")
    else:
        (tmp_path / "heads.parquet").unlink()
    with pytest.raises(CorruptFileError):
        load_ablation(tmp_path)
