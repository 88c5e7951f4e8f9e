"""Results of probes as tables and figures."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from tl_dyck.plots import Line
from tl_dyck.recipes import as_figure
from tl_dyck.recipes import dots as draw_dots

if TYPE_CHECKING:
    import plotly.graph_objects as go


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
    title: str,
    marked: Mapping[str, float],
    **how: Any,
) -> go.Figure:
    """A figure for notebooks: `tl_dyck.recipes.dots`, with a title.

    Args:
        table: a line for each row of the plot.
        values: name in the legend -> column.
        title: of the figure.
        marked: text -> value at which a dashed line is drawn; what is no number is left out.
        **how: rows, unit, bars.
    """
    lines = [Line(value, text) for text, value in marked.items()]
    return as_figure([draw_dots(table, values, marked=lines, **how)], title)
