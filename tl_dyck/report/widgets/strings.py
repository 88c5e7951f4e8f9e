"""Strings of tokens: brackets coloured by depth, matching pairs joined by arcs, edits marked."""

from __future__ import annotations

from collections.abc import Collection

from tl_dyck.kit.errors import DyckError
from tl_dyck.language.checks import BOS_STRING
from tl_dyck.report.heatmap import Text, token_label
from tl_dyck.report.markup import Html, element

N_COLORS = 6  #: depths beyond begin with the first colour again; style sheet .d0 … .d5
_LARGEST = 256  # tokens: beyond, cells are smaller than a pixel


class UnreadableTextError(DyckError, ValueError):
    """A text that a widget cannot show; the message says why."""


def check_readable(text: Text) -> Text:
    """Refuse a string of which no picture could be read."""
    if not 0 < len(text.ids) <= _LARGEST:
        raise UnreadableTextError(
            f"a string of {len(text.ids)} tokens cannot be drawn so that one can read it; "
            f"give 1 to {_LARGEST} tokens"
        )
    return text


def _color(text: Text, position: int) -> str | None:
    """The class of a token's colour, shared with its partner; None if it has no depth."""
    if text.depth is None or text.tokens[position] == BOS_STRING:
        return None
    # an open and its close, alike
    # depth *after* a bracket: that of a closing one is one less than of its partner. So opens count
    # from 0, like closes
    return f"d{(text.depth[position] - (not text.closing[position])) % N_COLORS}"


def arcs(text: Text) -> Html | None:
    """Lines that join matching brackets, one unit a token; dashed where brackets stay open."""
    if text.depth is None or not any(text.depth):
        return None
    n, deepest = len(text.tokens), max(max(text.depth), 1)
    parts = []
    for position, partner in enumerate(text.pair):
        if text.closing[position] or _color(text, position) is None:
            continue
        level = min(max(text.depth[position], 1), deepest)
        # in cells: 0.36 between the arcs of two depths, the outermost on top
        top = 0.2 + 0.36 * (level - 1)
        # 0.1 above the box's lower edge, which is at 0.36 deepest + 0.45
        bottom = 0.36 * deepest + 0.35
        end = (
            f"H{partner + 0.5}V{bottom:.2f}" if partner >= 0 else f"H{n}"
        )  # what is open stays open
        dashed = "" if partner >= 0 else " dashed"
        # from the middle of a cell up, across, and down
        path = f"M{position + 0.5} {bottom:.2f}V{top:.2f}{end}"
        parts.append(
            f'<path class="arc {_color(text, position)}{dashed}" data-at="{position}" d="{path}"/>'
        )
    height = 0.36 * deepest + 0.45
    style = f"width:calc({n}*var(--cell));height:calc({height:.2f}*var(--cell))"
    box = f'viewBox="0 0 {n} {height:.2f}"'
    return Html(
        f'<svg class="arcs" {box} style="{style}" aria-hidden="true" '
        f'focusable="false">{"".join(parts)}</svg>'
    )


def strip(text: Text) -> Html:
    """A string in one line, with arcs above, from which a query can be chosen."""
    cells = []
    for position, token in enumerate(text.tokens):
        label, size = token_label(token)
        inner = [
            element(
                "span",
                label,
                class_="token",
                # not smaller: it could not be read
                style=f"font-size:{max(size, 0.65)}em" if size and size < 1 else None,
            ),
            element("span", element("span"), class_="weight"),
            element("span", position, class_="at"),
        ]
        cells.append(
            element("span", inner, class_=f"cell {_color(text, position) or ''}", data_at=position)
        )
    line = element("div", cells, class_="cells")
    slider = element(
        "input",
        type="range",
        min=0,
        max=len(text.tokens) - 1,
        value=len(text.tokens) - 1,
        class_="query",
        aria_label="query position",
        style=f"width:calc({len(text.tokens)}*var(--cell))",
    )
    said = " ".join(text.tokens)
    return element(
        "div",
        element(
            "div",
            arcs(text),
            line,
            slider,
            class_="strip",
            data_strip=0,
            role="group",
            aria_label=said,
        ),
        class_="scroll" if text.depth is not None else "scroll wide",
    )


def words(text: Text, marked: Collection[int] = (), *, removed: bool = False) -> Html:
    """A string as running text, brackets in their colours; no arcs, and long ones wrap.

    Args:
        text: the string.
        marked: positions that are edits.
        removed: mark what an edit takes away, not what it puts in.
    """
    tag = "del" if removed else "ins"
    parts = []
    for position, token in enumerate(text.tokens):
        depth = f", depth {text.depth[position]}" if text.depth is not None else ""
        inner = element(
            "span",
            token,
            class_=f"word {_color(text, position) or ''}",
            data_tip=f"“{token}” at position {position}{depth}",
        )
        parts.append(element(tag, inner, class_="added") if position in marked else inner)
    return element("div", parts, class_="words" + ("" if text.depth is None else " brackets"))
