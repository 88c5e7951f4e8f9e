"""Results of probes as tables and figures."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from tl_dyck.plots import COLORS, SYMBOLS, Line, Series, dots_by_row

if TYPE_CHECKING:
    import plotly.graph_objects as go

_MANY = 12  # rows, beyond which they are low


def frame(axes: Sequence[tuple[str, int]], columns: Mapping[str, Any]) -> pd.DataFrame:
    """A row for every cell of an array.

    Args:
        axes: name of each axis and the number of its first place.
        columns: an array with these axes each, or what can be broadcast to one.
    """
    values = np.broadcast_arrays(*(np.asarray(value) for value in columns.values()))
    places = np.indices(values[0].shape).reshape(len(axes), -1)
    named = {name: place + first for (name, first), place in zip(axes, places, strict=True)}
    return pd.DataFrame(named | dict(zip(columns, (v.ravel() for v in values), strict=True)))


def dots(
    table: pd.DataFrame,
    values: Mapping[str, str],
    *,
    rows: str,
    unit: str,
    title: str,
    marked: Mapping[str, float],
    bars: tuple[str, str] | None = None,
) -> go.Figure:
    """A dot in a row for each line of a table, for notebooks.

    Args:
        table: a line for each row of the plot.
        values: name in the legend -> column.
        rows: how a row is called, with the line's columns filled in: "layer {layer}".
        unit: of the x axis.
        title: of the figure.
        marked: text -> value at which a dashed line is drawn; what is no number is left out.
        bars: columns in which intervals begin and end.
    """
    from tl_dyck.ablation.figures import as_figure

    labels = [rows.format(**line) for line in table.to_dict("records")]
    series = [
        Series(
            name=name,
            x=table[column],
            y=np.arange(len(table)),
            color=COLORS[index % len(COLORS)],
            symbol=SYMBOLS[index % len(SYMBOLS)],
            said=labels,
            hover="%{x:.3g}",
            low=None if bars is None else table[bars[0]],
            high=None if bars is None else table[bars[1]],
        )
        for index, (name, column) in enumerate(values.items())
    ]
    lines = [Line(value, text) for text, value in marked.items() if np.isfinite(value)]
    row = 40 if len(labels) < _MANY else 18
    plot = dots_by_row(labels, unit, series, alt=f"Dot plot: {title}.", marked=lines, row=row)
    figure = as_figure([plot], title)
    for line in lines:
        place = {"x": line.at, "y": 1, "yref": "paper", "yanchor": "bottom", "showarrow": False}
        figure.add_annotation(text=line.text, **place)
    figure.update_layout(height=plot.layout["height"] + 60)
    return figure
