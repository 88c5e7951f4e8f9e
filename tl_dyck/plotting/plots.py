"""What a plot is, and two kinds: scatter and curves. `plot_recipes` beside it has dots in rows.

A plot is what plotly.js takes. Colours are names of CSS variables of the page (``"@ink"``), so that
one plot serves light, dark and print; `tl_dyck.plotting.plot_recipes.as_figure` makes figures of
them, and `tl_dyck.plotting.plot_recipes.dots` makes one from a table.

Tried instead of plotly: altair, which takes another 32 MB of packages to write a page for use
offline.
"""

from __future__ import annotations

import html
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, final

import numpy as np
import pandas as pd

#: Of the style sheet; told apart by the colour-blind.
COLORS = tuple(f"@c{index}" for index in range(6))
SYMBOLS = ("circle", "square", "diamond", "triangle-up", "cross", "star")

#: The style sheet's colours on a light page, for figures outside of pages.
LIGHT = {
    "@ink": "#16202a",
    "@muted": "#5a6672",
    "@grid": "#e6eaee",
    "@c0": "#0072b2",
    "@c1": "#d55e00",
    "@c2": "#007d5b",
    "@c3": "#a8558a",
    "@c4": "#b07800",
    "@c5": "#3a8fc4",
}


@final
@dataclass(frozen=True, kw_only=True)
class Plot:
    """One plotly plot.

    Attributes:
        alt: what it shows, for those who cannot see it.
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


@final
@dataclass(frozen=True, kw_only=True)
class Series:
    """Marks of one kind, or a curve.

    Attributes:
        name: in the legend.
        x: numbers; marks at what is not finite are left out.
        y: likewise.
        color: of marks, bars and curve.
        symbol: of the marks.
        size: of the marks in pixels, one number or one for each; 0 for none.
        said: what each mark is, in plotly's markup; shown when it is pointed at.
        hover: what is shown after that, a template of plotly's.
        legend: whether it has an entry in the legend.
        low: beginnings of horizontal bars; None for no bars.
        high: their ends.
        caps: width of what ends a bar, in pixels.
        thickness: of the bars.
        line: of a curve, as plotly describes it; None for marks alone.
        marker: more about the marks, as plotly describes them.
        more: more about all of it, likewise.
    """

    name: str
    x: Any
    y: Any
    color: str = "@c0"
    symbol: str = "circle"
    size: int | Sequence[int] = 9
    said: Sequence[str] = ()
    hover: str = ""
    legend: bool = True
    low: Any = None
    high: Any = None
    caps: int = 0
    thickness: float = 2.0
    line: Mapping[str, Any] | None = None
    marker: Mapping[str, Any] = field(default_factory=dict)
    more: Mapping[str, Any] = field(default_factory=dict)

    def trace(self) -> dict[str, Any]:
        """As plotly.js takes it."""
        made: dict[str, Any] = {
            "type": "scatter",
            "mode": "+".join(["lines"] * (self.line is not None) + ["markers"] * bool(self.size)),
            "x": numbers(self.x),
            "y": numbers(self.y),
            "name": for_plotly(self.name),
            "showlegend": self.legend,
        }
        # <extra></extra> takes plotly's second box away, which repeats the legend
        shown = ["%{customdata}"] * bool(self.said) + [self.hover] * bool(self.hover)
        made |= (
            {"hovertemplate": "<br>".join(shown) + "<extra></extra>"}
            if shown
            else {"hoverinfo": "skip"}
        )
        if self.said:
            made["customdata"] = list(self.said)
        if self.line is not None:
            # thin: of a family there are as many curves as seeds
            made["line"] = {"width": 1.3, "color": self.color, **self.line}
        if self.size:
            solid = (
                {"opacity": 0.85, "line": {"width": 1.5, "color": self.color}}
                if self.line is None
                else {}
            )
            style = {"color": self.color, "symbol": self.symbol, "size": self.size}
            made["marker"] = {**style, **solid, **self.marker}
        if self.low is not None:
            middle, low, high = (
                np.asarray(values, dtype=float) for values in (self.x, self.low, self.high)
            )
            ends = {"array": numbers(high - middle), "arrayminus": numbers(middle - low)}
            bars = {"thickness": self.thickness, "width": self.caps, "color": self.color}
            made["error_x"] = {"type": "data", "symmetric": False, **ends, **bars}
        return {**made, **self.more}


# --- two kinds -----------------------------------------------------------------------------------


def scatter(
    x: str,
    y: str,
    series: Iterable[Series],
    *,
    alt: str = "",
    height: int = 400,
    top: int = 40,
    left: int = 16,
    from_zero: str = "x",
    logarithmic: str = "",
) -> Plot:
    """One quantity against another, the legend above.

    Args:
        x: title of the axis, with its unit.
        y: likewise.
        series: marks or curves.
        alt: see `Plot`; empty for what the axes say.
        height: in pixels, as are the margins `top` and `left`.
        top: where the legend is.
        left: margin.
        from_zero: the axes that begin at 0: "x", "xy" or "".
        logarithmic: likewise.
    """
    layout = {
        "height": height,
        "margin": {"t": top, "r": 16, "b": 56, "l": left},
        "legend": {"orientation": "h", "x": 0, "xanchor": "left", "y": 1.01, "yanchor": "bottom"},
    }
    for name, text in (("x", x), ("y", y)):
        layout[f"{name}axis"] = {
            "title": {"text": text},
            **({"rangemode": "tozero"} if name in from_zero else {}),
            **({"type": "log"} if name in logarithmic else {}),
        }
    return _plot(alt, f"{y} against {x}.", series, layout)


def curves(
    title: str,
    x: str,
    y: str,
    series: Iterable[Series],
    *,
    alt: str = "",
    height: int = 340,
    limits: Mapping[str, Sequence[float]] | None = None,
    marked: Sequence[Line] = (),
    stages: Sequence[float] = (),
) -> Plot:
    """One of several small plots beside each other, with a title: a curve per run.

    Args:
        title: what tells it from the others.
        x: title of the axis, with its unit.
        y: likewise.
        series: curves, or marks.
        alt: see `Plot`; empty for what title and axes say.
        height: in pixels.
        limits: of the axes "x" and "y".
        marked: values of y that are marked.
        stages: values of x at which something changes.
    """
    layout: dict[str, Any] = {
        "height": height,
        "title": {"text": for_plotly(title), "font": {"size": 14}, "x": 0.02, "xanchor": "left"},
        "margin": {"t": 40, "r": 16, "b": 48, "l": 56},
    }
    for name, text in (("x", x), ("y", y)):
        given = {"range": list(limits[name])} if limits and name in limits else {}
        layout[f"{name}axis"] = {"title": {"text": text}, **given}
    if marked:
        layout |= marked_lines(marked, vertical=False)
    if stages:
        layout["shapes"] = layout.get("shapes", []) + [
            _rule("x", at, dash="dot", width=1.0) for at in stages
        ]
    return _plot(alt, f"{title}, {y} against {x}.", series, layout)


def _plot(alt: str, said: str, series: Iterable[Series], layout: dict[str, Any]) -> Plot:
    traces = [each.trace() for each in series]
    kind = "Scatter" if any(trace["mode"] == "markers" for trace in traces) else "Line"
    names = [html.unescape(trace["name"]) for trace in traces if trace["showlegend"]]
    shown = f" Shown: {', '.join(names)}." if len(names) > 1 else ""
    return Plot(alt=alt or f"{kind} plot: {said}{shown}", traces=traces, layout=layout)


def marked_lines(marked: Sequence[Line], *, vertical: bool) -> dict[str, Any]:
    """Dashed lines across a plot; their names stand above it, or at its right end."""
    along, across = ("x", "y") if vertical else ("y", "x")
    names = [
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
        for line in marked
    ]
    return {
        "shapes": [_rule(along, line.at, dash="dash", width=1.5) for line in marked],
        "annotations": names,
    }


def _rule(along: str, at: float, *, dash: str, width: float) -> dict[str, Any]:
    """A line across the whole plot."""
    across = "y" if along == "x" else "x"
    ends = {
        f"{along}0": at,
        f"{along}1": at,
        f"{across}ref": "paper",
        f"{across}0": 0,
        f"{across}1": 1,
    }
    return {
        # below the marks: a line says where they should be
        "type": "line",
        "layer": "below",
        "line": {"dash": dash, "width": width, "color": "@muted"},
        **ends,
    }


# --- what they are made of ------------------------------------------------------------------------


def for_plotly(text: object) -> str:
    """Text for a plotly label: plotly reads a little HTML there, so what users named is escaped."""
    return html.escape(str(text), quote=False)


def numbers(values: Any) -> list[float | None]:
    """Numbers as JSON has them: what is not finite becomes null."""
    return [
        float(value) if math.isfinite(value) else None for value in np.asarray(values, dtype=float)
    ]


def jitter(seeds: pd.Series[Any]) -> np.ndarray:
    """A small offset per seed, the same in every figure, so that equal values stay apart."""
    known = sorted(set(seeds))
    # 0.16 of a row in all, half of it on either side
    step = 0.16 / max(1, len(known) - 1)
    return np.array([step * known.index(seed) - 0.08 for seed in seeds])
