"""Reading a report as a browser would: elements, attributes, text."""

from __future__ import annotations

from dataclasses import dataclass, field
from html.parser import HTMLParser
from pathlib import Path

__all__ = ["Node", "read_page"]


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
