"""Attention patterns of all seeds side by side, as light-weight heat maps in SVG.

A map is a few paths, one per shade, so that hundreds fit a page and print sharply. What a cell is can be read by
mouse or keyboard: the page's script finds it by its coordinates in the JSON that `pattern_data` describes.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import combinations
from typing import Any, final

import numpy as np
import pandas as pd
from jaxtyping import Float, Int
from torch import Tensor

from tl_dyck.files import CorruptFileError
from tl_dyck.language import DyckLanguage
from tl_dyck.language.dyck import BOS_STRING
from tl_dyck.report.commands import report_command
from tl_dyck.report.figures import Figure, good_statuses, percent
from tl_dyck.report.markup import Html, element
from tl_dyck.studies import Study

__all__ = [
    "SHADES",
    "Patterns",
    "color_bar",
    "heat_map",
    "pattern_figure",
    "read_patterns",
    "striking_pair",
    "string_patterns",
    "token_label",
]

SHADES = 24  #: number of shades; the style sheet has a colour .h0 … .h23 for each
_LABEL_LENGTH = 5  # characters of a long bracket that are shown beside a map

Weights = Float[np.ndarray, "query key"]


@final
@dataclass(frozen=True, kw_only=True)
class Group:
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
        top: for each token the position of the last bracket that is still open, -1 if there is none.
        closing: whether each token closes.
        groups: the patterns, in the order of the study's families.
    """

    tokens: list[str]
    depth: list[int]
    top: list[int]
    closing: list[bool]
    groups: list[Group]

    def on_top(self, weights: Weights) -> float:
        """Mean weight on the top of the stack over the closing brackets that have something left on it."""
        found = [weights[query, top] for query, top in enumerate(self.top) if top >= 0 and self.closing[query]]
        return float(np.mean(found)) if found else float("nan")

    def in_words(self, weights: Weights) -> str:
        """One pattern in a few words, for who cannot see it."""
        share = percent(self.on_top(weights), 0)
        return f"at the closing brackets of the string {share} of the attention is on the top of the stack"

    def to_json(self) -> dict[str, Any]:
        """What the page's script needs: tokens, and per group the lower triangles in thousandths, row by row."""
        rows, columns = np.tril_indices(len(self.tokens))

        def thousandths(weights: Weights) -> list[int | None]:
            return [round(1000 * w) if np.isfinite(w) else None for w in weights[rows, columns].tolist()]

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
                    **{"family": group.family, "layer": group.layer, "head": group.head, "seed": seed},
                    **shared,
                    "weight": weights[rows, columns].round(4),
                }
            )
            for group in self.groups
            for seed, weights in zip(group.seeds, group.weights, strict=True)
        ]
        return pd.concat(frames, ignore_index=True)


def read_patterns(study: Study) -> Patterns:
    """Read the patterns that a study saved.

    Raises:
        CorruptFileError: a run's file is missing or damaged.
    """
    language = study.task.language
    brackets = language.tokenize(study.summary["probe_string"])
    tokens = brackets.new_tensor([language.bos_token, *brackets.tolist()])
    groups = []
    for family in study.config.families:
        weights = [study.patterns(family, seed).float().numpy() for seed in study.config.seeds]
        if len({found.shape for found in weights}) > 1:
            raise CorruptFileError(f"the patterns of {family} in {str(study.folder)!r} are not of one shape")
        stacked = np.stack(weights)
        _, n_layers, n_heads = stacked.shape[:3]
        groups += [
            Group(
                name=f"{family}, layer {layer}" + (f", head {head}" if n_heads > 1 else ""),
                family=family,
                layer=layer,
                head=head,
                seeds=list(study.config.seeds),
                weights=stacked[:, layer, head],
            )
            for layer in range(n_layers)
            for head in range(n_heads)
        ]
    return _patterns_of(language, tokens, [str(token) for token in study.summary["probe_tokens"]], groups)


def string_patterns(language: DyckLanguage, text: str) -> Patterns:
    """What a heat map of some other string needs to know about it."""
    brackets = language.tokenize(text)
    tokens = brackets.new_tensor([language.bos_token, *brackets.tolist()])
    return _patterns_of(language, tokens, [BOS_STRING, *(language.alphabet[token] for token in brackets.tolist())], [])


def _patterns_of(
    language: DyckLanguage, tokens: Int[Tensor, " pos"], texts: list[str], groups: list[Group]
) -> Patterns:
    return Patterns(
        tokens=texts,
        depth=language.depth(tokens).tolist(),
        top=language.top_of_stack(tokens).tolist(),
        closing=language.is_close(tokens).tolist(),
        groups=groups,
    )


def pattern_figure(study: Study, patterns: Patterns) -> Figure:
    """The patterns of every family, layer and head, all seeds side by side."""
    variation = {(row.family, row.layer): row for row in study.variation.itertuples()}
    accuracy = study.models.set_index(["family", "seed"])["accuracy"].to_dict()
    wide = min(len(study.config.seeds), 8)  # maps beside each other, half of them where there is less room
    columns = f"--wide:{wide};--half:{(wide + 1) // 2}"
    parts: list[Html] = [color_bar()]
    for index, group in enumerate(patterns.groups):
        facts = variation.get((group.family, group.layer))
        text = (
            f"variation {facts.variation:.2f} [{facts.low:.2f}, {facts.high:.2f}]; random {facts.random_baseline:.2f}"
            if facts is not None
            else None
        )
        maps = [
            _map_button(patterns, group, index, position, accuracy[group.family, seed])
            for position, seed in enumerate(group.seeds)
        ]
        heading = element("h3", group.name, " ", element("small", text) if text else None)
        parts.append(
            element(
                "div", heading, element("div", maps, class_="maps", style=columns), class_="group", data_group=index
            )
        )
    return Figure(
        name="patterns",
        title="Attention patterns of all seeds",
        reading=_reading(patterns),
        data=patterns.to_frame(),
        command=report_command(study),
        body=element("div", parts),
        note=f"Rows are queries, columns keys, on the string {study.summary['probe_string']} after its start token; "
        "every row sums to 1. Rings mark the top of the stack, where a parser would look. Percentages are accuracies "
        "in distribution. Point at a cell to compare it across seeds; open a map (click or Enter) to see it large and "
        "to walk through it with the arrow keys.",
    )


def striking_pair(study: Study, patterns: Patterns) -> tuple[Group, int, int] | None:
    """The two models that differ most among those of one family that learned, and what they are positions in."""
    good = good_statuses(study)
    learned = {(row.family, row.seed) for row in study.models.itertuples() if row.status in good}
    best: tuple[float, Group, int, int] | None = None
    for group in patterns.groups:
        usable = [position for position, seed in enumerate(group.seeds) if (group.family, seed) in learned]
        for first, second in combinations(usable, 2):
            distance = float(np.square(group.weights[first] - group.weights[second]).sum())
            if np.isfinite(distance) and (best is None or distance > best[0]):
                best = (distance, group, first, second)
    return best[1:] if best is not None else None


def color_bar() -> Html:
    """The scale that all maps share."""
    shades = element("span", [element("span", class_=f"b{shade}") for shade in range(SHADES)], class_="shades")
    ticks = [element("span", f"{w:g}", style=f"left:{100 * w**0.5:.1f}%") for w in (0, 0.05, 0.25, 0.5, 1)]
    legend = element("span", element("span", class_="ring"), " top of the stack", class_="ringlegend")
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
    parts += [f'<path class="h{shade}" d="{path}"/>' for shade, path in sorted(_shade_paths(weights).items())]
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
            f'<text class="corner corner{index}" x="{n}" y="{1.6 + 1.75 * index:g}">{element("tspan", line)}</text>'
        )
    box = f"-1.5 -.2 {n + 1.7:g} {n + 1.7:g}"
    return Html(f'<svg class="map" viewBox="{box}" aria-hidden="true" focusable="false">{"".join(parts)}</svg>')


def _map_button(patterns: Patterns, group: Group, index: int, position: int, accuracy: float) -> Html:
    weights, seed = group.weights[position], group.seeds[position]
    if not np.isfinite(weights).all():
        return element("p", f"seed {seed}: no pattern, the weights are not finite", class_="nomap")
    label = f"{group.name}, seed {seed}: {percent(accuracy)} accurate; {patterns.in_words(weights)}. Open."
    picture = heat_map(patterns, weights, (f"seed {seed}", percent(accuracy)))
    return element(
        "button", picture, type="button", class_="open", aria_label=label, data_group=index, data_map=position
    )


def _reading(patterns: Patterns) -> str:
    spread = []
    for group in patterns.groups:
        values = [patterns.on_top(weights) for weights in group.weights]
        finite = [value for value in values if np.isfinite(value)]
        if finite:
            spread.append((max(finite) - min(finite), min(finite), max(finite), group))
    if not spread:
        return "No pattern is finite."
    _, low, high, group = max(spread, key=lambda entry: entry[0])
    return (
        f"All models do the same task, yet they attend differently: in {group.name}, for one, seeds put from "
        f"{percent(low, 0)} to {percent(high, 0)} of a closing bracket's attention on the top of the stack."
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
    """A token beside a map, escaped, and its font size in cells; long ones are cut and made smaller."""
    text = token.strip("<>") if token == BOS_STRING else token
    text = text if len(text) <= _LABEL_LENGTH else text[: _LABEL_LENGTH - 1] + "…"
    return element("tspan", text), round(min(1.0, 1.6 / len(text)), 2) if len(text) > 1 else None
