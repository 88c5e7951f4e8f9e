"""The demo notebook runs from top to bottom, and says what the text around it says."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

nbclient = pytest.importorskip("nbclient")
nbformat = pytest.importorskip("nbformat")

NOTEBOOK = Path(__file__).parents[2] / "demos" / "myopic.ipynb"


def text_of(cell: Any) -> str:
    """What a cell printed and displayed."""
    parts = [
        output.get("text") or output.get("data", {}).get("text/html") or output.get("data", {}).get("text/plain", "")
        for output in cell.outputs
        if output.get("name") != "stderr"
    ]
    return "\n".join(parts)


@pytest.fixture(scope="module")
def outputs(tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    notebook = nbformat.read(NOTEBOOK, as_version=4)
    client = nbclient.NotebookClient(notebook, timeout=300, kernel_name="python3")
    client.execute(cwd=str(tmp_path_factory.mktemp("notebook")))
    return [text_of(cell) for cell in notebook.cells if cell.cell_type == "code"]


def test_outputs_are_stripped_from_the_file() -> None:
    notebook = nbformat.read(NOTEBOOK, as_version=4)
    nbformat.validate(notebook)
    for cell in notebook.cells:
        if cell.cell_type == "code":
            assert cell.outputs == []
            assert cell.execution_count is None


@pytest.mark.filterwarnings("ignore")  # Jupyter's own
def test_it_runs_and_is_right(outputs: list[str]) -> None:
    start, same, widget, probes, many, broken, honest, twins = outputs
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
