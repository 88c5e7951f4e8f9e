"""The three kinds of plot: what plotly gets, in pages and in notebooks."""

from __future__ import annotations

import re
from importlib.resources import files

import pandas as pd
import plotly.graph_objects as go
import pytest

from tl_dyck.plotting.plot_recipes import as_figure, dots, marks
from tl_dyck.plotting.plots import LIGHT, Line, Series, curves, scatter

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
    table = pd.DataFrame({"kind": ["b", EVIL], "x": [1.0, 2.0], "y": [3.0, 4.0]})
    kinds = {"a": "A", "b": "B", EVIL: EVIL}
    made = marks(table, "x", "y", by="kind", kinds=kinds, said="{kind} {x:.1f}", hover="%{x}")
    assert [(each.name, each.color, each.symbol) for each in made] == [
        ("B", "@c1", "square"),
        (EVIL, "@c2", "diamond"),
    ]
    assert list(made[1].said) == ["&lt;img src=x onerror=alert(1)&gt; 2.0"]


def test_a_row_for_each_name_and_an_axis_that_reaches_all():
    table = pd.DataFrame(
        {"name": ["a", EVIL, "a"], "seed": [0, 0, 1], "x": [0.1, 0.2, 0.4], "z": [0.3] * 3}
    ).assign(low=0.05, high=[0.2, 0.6, 0.5])
    means = {"a": {"x": {"mean": 0.25, "low": 0.2, "high": 0.3}}}
    plot = dots(
        table,
        {"first": "x", "second": "z"},
        rows="{name}",
        unit="u",
        bars=("low", "high"),
        means=means,
        scale=100,
        marked=[Line(90, EVIL), Line(float("nan"), "nowhere")],
        include=(0,),
    )
    first, mean, second, none = plot.traces
    assert plot.layout["yaxis"]["ticktext"] == ["a", "&lt;img src=x onerror=alert(1)&gt;"]
    assert [round(y) for y in first["y"]] == [round(y) for y in second["y"]] == [0, 1, 0]
    assert first["y"][0] != first["y"][2]  # seeds are apart, and so are values
    assert max(first["y"][0], first["y"][2]) < min(second["y"][0], second["y"][2])
    assert first["x"] == pytest.approx([10, 20, 40])
    assert first["error_x"]["array"] == pytest.approx([10, 40, 10])
    assert "error_x" not in second
    assert (mean["x"], none["x"]) == ([25.0], [])
    low, high = plot.layout["xaxis"]["range"]
    assert (low, high) == pytest.approx((-3.6, 93.6))
    assert [line["text"][:4] for line in plot.layout["annotations"]] == ["&lt;"]
    assert plot.alt == f"Dot plot with intervals: u, a row per name; a line at {EVIL}."


def test_a_kind_is_a_colour_and_has_its_own_bars():
    table = pd.DataFrame({"name": ["a", "a"], "kind": ["k", "l"], "x": [1.0, 2.0]})
    table = table.assign(low=[0.5, 1.5], high=[2.0, 4.0])
    plot = dots(
        table, {"": "x"}, rows="{name}", unit="u", bars=("low", "high"), by="kind",
        kinds={"k": "K", "l": "L"},
    )  # fmt: skip
    assert [trace["name"] for trace in plot.traces] == ["K", "L"]
    assert [trace["error_x"]["array"] for trace in plot.traces] == [[1.0], [2.0]]
    assert plot.traces[0]["y"] < plot.traces[1]["y"]


def test_axes_lines_and_titles():
    points = [Series(name="m", x=[1.0], y=[0]), Series(name=EVIL, x=[1.0], y=[0])]
    both = scatter("x", "y", points, from_zero="xy", logarithmic="x")
    assert both.layout["xaxis"] == {"title": {"text": "x"}, "rangemode": "tozero", "type": "log"}
    assert both.alt == f"Scatter plot: y against x. Shown: m, {EVIL}."
    small = curves(EVIL, "x", "y", points[:1], marked=[Line(1.0, "a")], stages=[5.0])
    assert small.layout["title"]["text"].startswith("&lt;")
    assert [(shape.get("x0"), shape.get("y0")) for shape in small.layout["shapes"]] == [
        (0, 1.0),
        (5.0, 0),
    ]


@pytest.mark.parametrize("n", [1, 3])
def test_a_figure_for_notebooks(n):
    shade = {"color": [0.1], "colorscale": "Cividis", "cmin": 0, "cmax": 1}
    plots = [
        curves(
            f"p{index}",
            "x",
            "y",
            [Series(name="m", x=[1.0], y=[2.0], marker=shade)],
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
