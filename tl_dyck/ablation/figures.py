"""What pages and ``.plot()`` methods draw of heads: importance of two kinds, and gates."""

from __future__ import annotations

import pandas as pd

from tl_dyck.plotting.plots import COLORS, Plot, Series, curves, for_plotly, numbers


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
    """A dot per head: one importance against another, coloured by what it looks like."""
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
    """The gates of one model against the steps of fine-tuning, a curve per head."""
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
        # shares: curves along 0 and 1 are drawn whole
        limits={"y": [-0.03, 1.03]},
        stages=[float(step) for step in trajectories.groupby("penalty")["step"].max().iloc[:-1]],
    )
