"""A study to report on whose every name is markup."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.report.browsing import CHROMIUM, Visit, browser_arguments
from tests.report.pages import Node, read_page
from tl_dyck.report import write_report
from tl_dyck.studies import Study
from tl_dyck.tasks import DyckTask, tasks

#: What users may name things; each would do something if it were not escaped.
EVIL_BRACKETS = (
    "<script>alert(1)</script>",
    "</script><b>",
    "<img src=x onerror=alert(2)>",
    "&lt;'\"]]>",
)
EVIL_FAMILIES = ("<img src=x onerror=alert(3)>", '"><script>alert(4)<')
EVIL_TASK = "</title><script>alert(5)<"


@pytest.fixture(scope="module")  # no longer than it is used: other tests list the tasks
def evil_study(tiny_study: Study, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Study]:
    """The tiny study with every name replaced by markup."""
    tasks.register(EVIL_TASK)(
        DyckTask(name=EVIL_TASK, n_types=2, max_depth=4, brackets=EVIL_BRACKETS)
    )
    folder = tmp_path_factory.mktemp("evil")
    names = dict(zip(tiny_study.config.families, EVIL_FAMILIES, strict=True))
    for old in names:
        for seed in tiny_study.config.seeds:
            kept = tiny_study.run_folder(old, seed)
            shutil.copytree(kept, folder / kept.relative_to(tiny_study.folder.resolve()))
    tables = {
        name: getattr(tiny_study, name).assign(
            family=getattr(tiny_study, name)["family"].map(names)
        )
        for name in ("models", "heads", "variation", "certificates", "languages", "history")
    }
    summary = tiny_study.summary
    language = tasks.get(EVIL_TASK).language
    written = str.maketrans(dict(zip("[]()", EVIL_BRACKETS, strict=True)))
    for column in ("prefix", "target", "worst_string", "worst_edits", "most_changed_string"):
        tables["certificates"][column] = [
            text.translate(written) for text in tables["certificates"][column]
        ]
    for column in ("likeliest", "may_follow", "predicted"):
        tables["languages"][column] = [
            text.translate(written) if isinstance(text, str) else text
            for text in tables["languages"][column]
        ]
    yield replace(
        tiny_study,
        folder=folder,
        config=replace(tiny_study.config, task=EVIL_TASK, families=EVIL_FAMILIES),
        task=tasks.get(EVIL_TASK),
        summary={
            **summary,
            "probe_string": language.probe_string,
            "probe_tokens": [
                "<bos>",
                *(language.alphabet[t] for t in language.tokenize(language.probe_string).tolist()),
            ],
            "families": {names[name]: facts for name, facts in summary["families"].items()},
            **{
                fact: {names[name]: facts for name, facts in summary[fact].items()}
                for fact in ("balance_and_length", "balance_and_change", "change_and_length")
            },
        },
        **tables,
    )
    tasks.unregister(EVIL_TASK)


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    """The system's Chromium, headless."""
    playwright = pytest.importorskip(
        "playwright.sync_api", reason="playwright is not installed: pip install playwright"
    )
    with playwright.sync_playwright() as player:
        launched = player.chromium.launch(executable_path=CHROMIUM, args=browser_arguments())
        yield launched
        launched.close()


@pytest.fixture
def opened(browser: Any) -> Iterator[Any]:
    """Opens a page, of which nothing is asked for and nothing complained about."""
    visits: list[Visit] = []

    def open_page(
        path: Path, width: int = 1000, scheme: str = "light", *, touch: bool = False
    ) -> Visit:
        visits.append(Visit(browser, path, width, scheme, touch=touch))
        return visits[-1]

    yield open_page
    for each in visits:
        assert each.said == []
        assert [url.partition("#")[0] for url in each.asked] == [each.asked[0]]
        each.context.close()


@pytest.fixture(scope="module")
def report(tiny_study: Study, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The report of the tiny study."""
    return write_report(tiny_study, tmp_path_factory.mktemp("report") / "report.html")


@pytest.fixture(scope="module")
def page(report: Path) -> Node:
    """The same, read."""
    return read_page(report)
