"""What the documentation says of how often intervals cover is what they do."""

from __future__ import annotations

import math
import re

import pytest

from tests.docs.test_docs import DOCS, load

PAGE = (DOCS / "reading_the_report.md").read_text(encoding="utf-8")
COVERAGE = load(DOCS / "coverage.py")


def rows() -> dict[str, list[list[float]]]:
    """Law -> for each number of seeds, coverage of the mean and of other seeds' mean."""
    table = PAGE.partition("<!-- table: coverage -->")[2].partition("<!-- /table -->")[0]
    lines = [line.strip("| ").split(" | ") for line in table.strip().splitlines()[2:]]
    return {law: [[*map(float, re.findall(r"[\d.]+", cell))] for cell in of] for law, *of in lines}


@pytest.mark.parametrize("law", COVERAGE.LAWS)
def test_the_page_says_how_often_intervals_cover(law: str) -> None:
    for n, (mean, others) in zip(COVERAGE.SIZES, rows()[law], strict=True):
        for said, m in ((mean, math.inf), (others, n)):
            found = 100 * COVERAGE.covered(law, n, others=m, samples=10_000)
            assert found == pytest.approx(said, abs=1)


def test_every_law_and_no_other_is_in_the_table() -> None:
    assert [*rows()] == [*COVERAGE.LAWS]
    assert f"{len(COVERAGE.SIZES)}" in str(len(rows()["normal"]))
