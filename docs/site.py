"""Pages and parts of pages made from files elsewhere: README, CONTRIBUTING, CHANGELOG, demos."""

from __future__ import annotations

import hashlib
import html
import json
import os
import re
import textwrap
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
_KINDS = {".ipynb": "notebook", ".py": "script", ".yaml": "sweep"}
_FIRST = "demos/myopic.md"  # to begin with
#: A plot is drawn for white pages: on dark ones it is dark, of the same hues.
_DARK = (
    "<style>@media (prefers-color-scheme: dark) { html { background: #1e2129; } "
    "body { filter: invert(0.88) hue-rotate(180deg); } }</style>"
)
_MARK = re.compile(r"<!-- demo: (\S+) -->")  # in a page: a demo is shown here, folded
_WIDE = "findings/claims.md"  # a page with a table of many columns
_CHECKERS = "tl_dyck/certify"  # files check_*.py, which strangers take from the site, too
_PUBLISHED = "gh-pages/latest"  # branch and folder that .github/workflows/docs.yml writes


def from_root(name: str) -> str:
    """A page of the repository's root, with links as they are from a page in docs/."""
    text = (ROOT / name).read_text(encoding="utf-8")
    text = text.replace("](docs/", "](").replace("](CONTRIBUTING.md)", "](contributing.md)")
    text = text.replace(f"]({_CHECKERS}/", "](checkers/")
    for demo, page in pages_of_demos().items():
        text = text.replace(f"](demos/{demo})", f"]({page})")
    return text


def pages_of_demos() -> dict[str, str]:
    """File in demos/ -> its page: one of its own for a notebook, else the page with its mark."""
    notebooks = {path.name: f"demos/{path.stem}.md" for path in (ROOT / "demos").glob("*.ipynb")}
    return notebooks | {
        name: path.relative_to(ROOT / "docs").as_posix()
        for path in sorted((ROOT / "docs").rglob("*.md"))
        for name in _MARK.findall(path.read_text(encoding="utf-8"))
    }


def executed(path: Path) -> Any:
    """A notebook with its outputs, which its file does not keep; run when anything changed."""
    import nbformat
    from nbclient import NotebookClient

    digest = hashlib.sha256(path.read_bytes())
    for module in sorted((*ROOT.glob("tl_dyck/**/*.*"), *ROOT.glob("hooks/**/*.py"))):
        if module.suffix != ".pyc":
            digest.update(module.read_bytes())
    kept = ROOT / "build" / "notebooks" / f"{path.stem}-{digest.hexdigest()[:16]}.ipynb"
    if not kept.exists():
        with TemporaryDirectory() as folder:
            found = nbformat.read(path, as_version=4)
            NotebookClient(found, timeout=900, kernel_name="python3").execute(cwd=folder)
        kept.parent.mkdir(parents=True, exist_ok=True)
        nbformat.write(found, kept)
    return json.loads(kept.read_text(encoding="utf-8"))


def output(cell_output: Any, name: str, files: dict[str, str]) -> str:
    """What a cell put out, as Markdown; pages of their own (widgets, plots) go to `files`."""
    if cell_output["output_type"] == "stream":
        text = "".join(cell_output["text"])
        return f"```text\n{text.rstrip()}\n```" if cell_output["name"] == "stdout" else ""
    data = cell_output.get("data", {})
    markup = "".join(data.get("text/html", ""))
    frame = re.search(r'<iframe[^>]*? srcdoc="([^"]*)"([^>]*)', markup)
    plot = data.get("application/vnd.plotly.v1+json")
    if plot or "<script" in markup:
        page, height = markup, 500
    elif frame:
        page, asked = html.unescape(frame[1]), re.search(r'height="?:?\s*(\d+)', frame[2])
        height = int(asked[1]) if asked else 500
    elif markup:
        table = re.sub(r"<style.*?</style>|\n\s*", "", markup, flags=re.DOTALL)
        return f'<div class="output-table">{table}</div>'
    else:
        return f"```text\n{''.join(data.get('text/plain', ''))}\n```"
    if plot:
        import plotly.io

        files["demos/plotly.min.js"] = ""  # filled in at the end: all plots share it
        page = plotly.io.to_html(plot, include_plotlyjs="directory", validate=False)
        page = page.replace("<head>", f"<head>{_DARK}", 1)
        height = int(plot["layout"].get("height", 450)) + 20
    files[f"demos/{name}.html"] = page
    return (
        f'<iframe class="output" src="{name}.html" height="{height}" loading="lazy" '
        f'title="output of the cell above"></iframe>'
    )


def notebook(path: Path, files: dict[str, str] | None = None, repository: str = "") -> str:
    """A notebook as a page: its text, its code in blocks, and what the cells put out.

    Args:
        path: of the notebook, which is kept without outputs.
        files: takes the pages of widgets and plots; None not to run the notebook.
        repository: address of the repository, for a link to Colab; "" for none.
    """
    cells = json.loads(path.read_text(encoding="utf-8")) if files is None else executed(path)
    parts = []
    for index, cell in enumerate(cells["cells"]):
        source = "".join(cell["source"])
        parts.append(source if cell["cell_type"] == "markdown" else f"```python\n{source}\n```")
        for number, each in enumerate(cell.get("outputs", ())):
            parts.append(
                output(each, f"{path.stem}-{index}-{number}", {} if files is None else files)
            )
    title, _, rest = "\n\n".join(parts).partition("\n")
    return (
        f"{title}\n\n*This page is `demos/{path.name}`: [download it]({path.name}) and run it in "
        f"Jupyter, VS Code, Colab or marimo.*\n{_colab_button(path.name, repository)}{rest}\n"
    )


def _colab_button(name: str, repository: str) -> str:
    """A link that opens a notebook of the published site in Colab, which reads GitHub only."""
    host, _, project = repository.rstrip("/").partition("://github.com/")
    if not host or not project:
        return ""
    address = f"https://colab.research.google.com/github/{project}/blob/{_PUBLISHED}/demos/{name}"
    return f"\n[Open in Colab]({address}){{ .md-button }}\n"


def downloadable(path: Path, repository: str, *, run: bool) -> str:
    """A notebook as a file of the site: with its outputs, and with a cell that installs.

    Args:
        path: of the notebook.
        repository: address of the repository; "" for no such cell.
        run: whether to have its outputs.
    """
    found = executed(path) if run else json.loads(path.read_text(encoding="utf-8"))
    if repository:
        source = f'%pip install --quiet "tl-dyck[notebook] @ git+{repository}"  # once'
        cell = {"cell_type": "code", "id": "install", "metadata": {}, "source": source}
        found["cells"].insert(1, cell | {"execution_count": None, "outputs": []})
    return json.dumps(found, indent=1, ensure_ascii=False) + "\n"


def parts(path: Path) -> tuple[str, str, str]:
    """Title, what it says of itself, and code; of a script, a sweep or a notebook."""
    text = path.read_text(encoding="utf-8")
    if path.suffix == ".ipynb":
        title, _, rest = "".join(json.loads(text)["cells"][0]["source"]).partition("\n")
        return title.removeprefix("# "), rest, ""
    if path.suffix == ".py":
        _, docstring, code = text.split('"""', 2)
        title, _, rest = docstring.strip().partition("\n")
        return title.rstrip("."), rest.strip(), code.strip()
    before, mark, _ = text.partition("\n")[0].lstrip("# ").partition("?")
    return before + mark, "", text.strip()


def folded(path: Path) -> str:
    """A script or a sweep as a block that opens."""
    title, about, code = parts(path)
    kind = {".py": "python", ".yaml": "yaml"}[path.suffix]
    text = f"*The file `demos/{path.name}`.*\n\n{about}\n\n```{kind}\n{code}\n```"
    return f'??? example "{title}"\n\n' + textwrap.indent(text, "    ")


def on_page_markdown(markdown: str, page: Any, config: Any, files: Any) -> str:
    """Show demos where pages have their marks; README is the first page of the site."""
    markdown = re.sub(r"\]\((?:\.\./)*\.\./README\.md", "](../index.md", markdown)
    markdown = markdown.replace(f"](../../{_CHECKERS}/", "](../checkers/")
    return _MARK.sub(lambda mark: folded(ROOT / "demos" / mark[1]), markdown)


def demos_index() -> str:
    """A list of all demos, from their titles."""
    lines = [
        "# Demos",
        "",
        "Each asks one question and is short. The tests run them all. "
        "Notebooks have a page each; scripts stand in the page that they belong to.",
        "",
    ]
    for name, page in sorted(pages_of_demos().items(), key=lambda each: (each[1] != _FIRST, *each)):
        path = ROOT / "demos" / name
        link = os.path.relpath(page, "demos").replace(os.sep, "/")
        lines.append(f"- [{parts(path)[0]}]({link}) (`{name}`, a {_KINDS[path.suffix]})")
    return "\n".join(lines) + "\n"


def pages(files: dict[str, str] | None = None, repository: str = "") -> dict[str, str]:
    """Path in the documentation -> its Markdown; `files`, `repository` as for `notebook`."""
    made = {
        "index.md": from_root("README.md"),
        "contributing.md": from_root("CONTRIBUTING.md"),
        "changelog.md": from_root("CHANGELOG.md"),
    }
    folder = ROOT / "demos"
    demos = {
        f"demos/{path.stem}.md": notebook(path, files, repository)
        for path in folder.glob("*.ipynb")
    }
    return made | demos | {"demos/index.md": demos_index()}


def live_playground() -> str:
    """A playground of models that need no training: three that solve a language exactly."""
    from tl_dyck import DyckLanguage, construct, write_playground

    language = DyckLanguage(2, 4)
    models = {
        "uniform attention": construct.uniform_attention(language),
        "attention on the stack": construct.stack(language),
        "balanced, else random": construct.balanced(language),
    }
    with TemporaryDirectory() as folder:
        page = write_playground(
            models, Path(folder, "live.html"), task="dyck-2-4-prefix", string="[(()[])(["
        )
        return page.read_text(encoding="utf-8")


def live_widgets() -> list[str]:
    """The pages of the widgets that the blocks of their page make, one each."""
    text = (ROOT / "docs" / "api" / "widgets.md").read_text(encoding="utf-8")
    names: dict[str, Any] = {}
    made = []
    for block in re.findall(r"```python\n(.*?)```", text, re.DOTALL):
        *before, last = block.strip().splitlines()
        exec("\n".join(before), names)
        made.append(eval(last, names).html)
    return made


def on_config(config: Any) -> Any:
    """Say of which version the pages are, and let readers choose another if it is published."""
    from tl_dyck import __version__

    config.copyright = f"tl_dyck {__version__}"
    if config.repo_url:
        config.extra["version"] = {"provider": "mike"}
    return config


def on_files(files: Any, config: Any) -> Any:
    """Add the pages when mkdocs lists its files."""
    from mkdocs.structure.files import File, InclusionLevel

    files.append(File.generated(config, "live_playground.html", content=live_playground()))
    for index, page in enumerate(live_widgets()):
        files.append(File.generated(config, f"live_widget_{index}.html", content=page))
    for source in (ROOT / _CHECKERS).glob("check_*.py"):
        text = source.read_text(encoding="utf-8")
        name, level = f"checkers/{source.name}", InclusionLevel.INCLUDED  # docs/*.py are not
        files.append(File.generated(config, name, content=text, inclusion=level))
    outputs: dict[str, str] | None = {} if os.environ.get("EXECUTE_NOTEBOOKS") == "1" else None
    repository = config.repo_url or ""

    for source in (ROOT / "demos").glob("*.ipynb"):
        text = downloadable(source, repository, run=outputs is not None)
        files.append(File.generated(config, f"demos/{source.name}", content=text))
    for path, text in {**pages(outputs, repository), **_with_plotly(outputs)}.items():
        files.append(File.generated(config, path, content=text))
    return files


def _with_plotly(outputs: dict[str, str] | None) -> dict[str, str]:
    from plotly.offline import get_plotlyjs

    found, script = outputs or {}, "demos/plotly.min.js"
    return {**found, script: get_plotlyjs()} if script in found else found


def source_of(page: str) -> str | None:
    """The file that a generated page is made of, from the root; None if there is no single one."""
    named = {"index.md": "README.md", "contributing.md": "CONTRIBUTING.md"}
    named["changelog.md"] = "CHANGELOG.md"
    if not page.startswith("demos/"):
        return named.get(page, f"docs/{page}")
    found = Path(page).with_suffix(".ipynb")
    return found.as_posix() if (ROOT / found).exists() else None


def on_pre_page(page: Any, config: Any, files: Any) -> Any:
    """Have pages that are made of other files edited there."""
    if config.repo_url:
        source = source_of(page.file.src_uri)
        address = config.repo_url.rstrip("/")
        page.edit_url = None if source is None else f"{address}/edit/main/{source}"
    return page


def on_page_content(text: str, page: Any, config: Any, files: Any) -> str:
    """Make formulas MathML, which browsers show without a script."""
    from latex2mathml.converter import convert

    for tag, left, right, display in (("span", "(", ")", "inline"), ("div", "[", "]", "block")):
        text = re.sub(
            rf'<{tag} class="arithmatex">\\\{left}(.*?)\\\{right}</{tag}>',
            lambda found, display=display: convert(html.unescape(found[1]), display=display),
            text,
            flags=re.DOTALL,
        )
    return text


def on_page_context(context: Any, page: Any, config: Any, nav: Any) -> Any:
    """Give a wide table the room that a table of contents takes."""
    if page.file.src_uri == _WIDE:
        page.meta["hide"] = ["toc"]
    return context
