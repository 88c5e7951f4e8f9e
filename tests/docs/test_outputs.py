"""The blocks of Python in the pages run, and what they print stands below them.

    make outputs      # writes what blocks print now, where it is not what the page shows

The blocks of a page run in order, with the same names, in an empty folder. What a block prints is
the ``text`` block behind it. Words must be the same, numbers to two digits, seconds and
versions count not. A
comment behind the block of Python says if less holds:

- ``<!-- other CPUs: other numbers -->``: a model was trained, so only the first word of each line
  is compared, where one says no more than the other;
- ``<!-- other weights: … -->``: the weights are not ours, and the tests run the block with others;
- ``<!-- run by FILE -->``, before the block: what it takes is made by another test.
"""

from __future__ import annotations

import contextlib
import io
import os
import re
import shutil
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import cache
from pathlib import Path
from types import SimpleNamespace
from typing import Any, NamedTuple

import pandas as pd
import pytest
import torch

from tests.models.test_arena import random_state
from tl_dyck.certify.space_parser import transformations
from tl_dyck.probes import probes
from tl_dyck.report import figures
from tl_dyck.runs import experiments
from tl_dyck.studies import Measurement, StudyConfig, load_study, run_study
from tl_dyck.tasks import tasks
from tl_dyck_papers.wen_2023 import Scale
from tl_dyck_papers.wen_2023.evidence import Evidence

ROOT = Path(__file__).resolve().parents[2]
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").rglob("*.md"))]
PAGES = [page for page in PAGES if "```python" in page.read_text(encoding="utf-8")]
#: What pages register.
REGISTERED = {
    tasks: ("my-shuffle",),
    experiments: ("coin", "tosses"),
    probes: ("first-letter", "sink"),
    transformations: ("flip",),
}
#: What takes long: less of it, but in the slow tests. What a block prints then has the same labels.
SMALLER = {
    '"dyck-2-4", 28, "agree"': '"dyck-2-4", 6, "agree"',
    '"dyck-2-4", 8, "valid_token"': '"dyck-2-4", 4, "valid_token"',
    "certify_language(model, task, 20))": "certify_language(model, task, 8, most_run=500))",
    "drift_weight=0.03, target=None": "drift_weight=0.03, target=None, steps=40",
    "task, 60))  # decides": "task, 8))  # decides",
    '("uniform", seed) for seed in range(4)': '("uniform", seed) for seed in range(1)',
    '("balanced", seed) for seed in range(6)': '("balanced", 1)',
    "n_trials=3": "n_trials=1",
    '("uniform", "stack", "balanced") for seed in range(2)': '("balanced",) for seed in (0,)',
    'task, 60, "allowed"': 'task, 9, "allowed"',
    "n=200, long=True": "n=20, long=True",
    '"n_long": 10, "n_strings": 50}': '"n_long": 2, "n_strings": 5, "n_certified": 0}',
}
LONG = [page for page in PAGES if any(each in page.read_text("utf-8") for each in SMALLER)]
OTHER_NUMBERS, OTHER_WEIGHTS, RUN_BY = "<!-- other CPUs", "<!-- other weights", "<!-- run by "
_BLOCK = re.compile(
    r"````.*?````|(?P<by><!-- run by \S+ -->\n\n)?(?P<code>```python\n(?P<source>.*?)```\n)"
    r"(?P<note>\n<!-- other [^>]* -->\n)?(?P<shown>\n```text\n(?P<text>.*?)```\n)?",
    re.DOTALL,
)
_SECONDS = re.compile(r"\d[\d.e-]* s\b")
_VERSION = re.compile(r"(?<=torch |_lens )\d[\w.]*")
_NUMBER = re.compile(r"-?\d[\d,]*(?:\.\d+)?(?:e[+-]?\d+)?|\bnan\b")


class Block(NamedTuple):
    """A block of Python of a page, and what the page shows behind it."""

    source: str
    by: str
    note: str
    shown: str


def blocks_of(page: str) -> Iterator[tuple[re.Match[str], Block]]:
    """All but those of a page in the page, which is in four backticks."""
    for found in _BLOCK.finditer(page):
        if found["source"] is not None:
            shown = (found[name] or "" for name in ("by", "note", "text"))
            yield found, Block(found["source"], *shown)


def printed_by(source: str, names: dict[str, Any], name: str) -> str:
    """What a block prints, without bars of progress."""
    with contextlib.redirect_stdout(io.StringIO()) as said:
        exec(compile(source, name, "exec"), names)
    lines = [line.rstrip() for line in said.getvalue().splitlines() if "━" not in line]
    return "".join(f"{line}\n" for line in lines)


def labels(text: str) -> set[str]:
    """What each line begins with, if it is a word."""
    return set(re.findall(r"(?m)^\s*([^\W\d]\w*)", text))


def same(printed: str, shown: str, note: str = "") -> bool:
    """Whether a block prints what its page shows, as far as that is compared."""
    if note.strip().startswith(OTHER_WEIGHTS):
        return bool(printed and shown)
    if note.strip().startswith(OTHER_NUMBERS):
        ours, theirs = labels(printed), labels(shown)
        return bool(printed and shown) and (ours <= theirs or theirs <= ours)
    texts = [_SECONDS.sub("seconds", text) for text in (printed, shown)]
    texts = [_VERSION.sub("version", text) for text in texts]
    words = [_NUMBER.sub("#", text).split() for text in texts]
    numbers = [[float(each.replace(",", "")) for each in _NUMBER.findall(text)] for text in texts]
    return words[0] == words[1] and numbers[0] == pytest.approx(
        numbers[1], rel=0.02, abs=1e-5, nan_ok=True
    )


@pytest.fixture(scope="module")
def a_study(tmp_path_factory: pytest.TempPathFactory) -> Callable[[bool], Path]:
    """The first model of `tl-dyck study`, trained as there or in brief; copy its folder."""
    small = Measurement(
        n_accuracy=100, n_long=10, n_strings=50, n_certified=3, n_inserted=1, decided_length=6
    )

    @cache
    def study(brief: bool) -> Path:
        config = StudyConfig(families=("minimal-onehot",), seeds=(0,), measurement=small)
        if brief:
            config = replace(config, training=replace(config.training, steps=60, min_steps=60))
        folder = tmp_path_factory.mktemp("trained") / "study"
        return run_study(config, folder, n_jobs=1, progress=False).folder

    return study


def a_reproduction(folder: Path) -> SimpleNamespace:
    """Of 40 models of one group, all but one accurate: not trained."""
    models = pd.DataFrame({"group": "minimal-split-to-the-end", "accuracy": [0.98] * 39 + [0.9]})
    same = dict.fromkeys(("models", "heads", "checkpoints"), models)
    return SimpleNamespace(evidence=Evidence(folder=folder, scale=Scale(), **same))


def page_as_it_runs(page: Path, smaller: dict[str, str], **given: Any) -> str:
    """A page with what its blocks print now, where it is not what the page shows."""
    text, end = page.read_text(encoding="utf-8"), 0
    parts: list[str] = []
    names: dict[str, Any] = {"__name__": "page", **given}
    for found, block in blocks_of(text):
        if block.by:
            assert (ROOT / block.by.removeprefix(RUN_BY).partition(" ")[0]).exists()
            continue
        source, note = block.source, block.note
        for written, less in smaller.items():
            source = source.replace(written, less)
        if source != block.source:
            note = note or OTHER_NUMBERS
        printed = printed_by(source, names, page.name)
        if not same(printed, block.shown, note):
            shown = f"\n```text\n{printed}```\n" if printed else ""
            parts += [text[end : found.end("code")], found["note"] or "", shown]
            end = found.end()
    return "".join([*parts, text[end:]])


@pytest.mark.global_rng
@pytest.mark.parametrize(
    ("page", "smaller"),
    [
        *(pytest.param(page, SMALLER, id=page.relative_to(ROOT).as_posix()) for page in PAGES),
        *(pytest.param(page, {}, id=page.name, marks=pytest.mark.slow) for page in LONG),
    ],
)
def test_pages_show_what_their_blocks_print(
    page: Path,
    smaller: dict[str, str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    request: pytest.FixtureRequest,
) -> None:
    monkeypatch.chdir(tmp_path)
    torch.save(random_state(), "brackets_model_state_dict.pt")  # instead of ARENA's
    before = page.read_text(encoding="utf-8")
    trained = ('load_pretrained("results/study:minimal-onehot', "load_study(", 'load_model("one")')
    if any(each in before for each in trained):
        brief = bool(smaller) and os.environ.get("OUTPUTS") != "write"
        folder = request.getfixturevalue("a_study")(brief)
        study = load_study(shutil.copytree(folder, "results/study"))
        for name in ("one", "two"):
            (tmp_path / name).symlink_to(study.run_folder("minimal-onehot", 0).absolute())
    for rows in re.findall(r"```yaml\n(- about: .*?)```", before, re.DOTALL):
        Path("my-claims.yaml").write_text(rows, encoding="utf-8")
    monkeypatch.setattr(figures, "FIGURES", [*figures.FIGURES])
    try:
        after = page_as_it_runs(page, smaller, reproduction=a_reproduction(tmp_path))
    except ImportError as error:
        pytest.skip(f"{error}")
    finally:
        for registry, names in REGISTERED.items():
            for name in {*names} & {*registry.names()}:
                registry.unregister(name)
    if os.environ.get("OUTPUTS") == "write":
        page.write_text(after, encoding="utf-8")
    assert before == after, "what the page shows is not what is printed; to write it: make outputs"


@pytest.mark.parametrize(
    ("printed", "shown", "note", "alike"),
    [
        ("beta 0.4912, 5 in 1.2 s\n", "beta 0.4899, 5 in 88 s\n", "", True),
        ("beta 0.4912\n", "beta 0.4712\n", "", False),
        ("beta 0.4912\n", "gamma 0.4912\n", "", False),
        ("1,000 of 1e-17\n", "1,000 of 3e-16\n", "", True),
        ("", "beta 1\n", "", False),
        ("status proved\nerror 1\n", "status refuted\n", f"\n{OTHER_NUMBERS} -->\n", True),
        ("status proved\nerror 1\n", "status proved\nwrong 2\n", OTHER_NUMBERS, False),
        ("", "status proved\n", OTHER_WEIGHTS, False),
        ("status proved\n", "any\n", OTHER_WEIGHTS, True),
    ],
)
def test_what_is_compared(printed: str, shown: str, note: str, alike: bool) -> None:
    assert same(printed, shown, note) is alike


def test_what_is_made_smaller_stands_in_a_page() -> None:
    pages = "".join(page.read_text(encoding="utf-8") for page in PAGES)
    assert [written for written in SMALLER if written not in pages] == []


def test_blocks_are_found_with_what_stands_around_them() -> None:
    page = "a\n```python\nprint(1)\n```\n\n<!-- other CPUs: x -->\n\n```text\n1\n```\nb\n"
    page += "````markdown\n```python\nno\n```\n````\n```text\nof nobody\n```\n"
    page += "<!-- run by tests/x.py -->\n\n```python\nx = 2\n```\n"
    assert [block for _, block in blocks_of(page)] == [
        Block("print(1)\n", "", "\n<!-- other CPUs: x -->\n", "1\n"),
        Block("x = 2\n", "<!-- run by tests/x.py -->\n\n", "", ""),
    ]
