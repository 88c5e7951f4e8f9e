"""A study to report on whose every name is markup."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.report.browsing import CHROMIUM, Visit, browser_arguments
from tests.report.pages import Node, read_page
from tl_dyck import balance_violation, build_model, get_config
from tl_dyck.certify import certify_dyck
from tl_dyck.report import widgets, write_report
from tl_dyck.report.widgets import Widget
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
EVIL = DyckTask(name=EVIL_TASK, n_types=2, max_depth=4, brackets=EVIL_BRACKETS)


@pytest.fixture(scope="module")  # no longer than it is used: other tests list the tasks
def evil_study(tiny_study: Study, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Study]:
    """The tiny study with every name replaced by markup."""
    tasks.register(EVIL_TASK)(EVIL)
    folder = tmp_path_factory.mktemp("evil")
    names = dict(zip(tiny_study.config.families, EVIL_FAMILIES, strict=True))
    for old in names:
        for seed in tiny_study.config.seeds:
            kept = tiny_study.run_folder(old, seed)
            shutil.copytree(kept, folder / kept.relative_to(tiny_study.folder.resolve()))
    tables = {
        name: (table := getattr(tiny_study, name)).assign(family=table["family"].map(names))
        for name in ("models", "heads", "variation", "certificates", "languages", "history")
    }
    language = EVIL.language
    written = str.maketrans(dict(zip("[]()", EVIL_BRACKETS, strict=True)))
    columns = [("certificates", name) for name in ("prefix", "target", "worst_string")]
    columns += [("certificates", name) for name in ("worst_edits", "most_changed_string")]
    columns += [("languages", name) for name in ("likeliest", "may_follow", "predicted")]
    for name, column in columns:
        tables[name][column] = [
            text.translate(written) if isinstance(text, str) else text
            for text in tables[name][column]
        ]
    facts = ("families", "balance_and_length", "balance_and_change", "change_and_length")
    summary = {
        **tiny_study.summary,
        "probe_string": language.probe_string,
        **{
            fact: {names[name]: found for name, found in tiny_study.summary[fact].items()}
            for fact in facts
        },
    }
    config = replace(tiny_study.config, task=EVIL_TASK, families=EVIL_FAMILIES)
    made = {"folder": folder, "config": config, "task": EVIL, "summary": summary}
    yield replace(tiny_study, **made, **tables)
    tasks.unregister(EVIL_TASK)


@pytest.fixture(scope="package")  # no longer: its loop of events would be in the way of others'
def browser() -> Iterator[Any]:
    """The system's Chromium, headless."""
    playwright = pytest.importorskip(
        "playwright.sync_api", reason="playwright is not installed: pip install playwright"
    )
    if CHROMIUM is None:
        pytest.skip("there is no Chromium: apt-get install chromium")
    with playwright.sync_playwright() as player:
        launched = player.chromium.launch(executable_path=CHROMIUM, args=browser_arguments())
        yield launched
        launched.close()


@contextmanager
def opening(browser: Any) -> Iterator[Callable[..., Visit]]:
    """Opens pages, each once; none asks for anything or complains."""
    visits: dict[Any, Visit] = {}

    def open_page(
        path: Path, width: int = 1000, scheme: str = "light", *, touch: bool = False
    ) -> Visit:
        how = (path, width, scheme)
        if (*how, touch) not in visits:
            visits[(*how, touch)] = Visit(browser, *how, touch=touch)
        return visits[(*how, touch)]

    yield open_page
    for each in visits.values():
        assert each.said == []
        assert [url.partition("#")[0] for url in each.asked] == [each.asked[0]]
        each.context.close()


@pytest.fixture
def opened(browser: Any) -> Iterator[Any]:
    """Opens pages for one test."""
    with opening(browser) as open_page:
        yield open_page


def make_widgets(task: DyckTask) -> dict[str, Widget]:
    """One of each kind, of eight seeds; the string is "[(())](" in the task's brackets."""
    models = [build_model(get_config("minimal-onehot", task), seed=seed) for seed in range(8)]
    first, text = (
        models[0],
        "".join(task.language.alphabet[token] for token in (0, 2, 2, 3, 3, 1, 0)),
    )
    deep = task.language.tokenize(text)[:2].tolist()
    return {
        "attention": widgets.attention(build_model(get_config("gpt", task), seed=1), text),
        "seeds": widgets.attention_seeds(models, text),
        "balance": widgets.balance_heatmap(balance_violation(first)),
        "certificate": widgets.certificate(
            certify_dyck(first, task, prefixes=[deep], budget=1).rows[0], first
        ),
        "rnn": widgets.rnn_steps(first, text),
    }


#: Kinds of `make_widgets`.
WIDGETS = ("attention", "seeds", "balance", "certificate", "rnn")


@pytest.fixture(scope="module")
def report(tiny_study: Study, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The report of the tiny study."""
    return write_report(tiny_study, tmp_path_factory.mktemp("report") / "report.html")


@pytest.fixture(scope="module")
def page(report: Path) -> Node:
    """The same, read."""
    return read_page(report)
