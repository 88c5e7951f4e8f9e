"""A method in somebody's file, and what its author puts into a paper."""

from __future__ import annotations

import pickle
import re
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
import torch

from tl_dyck.judge import (
    JudgeError,
    Judgement,
    Question,
    judge_method,
    methods,
    score_heads,
    score_table,
)
from tl_dyck.judge.cases import sealed_case
from tl_dyck.judge.code import code_digest
from tl_dyck.judge.own import method_from_file
from tl_dyck.judge.scores import ask, oracle_rows
from tl_dyck.kit.registry import UnknownNameError

WORDS = """
from {helper} import size
from tl_dyck.judge import score_heads

number = 3

@score_heads(above=0.5)
def {method}(case):
    return [size(block.attn.W_O.detach()) for block in case.model.blocks]
"""


@pytest.fixture
def file(tmp_path: Path, request: Any) -> Iterator[Path]:
    """A file with a method and a helper beside it; both are forgotten afterwards."""
    stem = f"judged_{abs(hash(request.node.name)) % 10**6}"
    (tmp_path / f"{stem}_help.py").write_text("def size(w):\n    return w.norm(dim=(1, 2))\n")
    path = tmp_path / f"{stem}.py"
    path.write_text(WORDS.format(helper=f"{stem}_help", method=f"{stem}_loud"))
    before = [*sys.path]
    yield path
    sys.path[:] = before
    for name in (stem, f"{stem}_help"):
        sys.modules.pop(name, None)
    if f"{stem}_loud" in methods:
        methods.unregister(f"{stem}_loud")


def test_a_method_in_a_file_is_judged_as_a_registered_one(file: Path) -> None:
    name = method_from_file(f"{file}:{file.stem}_loud")
    assert method_from_file(f"{file}:{file.stem}_loud") == name  # again is the same
    function = methods.get(name)
    found = judge_method(name, [("uniform", 0)])
    pd.testing.assert_frame_equal(
        found.drop(columns="seconds"),
        judge_method(function.__wrapped__, [("uniform", 0)]).drop(columns="seconds"),  # type: ignore[attr-defined]
    )
    again = pickle.loads(pickle.dumps(function))
    assert code_digest(again) == code_digest(function)


def test_what_its_helper_does_is_its_code(file: Path) -> None:
    name = method_from_file(f"{file}:{file.stem}_loud")
    before = code_digest(methods.get(name))
    methods.unregister(name)
    helper = file.with_name(f"{file.stem}_help.py")
    helper.write_text("def size(w):\n    return 2 * w.norm(dim=(1, 2))\n")
    for module in (file.stem, helper.stem):
        del sys.modules[module]
    assert code_digest(methods.get(method_from_file(f"{file}:{name}"))) != before


def test_what_is_no_method_in_a_file(file: Path, tmp_path: Path) -> None:
    taken = tmp_path / "json.py"
    taken.write_text("def mine(case, questions): ...\n")
    zero = file.with_name(f"{file.stem}_zero.py")
    zero.write_text("def chance(case, questions): ...\n")
    for address, words in (
        ("mine", "path/to/file.py:method"),
        (f"{file}", "path/to/file.py:method"),
        (f"{tmp_path}/none.py:mine", "there is no file"),
        (f"{file}:number", "is no function"),
        (f"{taken}:mine", "has the name of a module that is imported"),
        (f"{zero}:chance", "the name of another method"),
    ):
        with pytest.raises(JudgeError, match=words):
            method_from_file(address)
    sys.modules.pop(zero.stem, None)
    with pytest.raises(UnknownNameError, match=f"{file.stem}_loud"):
        method_from_file(f"{file}:{file.stem}_lout")


def judgement() -> Judgement:
    """Of two cases, one of which is taken for a trained one."""
    sealed = sealed_case("uniform", 0)
    rows = [{"method": "oracle", **row} for row in oracle_rows(sealed)]
    rows += [
        {"method": name, **row}
        for name in ("ov-norm", "chance")
        for row in ask(name, methods.get(name), sealed)
    ]
    table = pd.DataFrame(rows).replace({"method": {"ov-norm": "my_norm"}})
    table = pd.concat([table, table.assign(model="trained", case="trained-1")])
    found = score_table(table, n_bootstrap=20)
    where = {"versions": {"tl-dyck": "7.8.9"}, "date": "1999-12-31"}
    return Judgement(
        folder=Path(), suite="tiny, 50%", answers=table, scores=found, environment=where
    )


@pytest.mark.parametrize(
    ("given", "said"),
    [
        (lambda shape: torch.zeros(shape[0] + 1, shape[1]), "[3, 2]"),
        (lambda shape: torch.zeros(shape[1]), "[2]"),
        (lambda shape: [[0.0] * (shape[1] + 1)] * shape[0], "[2, 3]"),
        (lambda shape: [[0.0], [0.0, 0.0]], "of which rows differ"),
        (lambda shape: 1.0, "1.0 (float)"),
    ],
)
def test_a_wrong_shape_is_told_with_the_one_that_is_wanted(given: Any, said: str) -> None:
    case: Any = sealed_case("uniform", 0, n_layers=2, n_heads=2).copy()
    method = score_heads(above=0.5)(lambda case: given((2, 2)))
    with pytest.raises(JudgeError) as error:
        method(case, [Question("needed", (1, 1))])
    assert str(error.value).startswith(
        "numbers of heads must have shape [layer, head] = [2, 2], got "
    )
    assert str(error.value).endswith(said)


def test_a_table_a_figure_and_a_citation() -> None:
    done = judgement()
    lines = done.to_latex("my_norm").splitlines()
    head = next(line for line in lines if line.startswith("method"))
    assert "needed & needed, trained & carries & carries, trained" in head
    (mine,) = (line for line in lines if "my" in line and not line.startswith("%"))
    assert mine.startswith(r"\textbf{my\_norm} & ")
    row = done.scores.loc[("my_norm", "needed")]
    assert f"{row['auroc']:.2f}" in mine.split(" & ")[1]
    cells = {line.count(" & ") for line in lines if line.endswith(r"\\")}
    assert len(cells) == 1
    assert f"{{l{'c' * cells.pop()}}}" in "\n".join(lines)
    few = done.to_latex("my_norm", "carries").splitlines()
    assert {line.count(" & ") for line in few if line.endswith(r"\\")} == {1}
    assert next(line for line in few if line.startswith("method")) == r"method & carries \\"
    said = done.cite()
    cff = (Path(__file__).parents[2] / "CITATION.cff").read_text(encoding="utf-8")
    paper = re.findall(r"(?:title|url): \"(.*)\"$", cff, re.M)[1:]  # that is tested
    assert len(paper) == 2
    for words in (
        done.digest,
        "7.8.9",
        r"tiny, 50\%",
        "@software{tl_dyck,",
        "year = {1999}",
        "2 models",
        *paper,
    ):
        assert words in said
    assert said.count("{") == said.count("}")
    figure = done.plot("my_norm", "needed")
    names = {trace.name: trace for trace in figure.data}
    assert {*names} == {"own method", "controls"}
    assert list(names["own method"].x) == pytest.approx([row["auroc"]])
    assert names["own method"].marker.color != names["controls"].marker.color
    assert len(done.plot(questions=["needed", "needed, trained"]).data) == 2 * 2
    for call in (lambda: done.plot("mine"), lambda: done.to_latex("mine")):
        with pytest.raises(UnknownNameError, match="my_norm"):
            call()
    for asked in (done.plot, done.to_latex):
        with pytest.raises(UnknownNameError, match="needed"):
            asked(questions="neded")
    assert not re.search(r"(?<!\\)[%#]", replace(done, suite="x").to_latex().partition("\n")[2])
