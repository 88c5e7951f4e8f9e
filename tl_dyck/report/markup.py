"""HTML that is safe by construction: whatever is not markup already is escaped.

Looked at instead: jinja2, which fills templates, but what is done here is to put parts together; it
would have replaced none of it.
"""

from __future__ import annotations

import base64
import html
import json
import math
import re
from collections.abc import Iterable, Mapping
from string import Template
from typing import Any, final

import pandas as pd

from tl_dyck.kit.visible import visible

_VOID = {"br", "col", "hr", "img", "input", "link", "meta"}


@final
class Html(str):
    """Markup, as opposed to text: it is inserted as it is.

    Only this module and SVG builders make it from strings.
    """

    __slots__ = ()


#: Text or a number (escaped), `Html` (inserted), None (nothing), or an iterable of such.
Child = Any


def element(name: str, *children: Child, **attributes: Any) -> Html:
    """One HTML element.

    Args:
        name: of the element, written by us.
        *children: what is in it, see `Child`.
        **attributes: ``class_`` and ``for_`` stand for class and for, other underscores for
            hyphens; True means present without a value, None and False absent.
    """
    parts = [f"<{name}"]
    for key, value in attributes.items():
        if value is None or value is False:
            continue
        key = key.rstrip("_").replace("_", "-")
        parts.append(f" {key}" if value is True else f' {key}="{_escaped(value)}"')
    parts.append(">")
    if name not in _VOID:
        parts += [_markup(child) for child in children]
        parts.append(f"</{name}>")
    return Html("".join(parts))


def filled(template: str, parts: Mapping[str, Child]) -> Html:
    """Markup of ours with ``$name`` for what is filled in; line ends between tags are no spaces."""
    joined = re.sub(r"\n\s*", " ", re.sub(r">\s*\n\s*(?=[<$])", ">", template)).strip()
    joined = re.sub(r"(\$\w+) (?=[<$])", r"\1", joined)
    return Html(Template(joined).substitute({name: _markup(part) for name, part in parts.items()}))


def _markup(child: Child) -> str:
    if child is None:
        return ""
    if isinstance(child, Html):
        return child
    if isinstance(child, (str, int, float)):
        return _escaped(child, quote=False)
    return "".join(_markup(part) for part in child)


def _escaped(text: object, *, quote: bool = True) -> str:
    """Text that is no markup, in which nothing turns the direction of writing; tabs stay."""
    return html.escape("\t".join(map(visible, str(text).split("\t"))), quote=quote)


def json_block(name: str, value: Any) -> Html:
    """A block of JSON that scripts read by its id; nothing in it ends it or starts another."""
    text = json.dumps(
        value, allow_nan=False, separators=(",", ":")
    )  # ASCII, so U+2028 is escaped already
    for character in "<>&":
        text = text.replace(character, f"\\u{ord(character):04x}")
    return Html(f'<script type="application/json" id="{html.escape(name)}">{text}</script>')


def percent(share: float, digits: int = 1) -> str:
    """A share as text: ``99.3%``; nothing but 1 is ``100%``: other shares get more digits."""
    if not math.isfinite(share):
        return "not a number"
    text = f"{100 * share:.{digits}f}"
    if share < 1 and float(text) == 100:
        text = f"{100 * share:.{decimals(share)}f}"
    return "100%" if share == 1 else f"{text}%"


def decimals(share: float) -> int:
    """How many a percentage needs to show two digits of what it lacks to 100: ``99.99938%``."""
    # the place of the first digit of what is lacking, and one more
    return 1 - math.floor(math.log10(100 * (1 - share))) if share < 1 else 0


def csv_link(frame: pd.DataFrame, name: str) -> Html:
    """A link that saves a table as CSV; the data is in the link."""
    data = base64.b64encode(frame.to_csv(index=False, lineterminator="\n").encode()).decode()
    return element(
        "a",
        f"Data (CSV, {len(frame):,} rows)",
        href=f"data:text/csv;charset=utf-8;base64,{data}",
        download=f"{name}.csv",
        class_="download",
    )


def table(
    caption: Child,
    columns: Iterable[str],
    rows: Iterable[Iterable[Child]],
    *,
    numeric: Iterable[int] = (),
    sortable: bool = False,
) -> Html:
    """A table with caption and column headers, in a box that scrolls sideways on narrow pages.

    Args:
        caption: what it shows.
        columns: the headers.
        rows: the cells; the first of each row is its header.
        numeric: the columns that hold numbers, to be aligned to the right.
        sortable: whether the page's script lets readers sort its rows by a column, and filter them.
    """
    right = set(numeric)

    def cell(kind: str, index: int, content: Child, scope: str | None = None) -> Html:
        return element(kind, content, scope=scope, class_="number" if index in right else None)

    head = element("tr", [cell("th", index, name, "col") for index, name in enumerate(columns)])
    body = [
        element(
            "tr",
            [
                cell("td" if index else "th", index, c, None if index else "row")
                for index, c in enumerate(row)
            ],
        )
        for row in rows
    ]
    inner = element(
        "table",
        element("caption", element("span", caption)),
        element("thead", head),
        element("tbody", body),
        class_="sortable" if sortable else None,
    )
    return scrolling(inner)


def scrolling(inner: Html) -> Html:
    """A table in a box that scrolls sideways where the page is narrow."""
    label = "table, scrolls sideways"
    return element("div", inner, class_="scroll", tabindex="0", role="region", aria_label=label)
