"""Plots from a table and format strings: a dot for each line of it, in rows or against another.

Knows: how an array becomes a table, how kinds of marks are told apart, how marks of one row stay
apart, how far an axis goes, and how a plot becomes a figure for notebooks. A format string takes
the columns of a line: ``"{family} seed {seed}"``.
"""

from __future__ import annotations

import string
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from tl_dyck.plotting.plots import (
    COLORS,
    LIGHT,
    SYMBOLS,
    Line,
    Plot,
    Series,
    for_plotly,
    jitter,
    marked_lines,
)

if TYPE_CHECKING:
    import plotly.graph_objects as go

_PLOT, _LOW_ROW, _HIGH_ROW = 420, 20, 60  # pixels: all rows together, if each can have as much
_MARK = 8  # pixels of a row for each series in it


def dots(
    table: pd.DataFrame,
    values: Mapping[str, str],
    *,
    rows: str,
    unit: str,
    said: str = "",
    hover: str = "%{x:.3g}",
    bars: tuple[str, str] | None = None,
    by: str = "",
    kinds: Mapping[Any, str] | None = None,
    means: Mapping[str, Mapping[str, Any]] | None = None,
    scale: float = 1.0,
    marked: Sequence[Line] = (),
    include: Iterable[float] = (),
) -> Plot:
    """A dot for each line of a table and value, in the row that the line belongs to.

    Lines of one row are apart by their seed, values and kinds by their place.

    Args:
        table: a line for each dot.
        values: name in the legend -> column; of several, the first has the bars.
        rows: what a row is called, a format string; lines of one name share a row.
        unit: of the x axis.
        said: what a line is, a format string, shown when it is pointed at; empty for `rows`.
        hover: what is shown after that, a template of plotly's; empty for nothing.
        bars: columns in which intervals begin and end.
        by: column of kinds, which then have a colour each; there is one value.
        kinds: value in that column -> name in the legend, in their order.
        means: row -> column -> "mean", "low", "high", drawn across the dots.
        scale: what values are multiplied by.
        marked: lines across all rows; those at what is no number are left out.
        include: what the axis must reach.
    """
    lines = table.to_dict("records")
    labels = [rows.format(**line) for line in lines]
    names = list(dict.fromkeys(labels))
    place = np.array([names.index(label) for label in labels], dtype=float)
    if "seed" in table and len(names) < len(table):
        place += jitter(table["seed"])
    if by:
        ((_, column),) = values.items()
        parts = [(name, column, table[by] == kind) for kind, name in (kinds or {}).items()]
    else:
        parts = [(name, column, pd.Series(True, table.index)) for name, column in values.items()]
    words, marked = in_words(said or rows, table), [line for line in marked if np.isfinite(line.at)]
    series = []
    for index, (name, column, chosen) in enumerate(parts):
        part, here = table[chosen], np.flatnonzero(chosen)
        # series share the middle half of a row, from −0.25 to 0.25
        apart = 0.5 * (index + 0.5) / len(parts) - 0.25
        low, high = (
            (scale * part[end] for end in bars) if bars and (by or not index) else (None, None)
        )
        dot = Series(
            name=name,
            x=scale * part[column],
            y=place[here] + apart,
            color=COLORS[index % len(COLORS)],
            symbol=SYMBOLS[index % len(SYMBOLS)],
            said=[words[line] for line in here],
            hover=f"{for_plotly(name)}: {hover}" if len(values) > 1 else hover,
            low=low,
            high=high,
            caps=3,
        )
        series.append(dot)
        if means is not None:
            series.append(_means(means, column, names, apart, scale, legend=not index))
    fields = [field for _, field, _, _ in string.Formatter().parse(rows) if field]
    alt = f"Dot plot{' with intervals' if bars or means else ''}: {unit}"
    alt += f", a row per {' and '.join(fields)}"
    alt += "".join(f"; a line at {line.text}" for line in marked if line.text) + "."
    layout = _rows(names, unit, series, marked, include)
    return Plot(alt=alt, traces=[each.trace() for each in series], layout=layout)


def _rows(
    names: list[str],
    unit: str,
    series: list[Series],
    marked: Sequence[Line],
    include: Iterable[float],
) -> dict[str, Any]:
    """Rows from top to bottom, and an axis that reaches all that is drawn."""
    least = max(_LOW_ROW, _MARK * len(series))
    row = int(min(_HIGH_ROW, max(least, _PLOT / max(1, len(names)))))
    # one row alone is still two high: legend and axis need the room
    height = max(2 * _HIGH_ROW, row * len(names))
    # room above for the legend: entries beyond two need more lines
    top = 66 + 12 * max(0, len(series) - 2)
    drawn = [[*include, *(line.at for line in marked)]]
    drawn += [ends for each in series for ends in (each.x, each.low, each.high) if ends is not None]
    reach = [float(end) for ends in drawn for end in ends if np.isfinite(end)]
    # marks at the ends are drawn whole
    pad = 0.04 * (max(reach) - min(reach)) if reach else 0
    limits = {"range": [min(reach) - pad, max(reach) + pad]} if pad else {}
    legend = {"orientation": "h", "x": 0, "xanchor": "left", "yanchor": "bottom"}
    return {
        # 56 below for the axis, 8 to spare
        "height": height + top + 64,
        "margin": {"t": top, "r": 16, "b": 56, "l": 16},
        "xaxis": {"title": {"text": for_plotly(unit)}, **limits},
        "yaxis": {
            "tickvals": list(range(len(names))),
            "ticktext": [for_plotly(name) for name in names],
            # backwards: the first row is on top; half a row and a little more at both ends
            "range": [len(names) - 0.45, -0.55],
            "zeroline": False,
            "showgrid": False,
        },
        "legend": {**legend, "y": 1 + 20 / height},  # above the names of the lines
        **marked_lines(marked, vertical=True),
    }


def _means(
    means: Mapping[str, Mapping[str, Any]],
    column: str,
    names: list[str],
    apart: float,
    scale: float,
    *,
    legend: bool,
) -> Series:
    """A mark with an interval for every row that has a mean."""
    rows = [
        (row + apart, *(scale * means[name][column][key] for key in ("mean", "low", "high")))
        for row, name in enumerate(names)
        if column in means.get(name, {})
    ]
    table = pd.DataFrame(rows, columns=["row", "mean", "low", "high"])
    return Series(
        name="mean over seeds, with its interval",
        x=table["mean"],
        y=table["row"],
        color="@ink",
        symbol="line-ns",
        size=14,
        said=in_words("mean {mean:.4g} [{low:.4g}, {high:.4g}]", table),
        legend=legend,
        low=table["low"],
        high=table["high"],
    )


def marks(
    table: pd.DataFrame,
    x: str,
    y: str,
    *,
    by: str,
    kinds: Mapping[Any, str],
    said: str,
    hover: str,
    size: int = 9,
) -> list[Series]:
    """A mark for each line of a table, in the colour and symbol of its kind.

    Args:
        table: a line for each mark.
        x: column.
        y: likewise.
        by: column of the kinds.
        kinds: value in that column -> name in the legend; one without lines is left out, but keeps
            its colour.
        said: what a line is, a format string, shown when it is pointed at.
        hover: what is shown after that, a template of plotly's.
        size: of the marks.
    """
    return [
        Series(
            name=name,
            x=part[x],
            y=part[y],
            color=COLORS[index % len(COLORS)],
            symbol=SYMBOLS[index % len(SYMBOLS)],
            size=size,
            said=in_words(said, part),
            hover=hover,
        )
        for index, (kind, name) in enumerate(kinds.items())
        if len(part := table[table[by] == kind])
    ]


def frame(axes: Sequence[tuple[str, int]], columns: Mapping[str, Any]) -> pd.DataFrame:
    """A row for every cell of arrays whose axes are (name, number of the first place) each."""
    values = np.broadcast_arrays(*(np.asarray(value) for value in columns.values()))
    places = np.indices(values[0].shape).reshape(len(axes), -1)
    named = {name: place + first for (name, first), place in zip(axes, places, strict=True)}
    return pd.DataFrame(named | dict(zip(columns, (v.ravel() for v in values), strict=True)))


def in_words(form: str, table: pd.DataFrame) -> list[str]:
    """Each line of a table in words, whose names are text to plotly."""
    return [
        form.format(
            **{
                str(column): for_plotly(value) if isinstance(value, str) else value
                for column, value in line.items()
            }
        )
        for line in table.to_dict("records")
    ]


def as_figure(plots: Sequence[Plot], title: str) -> go.Figure:
    """Plots as one figure for notebooks, two beside each other, in the colours of a light page."""
    from plotly.subplots import make_subplots

    # two beside each other fit a notebook
    wide = min(2, len(plots))
    titles = [plot.layout["title"]["text"] for plot in plots] if len(plots) > 1 else None
    figure = make_subplots(rows=-(-len(plots) // wide), cols=wide, subplot_titles=titles)
    for index, plot in enumerate(plots):
        place = {"row": index // wide + 1, "col": index % wide + 1}
        for trace in map(_light, plot.traces):
            if "colorscale" in trace.get("marker", ()):
                trace["marker"]["showscale"] = index == 0  # one scale for all
            figure.add_trace(trace, **place)
        figure.update_xaxes(_light(plot.layout["xaxis"]), **place)
        figure.update_yaxes(_light(plot.layout["yaxis"]), **place)
        for shape in plot.layout.get("shapes", ()):
            across = "y" if shape.get("yref") == "paper" else "x"
            figure.add_shape(_light({**shape, f"{across}ref": f"{across} domain"}), **place)
    figure.update_layout(title=title, template="plotly_white")
    if len(plots) == 1:
        figure.update_layout(annotations=_light(plots[0].layout.get("annotations", [])))
        # 60: for the title, which pages have outside of their plots
        figure.update_layout(height=plots[0].layout["height"] + 60)
    return figure


def dots_figure(
    table: pd.DataFrame,
    values: Mapping[str, str],
    *,
    title: str,
    marked: Mapping[str, float],
    **how: Any,
) -> go.Figure:
    """`dots` as a figure for notebooks, titled; dashed lines mark values, by their text."""
    lines = [Line(value, text) for text, value in marked.items()]
    return as_figure([dots(table, values, marked=lines, **how)], title)


def _light(value: Any) -> Any:
    """The same with the colours of a light page for their names."""
    if isinstance(value, dict):
        return {key: _light(part) for key, part in value.items()}
    if isinstance(value, list):
        return [_light(part) for part in value]
    return LIGHT.get(value, value) if isinstance(value, str) else value
