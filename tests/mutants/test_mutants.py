"""The list of mutants still fits the code; whether they die, `make mutants` tries."""

from __future__ import annotations

import pytest

from tests.mutants.run import ROOT, load


@pytest.mark.parametrize("mutant", load(), ids=lambda mutant: mutant["file"])
def test_what_a_mutant_replaces_stands_once_in_its_file(mutant: dict[str, str]) -> None:
    assert set(mutant) == {"file", "is", "becomes", "tests"}
    assert mutant["is"] != mutant["becomes"]
    assert (ROOT / mutant["file"]).read_text(encoding="utf-8").count(mutant["is"]) == 1
    for test in mutant["tests"].split():
        assert (ROOT / test.partition("::")[0]).exists()
