"""The list of mutants still fits the code; whether they die, `make mutants` tries."""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path

import pytest

from tests.mutants.run import ROOT, load


def test_what_a_mutant_replaces_stands_once_in_its_file() -> None:
    read = cache(Path.read_text)
    for mutant in load():
        assert set(mutant) == {"file", "is", "becomes", "tests"}
        assert mutant["is"] != mutant["becomes"]
        assert read(ROOT / mutant["file"], "utf-8").count(mutant["is"]) == 1, mutant
    for test in {test for mutant in load() for test in mutant["tests"].split()}:
        path = ROOT / test.partition("::")[0]
        files = [path] if path.is_file() else [*path.rglob("test_*.py")]
        assert files, test
        if "::" not in test:  # a copy has no pages: who reads one fails there with nothing broken
            assert not [file for file in files if reads_pages(file)]


@cache
def reads_pages(file: Path) -> bool:
    """Whether a file of tests names the folders of pages or demos."""
    return re.search(r'tests\.docs|"docs"|"demos"|README', file.read_text("utf-8")) is not None


def test_the_page_counts_the_checkers_mutants() -> None:
    files = [mutant["file"] for mutant in load()]
    page = (ROOT / "docs" / "findings" / "every_string.md").read_text(encoding="utf-8")
    assert f"breaks them in {sum('check_' in file for file in files)} ways" in page
    assert f"all {sum('check_two_layers' in file for file in files)} mutants" in page


ENGINE = [
    *(f"exact/{name}" for name in ("functional", "stages", "mlp", "region", "columns")),
    *(f"exact/{name}" for name in ("attention", "single", "loss_counts", "layout", "walks")),
    *(f"language/{name}" for name in ("forms", "boxes", "shells")),
]


@pytest.mark.parametrize("name", ENGINE)
def test_each_module_of_the_engine_has_mutants(name: str) -> None:
    assert sum(mutant["file"] == f"tl_dyck/certify/{name}.py" for mutant in load()) >= 3
