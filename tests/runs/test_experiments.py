"""What experiments a sweep can name, and that "train" trains and measures as a study does."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch

from tests.runs import toys
from tests.runs.test_execute import go
from tl_dyck.kit.registry import UnknownNameError
from tl_dyck.models import get_config
from tl_dyck.runs import (
    Experiment,
    SweepError,
    experiments,
    load_models,
    load_results,
    load_sweep,
    run_sweep,
    sweep_status,
)
from tl_dyck.runs.experiments import as_experiment
from tl_dyck.runs.store import point_id
from tl_dyck.studies import Measurement, TrainExperiment
from tl_dyck.studies.measurement import read_measures
from tl_dyck.tasks import load_task
from tl_dyck.training import TrainConfig, train
from tl_dyck.training import run as loop

MEASURE = {"n_accuracy": 100, "n_long": 10, "n_strings": 50}
TRAINING = {
    "steps": 15,
    "batch_size": 16,
    "check_every": 5,
    "check_size": 50,
    "checkpoint_every": 5,
    "target": None,
}
COMMON = {"task": "dyck-2-4", "training": TRAINING, "measure": MEASURE}
SWEEP = {
    "common": COMMON,
    "list": [{"model": "minimal-onehot"}, {"model": "gpt", "model.d_model": 8}],
    "seeds": [4],
}


# --- names ----------------------------------------------------------------------------------------


class Doubled:
    """An experiment with defaults, which define a run."""

    def prepare(self, point: dict[str, Any]) -> Product:
        if "x" not in point:
            raise SweepError("Doubled needs x")
        return Product({"factor": 2, **point})


@dataclass
class Product:
    """Its job."""

    point: dict[str, Any]

    def identity(self) -> dict[str, Any]:
        return self.point

    def run(self, seed: int, folder: Path) -> dict[str, Any]:
        return {"score": self.point["x"] * self.point["factor"]}


def test_functions_objects_classes_and_names(tmp_path):
    @experiments.register("doubled")
    class Registered(Doubled):
        """As third parties register theirs."""

    try:
        for number, given in enumerate(["doubled", Doubled(), Doubled]):
            assert isinstance(Doubled(), Experiment)
            done = run_sweep(
                {"common": {"x": 3}, "seeds": 1},
                tmp_path / f"{number}",
                experiment=given,
                n_jobs=1,
                progress=False,
            )
            assert done.done == 1
            table = load_results(tmp_path / f"{number}")
            assert list(table["score"]) == [6]
            assert list(table["experiment"]) == ["doubled" if number == 0 else "Doubled"]
        by_file = run_sweep(
            {"experiment": "doubled", "common": {"x": 3, "factor": 2}, "seeds": 1},
            tmp_path / "0",
            progress=False,
        )
        assert by_file.made == 0  # a default that is written out makes no other point
        with pytest.raises(SweepError, match="Doubled needs x"):
            go({"grid": {"y": [1]}}, tmp_path / "none", "doubled")
        assert not (tmp_path / "none").exists()
    finally:
        experiments.unregister("doubled")


def test_a_function_is_named_by_where_it_is():
    name, found = as_experiment(toys.nothing)
    assert name.endswith("tests.runs.toys.nothing")
    job = found.prepare({"x": 1})
    assert job.identity() == {"x": 1}
    assert job.run(2, Path()) == {"score": 12}


def test_what_has_no_name_is_refused():
    def inner(point: dict[str, Any], seed: int, folder: Path) -> dict[str, Any]:
        return {}

    for given in (inner, lambda point, seed, folder: {}, partial(toys.nothing)):
        with pytest.raises(SweepError, match="has no name by which its runs could be found again"):
            as_experiment(given)
    with pytest.raises(UnknownNameError, match="Did you mean 'train'"):
        as_experiment("trainn")


# --- train ----------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def trained(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("train") / "sweep"
    done = run_sweep(SWEEP, folder, n_jobs=1, progress=False)
    assert (done.done, done.failed) == (2, 0)
    return folder


def test_train_is_train_and_measure(trained, tmp_path):
    table = load_results(trained).set_index(["model", "seed"])
    assert set(table.index) == {("minimal-onehot", 4), ("gpt", 4)}
    task = load_task("dyck-2-4")
    for (family, seed), row in table.iterrows():
        config = get_config(family, task, **({"d_model": 8} if family == "gpt" else {}))
        folder = tmp_path / f"{family}-{seed}"
        result = train(
            config, task, seed=seed, options=TrainConfig(**TRAINING), folder=folder, progress=False
        )
        measured = Measurement(n_certified=0, decided_length=0, **MEASURE).measure(result, folder)
        assert row["outcome"] == result.status
        assert row["learned"] == result.learned
        assert row["steps"] == result.steps == 15
        assert {"accuracy", "long_accuracy", "loss", "entropy_gap", "balance_violation"} <= set(
            measured
        )
        for name, value in measured.items():
            assert row[name] == value or (value is None and row[name] != row[name])
        heads = read_measures(folder)["heads"]
        assert row["stack_likeness"] == max(head["argmax_at_closing"] for head in heads)
        (model,) = load_models(trained, {"model": family, "seed": seed})
        for name, weight in result.model.state_dict().items():
            assert torch.equal(model.state_dict()[name], weight)
        kept = {path.name for path in (trained / "runs" / row["id"][:2] / row["id"]).iterdir()}
        assert {"config.json", "measures.json", "patterns.safetensors"} <= kept


def test_spelling_of_defaults_makes_no_difference(trained):
    """Defaults written out, or nested not dotted, are the same runs; a differing value is not."""
    defaults = {
        "learning_rate": 6e-3,
        "warmup_steps": 100,
        "weight_decay": 0,
        "contrastive_weight": 0.0,
    }
    same = {
        "common": {
            "task": "dyck-2-4",
            **{f"training.{name}": value for name, value in {**TRAINING, **defaults}.items()},
            "measure": {**MEASURE, "n_certified": 0},
        },
        "list": [{"model.d_model": 8, "model": "gpt"}],
        "seeds": [4],
    }
    what = TrainExperiment()
    ids = {path.stem for path in trained.glob("points/*.json")}
    (point,) = load_sweep(same).points()
    assert point_id("train", what.prepare(point).identity()) in ids
    for name, value in {
        "training.steps": 16,
        "model.d_model": 16,
        "measure.n_long": 11,
        "task": "dyck-2-8",
    }.items():
        assert point_id("train", what.prepare({**point, name: value}).identity()) not in ids
    on_cpu = replace(what, device="cpu").prepare(point)
    assert what.prepare(point).identity() == on_cpu.identity()


def test_identity_of_training_is_for_ever():
    """If this changes, everything that anyone has trained in a sweep is trained again."""
    job = TrainExperiment().prepare({"task": "dyck-2-4", "model": "gpt"})
    assert point_id("train", job.identity()) == "6c2f6955cd1439c69ccf"


@pytest.mark.parametrize(
    ("point", "message"),
    [
        ({"model": "gpt"}, "needs the parameter 'task'"),
        ({"task": "dyck-2-4"}, "needs the parameter 'model'"),
        ({"task": "dyck-2-x", "model": "gpt"}, "dyck-2-x"),
        ({"task": "dyck-2-4", "model": "gtp"}, "Did you mean 'gpt'"),
        ({"task": "dyck-2-4", "model": "gpt", "lr": 1}, "unknown parameter 'lr'"),
        (
            {"task": "dyck-2-4", "model": "gpt", "training.stepz": 1},
            r"Did you mean 'training\.steps'",
        ),
        ({"task": "dyck-2-4", "model": "gpt", "training.steps": 0}, "steps must be at least 1"),
        (
            {"task": "dyck-2-4", "model": "gpt", "training.learning_rate": "fast"},
            "learning_rate|fast",
        ),
        ({"task": "dyck-2-4", "model": "gpt", "model.no_such": 1}, "no_such"),
        ({"task": "dyck-2-4", "model": "gpt", "measure.families": 1}, r"measure\.families"),
        ({"task": "dyck-2-4", "model": "gpt", "measure.n_long": -1}, "n_long"),
    ],
)
def test_bad_parameters_are_named_before_anything_runs(tmp_path, point, message):
    good = {"task": "dyck-2-4", "model": "gpt"}
    with pytest.raises((ValueError, TypeError), match=message):
        run_sweep({"list": [good, point]}, tmp_path / "sweep", progress=False)
    assert not (tmp_path / "sweep").exists()


def test_a_half_trained_run_goes_on_from_its_checkpoint(tmp_path, monkeypatch):
    """What is trained after an interruption is, bit for bit, what an undisturbed run trains."""
    sweep = {"common": {**COMMON, "model": "minimal-onehot"}, "seeds": 1}
    written, read = loop.write_checkpoint, loop.read_checkpoint
    steps: list[int] = []

    def interrupted(*args: Any, **kwargs: Any) -> Any:
        written(*args, **kwargs)
        raise KeyboardInterrupt

    def seen(*args: Any, **kwargs: Any) -> Any:
        found = read(*args, **kwargs)
        steps.append(0 if found is None else found[0].step)
        return found

    monkeypatch.setattr(loop, "read_checkpoint", seen)
    with monkeypatch.context() as context:
        context.setattr(loop, "write_checkpoint", interrupted)
        with pytest.raises(KeyboardInterrupt):
            run_sweep(sweep, tmp_path / "cut", n_jobs=1, progress=False)
    assert sweep_status(tmp_path / "cut").counts["interrupted"] == 1
    assert run_sweep(sweep, tmp_path / "cut", n_jobs=1, progress=False).made == 1
    assert steps == [0, 5]
    run_sweep(sweep, tmp_path / "whole", n_jobs=1, progress=False)
    (cut,), (whole,) = load_models(tmp_path / "cut"), load_models(tmp_path / "whole")
    for name, weight in whole.state_dict().items():
        assert torch.equal(cut.state_dict()[name], weight)
