"""Attention patterns as light-weight heat maps in SVG.

A map is a few paths, one per shade, so that hundreds fit a page and print sharply. What a cell is
can be read by mouse or keyboard: the page's script finds it by its coordinates in the weights that
`thousandths` gives it.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Any, final

import numpy as np
import torch
from jaxtyping import Float

from tl_dyck.language import DyckLanguage, Language
from tl_dyck.language.checks import BOS_STRING
from tl_dyck.report.markup import Html, element, percent

_ROOMY = 16  # tokens from which on a word in the corner covers nothing of a lower triangle
SHADES = 24  #: number of shades; the style sheet has a colour .h0 … .h23 for each
_LABEL_LENGTH = 5  # characters of a long bracket that are shown beside a map

Weights = Float[np.ndarray, "query key"]


@final
@dataclass(frozen=True, kw_only=True)
class Text:
    """A string and what is known about it.

    Attributes:
        ids: the tokens as numbers, BOS included.
        tokens: as text.
        depth: after each token; None if the tokens are no brackets.
        pair: position of each token's partner, -1 for none.
        top: position of the last bracket that is still open after each token, -1 for none.
        closing: whether each token closes.
    """

    ids: list[int]
    tokens: list[str]
    depth: list[int] | None
    pair: list[int]
    top: list[int]
    closing: list[bool]

    def on_top(self, weights: Weights) -> float:
        """Mean weight on the stack's top, over the closing brackets with something left on it."""
        found = [
            weights[query, top]
            for query, top in enumerate(self.top)
            if top >= 0 and self.closing[query]
        ]
        return float(np.mean(found)) if found else float("nan")

    def in_words(self, weights: Weights) -> str:
        """One pattern in a few words, for those who cannot see it."""
        share = percent(self.on_top(weights), 0)
        return (
            f"at the closing brackets of the string {share} of the attention is on the top of the "
            "stack"
        )

    def to_json(self) -> dict[str, Any]:
        """Tokens, depths, pairs and tops of the stack as JSON values, for a script."""
        return {"tokens": self.tokens, "depth": self.depth, "pair": self.pair, "top": self.top}


def text_of(ids: Sequence[int], tokens: Sequence[str] | None, language: Language | None) -> Text:
    """A string, with depths and pairs if its language is known and has them."""
    names = list(tokens or ())
    if tokens is None and language is not None:
        names = [(*language.alphabet, BOS_STRING)[token] for token in ids]
    none = [-1] * len(ids)
    if not isinstance(language, DyckLanguage):
        closing = [False] * len(ids)
        return Text(ids=[*ids], tokens=names, depth=None, pair=none, top=none, closing=closing)
    string = torch.tensor(ids)
    return Text(
        ids=list(ids),
        tokens=names,
        depth=language.depth(string).tolist(),
        pair=language.matching(string).tolist(),
        top=language.top_of_stack(string).tolist(),
        closing=language.is_close(string).tolist(),
    )


def text_in(language: DyckLanguage, brackets: str) -> Text:
    """A string of a language, after BOS."""
    return text_of([language.bos_token, *language.tokenize(brackets).tolist()], None, language)


def looks_ahead(weights: Weights) -> bool:
    """Whether a query attends to a later key, as in a bidirectional model."""
    return bool((np.triu(weights, 1) > 0).any())


def thousandths(weights: Weights) -> list[int | None]:
    """Weights in thousandths, row by row, for a script; None for what is not finite.

    The lower triangle, or all of a pattern that looks ahead.
    """
    seen = weights.ravel() if looks_ahead(weights) else weights[np.tril_indices(len(weights))]
    return [round(1000 * weight) if np.isfinite(weight) else None for weight in seen.tolist()]


def color_bar(
    label: str = "attention weight (share of the query's attention; square-root scale)",
    last: str = "1",
    *,
    ring: bool = True,
) -> Html:
    """The scale that all maps share."""
    shades = element(
        "span", [element("span", class_=f"b{shade}") for shade in range(SHADES)], class_="shades"
    )
    ticks = [
        # the square root, as shades have it
        element("span", name, style=f"left:{100 * float(at) ** 0.5:.1f}%")
        for at, name in (*((each, each) for each in ("0", "0.05", "0.25", "0.5")), ("1", last))
    ]
    legend = element(
        "span", element("span", class_="ring"), " top of the stack", class_="ringlegend"
    )
    ends = element("span", ticks, class_="ticks")
    scale = element("div", element("span", label), shades, ends, class_="bar")
    return element("div", scale, legend if ring else None, class_="colorbar")


def heat_map(text: Text, weights: Weights, lines: tuple[str, ...] = ()) -> Html:
    """One pattern as SVG, hidden from screen readers (what it is in has a label).

    Its lower triangle is drawn, or all of one that looks ahead.
    """
    n = len(text.tokens)
    widths = [n if looks_ahead(weights) else query + 1 for query in range(n)]
    ground = "".join(f"M0 {query}h{width}v1h-{width}z" for query, width in enumerate(widths))
    parts = [f'<path class="h0" d="{ground}"/>']
    parts += [
        f'<path class="h{shade}" d="{path}"/>'
        for shade, path in sorted(_shade_paths(weights, widths).items())
    ]
    rings = "".join(
        # two half circles of radius .35 in a cell of 1: .15 from its sides
        f"M{top + 0.15} {q + 0.5}a.35 .35 0 1 0 .7 0a.35 .35 0 1 0-.7 0z"
        for q, top in enumerate(text.top)
        if top >= 0
    )
    parts.append(f'<path class="stack" d="{rings}"/>')
    for position, token in enumerate(text.tokens):
        label, size = token_label(token)
        style = f' style="font-size:{size}px"' if size else ""
        middle = f"{position + 0.5:g}"
        # names of queries stand left of the map, of keys below it
        parts.append(f'<text class="q" x="-.25" y="{middle}"{style}>{label}</text>')
        parts.append(f'<text class="k" x="{middle}" y="{n + 0.75:g}"{style}>{label}</text>')
    # a font of 1.55 cells, as in the style sheet, would cover a map of few
    scale = min(1.0, n / _ROOMY)
    style = f' style="font-size:{1.55 * scale:.3g}px"' if scale < 1 else ""
    for index, line in enumerate(lines):
        # a line is 1.55 cells high: 0.2 of a cell between lines
        y = scale * (1.6 + 1.75 * index)
        parts.append(
            f'<text class="corner corner{index}" x="{n}" '
            f'y="{y:g}"{style}>{element("tspan", line)}</text>'
        )
    # 1.5 cells for the names on the left, .2 above and on the right, 1.5 below
    box = f"-1.5 -.2 {n + 1.7:g} {n + 1.7:g}"
    return Html(
        f'<svg class="map" viewBox="{box}" aria-hidden="true" '
        f'focusable="false">{"".join(parts)}</svg>'
    )


def _shade_paths(weights: Weights, widths: Sequence[int]) -> dict[int, str]:
    """Per shade but the lightest one path of horizontal runs, of so many keys a query."""
    paths: dict[int, str] = {}
    # the square root spreads the small weights, of which there are most
    levels = np.rint(np.sqrt(np.clip(weights, 0, 1)) * (SHADES - 1)).astype(int)
    for query, row in enumerate(levels):
        start = 0
        for level, same in groupby(row[: widths[query]].tolist()):
            length = len(list(same))
            if level:
                paths[level] = paths.get(level, "") + f"M{start} {query}h{length}v1h-{length}z"
            start += length
    return paths


def token_label(token: str) -> tuple[Html, float | None]:
    """A token beside a map, escaped, and its font size in cells; long ones are cut and smaller."""
    special = token == BOS_STRING or re.fullmatch(r"\[\w{2,}\]", token)  # "[start]" and the like
    text = token.strip("<>[]") if special else token
    text = text if len(text) <= _LABEL_LENGTH else text[: _LABEL_LENGTH - 1] + "…"
    # the longer, the smaller; one character needs no size of its own
    return element("tspan", text), round(min(1.0, 1.6 / len(text)), 2) if len(text) > 1 else None


def described_map(text: Text, weights: Weights, corner: Sequence[str], what: str) -> Html:
    """A heat map with its text alternative."""
    said = f"Attention pattern {what}; {text.in_words(weights)}."
    return element("div", heat_map(text, weights, tuple(corner)), role="img", aria_label=said)
