"""What the plotly figures of a report share: marks, marked lines, rows.

A plot is a dictionary as plotly.js takes it. Colours are names of CSS variables of the page (``"@ink"``), so that the
same figure serves light, dark and print.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, final

import numpy as np
import pandas as pd

from tl_dyck.report.markup import for_plotly

__all__ = [
    "COLORS",
    "SYMBOLS",
    "Line",
    "Plot",
    "interval",
    "jitter",
    "lines",
    "numbers",
    "points",
    "row_layout",
    "scatter_layout",
]

COLORS = tuple(f"@c{index}" for index in range(6))  #: of the style sheet; told apart by the colour-blind
SYMBOLS = ("circle", "square", "diamond", "triangle-up", "cross", "star")

_ROW = 58  # height of a row, pixels


@final
@dataclass(frozen=True, kw_only=True)
class Plot:
    """One plotly plot.

    Attributes:
        alt: what it shows, for who cannot see it.
        traces: of plotly.js.
        layout: likewise, without what all plots share.
    """

    alt: str
    traces: list[dict[str, Any]]
    layout: dict[str, Any]


@final
@dataclass(frozen=True)
class Line:
    """A dashed line that marks a value.

    Attributes:
        at: the value.
        text: what it means.
        anchor: which end of the text is at the line, "left", "center" or "right".
    """

    at: float
    text: str
    anchor: str = "center"


def points(x: Any, y: Any, *, color: str, symbol: str, name: str, size: int = 9) -> dict[str, Any]:
    """A trace of marks; what is not finite is left out."""
    return {
        "type": "scatter",
        "mode": "markers",
        "x": numbers(x),
        "y": numbers(y),
        "name": for_plotly(name),
        "marker": {
            "color": color,
            "symbol": symbol,
            "size": size,
            "opacity": 0.85,
            "line": {"width": 1.5, "color": color},
        },
    }


def interval(middle: Any, low: Any, high: Any, *, color: str, width: int) -> dict[str, Any]:
    """Horizontal error bars from `low` to `high`; `width` is that of their ends."""
    middle, low, high = (np.asarray(values, dtype=float) for values in (middle, low, high))
    return {
        "type": "data",
        "symmetric": False,
        "array": numbers(high - middle),
        "arrayminus": numbers(middle - low),
        "thickness": 2,
        "width": width,
        "color": color,
    }


def row_layout(labels: Sequence[str], unit: str, marked: Sequence[Line], limits: Sequence[float]) -> dict[str, Any]:
    """Rows from top to bottom, one per label, and values along x.

    Args:
        labels: of the rows.
        unit: title of the x axis, with its unit.
        marked: lines across all rows.
        limits: of the x axis; empty for those of the data.
    """
    height = _ROW * len(labels)
    return {
        "height": height + 130,
        "margin": {"t": 66, "r": 16, "b": 56, "l": 16},
        "xaxis": {"title": {"text": unit}, **({"range": list(limits)} if limits else {})},
        "yaxis": {
            "tickvals": list(range(len(labels))),
            "ticktext": [for_plotly(label) for label in labels],
            "range": [len(labels) - 0.45, -0.55],
            "zeroline": False,
            "showgrid": False,
        },
        # above the names of the lines
        "legend": {"orientation": "h", "x": 0, "xanchor": "left", "y": 1 + 20 / height, "yanchor": "bottom"},
        **lines(marked, vertical=True),
    }


def scatter_layout(
    x: str, y: str, *, height: int = 400, top: int = 40, left: int = 16, from_zero: bool = True
) -> dict[str, Any]:
    """One quantity against another, the legend above.

    Args:
        x: title of the axis, with its unit.
        y: likewise.
        height: in pixels.
        top: margin above, where the legend is.
        left: margin.
        from_zero: whether the x axis begins at 0.
    """
    return {
        "height": height,
        "margin": {"t": top, "r": 16, "b": 56, "l": left},
        "xaxis": {"title": {"text": x}, **({"rangemode": "tozero"} if from_zero else {})},
        "yaxis": {"title": {"text": y}},
        "legend": {"orientation": "h", "x": 0, "xanchor": "left", "y": 1.01, "yanchor": "bottom"},
    }


def lines(marked: Sequence[Line], *, vertical: bool) -> dict[str, Any]:
    """Dashed lines across a plot; their names stand above it, or at its right end."""
    along, across = ("x", "y") if vertical else ("y", "x")
    shapes, names = [], []
    for line in marked:
        shapes.append(
            {
                "type": "line",
                "layer": "below",
                "line": {"dash": "dash", "width": 1.5, "color": "@muted"},
                f"{along}0": line.at,
                f"{along}1": line.at,
                f"{across}ref": "paper",
                f"{across}0": 0,
                f"{across}1": 1,
            }
        )
        names.append(
            {
                "text": for_plotly(line.text),
                "showarrow": False,
                "font": {"size": 12, "color": "@muted"},
                along: line.at,
                across: 1,
                f"{across}ref": "paper",
                "xanchor": line.anchor if vertical else "right",
                "yanchor": "bottom" if vertical else "top",
            }
        )
    return {"shapes": shapes, "annotations": names}


def numbers(values: Any) -> list[float | None]:
    """Numbers as JSON has them: what is not finite becomes null."""
    return [float(value) if math.isfinite(value) else None for value in np.asarray(values, dtype=float)]


def jitter(seeds: pd.Series[Any]) -> np.ndarray:
    """A small offset per seed, the same in every figure, so that equal values stay apart."""
    known = sorted(set(seeds))
    step = 0.16 / max(1, len(known) - 1)
    return np.array([step * known.index(seed) - 0.08 for seed in seeds])
