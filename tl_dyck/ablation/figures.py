"""What pages and ``.plot()`` methods draw of heads: importance of two kinds, and gates."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import pandas as pd

from tl_dyck.plots import COLORS, LIGHT, Plot, Series, curves, for_plotly, numbers

if TYPE_CHECKING:
    import plotly.graph_objects as go


def importance_dots(
    heads: pd.DataFrame,
    x: str,
    y: str,
    *,
    title: str,
    x_title: str,
    y_title: str,
    color: str = "stack-likeness",
    brightest: float = 1.0,
) -> Plot:
    """A dot per head: one importance against another, coloured by what it looks like.

    Args:
        heads: a row per head, with model, layer, head.
        x: column of an importance.
        y: likewise.
        title: of the plot.
        x_title: of the axis.
        y_title: likewise.
        color: column of the colour; if there is none, all dots are alike.
        brightest: value of the last colour.
    """
    shade = {
        "color": numbers(heads[color]),
        "colorscale": "Cividis",
        "cmin": 0,
        "cmax": brightest,
        "colorbar": {"title": {"text": for_plotly(color).replace("-", "-<br>")}, "thickness": 12},
        "line": {"width": 1, "color": "@ink"},
    } if color in heads else {}  # fmt: skip
    dots = Series(
        name=title,
        x=heads[x],
        y=heads[y],
        said=[
            f"{for_plotly(row.model)}<br>layer {row.layer}, head {row.head}"
            for row in heads.itertuples()
        ],
        hover=f"{x} %{{x:.4f}}<br>{y} %{{y:.3f}}",
        legend=False,
        marker=shade,
    )
    alt = f"Scatter plot of {y} against {x} importance for {title}, a dot per head."
    return curves(title, x_title, y_title, [dots], alt=alt)


def gate_curves(trajectories: pd.DataFrame, *, title: str, of: str) -> Plot:
    """The gates of one model against the steps of fine-tuning, a curve per head.

    Args:
        trajectories: step, penalty, layer, head, expected_gate.
        title: of the plot.
        of: whose gates they are.
    """
    series = [
        Series(
            name=f"L{layer}H{head}",
            x=rows["step"],
            y=rows["expected_gate"],
            color=COLORS[index % len(COLORS)],
            size=0,
            hover=f"layer {layer}, head {head}<br>step %{{x}}, expected gate %{{y:.3f}}",
            line={"width": 2, "dash": ("solid", "dash", "dot")[index // len(COLORS) % 3]},
        )
        for index, ((layer, head), rows) in enumerate(trajectories.groupby(["layer", "head"]))
    ]
    return curves(
        title,
        "step; at each line the penalty rises",
        "expected gate",
        series,
        alt=f"Line plot: the gates of {of} against the steps of fine-tuning, a line per head.",
        limits={"y": [-0.03, 1.03]},
        stages=[float(step) for step in trajectories.groupby("penalty")["step"].max().iloc[:-1]],
    )


def as_figure(plots: Sequence[Plot], title: str) -> go.Figure:
    """Plots as one figure for notebooks, two beside each other, with the colours of a light page.

    Args:
        plots: at least one, each with a title of its own if there are several.
        title: of the figure.
    """
    from plotly.subplots import make_subplots

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
    return figure


def _light(value: Any) -> Any:
    """The same with the colours of a light page for their names."""
    if isinstance(value, dict):
        return {key: _light(part) for key, part in value.items()}
    if isinstance(value, list):
        return [_light(part) for part in value]
    return LIGHT.get(value, value) if isinstance(value, str) else value
