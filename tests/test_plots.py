"""The three kinds of plot: what plotly gets, in pages and in notebooks."""

from __future__ import annotations

import re
from importlib.resources import files

import pandas as pd
import plotly.graph_objects as go
import pytest

from tl_dyck.ablation.figures import as_figure
from tl_dyck.plots import LIGHT, Line, Series, curves, dots_by_row, scatter, series_by

EVIL = "<img src=x onerror=alert(1)>"


def test_marks_have_bars_and_what_is_not_finite_is_left_out():
    made = Series(
        name=EVIL,
        x=[1.0, float("nan")],
        y=[0, 1],
        said=["a", "b"],
        hover="%{x}",
        low=[0.5, 0.0],
        high=[2.0, 1.0],
    ).trace()
    assert made["name"] == "&lt;img src=x onerror=alert(1)&gt;"
    assert (made["mode"], made["x"]) == ("markers", [1.0, None])
    assert (made["error_x"]["array"], made["error_x"]["arrayminus"]) == ([1.0, None], [0.5, None])
    assert (made["customdata"], made["hovertemplate"]) == (
        ["a", "b"],
        "%{customdata}<br>%{x}<extra></extra>",
    )


def test_a_curve_and_a_line_that_nobody_points_at():
    made = Series(
        name="run", x=[0, 1], y=[2, 3], size=[0, 8], hover="%{y}", line={"width": 3}
    ).trace()
    assert (made["mode"], made["line"]["width"]) == ("lines+markers", 3)
    still = Series(name="fit", x=[0, 1], y=[2, 3], size=0, line={}).trace()
    assert (still["mode"], still["hoverinfo"]) == ("lines", "skip")
    assert "marker" not in still


def test_kinds_keep_their_colour_where_one_is_empty():
    table = pd.DataFrame({"kind": ["b", "c"], "x": [1.0, 2.0], "y": [3.0, 4.0]})
    parts = [(kind, table[table["kind"] == kind]) for kind in "abc"]
    made = series_by(parts, "x", "y", lambda rows: list(rows["kind"]), "%{x}")
    assert [(each.name, each.color, each.symbol) for each in made] == [
        ("b", "@c1", "square"),
        ("c", "@c2", "diamond"),
    ]


def test_rows_axes_lines_and_titles():
    marks = [Series(name="m", x=[1.0], y=[0])]
    rows = dots_by_row(
        [EVIL, "b"], "unit", marks, alt="", marked=[Line(0.5, EVIL)], limits=[0.0, 1.0]
    ).layout
    assert rows["yaxis"]["ticktext"] == ["&lt;img src=x onerror=alert(1)&gt;", "b"]
    assert (rows["shapes"][0]["x0"], rows["annotations"][0]["text"][:4]) == (0.5, "&lt;")
    both = scatter("x", "y", marks, alt="", from_zero="xy", logarithmic="x").layout
    assert both["xaxis"] == {"title": {"text": "x"}, "rangemode": "tozero", "type": "log"}
    small = curves(EVIL, "x", "y", marks, alt="", marked=[Line(1.0, "a")], stages=[5.0]).layout
    assert small["title"]["text"].startswith("&lt;")
    assert [(shape.get("x0"), shape.get("y0")) for shape in small["shapes"]] == [(0, 1.0), (5.0, 0)]


@pytest.mark.parametrize("n", [1, 3])
def test_a_figure_for_notebooks(n):
    shade = {"color": [0.1], "colorscale": "Cividis", "cmin": 0, "cmax": 1}
    plots = [
        curves(
            f"p{index}",
            "x",
            "y",
            [Series(name="m", x=[1.0], y=[2.0], marker=shade)],
            alt="",
            stages=[0.5],
        )
        for index in range(n)
    ]
    figure = as_figure(plots, "title")
    assert isinstance(figure, go.Figure)
    assert len(figure.data) == len(figure.layout.shapes) == n
    assert [trace.marker.showscale for trace in figure.data] == [True] + [False] * (n - 1)
    assert figure.data[0].marker.line.color == LIGHT["@c0"]
    assert figure.layout.shapes[n - 1].yref.endswith("domain")


def test_the_light_colours_are_those_of_the_style_sheet():
    sheet = (
        files("tl_dyck.report")
        .joinpath("report.css")
        .read_text(encoding="utf-8")
        .split("@media")[0]
    )
    colors = {f"@{name}": color for name, color in re.findall(r"--(\w+): (#[0-9a-f]{6});", sheet)}
    assert colors.items() >= LIGHT.items()
