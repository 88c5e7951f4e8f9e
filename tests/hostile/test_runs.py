"""Checkpoints, and results of runs, that someone has been at."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.hostile.conftest import TASK
from tests.hostile.tools import JUNK, alter, refusal
from tl_dyck.files import read_json
from tl_dyck.training import load_result
from tl_dyck.training.checkpoint import CheckpointError, read_checkpoint

Make = Callable[[str], Path]
NAN, INFINITE = float("nan"), float("inf")


def identity(folder: Path) -> dict:
    return read_json(folder / "checkpoint.json")["identity"]


@pytest.mark.parametrize("junk", JUNK)
def test_files_that_are_none(original: Make, junk: str):
    folder, ended = original("checkpoint"), original("run")
    wanted = identity(folder)
    for path in (folder / "checkpoint.json", ended / "result.json"):
        path.write_bytes(JUNK[junk])
    refusal(lambda: read_checkpoint(folder, wanted), "checkpoint.json")
    refusal(lambda: load_result(ended), "result.json")


CHECKPOINT = {
    "a state elsewhere": (("tensors",), "../../secret.safetensors"),
    "a state in /etc": (("tensors",), "/etc/passwd"),
    "a state that is the folder": (("tensors",), "."),
    "a state with a null byte": (("tensors",), "state-4\0.safetensors"),
    "a state that is no name": (("tensors",), 5),
    "a state that is empty": (("tensors",), ""),
    "no state": (("tensors",), ...),
    "a state of the next step": (("tensors",), "state-5.safetensors"),
    "a state that is the description": (("tensors",), "checkpoint.json"),
    "a state of another step": (("step",), 10**12),
    "no step": (("step",), ...),
    "a step that is true": (("step",), True),
    "a step as text": (("step",), "4"),
    "no seconds": (("seconds",), ...),
    "no status": (("status",), ...),
    "no history": (("history",), ...),
    "a history of numbers": (("history",), [5]),
    "a history of lists": (("history",), [[]]),
    "a row of a step alone": (("history",), [{"step": 1}]),
    "no identity": (("identity",), ...),
    "an identity that is a text": (("identity",), "x"),
    "a task of nothing": (("identity", "task"), {}),
    "another format": (("format",), "tl_dyck.run/0"),
    "a step below zero": (("step",), -1),
    "a step that is a fraction": (("step",), 4.0),
    "seconds of NaN": (("seconds",), NAN),
    "seconds without end": (("seconds",), INFINITE),
    "seconds below zero": (("seconds",), -5.0),
    "seconds as text": (("seconds",), "1"),
    "an unknown status": (("status",), "owned"),
    "a status that is a list": (("status",), []),
    "a history that is a text": (("history",), "abc"),
    "a row of the history without a loss": (("history", 0, "loss"), ...),
    "an accuracy without end": (("history", 0, "accuracy"), INFINITE),
    "a loss without end": (("history", 0, "loss"), INFINITE),
    "a step of NaN": (("history", 0, "step"), NAN),
    "another digest": (("sha256",), "0" * 64),
    "no digest": (("sha256",), None),
}


@pytest.mark.parametrize("case", CHECKPOINT)
def test_checkpoints(original: Make, case: str):
    folder = original("checkpoint")
    wanted, (keys, value) = identity(folder), CHECKPOINT[case]
    alter(folder / "checkpoint.json", *keys, value=value)
    said = refusal(lambda: read_checkpoint(folder, wanted), str(folder))
    assert "raceback" not in said


RESULT = {
    "of another task": (("identity", "task", "n_types"), 3),
    "a task that is a text": (("identity", "task"), "dyck"),
    "an unknown field of the task": (("identity", "task", "owned"), 1),
    "options that are a list": (("identity", "options"), []),
    "no seed": (("identity", "seed"), ...),
    "a seed that is a text": (("identity", "seed"), "1"),
    "an unknown option": (("identity", "options"), {"step": 1}),
    "no step to be made": (("identity", "options", "steps"), 0),
    "steps as text": (("identity", "options", "steps"), "10"),
    "a step below zero": (("step",), -1),
    "a law beyond one": (("identity", "task", "q"), 2.0),
    "no task": (("identity", "task"), ...),
    "no identity": (("identity",), ...),
    "another width": (("identity", "model", "d_model"), 11),
    "another format": (("format",), "tl_dyck.run/0"),
    "seconds as text": (("seconds",), "1"),
    "a loss as text": (("history", 0, "loss"), "0.5"),
    "a loss without end": (("history", 0, "loss"), INFINITE),
    "an accuracy of NaN": (("history", 0, "accuracy"), NAN),
    "an accuracy of its number alone": (("accuracy",), {"n": 1}),
    "no accuracy": (("accuracy",), ...),
    "an accuracy that is a list": (("accuracy",), []),
    "seconds of NaN": (("seconds",), NAN),
    "seconds below zero": (("seconds",), -1),
    "no status": (("status",), None),
    "a history of numbers": (("history",), [1, 2]),
    "an accuracy without end": (("history", 0, "accuracy"), INFINITE),
}


@pytest.mark.parametrize("case", RESULT)
def test_results(original: Make, case: str):
    folder, (keys, value) = original("run"), RESULT[case]
    alter(folder / "result.json", *keys, value=value)
    refusal(lambda: load_result(folder), str(folder))


def test_a_state_that_is_gone_or_cut(original: Make):
    folder = original("checkpoint")
    (state,) = folder.glob("state-*.safetensors")
    state.write_bytes(state.read_bytes()[:-1])
    refusal(lambda: read_checkpoint(folder, identity(folder)), state.name, "truncated")
    state.unlink()
    said = refusal(lambda: read_checkpoint(folder, identity(folder)), state.name, "checkpoint.json")
    assert "if none is, delete" in said


def test_a_run_is_not_taken_for_another(original: Make):
    folder = original("checkpoint")
    with pytest.raises(CheckpointError, match="holds another run; it differs in seed"):
        read_checkpoint(folder, {**identity(folder), "seed": 7})
    assert load_result(original("run")).task == TASK
