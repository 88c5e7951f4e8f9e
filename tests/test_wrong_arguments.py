"""What users pass by mistake is refused in one line of ours: see `tests.arguments`."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from tests.arguments import __main__ as arguments
from tests.arguments.public import names, public
from tests.patience import PATIENCE
from tl_dyck import AutomatonTask, DyckLanguage, DyckTask, Vocabulary, get_config
from tl_dyck.kit.arguments import checked
from tl_dyck.kit.check import WrongTypeError, WrongValueError

pytestmark = pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")


ROOT = Path(__file__).resolve().parent.parent


def said(*options: str) -> str:
    """What `tests.arguments` prints, with whose process no test shares its own.

    A fork of this one has all imported; but if this one checks annotations at every call, as users'
    do not, it is a process from the start.
    """
    with tempfile.TemporaryFile("w+") as file:
        if os.environ.get("TL_DYCK_TEST_TYPES") == "1" or not hasattr(os, "fork"):
            command = [sys.executable, "-m", "tests.arguments", *options]
            done = subprocess.run(
                command, stdout=file, stderr=subprocess.PIPE, text=True, timeout=PATIENCE, cwd=ROOT
            )
            file.write(done.stderr if done.returncode else "")
        elif (child := os.fork()) == 0:
            os.dup2(file.fileno(), 1)
            sys.stdout = sys.stderr = open(1, "w", closefd=False)  # noqa: SIM115
            try:
                arguments.main(*options)
            except BaseException:
                traceback.print_exc()
            finally:
                sys.stdout.flush()
                os._exit(0)
        else:
            os.waitpid(child, 0)
        file.seek(0)
        return file.read()


@pytest.mark.parametrize("options", [["--third"], pytest.param([], marks=pytest.mark.slow)])
def test_whatever_is_wrong_for_a_parameter_is_refused_in_one_line(options: list[str]) -> None:
    """And integers of every kind are taken; a third of the values, or all."""
    assert said(*options) == "done\n"


LANGUAGE = DyckLanguage(2, 4)
#: What is one of several, or handed on by a name that no signature has.
INSIDE: list[Callable[[Any], Any]] = [
    lambda v: DyckTask(name="x", n_types=2, max_depth=4, train_lengths=(v,)),
    lambda v: DyckTask(name="x", n_types=2, max_depth=4, long_lengths=(2, v)),
    lambda v: AutomatonTask(
        name="p", symbols=("a", "b"), start=0, moves=lambda state: {"ab"[state]: 1 - state},
        counted=lambda state, symbol: True, long_lengths=(10, 20), train_lengths=(v,),
    ),
    lambda v: Vocabulary(LANGUAGE, (4, 5, 3, v), bos=9),
    lambda v: get_config("gpt", "dyck-2-4", n_ctx=v),
    lambda v: get_config("gpt", "dyck-2-4", n_ctx=60, d_model=v),
]  # fmt: skip


@pytest.mark.parametrize("call", INSIDE)
def test_inside_it_is_the_same(call: Callable[[Any], Any]) -> None:
    for kind in (np.int64, np.uint8):
        call(kind(60))
    for odd in (2.5, 2.0, None, "2", True, [2]):
        with pytest.raises(WrongTypeError):
            call(odd)


def test_every_public_function_is_tried() -> None:
    tried = {each.name for each in public()}
    assert {"certify_language", "adopt", "certify_edits", "judge_method", "train"} <= tried
    assert "text.train_text" in tried
    assert len(tried) > 200
    assert len(names()) > 150


@checked
def example(
    model: Any,
    n: int,
    names: "tuple[str, ...]" = (),
    *more: int,
    seed: int = 0,
    where: "str | Path | None" = None,
    share: float = 0.5,
    flag: bool = False,
    **rest: Any,
) -> int:
    return n


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        ({"n": 2.5}, WrongTypeError, "n must be an integer, got 2.5 (float)"),
        ({"n": True}, WrongTypeError, "n must be an integer, got True (bool)"),
        ({"model": None}, WrongTypeError, "model must be a model, got None (NoneType)"),
        ({"model": int}, WrongTypeError, "model must be a model, got <class 'int'> (type)"),
        ({"model": [1, 2]}, WrongTypeError, "model must be one model, not a list of 2"),
        ({"names": "ab"}, WrongTypeError, "names must be a sequence of texts, got 'ab' (str)"),
        ({"names": ("a", 1)}, WrongTypeError, "names must be a sequence of texts"),
        ({"seed": 2**64}, WrongValueError, "seed must be of at most 64 bits"),
        ({"where": ""}, WrongValueError, "where must be a path or None, got ''"),
        ({"share": "x"}, WrongTypeError, "share must be a number, got 'x' (str)"),
        ({"share": torch.zeros(2)}, WrongTypeError, "share must be a number, got torch.float32 of"),
        ({"flag": 1}, WrongTypeError, "flag must be True or False, got 1 (int)"),
    ],
)
def test_a_line_names_argument_and_value(
    arguments: dict[str, Any], error: type[Exception], message: str
) -> None:
    with pytest.raises(error) as raised:
        example(**{"model": abs, "n": 1, **arguments})
    assert message in str(raised.value)
    assert "\n" not in str(raised.value)


def test_right_arguments_are_handed_on_as_they_are() -> None:
    assert example(abs, np.int64(3), ["a"], 1, 2, where=Path("x"), share=1, other=None) == 3
    with pytest.raises(WrongTypeError, match="more must be an integer"):
        example(abs, 3, (), 1, "2")  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="missing 1 required positional argument"):
        example(abs)  # type: ignore[call-arg]
