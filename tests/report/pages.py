"""Reading a report as a browser would: elements, attributes, text."""

from __future__ import annotations

import base64
import hashlib
import io
import json
import re
from dataclasses import dataclass, field
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pandas as pd
import plotly.graph_objects as go

__all__ = ["Node", "check_plots", "csv", "data_block", "read_page", "table_rows", "whole_page"]


_FETCHING = ("iframe", "object", "embed", "img", "base", "audio", "video", "source")


@dataclass
class Node:
    """An element: its name, attributes, parent, and the text directly or indirectly in it."""

    name: str
    attributes: dict[str, str]
    parent: Node | None
    children: list[Node] = field(default_factory=list)
    text: str = ""

    def find(self, name: str, **attributes: str) -> list[Node]:
        """All elements below this one with that name and those attributes, in document order."""
        found = []
        for child in self.children:
            wanted = {key.rstrip("_").replace("_", "-"): value for key, value in attributes.items()}
            if name in ("*", child.name) and wanted.items() <= child.attributes.items():
                found.append(child)
            found += child.find(name, **attributes)
        return found


class _Reader(HTMLParser):
    def __init__(self) -> None:
        super().__init__(convert_charrefs=True)
        self.root = self.here = Node("", {}, None)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        attributes = [key for key, _ in attrs]
        assert len(set(attributes)) == len(attributes), f"an attribute twice in <{tag}>"
        node = Node(tag, {key: value or "" for key, value in attrs}, self.here)
        self.here.children.append(node)
        if tag not in ("meta", "link", "br", "img", "input"):
            self.here = node

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.here.children.append(Node(tag, dict(attrs), self.here))

    def handle_endtag(self, tag: str) -> None:
        assert tag == self.here.name, f"</{tag}> closes <{self.here.name}>"
        self.here = self.here.parent

    def handle_data(self, data: str) -> None:
        node = self.here
        while node is not None:
            node.text += data
            node = node.parent if node.name not in ("script", "style") else None


def read_page(path: Path) -> Node:
    """Parse a report; an element that is not closed properly is an error."""
    reader = _Reader()
    reader.feed(path.read_text(encoding="utf-8"))
    reader.close()
    assert reader.here is reader.root
    return reader.root


def whole_page(path: Path, n_scripts: int) -> Node:
    """Parse a page and insist that it fetches nothing and runs no script but its own."""
    page = read_page(path)
    for node in page.find("*"):
        assert node.name not in _FETCHING
        for key, value in node.attributes.items():
            assert not key.startswith("on")
            if key in ("src", "href", "xlink:href", "action", "poster", "srcset"):
                assert value.startswith(("#", "data:")), value
    for style in page.find("style"):
        assert not re.search(r"url\(|@import", style.text)
    ids = [node.attributes["id"] for node in page.find("*") if "id" in node.attributes]
    assert len(set(ids)) == len(ids)
    scripts = [script.text for script in page.find("script") if "type" not in script.attributes]
    assert len(scripts) == n_scripts
    (policy,) = page.find("meta", http_equiv="Content-Security-Policy")
    rules = dict(rule.strip().split(" ", 1) for rule in policy.attributes["content"].split(";"))
    digests = {
        base64.b64encode(hashlib.sha256(text.encode()).digest()).decode() for text in scripts
    }
    assert set(rules["script-src"].split()) == {f"'sha256-{digest}'" for digest in digests}
    assert rules["default-src"] == "'none'"
    head = page.find("head")[0].children
    assert head.index(policy) < min(head.index(node) for node in page.find("style"))
    return page


def data_block(page: Node, name: str = "data") -> Any:
    """What the page's scripts read."""
    (block,) = page.find("script", type="application/json", id=name)
    assert "<" not in block.text
    return json.loads(block.text)


def check_plots(page: Node) -> dict[str, Any]:
    """The plots of a page; insists that each has its place, and that plotly takes it."""
    plots: dict[str, Any] = data_block(page, "data-plots")
    assert {node.attributes["data-plot"] for node in page.find("div", class_="plot")} == {*plots}
    for plot in plots.values():  # names of CSS variables stand for colours
        go.Figure(json.loads(re.sub(r'"@[a-z0-9]+"', '"#123456"', json.dumps(plot))))
    return plots


def table_rows(page: Node, section: str) -> list[list[str]]:
    """The texts of the last table in a section, its head first."""
    table = page.find("section", id=section)[0].find("table")[-1]
    return [[cell.text for cell in row.children] for row in table.find("tr")]


def csv(page: Node, name: str, **options: Any) -> pd.DataFrame:
    """The data of a figure, as it is saved."""
    (link,) = page.find("a", download=f"{name}.csv")
    prefix = "data:text/csv;charset=utf-8;base64,"
    assert link.attributes["href"].startswith(prefix)
    data = base64.b64decode(link.attributes["href"].removeprefix(prefix))
    return pd.read_csv(io.BytesIO(data), **options)
