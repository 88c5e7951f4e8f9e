"""What all pages are: one HTML file with all that it needs, and a figure's place in it."""

from __future__ import annotations

import base64
import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from importlib.resources import files
from pathlib import Path
from typing import Any, NamedTuple, final

import pandas as pd

from tl_dyck.plotting.plots import Plot
from tl_dyck.report.heatmap import SHADES
from tl_dyck.report.markup import Child, Html, csv_link, element, filled, json_block, table

_TABLE_LIMIT = 120  # rows; longer data is in the CSV file alone
_LONG_COMMAND = 200  # letters: five lines on a telephone

# Attention weight 0 to 1; blue to dark on paper, dark to light on a dark page: lightness alone
# carries the value.
_SCALES = {
    "light": ("#f3f7fc", "#c9dcef", "#85b8dc", "#3b89c2", "#1159a0", "#082f62"),
    "dark": ("#18222f", "#1d4468", "#22709b", "#43a3b4", "#a3d3b5", "#fdf6c4"),
}


@final
@dataclass(frozen=True, kw_only=True)
class Figure:
    """One figure of a page.

    Attributes:
        name: its anchor, and the name of its data file.
        title: of its section.
        data: what it shows, one row per mark.
        reading: what one sees, in a sentence or a few.
        command: shell command that makes it, or its numbers, again; empty for that of its page.
        plots: the plots, if it is made of these.
        body: or else its markup.
        note: how it was measured.
    """

    name: str
    title: str
    data: pd.DataFrame
    reading: str = ""
    command: str = ""
    plots: list[Plot] = field(default_factory=list)
    body: Html | None = None
    note: str = ""


class Section(NamedTuple):
    """A part of a page that is no figure: its anchor, its title, and what is in it."""

    name: str
    title: str
    content: Child


@final
@dataclass(frozen=True, kw_only=True)
class Page:
    """A whole page: lead, contents, figures and sections in their order, and how it was made.

    Attributes:
        title: of it.
        lead: what it is about, one paragraph.
        parts: figures, whose plots are drawn when the page is opened, and sections; None is none.
        command: what makes its figures again.
        about: what stands under "How this was made".
        made: versions and the like at the bottom, by name.
        patterns: what the viewer of attention maps shows, if there are any.
        style: more CSS.
    """

    title: str
    lead: Child
    parts: Sequence[Figure | Section | None]
    command: str = ""
    about: Sequence[Child] = ()
    made: Mapping[str, str] = field(default_factory=dict)
    patterns: Mapping[str, Any] | None = None
    style: str = ""

    @property
    def html(self) -> Html:
        """The page as one file."""
        parts = [part for part in self.parts if part is not None]
        if self.about:
            parts.append(Section("about", "How this was made", self.about))
        plots = {
            f"{figure.name}-{index}": {"data": plot.traces, "layout": plot.layout}
            for figure in parts
            if isinstance(figure, Figure)
            for index, plot in enumerate(figure.plots)
        }
        scripts = [asset("plotly/plotly-basic.min.js")] if plots else []
        scripts.append(asset("shared.js") + asset("report.js"))
        none: dict[str, Any] = {"tokens": [], "depth": [], "top": [], "groups": []}
        body = filled(
            asset("page.html"),
            {
                "title": self.title,
                "lead": self.lead,
                "contents": [
                    element("li", element("a", part.title, href=f"#{part.name}")) for part in parts
                ],
                "sections": [_section(part, self.command) for part in parts],
                "made": [
                    [element("dt", name), element("dd", said)] for name, said in self.made.items()
                ],
                "data": [
                    json_block("data-plots", plots),
                    json_block("data-patterns", self.patterns or none),
                ],
                "scripts": [Html(f"<script>{script}</script>") for script in scripts],
            },
        )
        return shell(self.title, body, scripts, self.style)


def page_file(path: str | Path, name: str) -> Path:
    """The file that a page is written to.

    Raises:
        IsADirectoryError: `path` is a folder.
    """
    target = Path(path)
    if target.is_dir():
        raise IsADirectoryError(
            f"{str(target)!r} is a folder; name a file, such as {str(target / name)!r}"
        )
    return target


def shell(title: str, body: Html, scripts: Sequence[str] = (), style: str = "") -> Html:
    """A complete page around a body, with the report's style.

    Its policy runs these scripts and fetches nothing.
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


def _section(part: Figure | Section, command: str) -> Html:
    heading = element("h2", part.title, id=f"{part.name}-title")
    content = part.content if isinstance(part, Section) else _figure(part, command)
    return element("section", heading, content, id=part.name, aria_labelledby=f"{part.name}-title")


def _figure(figure: Figure, command: str) -> list[Html | None]:
    """A figure with its reading, how it was measured, its data, and how to make it again."""
    several = len(figure.plots) > 1
    plots = [
        element(
            "div",
            class_="plot",
            data_plot=f"{figure.name}-{index}",
            role="img",
            aria_label=plot.alt if several else f"{plot.alt} {figure.reading}",
            style=f"height:{plot.layout['height']}px",
        )
        for index, plot in enumerate(figure.plots)
    ]
    line = again("Make it again", figure.command or command, "span")
    reading = element("p", figure.reading, class_="reading")
    drawn = element("div", plots, class_="plots" if several else None)
    return [
        element("div", reading, drawn, class_="together") if plots else reading,
        None if plots else figure.body,
        element("p", figure.note, class_="note") if figure.note else None,
        element("div", csv_link(figure.data, figure.name), line, class_="tools"),
        _data_table(figure) if len(figure.data) <= _TABLE_LIMIT else None,
    ]


def _data_table(figure: Figure) -> Html:
    data = figure.data
    rows = [[cell(value) for value in row] for row in data.itertuples(index=False)]
    numeric = [
        index for index, column in enumerate(data.columns) if data[column].dtype.kind in "iuf"
    ]
    columns = [column.replace("_", " ") for column in data.columns]
    return element(
        "details",
        element("summary", "Data table"),
        table(f"Data: {figure.title}", columns, rows, numeric=numeric),
    )


def cell(value: Any, form: str = ".4g") -> str:
    """A value in a table, a float in that form; a dash for one that is missing."""
    if value is None or value != value:
        return "–"
    return f"{value:{form}}" if isinstance(value, float) else str(value)


def _policy(scripts: Sequence[str]) -> str:
    """Run these scripts and nothing else, and fetch nothing."""
    digests = (
        base64.b64encode(hashlib.sha256(script.encode()).digest()).decode() for script in scripts
    )
    allowed = " ".join(f"'sha256-{digest}'" for digest in digests)
    return (
        f"default-src 'none'; script-src {allowed}; style-src 'unsafe-inline'; img-src data: "
        "blob:; base-uri 'none'; form-action 'none'"
    )


def asset(name: str) -> str:
    """The text of a style sheet or script of the report."""
    return files("tl_dyck.report").joinpath(name).read_text(encoding="utf-8")


def _shades() -> str:
    """The colours of the heat maps, for light and dark."""
    rules = [
        f".h{shade}{{fill:var(--h{shade})}}.b{shade}{{background:var(--h{shade})}}"
        for shade in range(SHADES)
    ]
    light, dark = (
        "".join(
            f"--h{shade}:{_mix(_SCALES[mode], shade / (SHADES - 1))};" for shade in range(SHADES)
        )
        for mode in ("light", "dark")
    )
    dark_screen = f"@media screen and (prefers-color-scheme:dark){{:root:not(.printing){{{dark}}}}}"
    return f":root{{{light}}}{dark_screen}{''.join(rules)}"


def _mix(scale: tuple[str, ...], value: float) -> str:
    """A colour of a scale, linear between its stops."""
    index = min(int(value * (len(scale) - 1)), len(scale) - 2)
    part = value * (len(scale) - 1) - index
    # "#rrggbb": two digits from 1, 3 and 5 on
    ends = [[int(color[i : i + 2], 16) for i in (1, 3, 5)] for color in scale[index : index + 2]]
    return "#" + "".join(f"{round(a + part * (b - a)):02x}" for a, b in zip(*ends, strict=True))


def again(words: str, command: str, kind: str = "p") -> Html:
    """A command that does something again; a long one unfolds."""
    if len(command) <= _LONG_COMMAND:
        return element(kind, f"{words}: ", element("code", command))
    return element("details", element("summary", words), element("code", command))


def whole_configuration(values: Mapping[str, Any]) -> Html:
    """All settings of what the page shows, as JSON that unfolds."""
    text = json.dumps(values, indent=1, ensure_ascii=False)
    return element(
        "details",
        element("summary", "The whole configuration"),
        element("pre", element("code", text), tabindex="0"),
    )


_FACTS = ("python", "platform", "cpu_cores")


def made_with(facts: Mapping[str, Any]) -> dict[str, str]:
    """Versions and machine, as `environment` says them, for the bottom of a page."""
    packages = ", ".join(f"{name} {version}" for name, version in facts["versions"].items())
    known = {name: facts.get(name) or f"{name} not recorded" for name in _FACTS}
    return {
        "Versions": f"{packages}, Python {known['python']}",
        "Machine": f"{known['platform']}, {facts.get('cpu') or 'CPU not recorded'}, "
        f"{known['cpu_cores']} CPU cores, {facts.get('gpu') or 'no GPU'}",
    }
