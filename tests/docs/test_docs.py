"""The documentation: generated pages are current, examples run, all paths and names exist."""

from __future__ import annotations

import dataclasses
import doctest
import html
import importlib
import importlib.util
import json
import os
import pkgutil
import re
import shutil
import subprocess
import sys
from importlib import metadata
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pandas as pd
import pytest

import tl_dyck
import tl_dyck_hooks
from tests.report.browsing import CHROMIUM, PATIENCE, browser_arguments
from tl_dyck.report.page import Page
from tl_dyck.runs import load_sweep
from tl_dyck.studies.paper import Scale
from tl_dyck.studies.paper.evidence import Evidence

ROOT = Path(__file__).resolve().parents[2]
DOCS = ROOT / "docs"
MODULES = sorted(
    module.name
    for package in (tl_dyck, tl_dyck_hooks)
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
        for package in (tl_dyck, tl_dyck_hooks)
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


def test_getting_started_runs_from_top_to_bottom(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    run_all(blocks_of(DOCS / "getting_started.md", 5), "getting_started.md")
    printed = capsys.readouterr().out
    assert "torch.Size([1, 1, 5, 5])" in printed
    assert re.search(r"BalanceViolation\(beta=\d\.?\d*e-1\d", printed)
    assert "certified 1" in printed
    assert (tmp_path / "attention.html").stat().st_size > 10_000


def test_the_first_snippet_prints_what_readme_shows(capsys):
    """In words and shape; the last digits are a CPU's own."""
    first = {"end": "## Two commands"}
    run_all(blocks_of(ROOT / "README.md", 1, **first), "README.md")
    (shown,) = blocks_of(ROOT / "README.md", 1, "text", **first)
    number = re.compile(r"\d+\.\d+")
    printed = capsys.readouterr().out
    assert number.sub("#", printed) == number.sub("#", shown)
    figures = [[float(each) for each in number.findall(text)] for text in (printed, shown)]
    assert figures[0] == pytest.approx(figures[1], abs=1e-5)


@pytest.mark.global_rng
@pytest.mark.parametrize(
    ("page", "n_blocks", "end"), [("own_language.md", 3, ""), ("bring_your_own.md", 1, "## ARENA")]
)
def test_the_guides_to_what_is_your_own_run(page, n_blocks, end, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    blocks = blocks_of(DOCS / page, n_blocks, end=end)
    try:
        names = run_all(blocks, page)
    finally:
        tl_dyck.tasks.tasks.unregister("my-shuffle")
    printed = capsys.readouterr().out
    said = re.findall(r"print\(error\)\n# (.*)", blocks[-1]) or ["ClosingAccuracy("]
    assert said[0] in printed
    if "task" in names and page == "own_language.md":
        ours, theirs = tl_dyck.load_task("shuffle-dyck"), names["task"]
        assert theirs.sample(50, seed=0).equal(ours.sample(50, seed=0))
        assert theirs.entropy_floor == ours.entropy_floor


def test_the_changes_work_as_they_are_written(tiny_study, tmp_path, monkeypatch, capsys):
    """A thing of each kind that can be added, each in one place."""
    from tl_dyck.certify.parsing import transformations
    from tl_dyck.report.figures import FIGURES

    monkeypatch.chdir(tmp_path)
    page, part = ROOT / "CONTRIBUTING.md", ("## Seven changes", "## Rules")
    (rows,) = blocks_of(page, 1, "yaml", *part)
    Path("my-claims.yaml").write_text(rows, encoding="utf-8")
    study = dataclasses.replace(
        tiny_study, folder=Path(shutil.copytree(tiny_study.folder, tmp_path / "study"))
    )
    models = pd.DataFrame({"group": "minimal-split-to-the-end", "accuracy": [0.98] * 39 + [0.9]})
    evidence = Evidence(
        folder=tmp_path, scale=Scale(), models=models, heads=models, checkpoints=models
    )
    reproduction = SimpleNamespace(evidence=evidence)
    figures = list(FIGURES)
    try:
        blocks = blocks_of(page, 7, "python", *part)
        names = run_all(blocks, page.name, study=study, reproduction=reproduction)
    finally:
        FIGURES[:] = figures
        tl_dyck.runs.experiments.unregister("tosses")
        tl_dyck.probes.probes.unregister("sink")
        transformations.unregister("flip")
    names["command"](task="dyck-2-8", as_json=False)
    assert "dyck-2-8 is at most 8 deep." in capsys.readouterr().out
    assert len(names["table"]) == 8
    assert [head.shape for head in names["found"].values()] == [(1,), (1,)]
    assert "Steps until the target" in Path(names["page"]).read_text(encoding="utf-8")
    own = Page(title="Steps", lead="How long.", parts=[names["steps"](study)]).html
    assert "Steps until the target" in own
    assert names["space"].contains((0, 2, 1), (2, 0, 1))
    assert (names["norms"] > 0).all()
    assert len(names["norms"]) == 2
    (verdict,) = names["verdicts"].to_dict("records")
    assert verdict["measured"] == "98% [87%, 100%]"
    assert (verdict["rule"], verdict["verdict"]) == (
        "the share of models is above 90%",
        "undecided",
    )


def test_the_tree_names_every_room():
    text = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
    named = set(re.findall(r"^((?:tl_dyck|hooks|tests|demos|docs)/\S*) ", text, re.M))
    package = {
        f"tl_dyck/{path.name}{'/' * path.is_dir()}"
        for path in (ROOT / "tl_dyck").iterdir()
        if (path.is_dir() and (path / "__init__.py").exists())
        or (path.suffix == ".py" and path.stem != "__init__")
    }
    assert named == package | {"hooks/tl_dyck_hooks/", "tests/", "demos/", "docs/"}


def test_pages_of_the_root_link_to_what_the_site_has():
    site = load(DOCS / "site.py")
    there = {path.relative_to(DOCS).as_posix() for path in DOCS.rglob("*") if path.is_file()}
    there |= set(site.pages()) | {"live_playground.html"}
    there |= {f"checkers/{path.name}" for path in (ROOT / "tl_dyck/certify").glob("check_*.py")}
    linked = {
        (page, link)
        for page in ("index.md", "contributing.md", "changelog.md")
        for link in re.findall(r"\]\(([^)#:]+)(?:#[^)]*)?\)", site.pages()[page])
    }
    assert len(linked) > 20
    assert not [(page, link) for page, link in linked if link not in there]


def test_the_guide_to_sweeps_runs_from_top_to_bottom(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    sweeps = {"end": "## Trained models by name"}
    names = run_all(blocks_of(DOCS / "sweeps.md", 4, **sweeps), "sweeps.md")
    tl_dyck.runs.experiments.unregister("coin")
    printed = capsys.readouterr().out
    assert printed.count("long_accuracy") == 2  # of two families
    assert "AttentionVariation(layer 0" in printed
    assert "3 points tried, best: 0.0" in printed
    gaps = names["load_results"]("search").groupby("training.learning_rate")["entropy_gap"].mean()
    assert names["search"].best_params["learning_rate"] == gaps.idxmin()
    (sweep,) = blocks_of(DOCS / "sweeps.md", 1, "yaml", **sweeps)
    Path("depth.yaml").write_text(sweep, encoding="utf-8")
    assert load_sweep("depth.yaml").n_points == 8
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


def test_every_demo_stands_in_one_page_of_the_site():
    site = load(DOCS / "site.py")
    made = site.pages()
    texts = {path.relative_to(DOCS).as_posix(): path.read_text() for path in DOCS.rglob("*.md")}
    shown = {
        page: site.on_page_markdown(text, None, None, None) for page, text in (texts | made).items()
    }
    assert {path.name for path in (ROOT / "demos").glob("*.*")} == set(site.pages_of_demos())
    for name, page in site.pages_of_demos().items():
        title = site.parts(ROOT / "demos" / name)[0]
        assert f"[{title}](" in made["demos/index.md"]
        if name.endswith(".ipynb"):
            assert shown[page].startswith(f"# {title}\n")
        else:
            assert [at for at, text in shown.items() if f'??? example "{title}"' in text] == [page]
            last = (ROOT / "demos" / name).read_text(encoding="utf-8").strip().splitlines()[-1]
            assert f"\n    {last}\n" in shown[page]


def test_there_are_at_most_thirty_pages_besides_the_reference():
    nav = (ROOT / "mkdocs.yml").read_text(encoding="utf-8").partition("\nnav:\n")[2]
    named = re.findall(r"([\w/]+\.md)$", nav, re.M)
    made = {path.relative_to(DOCS).as_posix() for path in DOCS.rglob("*.md")}
    assert sorted(named) == sorted(made | set(load(DOCS / "site.py").pages()))
    assert len([page for page in named if not page.startswith("api/")]) <= 30


def test_what_a_cell_put_out_is_on_the_page():
    output = load(DOCS / "site.py").output
    files: dict[str, str] = {}

    def shown(markup: str, name: str = "x") -> str:
        data = {"text/html": [markup], "text/plain": ["plain"]}
        found: str = output({"output_type": "execute_result", "data": data}, name, files)
        return found

    noise = {"output_type": "stream", "name": "stderr", "text": ["a warning"]}
    assert output(noise, "x", files) == ""
    assert output(noise | {"name": "stdout"}, "x", files) == "```text\na warning\n```"
    plain = {"output_type": "execute_result", "data": {"text/plain": ["4", "2"]}}
    assert output(plain, "x", files) == "```text\n42\n```"
    table = shown("<div><style scoped>\n\n.x {}</style>\n<table>\n  <td>1</td></table></div>")
    assert table == '<div class="output-table"><div><table><td>1</td></table></div></div>'
    assert files == {}
    frame = shown('<iframe title="t" srcdoc="&lt;p&gt;&quot;" sandbox="" height="321">', "w")
    assert files == {"demos/w.html": '<p>"'}
    assert 'src="w.html" height="321"' in frame
    assert 'height="500"' in shown("<script>1</script>", "v")
    assert files["demos/v.html"] == "<script>1</script>"


REPOSITORY = "https://github.com/me/dyck"


def test_notebooks_open_in_colab_where_the_repository_has_an_address():
    site = load(DOCS / "site.py")
    path = ROOT / "demos" / "myopic.ipynb"
    badge = "colab.research.google.com"
    address = f"https://{badge}/github/me/dyck/blob/gh-pages/latest/demos/myopic.ipynb"
    assert f"[Open in Colab]({address})" in site.notebook(path, repository=REPOSITORY)
    assert f"[Open in Colab]({address})" in site.pages(None, REPOSITORY + "/")["demos/myopic.md"]
    for other in ("", "https://example.org/me/dyck"):  # Colab reads no other code host
        assert badge not in site.notebook(path, repository=other)
    plain = json.loads(path.read_text(encoding="utf-8"))
    assert json.loads(site.downloadable(path, "", run=False)) == plain
    nbformat = pytest.importorskip("nbformat")
    found = nbformat.reads(site.downloadable(path, REPOSITORY, run=False), as_version=4)
    nbformat.validate(found)
    title, install, *rest = found.cells
    assert title.source.startswith("# ")
    assert install.source.startswith(f'%pip install --quiet "tl-dyck[notebook] @ git+{REPOSITORY}"')
    assert [cell.source for cell in (title, *rest)] == [
        "".join(cell["source"]) for cell in plain["cells"]
    ]


@pytest.mark.parametrize("address", [None, REPOSITORY, REPOSITORY + "/"])
def test_pages_are_edited_where_they_are_made(address):
    site = load(DOCS / "site.py")
    config = SimpleNamespace(repo_url=address, extra={}, copyright="")
    assert ("version" in site.on_config(config).extra) == bool(address)
    sources = {
        "index.md": "README.md",
        "demos/myopic.md": "demos/myopic.ipynb",
        "glossary.md": "docs/glossary.md",
        "demos/index.md": None,
    }
    for page, source in sources.items():
        made = SimpleNamespace(file=SimpleNamespace(src_uri=page), edit_url="as it was")
        site.on_pre_page(made, config, None)
        wanted = f"{REPOSITORY}/edit/main/{source}" if source else None
        assert made.edit_url == (wanted if address else "as it was")
        assert source is None or (ROOT / source).exists()


def test_the_page_of_widgets_shows_what_its_blocks_make():
    made = load(DOCS / "site.py").live_widgets()
    page = (DOCS / "api" / "widgets.md").read_text(encoding="utf-8")
    assert re.findall(r"live_widget_(\d)", page) == [str(index) for index in range(len(made))]
    titles = [html.unescape(re.findall("<title>(.*?)</title>", each)[0]) for each in made]
    assert [title.partition(" ")[0] for title in titles] == ["Attention", "Tokens,", "Attention"]
    assert ["(circuitsvis)" in title for title in titles] == [True, True, False]


def test_a_plot_shares_the_script_of_all_plots():
    site = load(DOCS / "site.py")
    files: dict[str, str] = {}
    plot = {"data": [{"type": "scatter", "y": [1, 2]}], "layout": {"height": 300}}
    data = {"application/vnd.plotly.v1+json": plot}
    frame = site.output({"output_type": "display_data", "data": data}, "p", files)
    assert 'height="320"' in frame
    assert 'src="plotly.min.js"' in files["demos/p.html"]
    assert len(site._with_plotly(files)["demos/plotly.min.js"]) > 1e6
    assert site._with_plotly(None) == {}


def test_formulas_are_mathml():
    pytest.importorskip("latex2mathml", reason="latex2mathml is not installed: make docs does it")
    page = load(DOCS / "site.py").on_page_content(
        '<p>a <span class="arithmatex">\\(x \\lt y\\)</span> b</p>'
        '<div class="arithmatex">\\[\n\\frac{a}{b} &lt; 2\n\\]</div>$c$',
        None,
        None,
        None,
    )
    assert page.count("<math") == 2
    assert "<mfrac>" in page
    assert 'display="block"' in page
    assert "arithmatex" not in page
    assert page.endswith("$c$")


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
    packages = {f"tl_dyck.{name}" for name in {*tl_dyck._ORIGINS} - {*tl_dyck.__all__}}
    assert packages <= {*PUBLIC}
    assert {*tl_dyck.__all__} <= {name.rpartition(".")[2] for name in NAMED}
    assert len(ENTRIES) == len({*ENTRIES})


@pytest.mark.parametrize("entry", sorted(NAMED - {*MODULES}))
def test_what_the_reference_names_is_there(entry: str) -> None:
    module, _, name = entry.rpartition(".")
    assert hasattr(importlib.import_module(module), name)


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The documentation, built strictly (--quiet would hide warnings); notebooks not executed."""
    pytest.importorskip(
        "material", reason="mkdocs-material is not installed: make docs installs it"
    )
    folder = tmp_path_factory.mktemp("site")
    run = subprocess.run(
        [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", folder],
        cwd=ROOT,
        env={**os.environ, "NO_MKDOCS_2_WARNING": "1"},
        capture_output=True,
        text=True,
        timeout=600,
    )
    assert run.returncode == 0, run.stderr
    return folder


@pytest.mark.skipif(CHROMIUM is None, reason="there is no Chromium: apt-get install chromium")
def test_the_site_is_searched_from_disk(site):
    playwright = pytest.importorskip(
        "playwright.sync_api", reason="playwright is not installed: pip install playwright"
    )
    with playwright.sync_playwright() as player:
        browser = player.chromium.launch(executable_path=CHROMIUM, args=browser_arguments())
        page = browser.new_context(offline=True).new_page()
        page.goto((site / "index.html").as_uri())
        page.locator(".md-search__input").click()
        page.keyboard.type("balance violation")
        page.locator(".md-search-result__link").first.wait_for(timeout=PATIENCE)
        found = page.locator(".md-search-result__link").evaluate_all("all => all.map(a => a.href)")
        browser.close()
    assert any("theory/balance.html" in link for link in found)


def test_the_site_fetches_nothing_and_has_formulas(site):
    pages = {path.relative_to(site).as_posix(): path for path in site.rglob("*.html")}
    assert {"index.html", "theory/balance.html", "demos/certify.html", "api/certify.html"} <= set(
        pages
    )
    for name, path in pages.items():  # nothing is fetched when a page is read
        text = path.read_text(encoding="utf-8")
        assert not re.findall(r"<(?:script|link|img|iframe)[^>]+(?:src|href)=\"?https?:", text), (
            name
        )
    assert "<math" in pages["theory/balance.html"].read_text(encoding="utf-8")
    assert (site / "search" / "search_index.js").stat().st_size > 1e5
    assert not [name for name, path in pages.items() if "colab.research" in path.read_text("utf-8")]
    assert "md-source" not in pages["index.html"].read_text(encoding="utf-8")  # no repository yet
    assert 'src="assets/iframe-worker.js"' in pages["index.html"].read_text(encoding="utf-8")
    assert 'id="tl_dyck.certify.certify"' in pages["api/certify.html"].read_text(encoding="utf-8")
