"""Saved models: found, measured once, compared, kept, and loaded again."""

from __future__ import annotations

import json
import shutil
from dataclasses import replace
from functools import partial
from importlib.metadata import version
from pathlib import Path

import pandas as pd
import pytest

from tests.ablation.conftest import CONFIG, experiment
from tests.recorded import numbers
from tl_dyck.kit.files import CorruptFileError
from tl_dyck.models import build_model, get_config, save_model
from tl_dyck.runs import FailedRunsError, load_results, sweep_status
from tl_dyck.runs.saved import find_models
from tl_dyck.studies import heads
from tl_dyck.studies.ablation import AblateConfig, ablate_runs, load_ablation
from tl_dyck.tasks import list_tasks, load_task

quick = partial(ablate_runs, n_jobs=1, progress=False)
FROZEN_ONLY = AblateConfig(finetune=None, leave_one_out=None, n=6)


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
    assert ablation.config["finetune"]["penalties"] == [0.1, 0.2]
    assert ablation.versions["torch"] == version("torch")
    results = load_results(ablation.folder)
    assert ablation.models["metric"].tolist() == results["metric"].tolist()


def test_saved_models_give_what_they_gave_as_they_were_trained(ablation, tmp_path):
    """Found in the experiment's folder: the same numbers if measured as closely, else others."""
    config = replace(FROZEN_ONLY, n=CONFIG.n)
    again = quick([ablation.folder], tmp_path, config=config)
    mine, theirs = again.comparison.heads, ablation.comparison.heads
    for name in ("zero", "mean", "resample", "gradient", "stack-likeness", "entropy"):
        assert mine[name].tolist() == theirs[name].tolist()
    assert again.models["accuracy"].between(0, 1).all()
    fewer = quick([ablation.folder], tmp_path, config=replace(FROZEN_ONLY, n=3))
    assert fewer.comparison.heads["zero"].tolist() != mine["zero"].tolist()
    assert sweep_status(tmp_path).others == 4


def test_a_model_alone(tmp_path):
    """Without a run around it: complete strings of its language, or a task; frozen only."""
    save_model(build_model(get_config("gpt", "dyck-2-4", n_heads=2, d_model=8)), tmp_path / "mine")
    found = quick([tmp_path / "mine"], tmp_path / "a", config=FROZEN_ONLY)
    assert found.comparison.heads["group"].unique().tolist() == [
        "gpt, 2 layers × 2 heads, complete strings"
    ]
    assert found.models["accuracy"].isna().all()
    assert found.trajectories.empty
    assert load_ablation(tmp_path / "a").models["metric"].isna().all()
    other = quick([tmp_path / "mine"], tmp_path / "b", task="dyck-2-4-prefix", config=FROZEN_ONLY)
    assert not other.comparison.heads["zero"].equals(found.comparison.heads["zero"])
    with pytest.raises(FailedRunsError, match="task 'dyck-3-4'"):
        quick([tmp_path / "mine"], tmp_path / "c", task=load_task("dyck-3-4"), config=FROZEN_ONLY)
    with pytest.raises(ValueError, match="named twice"):
        quick([tmp_path / "mine"] * 2, tmp_path / "d", config=FROZEN_ONLY)


def test_a_task_that_is_not_what_its_name_stands_for(tmp_path):
    """A registered task with another q, and one that nobody registered, are sent whole."""
    save_model(build_model(get_config("gpt", "dyck-2-4", n_heads=2, d_model=8)), tmp_path / "mine")
    usual = load_task("dyck-2-4")
    found = {}
    for name, task in (
        ("usual", usual),
        ("q", replace(usual, q=0.9)),
        ("own", replace(usual, name="own", q=0.9)),
    ):
        ablation = quick([tmp_path / "mine"], tmp_path / name, task=task, config=FROZEN_ONLY)
        found[name] = ablation.comparison.heads["zero"].tolist()
    assert found["usual"] != found["q"] == found["own"]
    assert "own" not in list_tasks()


def test_what_was_measured_otherwise_is_another_run(tmp_path):
    """A model of the same weights with other settings, in the same place."""

    def ablate(**options):
        save_model(
            build_model(get_config("gpt", "dyck-2-4", n_heads=2, d_model=8, **options)),
            tmp_path / "mine",
        )
        return quick([tmp_path / "mine"], tmp_path / "a", config=FROZEN_ONLY)

    first, other, again = ablate(), ablate(eps=0.5), ablate()
    assert first.comparison.heads["zero"].tolist() != other.comparison.heads["zero"].tolist()
    assert first.comparison.heads["zero"].tolist() == again.comparison.heads["zero"].tolist()


@pytest.mark.parametrize(
    ("file", "content", "message"),
    [
        ("ablation.json", None, "ablation.json"),
        ("ablation.json", "[]", "does not hold an ablation"),
        ("ablation.json", {"runs": []}, "names no runs"),
        ("ablation.json", {"config": None}, "ablate again"),
        ("runs/*/*.json", None, "has no record of its run .*ablate again"),
        ("runs/*/*/trajectories.parquet", None, "to do this run again"),
    ],
)
def test_damaged_results(ablation, tmp_path, file, content, message):
    folder = Path(shutil.copytree(ablation.folder, tmp_path / "copy"))
    path = min(folder.glob(file))
    if isinstance(content, dict):
        content = json.dumps(json.loads(path.read_text()) | content)
    path.unlink()
    if content is not None:
        path.write_text(content)
    with pytest.raises(CorruptFileError, match=message):
        load_ablation(folder)
