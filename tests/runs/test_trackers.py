"""Results on their way to Weights & Biases: a stand-in that remembers, and the real one, off."""

from __future__ import annotations

import sys
import types
from pathlib import Path
from typing import Any

import pytest

from tests.runs import toys
from tests.runs.test_execute import go
from tl_dyck.runs.trackers import wandb_tracker


class FakeRun:
    """As much of a W&B run as is used."""

    def __init__(self, **init: Any) -> None:
        self.init, self.logged, self.finished = init, [], False

    def finish(self, exit_code: int) -> None:
        self.finished = True

    def log(self, values: dict[str, Any]) -> None:
        self.logged.append(values)


@pytest.fixture
def runs(monkeypatch) -> list[FakeRun]:
    made: list[FakeRun] = []

    def init(**arguments: Any) -> FakeRun:
        made.append(FakeRun(**arguments))
        return made[-1]

    module = types.ModuleType("wandb")
    module.init = init  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "wandb", module)
    return made


def test_one_run_one_step_each(runs, tmp_path: Path):
    with wandb_tracker("mine", group="g") as on_result:
        go({"grid": {"x": [1, 2]}, "seeds": 3}, tmp_path, toys.raises, on_result=on_result)
        assert not runs[0].finished
    (run,) = runs
    assert run.finished
    assert run.init == {"project": "mine", "group": "g"}
    assert len(run.logged) == 6
    assert [(found["x"], found["seed"]) for found in run.logged] == [
        (x, seed) for x in (1, 2) for seed in range(3)
    ]
    assert [found.get("score") for found in run.logged] == [0.0, None, 2.0] * 2
    assert [found["done"] for found in run.logged] == [1, 1, 2, 3, 3, 4]
    assert [found["failed"] for found in run.logged] == [0, 1, 1, 1, 2, 2]
    assert all(found["seconds"] >= 0 for found in run.logged)
    assert not {"host", "platform", "started", "id", "error", "status"} & set(run.logged[1])


def test_finished_when_the_sweep_fails(runs):
    with pytest.raises(OSError, match="disk"), wandb_tracker("mine"):
        raise OSError("disk")
    assert runs[0].finished


def test_nothing_is_imported_unless_asked_for(monkeypatch, tmp_path):
    monkeypatch.setitem(sys.modules, "wandb", None)  # to import it is an error
    go({"grid": {"x": [1]}, "seeds": 1}, tmp_path, toys.nothing)
    with pytest.raises(ImportError), wandb_tracker("mine"):
        pass


@pytest.mark.filterwarnings("ignore::DeprecationWarning:wandb", "ignore::ResourceWarning")
def test_the_real_one_switched_off(tmp_path, monkeypatch):
    pytest.importorskip("wandb")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("WANDB_MODE", "disabled")
    with wandb_tracker("mine") as on_result:
        done = go(
            {"grid": {"x": [1]}, "seeds": 2}, tmp_path / "sweep", toys.raises, on_result=on_result
        )
    assert (done.done, done.failed) == (1, 1)
    assert {path.name for path in tmp_path.iterdir()} == {"sweep"}
