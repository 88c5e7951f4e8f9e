"""README, the first steps, the guides and the theory have short sentences; README is short."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

pytestmark = pytest.mark.once

ROOT = Path(__file__).resolve().parents[2]
GUIDES = ("getting_started", "bring_your_own", "own_language", "playground", "command_line")
GUIDES += ("reading_the_report", "sweeps", "certify_language", "judge", "packages")
PAGES = [ROOT / "README.md", *(ROOT / "docs" / f"{name}.md" for name in GUIDES)]
PAGES += sorted((ROOT / "docs" / "theory").glob("*.md"))
PAGES.append(ROOT / "docs" / "what_we_got_wrong.md")
LONGEST = 30  # words
#: Code, formulas, tables that commands wrote, and comments: no sentences.
NO_PROSE = r"(?ms)^(`{3,}).*?^\1`*$|<!-- table.*?<!-- /table -->|<!--.*?-->|^    .*?$"


def sentences(text: str) -> list[str]:
    """The sentences of a page, a cell of a table at a time; code in a line counts as a word."""
    text = re.sub(r"(`+)[^`]*\1", "`", re.sub(NO_PROSE, "\n\n", text))
    text = re.sub(r"(?m)^(\||- |#+ )", r"\n\n\1", text)
    blocks = [" ".join(block.split()) for block in re.split(r"\n\s*\n", text)]
    cells = [
        cell for block in blocks for cell in (block.split("|") if block[:1] == "|" else [block])
    ]
    return [
        sentence
        for cell in cells
        for sentence in re.split(
            r"(?<=[.?!])[*\")]*\s+(?=[*\"(A-Z`0-9$\[])", re.sub(r"\bEq\.", "Eq", cell)
        )
    ]


def words(sentence: str) -> int:
    """How many words a reader reads: of a link, its text."""
    read = re.sub(r"\](?:\([^)]*\)|\[[^\]]*\])", "", sentence)
    return sum(bool(re.search(r"[`\w]", word)) for word in read.split())


def test_what_a_sentence_is() -> None:
    page = "# A b\n\nOne, of `x y` (Eq. 6). Two\nis [a link](b c.md)!\n"
    page += "\n```sh\nno\n```\n| a | b c |\n- d\n"
    found = [sentence for sentence in sentences(page) if words(sentence)]
    assert found == [
        "# A b",
        "One, of ` (Eq 6).",
        "Two is [a link](b c.md)!",
        " a ",
        " b c ",
        "- d",
    ]
    assert [words(sentence) for sentence in found] == [2, 5, 4, 1, 2, 1]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_no_sentence_is_long(page: Path) -> None:
    found = sentences(page.read_text(encoding="utf-8"))
    assert len(found) > 15
    assert [sentence for sentence in found if words(sentence) > LONGEST] == []


NUMBER = r"\d+(?:[.,]\d+)*"


def test_the_readme_is_read_to_the_end() -> None:
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    assert len(text.splitlines()) <= 120
    assert len(text.split()) <= 1300
    assert len(re.findall(NUMBER, text)) <= 120
    assert text.count("\n|---") == 1  # one table
    assert "recalled" not in text


#: Guides, each of which is read at one sitting; what was measured is in docs/findings.
SHORT = ("getting_started", "judge", "own_language", "playground", "command_line", "packages")
SHORT += (
    "reading_the_report",
    "certify_language",
    "certify_classifier",
    "bring_your_own",
    "sweeps",
)


@pytest.mark.parametrize("guide", SHORT)
def test_a_guide_is_read_at_one_sitting(guide: str) -> None:
    assert len((ROOT / "docs" / f"{guide}.md").read_text(encoding="utf-8").split()) <= 1500


#: Pages that scripts write whole.
WRITTEN = ("measured.md", "hook_names.md", "tools.md")
#: What nobody wrote as words: code, formulas, comments, what commands wrote, entries of docstrings.
NO_WORDS = NO_PROSE + r"|\$\$.*?\$\$|^::: .*?$|^\|[-|: ]+$"


def read_words(text: str) -> int:
    """What is read of a page: prose, headings and tables that people typed."""
    return words(re.sub(NO_WORDS, "\n", text).replace("|", " "))


def test_all_pages_together_are_read_in_a_day() -> None:
    """The count of words: without code, formulas, tables that commands wrote, and reference."""
    typed = "# A b\n\n| c | `d e` |\n|---|---|\n"
    written = "```\nx\n```\n<!-- table: t -->\ny\n<!-- /table -->\n$$z$$\n"
    assert read_words(typed + written) == 5
    pages = [*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")]
    counted = {
        page: read_words(page.read_text("utf-8")) for page in pages if page.name not in WRITTEN
    }
    assert len(counted) > 50
    total = sum(counted.values())
    assert total <= 40_000, f"{total:,} words; shorten a page, or one that nobody needs goes"
