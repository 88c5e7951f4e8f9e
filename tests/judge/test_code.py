"""Changed code is another method; what a script registers is judged by all workers."""

from __future__ import annotations

import functools
import os
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from joblib.externals import loky

from tests.judge.methods.table import OWN
from tl_dyck.judge import Suite, judge_methods, methods, register_method
from tl_dyck.judge.code import code_digest
from tl_dyck.kit import workers
from tl_dyck.kit.arguments import checked

TINY = Suite(name="tiny", first_seed=0, sizes={"uniform": 1})


@pytest.fixture(autouse=True)
def nobody_has_mine() -> Iterator[None]:
    yield
    methods.unregister("mine")


def registered(method: Any) -> Any:
    register_method("mine", replace=True)(method)
    return methods.get("mine")


def scored(folder: Path, method: Any) -> float:
    """What stands in the table of a folder for one method, registered under one name."""
    registered(method)
    done = judge_methods(TINY, folder, ["mine"], n_jobs=1, progress=False)
    (score,) = set(done.answers.set_index("method").loc[["mine"], "score"])
    return float(score)


def same(value: float, case: Any, questions: Any) -> list[float]:
    return [value] * len(questions)


def closed_over(value: float) -> Any:
    return lambda case, questions: [value] * len(questions)


def by_default(value: float) -> Any:
    def method(case: Any, questions: Any, value: float = value) -> list[float]:
        return [value] * len(questions)

    return method


def by_array(value: float) -> Any:
    weights = np.full(3, value)
    return lambda case, questions: [float(weights[1])] * len(questions)


class Called:
    def __init__(self, value: float) -> None:
        self.value = value

    def __call__(self, case: Any, questions: Any) -> list[float]:
        return [self.value] * len(questions)

    def answer(self, case: Any, questions: Any) -> list[float]:
        return self(case, questions)


def wrapped(value: float) -> Any:
    @functools.wraps(same)
    def method(case: Any, questions: Any) -> list[float]:
        return same(value, case, questions)

    return method


SOURCE = """
import math

LIMIT = {limit}

class Helper:
    FACTOR = {factor}
    def times(self, value):
        return self.FACTOR * value

def helper(value):
    return Helper().times(value) + {term}

def method(case, questions):
    inner = lambda value: helper(value) {sign} LIMIT
    return [float(inner(1.0)) for _ in questions]
"""


def from_source(**parts: Any) -> Any:
    """As a notebook defines it: nothing in a file."""
    names = {"__name__": "__main__"}
    text = SOURCE.format(**{"limit": 1, "factor": 2, "term": 3, "sign": "+", **parts})
    exec(compile(text, "<cell>", "exec"), names)
    return names["method"]


#: Two methods that differ in nothing but what they say, and so are one before and after a change.
CHANGES: dict[str, tuple[Callable[[], Any], Callable[[], Any]]] = {
    "lambda": (lambda: lambda case, asked: [1.0] * len(asked),
               lambda: lambda case, asked: [2.0] * len(asked)),
    "closure": (lambda: closed_over(1.0), lambda: closed_over(2.0)),
    "partial": (lambda: functools.partial(same, 1.0), lambda: functools.partial(same, 2.0)),
    "default": (lambda: by_default(1.0), lambda: by_default(2.0)),
    "array": (lambda: by_array(1.0), lambda: by_array(2.0)),
    "object": (lambda: Called(1.0), lambda: Called(2.0)),
    "method of an object": (lambda: Called(1.0).answer, lambda: Called(2.0).answer),
    "wrapper": (lambda: wrapped(1.0), lambda: wrapped(2.0)),
    "helper": (from_source, lambda: from_source(term=4)),
    "constant of the module": (from_source, lambda: from_source(limit=7)),
    "attribute of a class": (from_source, lambda: from_source(factor=5)),
    "operator": (from_source, lambda: from_source(sign="-")),
}  # fmt: skip


@pytest.mark.parametrize("change", CHANGES)
def test_changed_code_has_another_digest_and_the_same_code_has_not(change: str) -> None:
    made = CHANGES[change]
    before, again, after = (code_digest(registered(made[at]())) for at in (0, 0, 1))
    assert before == again != after


def test_another_digest_is_scored_anew_and_the_same_is_not(tmp_path: Path) -> None:
    before, after = CHANGES["helper"]
    first = scored(tmp_path, before())
    files = {path.stat().st_mtime_ns for path in tmp_path.glob("runs/*/answers.parquet")}
    assert scored(tmp_path, before()) == first
    assert {path.stat().st_mtime_ns for path in tmp_path.glob("runs/*/answers.parquet")} == files
    second = scored(tmp_path, after())
    (wanted,) = set(after()(None, [None]))
    assert second == wanted != first
    assert scored(tmp_path, before()) == first  # and the old scores are still there


def test_comments_and_places_are_no_code() -> None:
    text = "def method(case, questions):\n    return [1.0] * len(questions)\n"
    found = []
    for source in (text, "\n# said\n\n" + text.replace("return", "# why\n    return")):
        names = {"__name__": "__main__"}
        exec(compile(source, f"<cell {len(source)}>", "exec"), names)
        found.append(code_digest(names["method"]))  # type: ignore[arg-type]
    assert found[0] == found[1]


def test_built_in_methods_have_digests_of_their_own() -> None:
    digests = {name: code_digest(methods.get(name)) for name in sorted(OWN)}
    assert len({*digests.values()}) == len(digests)
    assert digests == {name: code_digest(methods.get(name)) for name in sorted(OWN)}


def test_what_the_first_call_of_a_function_reads_is_no_code() -> None:
    @checked
    def ours(score: float) -> float:
        return score

    def method(case: Any, questions: list[Any]) -> list[float]:
        return [ours(1.0)] * len(questions)

    before = code_digest(method)
    assert method(None, [None]) == [1.0]
    assert code_digest(method) == before


SCRIPT = """
import os

FACTOR = {"one": 1.0, "two": {"of", "some", "order"}}

def made(value, path):
    def method(case, questions):
        from tl_dyck.judge import methods
        from tl_dyck.judge.code import code_digest

        with open(path, "a") as log:
            log.write(f"{os.getpid()} {case.name} {code_digest(methods.get('mine'))}\\n")
        return [value * FACTOR["one"]] * len(questions)
    return method
"""


def test_workers_judge_what_a_script_registers_and_know_it_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In workers, which have not read the script, sets have an order of their own."""
    monkeypatch.delenv("PYTHONHASHSEED", raising=False)
    pool = loky.ProcessPoolExecutor  # of one process, which takes seconds to import all
    monkeypatch.setattr(loky, "ProcessPoolExecutor", lambda size, **how: pool(1, **how))
    monkeypatch.setattr(workers, "_idle", pools := {})
    monkeypatch.setattr(methods, "_entries", dict(methods._entries))
    names, log = {"__name__": "__main__"}, tmp_path / "log"
    exec(compile(SCRIPT, "<script>", "exec"), names)
    made: Any = names["made"]
    digest = code_digest(registered(made(4.0, str(log))))
    register_method("zero-ablation", replace=True)(lambda case, questions: [5.0] * len(questions))
    both, suite = ["mine", "zero-ablation"], replace(TINY, sizes={"uniform": 2})
    done = judge_methods(suite, tmp_path / "judged", both, n_jobs=2, progress=False)
    scores = done.answers.groupby("method")["score"].unique()
    assert [list(scores[name]) for name in both] == [[4.0], [5.0]]
    asked = log.read_text()
    processes, cases, digests = zip(*(line.split() for line in asked.splitlines()), strict=True)
    assert str(os.getpid()) not in processes
    assert len({*cases}) == done.sizes[0] == 2
    assert {*digests} == {digest}
    judge_methods(suite, tmp_path / "judged", both, n_jobs=2, progress=False)
    assert log.read_text() == asked  # nothing was asked again
    for each in pools.values():
        each.shutdown(wait=True, kill_workers=True)
