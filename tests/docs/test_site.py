"""The site: demos, outputs of notebooks, formulas; nothing is fetched when it is read."""

from __future__ import annotations

import html
import json
import multiprocessing
import os
import re
import warnings
from pathlib import Path
from types import SimpleNamespace

import pytest

from tests.docs.test_docs import DOCS, ROOT, load
from tests.patience import PATIENCE as SECONDS
from tests.report.browsing import CHROMIUM, PATIENCE, browser_arguments

pytestmark = pytest.mark.once


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


def test_there_are_at_most_forty_one_pages_besides_the_reference():
    nav = (ROOT / "mkdocs.yml").read_text(encoding="utf-8").partition("\nnav:\n")[2]
    named = re.findall(r"([\w/]+\.md)$", nav, re.M)
    made = {path.relative_to(DOCS).as_posix() for path in DOCS.rglob("*.md")}
    assert sorted(named) == sorted(made | set(load(DOCS / "site.py").pages()))
    assert len([page for page in named if not page.startswith("api/")]) <= 41


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
    assert files["demos/p.html"].count("prefers-color-scheme: dark") == 1
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


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The documentation, built strictly (--quiet would hide warnings); notebooks not executed."""
    pytest.importorskip(
        "material", reason="mkdocs-material is not installed: make docs installs it"
    )
    folder, said = tmp_path_factory.mktemp("site"), tmp_path_factory.mktemp("said") / "log.txt"
    child = multiprocessing.get_context("fork").Process(target=built, args=(folder, said))
    child.start()
    child.join(SECONDS)
    assert child.exitcode == 0, said.read_text(encoding="utf-8")
    return folder


def built(folder: Path, said: Path) -> None:
    """What ``mkdocs build`` does, in a fork, which has imported what pages are made by."""
    from mkdocs.__main__ import cli

    os.dup2(os.open(said, os.O_WRONLY | os.O_CREAT), 2)
    os.chdir(ROOT)
    os.environ["NO_MKDOCS_2_WARNING"] = "1"
    warnings.resetwarnings()  # which are errors in tests
    cli(["build", "--strict", "--site-dir", str(folder)])


@pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")
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


@pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")
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
    assert 'id="tl_dyck.certify.certify_edits"' in pages["api/certify.html"].read_text(
        encoding="utf-8"
    )
