"""The report: one HTML file that holds everything it needs."""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Sequence
from importlib.resources import files
from pathlib import Path
from typing import Any

from plotly.offline import get_plotlyjs

from tl_dyck.files import ensure_folder, write_bytes
from tl_dyck.report.certified import certificate_figures
from tl_dyck.report.figures import Figure, figures
from tl_dyck.report.heads import ablation_figures
from tl_dyck.report.markup import Html, element, json_block
from tl_dyck.report.patterns import SHADES, pattern_figure, read_patterns
from tl_dyck.report.sections import about, figure_section, lead, summary, versions, viewer
from tl_dyck.report.tables import recalled_table, run_table
from tl_dyck.studies import Study

__all__ = ["asset", "document", "shell", "write_report"]

# Attention weight 0 to 1; blue to dark on paper, dark to light on a dark page: lightness alone carries the value.
_SCALES = {
    "light": ("#f3f7fc", "#c9dcef", "#85b8dc", "#3b89c2", "#1159a0", "#082f62"),
    "dark": ("#18222f", "#1d4468", "#22709b", "#43a3b4", "#a3d3b5", "#fdf6c4"),
}


def write_report(study: Study, path: str | Path | None = None) -> Path:
    """Write a study's report as one self-contained HTML file: no network, scripts inlined once.

    The same study gives the same bytes.

    Args:
        study: finished; from `run_study` or `load_study`.
        path: of the file; None for ``report.html`` in the study's folder.

    Returns:
        The path.

    Raises:
        CorruptFileError: a run's attention patterns are missing or damaged.
        UnknownNameError: the study's task is not registered here.
        OSError: the file cannot be written.
    """
    target = study.folder / "report.html" if path is None else Path(path)
    if target.is_dir():
        raise IsADirectoryError(f"{str(target)!r} is a folder; name a file, such as {str(target / 'report.html')!r}")
    page = _page(study)
    ensure_folder(target.parent)
    write_bytes(target, page.encode())
    return target


def _page(study: Study) -> Html:
    patterns = read_patterns(study)
    made = [pattern_figure(study, patterns), *figures(study), *certificate_figures(study)]
    made += ablation_figures(study.folder / "ablation")
    sections = [
        ("summary", "What was found", summary(study, patterns)),
        *((figure.name, figure.title, figure_section(figure)) for figure in made),
        ("recalled", "Reported and measured", recalled_table(study)),
        ("runs", "All runs", run_table(study)),
        ("about", "How this was made", about(study)),
    ]
    title = f"tl_dyck study: {study.config.task}"
    return document(title, lead(study), sections, made, versions(study), patterns.to_json())


def document(
    title: str,
    intro: Html,
    sections: Sequence[tuple[str, str, Any]],
    made: Sequence[Figure],
    footer: Html,
    patterns: dict[str, Any] | None = None,
) -> Html:
    """A whole page.

    Args:
        title: of it.
        intro: what it is about, one paragraph.
        sections: anchor, title and content of each.
        made: the figures in them, whose plots are drawn when the page is opened.
        footer: versions and the like.
        patterns: what the viewer of attention maps shows, if there are any.
    """
    contents = element("ol", [element("li", element("a", text, href=f"#{name}")) for name, text, _ in sections])
    plots = {
        f"{figure.name}-{index}": {"data": plot.traces, "layout": plot.layout}
        for figure in made
        for index, plot in enumerate(figure.plots)
    }
    scripts = [get_plotlyjs(), asset("report.js")]
    body = element(
        "body",
        element("a", "Skip to the report", href="#main", class_="skip"),
        element("header", element("h1", title), intro),
        element("nav", element("h2", "Contents"), contents, aria_label="Contents"),
        element("main", [_section(*section) for section in sections], id="main"),
        element("footer", footer),
        viewer(),
        element("div", id="tip", hidden=True),
        element("noscript", "The plots and the enlarged maps need JavaScript; the texts, maps and tables do not."),
        json_block("data-plots", plots),
        json_block("data-patterns", patterns or {"tokens": [], "depth": [], "top": [], "groups": []}),
        [Html(f"<script>{script}</script>") for script in scripts],
    )
    return shell(title, body, scripts)


def shell(title: str, body: Html, scripts: Sequence[str] = (), style: str = "") -> Html:
    """A complete page around a body: the report's style, and a policy that runs these scripts and fetches nothing.

    Args:
        title: of the page.
        body: the element.
        scripts: those that are in it.
        style: more CSS, after the report's.
    """
    head = element(
        "head",
        element("meta", charset="utf-8"),
        element("meta", http_equiv="Content-Security-Policy", content=_policy(scripts)),
        element("meta", name_="viewport", content="width=device-width, initial-scale=1"),
        element("meta", name_="color-scheme", content="light dark"),
        element("title", title),
        element("link", rel="icon", href="data:,"),  # or else browsers look for /favicon.ico
        Html(f"<style>{asset('report.css')}{_shades()}{style}</style>"),
    )
    return Html("<!DOCTYPE html>\n" + element("html", head, body, lang="en") + "\n")


def _section(name: str, title: str, content: Any) -> Html:
    heading = element("h2", title, id=f"{name}-title")
    return element("section", heading, content, id=name, aria_labelledby=f"{name}-title")


def _policy(scripts: Sequence[str]) -> str:
    """Run these scripts and nothing else, and fetch nothing."""
    digests = (base64.b64encode(hashlib.sha256(script.encode()).digest()).decode() for script in scripts)
    allowed = " ".join(f"'sha256-{digest}'" for digest in digests)
    return (
        f"default-src 'none'; script-src {allowed}; style-src 'unsafe-inline'; img-src data: blob:; base-uri 'none'; "
        "form-action 'none'"
    )


def asset(name: str) -> str:
    """The text of a style sheet or script of the report."""
    return files("tl_dyck.report").joinpath(name).read_text(encoding="utf-8")


def _shades() -> str:
    """The colours of the heat maps, for light and dark."""
    rules = [f".h{shade}{{fill:var(--h{shade})}}.b{shade}{{background:var(--h{shade})}}" for shade in range(SHADES)]
    light, dark = (
        "".join(f"--h{shade}:{_mix(_SCALES[mode], shade / (SHADES - 1))};" for shade in range(SHADES))
        for mode in ("light", "dark")
    )
    dark_screen = f"@media screen and (prefers-color-scheme:dark){{:root:not(.printing){{{dark}}}}}"
    return f":root{{{light}}}{dark_screen}{''.join(rules)}"


def _mix(scale: tuple[str, ...], value: float) -> str:
    """A colour of a scale, linear between its stops."""
    index = min(int(value * (len(scale) - 1)), len(scale) - 2)
    part = value * (len(scale) - 1) - index
    ends = [[int(color[i : i + 2], 16) for i in (1, 3, 5)] for color in scale[index : index + 2]]
    return "#" + "".join(f"{round(a + part * (b - a)):02x}" for a, b in zip(*ends, strict=True))
