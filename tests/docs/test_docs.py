"""The documentation: generated pages are current, examples run, all paths and names exist."""

from __future__ import annotations

import doctest
import html
import importlib
import importlib.util
import inspect
import json
import pkgutil
import re
from importlib import metadata
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

import tl_dyck
import tl_dyck_hooks
import tl_dyck_papers
import tl_dyck_text
from tl_dyck.runs import load_sweep

ROOT = Path(__file__).resolve().parents[2]
DOCS = ROOT / "docs"
PACKAGES = (tl_dyck, tl_dyck_hooks, tl_dyck_papers, tl_dyck_text)
MODULES = sorted(
    module.name
    for package in PACKAGES
    for module in pkgutil.walk_packages(package.__path__, f"{package.__name__}.")
)


def load(path: Path) -> ModuleType:
    """A script of the documentation, as a module."""
    spec = importlib.util.spec_from_file_location(f"docs_{path.stem}", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def pinned(package: str) -> str:
    (line,) = re.findall(
        rf"^{package}==(\S+)$", (ROOT / "constraints.txt").read_text(encoding="utf-8"), re.M
    )
    return line


# --- the table of hook names ----------------------------------------------------------------------


@pytest.mark.skipif(
    metadata.version("transformer_lens") != pinned("transformer-lens"),
    reason="the page lists the hooks of the TransformerLens that is pinned",
)
def test_hook_names_are_those_of_the_models():
    script = load(DOCS / "hook_names.py")
    assert script.PAGE.read_text(encoding="utf-8") == script.page(), (
        "run: python docs/hook_names.py"
    )


def test_what_transformer_lens_tools_do_is_what_the_page_says():
    script = load(DOCS / "tools.py")
    assert script.page() == script.PAGE.read_text(encoding="utf-8"), "run: python docs/tools.py"
    kept = json.loads((script.RESULTS / f"{script.MAJOR}.json").read_text(encoding="utf-8"))
    measured = script.measured()
    assert list(measured) == list(kept)
    for tool, families in measured.items():
        for family, ways in families.items():
            for way, said in ways.items():  # messages and last digits may differ by release
                if said != "not in this release":
                    assert said.split()[0] == kept[tool][family][way].split()[0], (tool, family)


# --- examples -------------------------------------------------------------------------------------


def examples() -> list[doctest.DocTest]:
    """Every docstring of the library that has an example, found without importing what has none."""
    found: dict[str, doctest.DocTest] = {}
    finder = doctest.DocTestFinder(exclude_empty=True)
    for name in MODULES:
        source = importlib.util.find_spec(name)
        if (
            source is None
            or source.origin is None
            or ">>>" not in Path(source.origin).read_text(encoding="utf-8")
        ):
            continue
        module = importlib.import_module(name)
        tests = finder.find(module, name, module=module)
        # jaxtyping wraps what has annotations, so that it no longer seems to be of this module
        for thing in vars(module).values():
            if getattr(thing, "__module__", None) == name and callable(thing):
                tests += finder.find(thing, f"{name}.{thing.__name__}", globs=vars(module).copy())
        found |= {test.name: test for test in tests if test.examples}
    return list(found.values())


EXAMPLES = examples()


@pytest.mark.parametrize("example", EXAMPLES, ids=lambda example: example.name)
def test_examples_are_shown_as_code(example: doctest.DocTest) -> None:
    """In a section of their own; elsewhere the reference takes them for nested quotations."""
    lines = inspect.cleandoc(example.docstring or "").splitlines()
    inside = False
    for line in lines:
        inside = line == "Examples:" or (inside and (not line or line.startswith("    ")))
        assert inside or ">>>" not in line


@pytest.mark.parametrize("example", EXAMPLES, ids=lambda example: example.name)
def test_docstring_examples(
    example: doctest.DocTest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    said: list[str] = []
    runner = doctest.DocTestRunner(optionflags=doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE)
    failed, _ = runner.run(example, out=said.append, clear_globs=False)
    assert failed == 0, "".join(said)


def test_there_are_examples_and_all_of_them_are_found():
    written = sum(
        path.read_text(encoding="utf-8").count(">>> ")
        for package in PACKAGES
        for path in Path(package.__path__[0]).rglob("*.py")
    )
    assert written == sum(len(example.examples) for example in EXAMPLES)
    assert written >= 10


def blocks_of(
    path: Path, n: int, kind: str = "python", start: str = "", end: str = ""
) -> list[str]:
    """The blocks of code of a page, or of a part of it; as many as it says."""
    text = path.read_text(encoding="utf-8")
    text = text[text.index(start) : text.index(end) if end else None]
    found = re.findall(rf"```{kind}\n(.*?)```", text, re.DOTALL)
    assert len(found) == n
    return found


def run_all(blocks: list[str], page: str, **names: Any) -> dict[str, Any]:
    """Run the blocks of a page, one after the other; the names that they have made."""
    names["__name__"] = "guide"
    for block in blocks:
        exec(compile(block, page, "exec"), names)
    return names


def test_the_guide_to_an_own_language_has_the_task_that_is_registered():
    names = run_all(blocks_of(DOCS / "own_language.md", 5)[:1], "own_language.md")
    tl_dyck.tasks.tasks.unregister("my-shuffle")
    ours, theirs = tl_dyck.load_task("shuffle-dyck"), names["my_shuffle"]()
    assert theirs.sample(50, seed=0).equal(ours.sample(50, seed=0))
    assert theirs.entropy_floor == ours.entropy_floor


def test_the_tree_names_every_room():
    text = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
    named = set(re.findall(r"^((?:tl_dyck|hooks|tests|demos|docs)/\S*) ", text, re.M))
    package = {
        f"tl_dyck/{path.name}{'/' * path.is_dir()}"
        for path in (ROOT / "tl_dyck").iterdir()
        if (path.is_dir() and path.name != "__pycache__")  # modules, or a study's records
        or (path.suffix == ".py" and path.stem != "__init__")
    }
    assert named == package | {f"hooks/{each.__name__}/" for each in PACKAGES[1:]} | {
        "tests/",
        "demos/",
        "docs/",
    }


def test_pages_of_the_root_link_to_what_the_site_has():
    site = load(DOCS / "site.py")
    there = {path.relative_to(DOCS).as_posix() for path in DOCS.rglob("*") if path.is_file()}
    there |= set(site.pages()) | {"live_playground.html"}
    there |= {f"checkers/{path.name}" for path in (ROOT / "tl_dyck/certify").glob("check_*.py")}
    linked = {
        (page, link)
        for page in ("index.md", "contributing.md", "changelog.md")
        for text in re.split(r"^```.*?^```$", site.pages()[page], flags=re.DOTALL | re.MULTILINE)
        for link in re.findall(r"\]\(([^)#:]+)(?:#[^)]*)?\)", text)
    }
    assert len(linked) > 20
    assert not [(page, link) for page, link in linked if link not in there]


def test_sweeps_of_the_guide_and_the_demo_are_read(tmp_path):
    (sweep,) = blocks_of(DOCS / "sweeps.md", 1, "yaml")
    (tmp_path / "depth.yaml").write_text(sweep, encoding="utf-8")
    assert load_sweep(tmp_path / "depth.yaml").n_points == 8
    assert load_sweep(ROOT / "demos" / "sweep.yaml").n_points == 8


# --- pages ----------------------------------------------------------------------------------------


def test_paths_that_the_pages_name_exist():
    pages = [*DOCS.rglob("*.md"), ROOT / "CONTRIBUTING.md"]
    named = {
        (page.name, path)
        for page in pages
        for path in re.findall(
            r"`((?:tests|demos|docs|tl_dyck|hooks)/[\w/.-]+)`", page.read_text(encoding="utf-8")
        )
    }
    assert len(named) > 20
    assert not [(page, path) for page, path in named if not (ROOT / path).exists()]


def test_the_guide_to_the_report_names_its_sections(tiny_study):
    from tl_dyck.report.study import study_page

    text = (DOCS / "reading_the_report.md").read_text(encoding="utf-8")
    titles = re.findall(r'<h2 id="[\w-]+-title">(.+?)</h2>', study_page(tiny_study))
    assert len(titles) > 10
    assert [title for title in titles if f"**{html.unescape(title)}**" not in text] == []


def test_the_glossary_is_in_order():
    text = (DOCS / "glossary.md").read_text(encoding="utf-8")
    words = [word.lower() for word in re.findall(r"^\| \*\*(.+?)\*\*", text, re.M)]
    assert words == sorted(words)


def test_what_agents_and_citations_are_told():
    text = (ROOT / "AGENTS.md").read_text(encoding="utf-8")
    targets = re.findall(r"^([a-z-]+):.*##", (ROOT / "Makefile").read_text("utf-8"), re.M)
    for names in re.findall(r"^make ([a-z ]+)", text, re.M):
        assert set(names.split()) <= set(targets)
    for path in re.findall(r"`((?:tl_dyck|hooks|docs)/[\w./]+)`", text):
        assert (ROOT / path).exists(), path
    cited = (ROOT / "CITATION.cff").read_text(encoding="utf-8")
    assert f"\nversion: {tl_dyck.__version__}\n" in cited


# Where users import from, as the first page of the reference says.
PUBLIC = re.findall(r"`(tl_dyck\.[\w.]+)`", (DOCS / "api" / "index.md").read_text(encoding="utf-8"))
REFERENCE = "\n".join(page.read_text(encoding="utf-8") for page in (DOCS / "api").glob("*.md"))
ENTRIES = re.findall(r"^::: (\S+)$", REFERENCE, re.M)
NAMED = {*ENTRIES, *re.findall(r"`(tl_dyck(?:\.\w+)+)`", REFERENCE)}


@pytest.mark.parametrize("package", PUBLIC)
def test_the_reference_lists_the_public_names_of_a_package_and_no_others(package: str) -> None:
    """An entry for each, or its full name in a text; submodules may be named too."""
    public = {f"{package}.{name}" for name in importlib.import_module(package).__all__}
    listed = {name for name in NAMED if name.rpartition(".")[0] == package}
    assert public - listed == set(), "not in docs/api"
    assert listed - public <= {*MODULES, *PUBLIC}, "not in __all__"


def test_the_reference_lists_what_tl_dyck_itself_offers() -> None:
    rooms = {*tl_dyck._ORIGINS} - {*tl_dyck.__all__}
    packages = {f"{tl_dyck._ORIGINS[name]}.{name}" for name in rooms}
    assert packages <= {*PUBLIC}
    assert {*tl_dyck.__all__} <= {name.rpartition(".")[2] for name in NAMED}
    assert len(ENTRIES) == len({*ENTRIES})


@pytest.mark.parametrize("entry", sorted(NAMED - {*MODULES}))
def test_what_the_reference_names_is_there(entry: str) -> None:
    module, _, name = entry.rpartition(".")
    assert hasattr(importlib.import_module(module), name)
