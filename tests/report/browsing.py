"""What the tests in a real browser share: how it is started, and a page that keeps a record."""

from __future__ import annotations

import os
import shutil
from pathlib import Path
from typing import Any

__all__ = ["CHROMIUM", "PATIENCE", "Visit", "browser_arguments", "cell_at"]

CHROMIUM = (
    shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
)
PATIENCE = 120_000  # milliseconds; only how long to wait before giving up

_QUIET = (
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
)


def browser_arguments() -> list[str]:
    """Arguments of Chromium; root cannot have a sandbox."""
    return [*_QUIET, *(() if os.name != "posix" or os.geteuid() else ("--no-sandbox",))]


def cell_at(box: Any, q: int, k: int) -> list[float]:
    """Where on the screen the middle of a map's cell is; scrolls to it."""
    box.scroll_into_view_if_needed()
    found: list[float] = box.evaluate(
        "(box, [x, y]) => { const svg = box.closest('svg') ?? box.querySelector('svg'); "
        "const p = new DOMPoint(x, y).matrixTransform(svg.getScreenCTM()); return [p.x, p.y]; }",
        [k + 0.5, q + 0.5],
    )
    return found


class Visit:
    """A page with a record of what it complained about and asked for."""

    def __init__(
        self, browser: Any, path: Path, width: int, scheme: str, *, touch: bool = False
    ) -> None:
        self.context = browser.new_context(
            viewport={"width": width, "height": 900},
            color_scheme=scheme,
            offline=True,
            reduced_motion="reduce",
            has_touch=touch,
            is_mobile=touch,
        )
        self.page = self.context.new_page()
        self.page.set_default_timeout(PATIENCE)
        self.said: list[str] = []
        self.asked: list[str] = []
        self.page.on("console", lambda message: self.said.append(f"{message.type}: {message.text}"))
        self.page.on("pageerror", lambda error: self.said.append(f"error: {error}"))
        self.page.on(
            "dialog",
            lambda dialog: (self.said.append(f"dialog: {dialog.message}"), dialog.dismiss()),
        )
        self.page.on("request", lambda request: self.asked.append(request.url))
        self.page.goto(path.as_uri())
        self.page.wait_for_selector("html[data-drawn=yes]")

    def colors(self) -> tuple[str, str]:
        """Of the page's background, and of the text in the first plot."""
        background = self.page.locator("body").evaluate(
            "body => getComputedStyle(body).backgroundColor"
        )
        return background, self.page.locator(".plot .xtick text").first.evaluate(
            "text => text.style.fill"
        )

    @property
    def scrolls_sideways(self) -> bool:
        """Whether anything is wider than the window."""
        return bool(
            self.page.evaluate(
                "Math.max(document.documentElement.scrollWidth, document.body.scrollWidth)"
                " > innerWidth"
            )
        )
