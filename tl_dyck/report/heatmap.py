"""Attention patterns as light-weight heat maps in SVG.

A map is a few paths, one per shade, so that hundreds fit a page and print sharply. What a cell is
can be read by mouse or keyboard: the page's script finds it by its coordinates in the JSON of
`Patterns.to_json`.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, final

import numpy as np
import pandas as pd
from jaxtyping import Float, Int
from torch import Tensor

from tl_dyck.language import DyckLanguage
from tl_dyck.language.checks import BOS_STRING
from tl_dyck.report.markup import Html, element, percent

SHADES = 24  #: number of shades; the style sheet has a colour .h0 … .h23 for each
_LABEL_LENGTH = 5  # characters of a long bracket that are shown beside a map

Weights = Float[np.ndarray, "query key"]


@final
@dataclass(frozen=True, kw_only=True)
class HeadPatterns:
    """One head of one family: the maps that are compared.

    Attributes:
        name: for readers.
        family: of the models.
        layer: from 0.
        head: from 0.
        seeds: of the models.
        weights: a pattern per seed, ``[seed, query, key]``.
    """

    name: str
    family: str
    layer: int
    head: int
    seeds: list[int]
    weights: Float[np.ndarray, "seed query key"]


@final
@dataclass(frozen=True, kw_only=True)
class Patterns:
    """The attention patterns of a study on its probe string.

    Attributes:
        tokens: as text, BOS first.
        depth: after each token.
        top: for each token the position of the last bracket that is still open, -1 if there is
            none.
        closing: whether each token closes.
        groups: the patterns, in the order of the study's families.
    """

    tokens: list[str]
    depth: list[int]
    top: list[int]
    closing: list[bool]
    groups: list[HeadPatterns]

    def on_top(self, weights: Weights) -> float:
        """Mean weight on the stack's top, over the closing brackets with something left on it."""
        found = [
            weights[query, top]
            for query, top in enumerate(self.top)
            if top >= 0 and self.closing[query]
        ]
        return float(np.mean(found)) if found else float("nan")

    def in_words(self, weights: Weights) -> str:
        """One pattern in a few words, for who cannot see it."""
        share = percent(self.on_top(weights), 0)
        return (
            f"at the closing brackets of the string {share} of the attention is on the top of the "
            "stack"
        )

    def to_json(self) -> dict[str, Any]:
        """Return the data of the page's script: tokens, and maps.

        Per group, these are the lower triangles in thousandths, row by row.
        """
        rows, columns = np.tril_indices(len(self.tokens))

        def thousandths(weights: Weights) -> list[int | None]:
            return [
                round(1000 * w) if np.isfinite(w) else None for w in weights[rows, columns].tolist()
            ]

        return {
            "tokens": self.tokens,
            "depth": self.depth,
            "top": self.top,
            "groups": [
                {
                    "name": group.name,
                    "seeds": group.seeds,
                    "weights": [thousandths(weights) for weights in group.weights],
                }
                for group in self.groups
            ],
        }

    def to_frame(self) -> pd.DataFrame:
        """One row per weight, those of the lower triangle."""
        rows, columns = np.tril_indices(len(self.tokens))
        shared = {
            "query": rows,
            "key": columns,
            "query_token": [self.tokens[row] for row in rows],
            "key_token": [self.tokens[column] for column in columns],
        }
        frames = [
            pd.DataFrame(
                {
                    "family": group.family,
                    "layer": group.layer,
                    "head": group.head,
                    "seed": seed,
                    **shared,
                    "weight": weights[rows, columns].round(4),
                }
            )
            for group in self.groups
            for seed, weights in zip(group.seeds, group.weights, strict=True)
        ]
        return pd.concat(frames, ignore_index=True)


def string_patterns(language: DyckLanguage, text: str) -> Patterns:
    """Return the parts of a heat map's data that describe some other string."""
    brackets = language.tokenize(text)
    tokens = brackets.new_tensor([language.bos_token, *brackets.tolist()])
    return patterns_of(
        language,
        tokens,
        [BOS_STRING, *(language.alphabet[token] for token in brackets.tolist())],
        [],
    )


def patterns_of(
    language: DyckLanguage,
    tokens: Int[Tensor, " pos"],
    texts: list[str],
    groups: list[HeadPatterns],
) -> Patterns:
    """A string, and patterns on it.

    Args:
        language: of the string.
        tokens: BOS first.
        texts: the tokens as text.
        groups: the patterns.
    """
    return Patterns(
        tokens=texts,
        depth=language.depth(tokens).tolist(),
        top=language.top_of_stack(tokens).tolist(),
        closing=language.is_close(tokens).tolist(),
        groups=groups,
    )


def color_bar() -> Html:
    """The scale that all maps share."""
    shades = element(
        "span", [element("span", class_=f"b{shade}") for shade in range(SHADES)], class_="shades"
    )
    ticks = [
        element("span", f"{w:g}", style=f"left:{100 * w**0.5:.1f}%")
        for w in (0, 0.05, 0.25, 0.5, 1)
    ]
    legend = element(
        "span", element("span", class_="ring"), " top of the stack", class_="ringlegend"
    )
    label = element("span", "attention weight (share of the query's attention; square-root scale)")
    scale = element("div", label, shades, element("span", ticks, class_="ticks"), class_="bar")
    return element("div", scale, legend, class_="colorbar")


def heat_map(patterns: Patterns, weights: Weights, lines: tuple[str, ...] = ()) -> Html:
    """One pattern as SVG, hidden from screen readers (what it is in has a label).

    Args:
        patterns: whose tokens label rows and columns.
        weights: a causal pattern.
        lines: short texts for the empty corner above the diagonal.
    """
    n = len(patterns.tokens)
    parts = [f'<path class="h0" d="{"".join(f"M0 {q}h{q + 1}v1h-{q + 1}z" for q in range(n))}"/>']
    parts += [
        f'<path class="h{shade}" d="{path}"/>'
        for shade, path in sorted(_shade_paths(weights).items())
    ]
    rings = "".join(
        f"M{top + 0.15} {q + 0.5}a.35 .35 0 1 0 .7 0a.35 .35 0 1 0-.7 0z"
        for q, top in enumerate(patterns.top)
        if top >= 0
    )
    parts.append(f'<path class="stack" d="{rings}"/>')
    for position, token in enumerate(patterns.tokens):
        label, size = token_label(token)
        style = f' style="font-size:{size}px"' if size else ""
        middle = f"{position + 0.5:g}"
        parts.append(f'<text class="q" x="-.25" y="{middle}"{style}>{label}</text>')
        parts.append(f'<text class="k" x="{middle}" y="{n + 0.75:g}"{style}>{label}</text>')
    for index, line in enumerate(lines):
        parts.append(
            f'<text class="corner corner{index}" x="{n}" '
            f'y="{1.6 + 1.75 * index:g}">{element("tspan", line)}</text>'
        )
    box = f"-1.5 -.2 {n + 1.7:g} {n + 1.7:g}"
    return Html(
        f'<svg class="map" viewBox="{box}" aria-hidden="true" '
        f'focusable="false">{"".join(parts)}</svg>'
    )


def _shade_paths(weights: Weights) -> dict[int, str]:
    """Per shade but the lightest one path of horizontal runs."""
    paths: dict[int, str] = {}
    # the square root spreads the small weights, of which there are most
    levels = np.rint(np.sqrt(np.clip(weights, 0, 1)) * (SHADES - 1)).astype(int)
    for query, row in enumerate(levels):
        for start, length, level in _runs(row[: query + 1].tolist()):
            if level:
                paths[level] = paths.get(level, "") + f"M{start} {query}h{length}v1h-{length}z"
    return paths


def _runs(values: list[int]) -> Iterator[tuple[int, int, int]]:
    start = 0
    for end in range(1, len(values) + 1):
        if end == len(values) or values[end] != values[start]:
            yield start, end - start, values[start]
            start = end


def token_label(token: str) -> tuple[Html, float | None]:
    """A token beside a map, escaped, and its font size in cells; long ones are cut and smaller."""
    text = token.strip("<>") if token == BOS_STRING else token
    text = text if len(text) <= _LABEL_LENGTH else text[: _LABEL_LENGTH - 1] + "…"
    return element("tspan", text), round(min(1.0, 1.6 / len(text)), 2) if len(text) > 1 else None


def described_map(
    patterns: Patterns, weights: np.ndarray, corner: Sequence[str], what: str
) -> Html:
    """A heat map with its text alternative.

    Args:
        patterns: the string.
        weights: of one head, ``[query, key]``.
        corner: what stands in its corner.
        what: whose pattern it is, after "Attention pattern".
    """
    said = f"Attention pattern {what}; {patterns.in_words(weights)}."
    return element("div", heat_map(patterns, weights, tuple(corner)), role="img", aria_label=said)
