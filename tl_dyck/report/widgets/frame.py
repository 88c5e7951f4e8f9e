"""What all widgets are: a small page of its own, shown in a frame or saved."""

from __future__ import annotations

import re
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, final

from tl_dyck.kit.arguments import checked
from tl_dyck.kit.files import ensure_folder, write_bytes
from tl_dyck.kit.registry import unknown_name
from tl_dyck.report.markup import Child, Html, element, json_block
from tl_dyck.report.page import asset, page_file, shell

_THEMES = ("auto", "light", "dark")
_DARK = re.compile(r"@media screen and \(prefers-color-scheme: ?dark\)")


@final
@dataclass(frozen=True, kw_only=True)
class Widget:
    """Something to look at, in a notebook or as a file.

    The page is complete: style, script and data are inside, and its policy forbids the browser to
    fetch or run anything else. In a notebook it stands in a frame, so its style touches nothing
    around it.

    Attributes:
        title: what it shows.
        height: of the frame in a notebook, in pixels; what does not fit is scrolled to.
        body: the content, as markup.
        data: what the scripts read.
        scripts: what runs in the page; none for the widgets' own.
        theme: "auto" for what the system has, "light", or "dark"; see `with_theme`.
    """

    title: str
    height: int
    body: Child = field(repr=False)
    data: dict[str, Any] = field(repr=False)
    scripts: tuple[str, ...] = field(default=(), repr=False)
    theme: str = field(default="auto", repr=False)

    def __repr__(self) -> str:
        return f"Widget({self.title!r}, {len(self.html.encode()) / 1e6:.2f} MB)"

    @property
    def html(self) -> str:
        """The whole page."""
        own = (asset("shared.js") + asset("widgets/widgets.js"),)
        *others, last = self.scripts or own
        scripts = (*others, last + asset("widgets/more.js"))
        body = element(
            "body",
            element("main", element("h1", self.title), self.body),
            element("div", id="tip", hidden=True),
            json_block("data", self.data),
            [Html(f"<script>{script}</script>") for script in scripts],
        )
        page = shell(self.title, body, scripts, asset("widgets/widgets.css"))
        if self.theme == "auto":
            return page
        only = "@media screen" if self.theme == "dark" else "@media not all"
        return _DARK.sub(only, page).replace("light dark", self.theme)

    @checked
    def with_theme(self, theme: str) -> Widget:
        """The same widget, light or dark, for a notebook whose theme is not the system's.

        A frame cannot see what is around it, so it goes by the system unless it is told.

        Args:
            theme: "auto", "light" or "dark".

        Raises:
            UnknownNameError: another one.
        """
        if theme not in _THEMES:
            raise unknown_name("theme", theme, _THEMES)
        return replace(self, theme=theme)

    def _repr_html_(self) -> str:
        # a sandbox without allow-same-origin: whatever the page does, it cannot reach the notebook
        return element(
            "iframe",
            srcdoc=self.html,
            title=self.title,
            sandbox="allow-scripts",
            width="100%",
            height=self.height,
            style="border:0;width:100%",
        )

    @checked
    def save(self, path: str | Path) -> Path:
        """Write the widget as one self-contained HTML file.

        Args:
            path: of the file; its folder is made if need be.

        Returns:
            The path.

        Raises:
            IsADirectoryError: `path` is a folder.
        """
        target = page_file(path, "widget.html")
        ensure_folder(target.parent)
        write_bytes(target, self.html.encode())
        return target


def note(*children: Child) -> Html:
    """A remark in small print."""
    return element("p", *children, class_="note")
