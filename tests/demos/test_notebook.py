"""The demo notebooks run from top to bottom, and say what the text around them says."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

nbclient = pytest.importorskip("nbclient")
nbformat = pytest.importorskip("nbformat")

NOTEBOOKS = Path(__file__).parents[2] / "demos"


def text_of(cell: Any) -> str:
    """What a cell printed and displayed."""
    parts = [
        output.get("text") or output.get("data", {}).get("text/html") or output.get("data", {}).get("text/plain", "")
        for output in cell.outputs
        if output.get("name") != "stderr"
    ]
    return "\n".join(parts)


def execute(name: str, folder: Path) -> list[str]:
    """Run a notebook in a folder; what each code cell put out."""
    notebook = nbformat.read(NOTEBOOKS / name, as_version=4)
    client = nbclient.NotebookClient(notebook, timeout=300, kernel_name="python3")
    client.execute(cwd=str(folder))
    return [text_of(cell) for cell in notebook.cells if cell.cell_type == "code"]


@pytest.mark.parametrize("path", sorted(NOTEBOOKS.glob("*.ipynb")), ids=lambda path: path.stem)
def test_outputs_are_stripped_from_the_file(path: Path) -> None:
    notebook = nbformat.read(path, as_version=4)
    nbformat.validate(notebook)
    for cell in notebook.cells:
        if cell.cell_type == "code":
            assert cell.outputs == []
            assert cell.execution_count is None


@pytest.mark.filterwarnings("ignore")  # Jupyter's own
def test_myopic(tmp_path: Path) -> None:
    start, same, widget, probes, many, broken, honest, twins = execute("myopic.ipynb", tmp_path)
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
    variation, baseline = (float(re.search(rf"{word} (\d+\.\d+)", many)[1]) for word in ("layer 0:", "random"))  # type: ignore[index]
    assert variation > baseline
    assert "True False" in broken
    assert re.search(r"^1 +0\.5$", broken, re.M)
    assert re.search(r"^900 +0\.0$", broken, re.M)
    assert float(honest.rsplit(maxsplit=1)[-1]) < 1e-12
    assert "True - and in use by both: True" in twins
    assert "right: accuracy 100%" in twins
    assert "wrong: accuracy 0%" in twins


@pytest.mark.filterwarnings("ignore")  # Jupyter's own
def test_which_heads_matter(tmp_path: Path) -> None:
    _, decoy, frozen, path, tables, answers = execute("which_heads_matter.ipynb", tmp_path)
    rows = [re.findall(r"<td>([^<]*)</td>", row) for row in re.findall(r"<tr>(.*?)</tr>", decoy, re.DOTALL)]
    (useful, useless) = [[float(cell) for cell in row] for row in rows if row]
    assert useless == [1.0, 1.0, 0.0, 0.0, 0.0, 0.0]  # head, stack-likeness, and importance exactly 0
    assert useful[1] < 0.5
    assert all(value > 0.01 for value in useful[2:5])
    assert frozen.count("<tr") == 9
    assert "removed, first to last: ['L" in path
    open_heads = [int(line.split()[-1]) for line in path.splitlines() if re.match(r" *\d+ +0\.\d+", line)]
    assert open_heads == sorted(open_heads, reverse=True)
    assert open_heads[-1] < 8
    assert tables.count("<tr") == 9
    assert "with so few models" in answers
    assert "How far did the heads move meanwhile?" in answers
