"""What one method does to a case or to the process, no other method sees."""

from __future__ import annotations

import builtins
import decimal
import gc
import io
import locale
import logging
import os
import random
import signal
import sys
import tempfile
import time
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import scipy.stats  # noqa: F401 - sets filters of warnings, when it is first imported
import torch
import torch._dynamo  # what the first optimiser of a process loads, and leaves changed
from torch.nn import functional

from tests.judge.conftest import SHIPPED
from tl_dyck.judge import (
    JudgeError,
    Suite,
    judge,
    judge_methods,
    load_judgement,
    make_case,
    methods,
    scores,
)
from tl_dyck.judge.cases import sealed_case
from tl_dyck.judge.facts import all_prefixes
from tl_dyck.judge.isolation import left_alone
from tl_dyck.judge.scores import ask
from tl_dyck.language import DyckLanguage
from tl_dyck.runs import FailedRunsError

#: Its attention is not uniform, so that broken patterns show.
SUITE = [("balanced", 0)]
FOUND = ["question", "target", "answer", "score", "effect", "passes"]

Trick = Callable[[Any], Any]


def zero(tensor: Any, hook: Any) -> Any:
    return tensor * 0


def swap(case: Any) -> None:
    case.model.blocks[0].attn = torch.nn.Identity()


def spoil_weights(case: Any) -> None:
    with torch.no_grad():
        for parameter in case.model.parameters():
            parameter.zero_()


def grow_gradients(case: Any) -> None:
    case.model(case.tokens).sum().backward()


def replace_forward(case: Any) -> None:
    case.model.forward = lambda *_, **__: torch.zeros(1)


#: What is done to the case that was handed out: it is thrown away.
TO_THE_CASE: dict[str, Trick] = {
    "hook left on": lambda case: case.model.add_hook("blocks.0.attn.hook_z", zero),
    "weights in place": spoil_weights,
    "tokens in place": lambda case: case.tokens.fill_(int(case.tokens[0, 1])),
    "module swapped": swap,
    "gradients": grow_gradients,
    "configuration": lambda case: setattr(case.model.cfg, "n_heads", 7),
    "forward of the instance": replace_forward,
    "task": lambda case: object.__setattr__(case.task, "max_depth", 1),
    "torch's seed": lambda case: torch.manual_seed(1),
    "numpy's seed": lambda case: np.random.seed(1),  # noqa: NPY002
    "Python's seed": lambda case: random.seed(1),
}


def spoil_class(case: Any) -> None:
    type(case.model).forward = lambda *_, **__: torch.zeros(1)


def spoil_attention(case: Any) -> None:
    type(case.model.blocks[0].attn).forward = lambda self, *given, **_: given[0] * 0


def add_to_class(case: Any) -> None:
    type(case.model).hook_points = lambda self: []


def on_every_module(case: Any) -> None:
    torch.nn.modules.module.register_module_forward_hook(lambda *_: torch.zeros(1))


#: What is done to the process: it is put back, and who did it is named.
TO_THE_PROCESS: dict[str, tuple[Trick, str]] = {
    "forward of the class": (spoil_class, "attributes of "),
    "attention of the class": (spoil_attention, "attributes of "),
    "attribute of the class": (add_to_class, "attributes of "),
    "hook on every module": (on_every_module, "_global_forward_hooks"),
    "gradients off": (lambda case: torch.set_grad_enabled(False), "set_grad_enabled"),
    "default dtype": (lambda case: torch.set_default_dtype(torch.float16), "set_default_dtype"),
    "default device": (lambda case: torch.set_default_device("meta"), "set_default_device"),
    "threads": (lambda case: torch.set_num_threads(3), "set_num_threads"),
    "precision": (
        lambda case: torch.set_float32_matmul_precision("medium"),
        "set_float32_matmul_precision",
    ),
    "anomalies": (lambda case: torch.autograd.set_detect_anomaly(True), "set_anomaly_enabled"),
    "a function of torch": (lambda case: setattr(torch, "einsum", None), "attributes of torch"),
    "softmax": (lambda case: setattr(functional, "softmax", None), "functional"),
    "a method of tensors": (
        lambda case: setattr(torch.Tensor, "softmax", None),
        "attributes of Tensor",
    ),
    "numpy's errors": (lambda case: np.seterr(all="raise"), "numpy.seterr"),
    "how numpy prints": (lambda case: np.set_printoptions(precision=1), "numpy.set_printoptions"),
    "options of pandas": (
        lambda case: pd.set_option("display.precision", 1),
        "pandas.set_option",
    ),
    "folder": (lambda case: os.chdir(tempfile.gettempdir()), "os.chdir"),
    "environment, added": (lambda case: os.environ.update(OF_A_METHOD="1"), "os.environ"),
    "environment, taken away": (lambda case: os.environ.pop("PATH"), "os.environ"),
    "warnings not shown": (lambda case: warnings.simplefilter("ignore"), "warnings.filters"),
    "warnings shown elsewhere": (
        lambda case: setattr(warnings, "showwarning", print),
        "warnings.showwarning",
    ),
    "where modules are": (lambda case: sys.path.insert(0, "/nowhere"), "sys.path"),
    "what is printed": (lambda case: setattr(sys, "stdout", io.StringIO()), "sys.stdout"),
    "recursion": (lambda case: sys.setrecursionlimit(2000), "sys.setrecursionlimit"),
    "garbage": (lambda case: gc.disable(), "gc.disable"),
    "messages": (lambda case: logging.disable(logging.CRITICAL), "logging.disable"),
    "messages of a level": (lambda case: logging.root.setLevel(1), "logging's level"),
    "autocast": (lambda case: torch.set_autocast_enabled("cpu", True), "torch.autocast"),
    "a function of Python": (lambda case: setattr(builtins, "sorted", list), "of builtins"),
    "a function of numpy": (lambda case: setattr(np, "mean", np.max), "of numpy"),
    "rights of files": (lambda case: os.umask(0o777), "os.umask"),
    "what stops it": (lambda case: signal.signal(signal.SIGINT, signal.SIG_IGN), "signal.signal"),
    "decimals": (lambda case: setattr(decimal.getcontext(), "prec", 3), "decimal.getcontext"),
    "the smallest numbers": (lambda case: torch.set_flush_denormal(True), "set_flush_denormal"),
    "words of a country": (
        lambda case: locale.setlocale(
            locale.LC_ALL, "C" if locale.setlocale(locale.LC_ALL) != "C" else "C.UTF-8"
        ),
        "locale.setlocale",
    ),
    "how it is scored": (lambda case: setattr(scores, "ask", None), "of tl_dyck.judge.scores"),
    "the clock": (lambda case: setattr(time, "time", lambda: 0.0), "of time"),
}


@pytest.fixture(autouse=True)
def process_as_before() -> Iterator[None]:
    """A trick that is not undone fails its own test, and no other."""
    classes = frozenset().union(*(sealed_case(*pair).classes for pair in SUITE))
    with left_alone("this test", classes):
        yield


def answers() -> list[dict[str, Any]]:
    rows = []
    for pair in SUITE:
        rows += ask("zero-ablation", methods.get("zero-ablation"), sealed_case(*pair))
    return [{name: row[name] for name in FOUND} for row in rows]


@pytest.fixture(scope="module")
def alone() -> list[dict[str, Any]]:
    return answers()


@pytest.mark.global_rng  # a method may draw from it
@pytest.mark.parametrize("name", TO_THE_CASE)
def test_what_is_done_to_a_case_ends_with_it(name: str, alone: Any) -> None:
    asked(TO_THE_CASE[name])
    assert answers() == alone


def asked(trick: Trick) -> None:
    """Ask a method that does this to every case, once."""
    seen: set[str] = set()

    def trickster(case: Any, questions: Any) -> Any:
        if case.name not in seen:
            seen.add(case.name)
            trick(case)
        return [0.0] * len(questions)

    for pair in SUITE:
        ask("trickster", trickster, sealed_case(*pair))


@pytest.mark.parametrize("name", TO_THE_PROCESS)
def test_who_leaves_the_process_changed_is_named(name: str, alone: Any) -> None:
    trick, text = TO_THE_PROCESS[name]
    with pytest.raises(JudgeError, match=f"'trickster'.* left .*{text}.*changed"):
        asked(trick)
    assert answers() == alone


def test_a_method_that_goes_elsewhere_is_judged_here(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its run fails by name; the folder is found again, though it was named from here."""

    def wanderer(case: Any, questions: Any) -> list[float]:
        os.chdir(tempfile.gettempdir())
        return [0.0] * len(questions)

    suite = Suite(name="tiny", first_seed=0, sizes={"uniform": 1})
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(methods, "_entries", dict(methods._entries))
    methods.register("wanderer")(wanderer)
    with pytest.raises(FailedRunsError, match=r"'wanderer'.* left os.chdir changed"):
        judge_methods(suite, "here", ["wanderer"], n_jobs=1, progress=False)
    assert Path.cwd() == tmp_path
    done = judge_methods(suite, "here", ["chance"], n_jobs=1, progress=False)
    os.chdir("/")
    assert done.folder == tmp_path / "here"
    assert load_judgement(done.folder).digest == done.digest


def test_what_is_changed_before_an_error_is_put_back_too(alone: Any) -> None:
    def broken(case: Any, questions: Any) -> Any:
        torch.set_grad_enabled(False)
        spoil_attention(case)
        raise KeyError("lost")

    with pytest.raises(JudgeError, match=r"'broken'.*balanced-0.* raised KeyError: 'lost'"):
        judge(broken, SUITE)
    assert answers() == alone


def test_questions_are_the_methods_own(alone: Any) -> None:
    def trickster(case: Any, questions: Any) -> list[float]:
        n = len(questions)
        for question in questions:
            object.__setattr__(question, "kind", "stack")
            object.__setattr__(question, "target", (99,))
        questions.clear()
        return [1.0] * n

    rows = [row for pair in SUITE for row in ask("trickster", trickster, sealed_case(*pair))]
    kinds = {fact.question.kind for pair in SUITE for fact in sealed_case(*pair).facts}
    assert {row["question"] for row in rows} == kinds
    assert answers() == alone


def test_facts_that_are_changed_are_not_those_that_are_asked(alone: Any) -> None:
    def trickster(case: Any, questions: Any) -> list[float]:
        made = [make_case(*pair) for pair in SUITE]  # who knows the seeds can make the cases
        copy, facts = next((each, facts) for each, facts in made if each.name == case.name)
        spoil_weights(copy)
        known = {fact.question: fact.answer for fact in facts}
        return [1.0 if known[question] else -1.0 for question in questions]

    assert (judge(trickster, SUITE)["accuracy"] == 1).all()
    assert answers() == alone


@pytest.mark.global_rng
def test_chance_of_a_method_does_not_hang_on_who_was_before() -> None:
    def drawing(case: Any, questions: Any) -> list[float]:
        found = torch.randn(()), np.random.normal(), random.random()  # noqa: NPY002
        return [float(sum(found))] * len(questions)

    def scores() -> list[float]:
        return [row["score"] for row in ask("drawing", drawing, sealed_case(*SUITE[0]))]

    first = scores()
    before = torch.get_rng_state(), np.random.get_state()[1].copy(), random.getstate()  # noqa: NPY002
    torch.rand(3), np.random.rand(3), random.random()  # noqa: NPY002
    drawn = torch.get_rng_state()
    assert scores() == first
    assert len(set(first)) > 1  # a seed for each kind of question
    assert torch.equal(torch.get_rng_state(), drawn)  # and of this process nothing is drawn
    assert not torch.equal(before[0], drawn)


def test_a_copy_is_the_case_and_shares_nothing_with_it() -> None:
    for kind, seed in (("twins", 0), ("trained", SHIPPED)):
        sealed = sealed_case(kind, seed)
        one, other = sealed.copy(), sealed.copy()
        assert torch.equal(one.model(one.tokens), other.model(other.tokens))
        for mine, yours in zip(one.model.parameters(), other.model.parameters(), strict=True):
            assert torch.equal(mine, yours)
            assert mine.requires_grad == yours.requires_grad
            assert mine.untyped_storage().data_ptr() != yours.untyped_storage().data_ptr()
        assert one.tokens.data_ptr() != other.tokens.data_ptr()
        assert one.task is not other.task
        assert one.model.cfg is not other.model.cfg


def test_prefixes_that_a_method_spoils_are_its_own() -> None:
    language = DyckLanguage(2, 2)
    taken = all_prefixes(language, 5)
    before = taken.clone()
    taken.zero_()
    assert torch.equal(all_prefixes(language, 5), before)


@pytest.mark.parametrize("itself", [False, True])
def test_what_an_import_leaves_behind_is_no_methods_doing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, itself: bool
) -> None:
    """Packages change settings when they are first imported; who does so himself is refused."""
    (tmp_path / "a_package_of_somebody.py").write_text("import os\nos.environ['OF_IMPORT'] = '1'\n")
    monkeypatch.syspath_prepend(tmp_path)

    def lazy(case: Any, questions: Any) -> list[float]:
        import a_package_of_somebody  # noqa: F401

        if itself:
            os.environ["OF_METHOD"] = "1"
        return [1.0 for _ in questions]

    try:
        if itself:
            with pytest.raises(JudgeError, match=r"left os\.environ changed"):
                judge(lazy, SUITE)
        else:
            assert (judge(lazy, SUITE)["answered"] == 1).all()
    finally:
        sys.modules.pop("a_package_of_somebody", None)
    assert not {"OF_IMPORT", "OF_METHOD"} & {*os.environ}


def test_a_part_of_numpy_may_be_loaded_and_not_replaced(monkeypatch: pytest.MonkeyPatch) -> None:
    """NumPy loads parts of itself when they are asked for, and cannot load one a second time."""
    monkeypatch.delattr(np, "fft", raising=False)
    with left_alone("who loads it", frozenset()):
        np.fft = sys.modules["numpy.fft"]
    assert np.fft is sys.modules["numpy.fft"]
    with pytest.raises(JudgeError, match="attributes of numpy"), left_alone("who", frozenset()):
        np.fft = random
    assert np.fft is sys.modules["numpy.fft"]
