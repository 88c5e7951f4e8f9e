"""The demo notebooks run from top to bottom, and say what the text around them says."""

from __future__ import annotations

import ast
import re
from pathlib import Path
from typing import Any

import pytest

nbformat = pytest.importorskip("nbformat")

NOTEBOOKS = Path(__file__).parents[2] / "demos"
VIEWS = [["AttentionHeads"], ["ColoredTokensMulti"]]  # of circuitsvis


def execute(
    name: str, capsys: pytest.CaptureFixture[str], instead: dict[str, str] | None = None
) -> list[str]:
    """What each code cell put out, in this process, with other sizes; `make docs` uses Jupyter."""
    names: dict[str, Any] = {"__name__": "__main__"}
    found, unused = [], set(instead or {})
    for cell in nbformat.read(NOTEBOOKS / name, as_version=4).cells:
        if cell.cell_type != "code":
            continue
        source = cell.source
        for written, smaller in (instead or {}).items():
            unused -= {written} if written in source else set()
            source = source.replace(written, smaller)
        tree = ast.parse(source)
        last = tree.body.pop() if isinstance(tree.body[-1], ast.Expr) else None
        exec(compile(tree, name, "exec"), names)
        value = (
            eval(compile(ast.Expression(last.value), name, "eval"), names)
            if isinstance(last, ast.Expr)
            else None
        )
        html = getattr(value, "_repr_html_", lambda: None)()
        shown = "" if value is None else html or repr(value)
        found.append("\n".join(part for part in (capsys.readouterr().out, shown) if part))
    assert not unused
    return found


@pytest.mark.parametrize("path", sorted(NOTEBOOKS.glob("*.ipynb")), ids=lambda path: path.stem)
def test_outputs_are_stripped_from_the_file(path: Path) -> None:
    notebook = nbformat.read(path, as_version=4)
    nbformat.validate(notebook)
    for cell in notebook.cells:
        if cell.cell_type == "code":
            assert cell.outputs == []
            assert cell.execution_count is None


def test_myopic(capsys: pytest.CaptureFixture[str]) -> None:
    start, same, widget, *circuits, probes, many, broken, honest, twins = execute(
        "myopic.ipynb",
        capsys,
        {
            "range(100)": "range(4)",
            "n=50": "n=8",
            "sample(1, 2000": "sample(1, 200",
            "epsilon=4,": "epsilon=4.0,",
        },
    )
    assert [re.findall(r"&quot;view&quot;:&quot;(\w+)&quot;", view) for view in circuits] == VIEWS
    assert "5.0000e-01" in start
    errors = [float(value) for value in re.findall(r"<td>(\d\.\d+e-\d+)</td>", same)]
    assert len(errors) == 4
    assert max(errors) < 1e-12
    assert same.count("<td>1.0</td>") == 4
    for name in ("stack", "uniform", "random-looking", "decoy"):
        assert name in widget
    assert "unpkg" not in widget  # it loads nothing from the network
    assert "<td>[1.0]</td>" in probes
    assert re.search(r"<td>\[0\.\d+, 1\.0\]</td>", probes)
    variation, baseline = (
        float(re.search(rf"{word} (\d+\.\d+)", many)[1]) for word in ("layer 0:", "random")
    )  # type: ignore[index]
    assert variation > baseline
    assert "True False" in broken
    assert re.search(r"^1 +0\.5$", broken, re.M)
    assert re.search(r"^900 +0\.0$", broken, re.M)
    assert float(honest.rsplit(maxsplit=1)[-1]) < 1e-12
    assert "True - and in use by both: True" in twins
    assert "right: accuracy 100%" in twins
    assert "wrong: accuracy 0%" in twins


@pytest.mark.filterwarnings("ignore")  # Jupyter's own
def test_which_heads_matter(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """What is said below holds however little is trained."""
    monkeypatch.chdir(tmp_path)
    smaller = {
        "TrainConfig(steps=300)": "TrainConfig(steps=10)",
        "n=100, finetune": "n=4, finetune",
        "task.sample(200": "task.sample(20",
        "(0.01, 0.04, 0.16), steps=40": "(0.1, 0.8), steps=10, gate_learning_rate=0.6",
    }
    _, decoy, frozen, path, tables, answers = execute("which_heads_matter.ipynb", capsys, smaller)
    rows = [
        re.findall(r"<td>([^<]*)</td>", row)
        for row in re.findall(r"<tr>(.*?)</tr>", decoy, re.DOTALL)
    ]
    (useful, useless) = [[float(cell) for cell in row] for row in rows if row]
    # head, stack-likeness, and importance exactly 0
    assert useless == [1.0, 1.0, *[0.0] * 4]
    assert useful[1] < 0.5
    assert all(value > 0.01 for value in useful[2:5])
    assert frozen.count("<tr") == 9
    assert "removed, first to last: ['L" in path
    open_heads = [
        int(line.split()[-1]) for line in path.splitlines() if re.match(r" *\d+ +0\.\d+", line)
    ]
    assert open_heads == sorted(open_heads, reverse=True)
    assert open_heads[-1] < 8
    assert tables.count("<tr") == 9
    assert "with so few models" in answers
    assert "How far did the heads move meanwhile?" in answers


def numbers(table: str) -> list[list[float]]:
    """The numbers of a data frame, row by row; cells of text are left out."""
    rows = re.findall(r"<tr>(.*?)</tr>", table.partition("<tbody>")[2], re.DOTALL)
    cells = [re.findall(r"<td>([^<]*)</td>", row) for row in rows]
    return [
        [float(cell) for cell in row if re.fullmatch(r"-?[\d.]+(e-?\d+)?", cell)] for row in cells
    ]


@pytest.mark.filterwarnings("ignore")  # Jupyter's own
def test_stack_like(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    accuracy, seeds, *circuits, measured, variation, decoy = execute(
        "stack_like.ipynb", capsys, {"range(3)": "range(2)", "n=500": "n=100", "=400": "=120"}
    )
    assert all(float(value) > 0.9 for value in re.findall(r"(\d\.\d+)$", accuracy, re.M))
    assert "<iframe" in seeds
    assert [re.findall(r"&quot;view&quot;:&quot;(\w+)&quot;", view) for view in circuits] == VIEWS
    *trained, parser = numbers(measured)
    assert parser[1:3] == [1.0, 1.0]  # layer, mass, argmax, chance
    assert len(trained) == 4  # two layers of two models
    assert max(row[1] for row in trained) < 0.5
    assert "layer 1" in variation
    assert "same logits: True" in decoy
    uniform, stack = re.findall(r"head \d +\S+ +\S+ +(\S+)", decoy)  # weight at )
    assert float(uniform) < 0.5 < float(stack) == 1.0


@pytest.mark.filterwarnings("ignore")  # Jupyter's own
def test_balance_and_length(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    _, table, plain, regularised, piling = execute(
        "balance_and_length.ipynb",
        capsys,
        {"n=300": "n=100", "n=60, long": "n=8, long", "=250": "=100"},
    )
    *trained, balanced = numbers(table)
    betas = [row[0] for row in trained]
    assert max(betas[2:]) < min(betas[:2])  # regularisation lowers it, whichever the seed
    assert balanced == [0.0, 1.0, 1.0]
    assert all(row[1] > 0.95 for row in trained)
    assert "<iframe" in plain
    assert "<iframe" in regularised
    rows = numbers(piling)
    assert {row[-1] for row in rows} == {1.0}  # balanced, however many pairs
    assert all(last < first - 0.1 for first, last in zip(rows[0][:4], rows[-1][:4], strict=True))


@pytest.mark.filterwarnings("ignore")  # Jupyter's own
def test_certify(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    accuracy, steps, one, many, hardest = execute("certify.ipynb", capsys, {"=300": "=100"})
    assert float(re.search(r"([\d.]+) ?%", accuracy)[1]) > 95  # type: ignore[index]
    assert float(re.search(r"logit: (\S+)", steps)[1]) < 1e-4  # type: ignore[index]
    assert re.match(r"[\d,]+ strings", one)
    trained, uniform = numbers(many)
    # ln 2: the right bracket has probability 1/2, either opening one 1/4
    assert uniform == [1.0, 0.6931, 0.0]
    assert trained[2] > 0.1
    assert "Certificate: " in hardest
