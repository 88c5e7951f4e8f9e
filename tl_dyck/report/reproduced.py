"""The figures of a reproduction: variation, length generalisation against balance, Theorem 2, heads, patterns."""

from __future__ import annotations

import shlex
from functools import partial
from typing import Any

import numpy as np
import pandas as pd

from tl_dyck.intervals import distances, regression
from tl_dyck.report.figures import Figure, percent
from tl_dyck.report.markup import element, for_plotly
from tl_dyck.report.patterns import color_bar, heat_map, string_patterns
from tl_dyck.report.plots import (
    COLORS,
    SYMBOLS,
    Line,
    Plot,
    interval,
    jitter,
    numbers,
    points,
    row_layout,
    scatter_layout,
)
from tl_dyck.studies.paper import Reproduction
from tl_dyck.studies.paper.evidence import Evidence
from tl_dyck.studies.paper.measure import INTERPRETABLE, REPLACEABLE
from tl_dyck.studies.paper.readings import length_points
from tl_dyck.studies.paper.scales import contrastive_name
from tl_dyck.tasks import load_task

__all__ = ["reproduce_command", "reproduced_figures"]

#: Of the paper's recalled variations, as shares of its recalled baseline.
_RECALLED = {"gpt": 2.27 / 2.85, "gpt-linear": 2.20 / 2.85, "minimal-onehot": 0.24 / 2.85}

#: Groups whose two most different seeds are shown, and the figures of the paper that they stand beside.
_GALLERY = {
    "gpt": "Figure 1",
    "gpt-linear": "Figure 1",
    "minimal-onehot": "Section 4.1",
    "figure2-onehot-rate-0.01": "Figure 2",
    "figure2-split-rate-0.01": "Figure 2",
    "figure2-yao-rate-0.003": "Figure 2",
    "gpt-prefix": "Figures 7, 9",
    "gpt-linear-prefix": "Figures 7, 9",
}


_layout = partial(scatter_layout, height=420, top=60)


def reproduce_command(done: Reproduction) -> str:
    """Make everything again; what is in the folder is kept."""
    return shlex.join(["tl-dyck", "reproduce", "--scale", done.scale.name, "--out", done.folder.as_posix()])


def reproduced_figures(done: Reproduction) -> list[Figure]:
    """All figures, in the order of the page."""
    made = [
        _variation(done),
        _gallery(done),
        _scatter(done, "complete", "Figure 3"),
        _scatter(done, "prefix", "Figure 10"),
        _checkpoints(done),
        _lengths(done),
        _heads(done),
    ]
    return [figure for figure in made if figure is not None]


def _variation(done: Reproduction) -> Figure:
    evidence, rows = done.evidence, []
    for group in evidence.groups():
        if group.training.contrastive_weight or group.longest:
            continue  # of interest for their balance
        for layer in range(evidence.patterns(group.name).shape[1]):
            found = evidence.variation(group.name, layer=layer)
            e, last = found.estimate, layer == evidence.patterns(group.name).shape[1] - 1
            rows.append(
                {
                    "group": group.name,
                    "task": group.task,
                    "layer": layer,
                    "variation": e.value,
                    "low": e.low,
                    "high": e.high,
                    "random_baseline": found.baseline,
                    "n_models": e.n,
                    "recalled_share": _RECALLED.get(group.name, np.nan) if last else np.nan,
                }
            )
    table = pd.DataFrame(rows)
    shares = {name: table[name] / table["random_baseline"] for name in ("variation", "low", "high")}
    place = list(range(len(table)))
    labels = [f"{row.group}, layer {row.layer}" for row in table.itertuples()]
    measured = points(shares["variation"], place, color="@c0", symbol="circle", name="measured, 95% interval")
    measured["error_x"] = interval(shares["variation"], shares["low"], shares["high"], color="@c0", width=4)
    name = "reported for 40 seeds (recalled)"
    recalled = points(table["recalled_share"], place, color="@c1", symbol="diamond-open", name=name)
    said = [
        f"{for_plotly(label)}<br>{row.variation:.2f} [{row.low:.2f}, {row.high:.2f}], random {row.random_baseline:.2f}"
        for label, row in zip(labels, table.itertuples(), strict=True)
    ]
    hover = {"customdata": said, "hovertemplate": "%{customdata}<extra></extra>"}
    above = int((shares["low"] > 0.5).sum())
    reading = f"In {above} of {len(table)} layers seeds clearly differ by more than half of what random patterns do."
    layout = row_layout(
        labels, "variation as a share of that of random patterns", [Line(0.5, "half"), Line(1.0, "random")], []
    )
    layout["height"] = 160 + 26 * len(labels)
    layout["legend"]["y"] = 1 + 20 / (26 * len(labels))
    return Figure(
        name="variation",
        title="Attention variation (Section 4.1, Table 1)",
        reading=reading,
        data=table,
        command=reproduce_command(done),
        plots=[
            Plot(
                alt=f"Dot plot with intervals, a row per group and layer. {reading}",
                traces=[{**measured, **hover}, {**recalled, "hovertemplate": "reported (recalled)<extra></extra>"}],
                layout=layout,
            )
        ],
        note="Mean over pairs of seeds of ‖A₁ − A₂‖² on the string with all types and depths, divided by its "
        "expectation for rows drawn uniformly from the simplex of allowed positions. Intervals: bootstrap over seeds.",
    )


def _gallery(done: Reproduction) -> Figure | None:
    """The two most different seeds of some groups."""
    evidence, parts, rows = done.evidence, [color_bar()], []
    accuracy = evidence.models.set_index(["group", "seed"])["accuracy"].to_dict()
    for group, where in _GALLERY.items():
        if len(evidence.of(group)) < 2:
            continue
        patterns, seeds = evidence.patterns(group)[:, -1, 0], evidence.sound(group)
        apart = distances(patterns, patterns)
        first, second = (int(index) for index in np.unravel_index(apart.argmax(), apart.shape))
        if first == second:
            continue
        language = load_task(_task(evidence, group)).language
        drawn = string_patterns(language, language.probe_string)
        maps = []
        for index in (first, second):
            share = percent(accuracy[group, seeds[index]])
            label = f"Attention pattern of {group}, seed {seeds[index]}; {drawn.in_words(patterns[index])}."
            picture = heat_map(drawn, patterns[index], (f"seed {seeds[index]}", share))
            maps.append(element("div", picture, role="img", aria_label=label))
        distance = float(apart[first, second])
        heading = element("h3", group, " ", element("small", f"{where}; these two differ by {distance:.2f}"))
        parts.append(element("div", heading, element("div", maps, class_="pair"), class_="group"))
        rows.append({"group": group, "seed": seeds[first], "other_seed": seeds[second], "difference": distance})
    if not rows:
        return None
    table = pd.DataFrame(rows)
    most = f" the most in {table.loc[table['difference'].idxmax(), 'group']}"
    return Figure(
        name="patterns",
        title="The two seeds that differ most (Figures 1, 2, 7, 9)",
        reading=f"Models that differ in nothing but their seed attend differently,{most}.",
        data=table,
        command=reproduce_command(done),
        body=element("div", parts),
        note="Last layer. Rows are queries, columns keys; every row sums to 1. Rings mark the top of the stack, where "
        "a parser would look. Percentages are accuracies in distribution.",
    )


def _task(evidence: Evidence, group: str) -> str:
    return str(evidence.of(group)["task"].iloc[0])


def _scatter(done: Reproduction, mode: str, where: str) -> Figure | None:
    """Accuracy at length against β, with the regression over all weights."""
    evidence, scale = done.evidence, done.scale
    names = {contrastive_name(mode, weight): weight for weight in scale.weights}
    table = evidence.of(*names)[["group", "seed", "beta", "long_accuracy", "accuracy"]].dropna()
    if len(table) < 3 or np.ptp(table["beta"]) == 0:
        return None
    table = table.assign(weight=table["group"].map(names))
    traces = []
    x, y = table["beta"].to_numpy(), 100 * table["long_accuracy"].to_numpy()
    at = np.linspace(x.min(), x.max(), 40)
    line, low, high = regression(x, y, at, scale.n_bootstrap, scale.data_seed)
    shared = {"type": "scatter", "mode": "lines", "x": numbers(at), "hoverinfo": "skip"}
    traces.append({**shared, "y": numbers(low), "line": {"width": 0}, "showlegend": False})
    band = {"fill": "tonexty", "fillcolor": "@grid", "line": {"width": 0}, "name": "its 95% interval"}
    traces.append({**shared, **band, "y": numbers(high), "showlegend": True})
    traces.append(
        {
            **shared,
            "y": numbers(line),
            "line": {"width": 2, "color": "@muted"},
            "name": "regression",
            "showlegend": True,
        }
    )
    for index, weight in enumerate(scale.weights):
        rows = table[table["weight"] == weight]
        color, symbol = COLORS[index % len(COLORS)], SYMBOLS[index % len(SYMBOLS)]
        marks = points(rows["beta"], 100 * rows["long_accuracy"], color=color, symbol=symbol, name=f"λ = {weight:g}")
        said = [f"seed {seed}, λ = {weight:g}" for seed in rows["seed"]]
        hover = "%{customdata}<br>β %{x:.3f}, accuracy at length %{y:.1f}%<extra></extra>"
        traces.append({**marks, "customdata": said, "hovertemplate": hover, "showlegend": True})
    alone, pooled = (_measured(done, f"correlation-{mode}{end}") for end in ("", "-pooled"))
    reading = f"Rank correlation {alone} without regularisation, {pooled} over all weights."
    strings = "complete strings" if mode == "complete" else "prefixes"
    return Figure(
        name=f"balance-{mode}",
        title=f"Balance violation and accuracy at length, {strings} ({where})",
        reading=reading,
        data=table,
        command=reproduce_command(done),
        plots=[
            Plot(
                alt=f"Scatter plot of accuracy at length against balance violation, with a regression line. {reading}",
                traces=traces,
                layout=_layout("balance violation β (mean of S/P, no unit)", "accuracy at lengths 400–500 (%)"),
            )
        ],
        note="One mark per model with a minimal first layer (Eq. 19), all trained for as many steps; λ is the weight "
        "of the contrastive regularisation (Eq. 22). The line is by least squares, its interval a bootstrap over "
        "models.",
    )


def _checkpoints(done: Reproduction) -> Figure | None:
    table = done.evidence.checkpoints.dropna(subset=["loss", "beta"])
    if table.empty:
        return None
    lengths = {name: longest for longest, name in length_points(done.evidence)}
    known = sorted(set(table["group"]), key=lambda name: lengths.get(name, 0))
    traces: list[dict[str, Any]] = []
    for (group, seed), run in table.groupby(["group", "seed"]):
        index = known.index(group) % len(COLORS)
        traces.append(
            {
                "type": "scatter",
                "mode": "lines+markers",
                "x": numbers(run["loss"] - run["floor"]),
                "y": numbers(run["beta"]),
                "line": {"width": 1.3, "color": COLORS[index]},
                "marker": {"size": 5, "color": COLORS[index], "symbol": SYMBOLS[index]},
                "name": f"N = {lengths.get(group, '?')}",
                "legendgroup": group,
                "customdata": [f"N = {lengths.get(group, '?')}, seed {seed}, step {step}" for step in run["step"]],
                "hovertemplate": "%{customdata}<br>%{x:.4f} nats above the floor, β %{y:.3f}<extra></extra>",
                "showlegend": all(trace["legendgroup"] != group for trace in traces),
            }
        )
    reading = f"Within a run, rank correlation of loss and β: {_measured(done, 'theorem-2-loss')}."
    layout = _layout(
        "loss above the entropy floor (nats per token)",
        "balance violation β",
        from_zero=False,
    )
    layout["xaxis"]["type"] = "log"
    return Figure(
        name="theorem-2-loss",
        title="Violation on the way down (Theorem 2)",
        reading=reading,
        data=table,
        command=reproduce_command(done),
        plots=[Plot(alt=f"Line plot of β against loss, a line per run. {reading}", traces=traces, layout=layout)],
        note="Training runs from right to left, a line per run. Models with a minimal first layer, trained on complete "
        "strings of at most N brackets, without regularisation; loss on fresh strings of these lengths.",
    )


def _lengths(done: Reproduction) -> Figure | None:
    evidence, traces, rows = done.evidence, [], []
    for longest, name in length_points(evidence):
        for model in evidence.of(name).dropna(subset=["beta"]).itertuples():
            row = {"longest": longest, "seed": model.seed, "beta": model.beta, "largest_ratio": model.largest_ratio}
            rows.append({**row, "long_accuracy": model.long_accuracy, "loss": model.loss})
    if not rows:
        return None
    table = pd.DataFrame(rows)
    for column, label, color, symbol in (
        ("beta", "β", "@c0", "circle"),
        ("largest_ratio", "largest S/P", "@c1", "diamond-open"),
    ):
        x = table["longest"] * (1 + 0.3 * jitter(table["seed"]))
        marks = points(x, table[column], color=color, symbol=symbol, name=label)
        said = [f"N = {row.longest}, seed {row.seed}" for row in table.itertuples()]
        hover = f"%{{customdata}}<br>{label} %{{y:.3f}}<extra></extra>"
        traces.append({**marks, "customdata": said, "hovertemplate": hover, "showlegend": True})
    reading = f"Rank correlation of N and β: {_measured(done, 'theorem-2-length')}."
    layout = _layout("longest training strings N (brackets)", "violation (no unit)", from_zero=False)
    layout["xaxis"]["type"] = layout["yaxis"]["type"] = "log"
    return Figure(
        name="theorem-2-length",
        title="Violation and training length (Theorem 2)",
        reading=reading,
        data=table,
        command=reproduce_command(done),
        plots=[Plot(alt=f"Scatter plot of violation against training length. {reading}", traces=traces, layout=layout)],
        note="The theorem bounds every S/P by a constant over N for a loss that is small at length N. Both axes are "
        "logarithmic, so 1/N is a straight line downwards.",
    )


def _heads(done: Reproduction) -> Figure | None:
    heads = done.evidence.heads
    deep = heads.groupby("group")["layer"].transform("max") > 0
    heads = heads[deep & (heads["group"] != "gpt-uniform")]
    if heads.empty:
        return None
    looks = [column for column in heads if column.startswith("look_")]
    heads = heads.assign(look=heads[looks].max(axis=1), place=heads[looks].idxmax(axis=1).str.removeprefix("look_"))
    heads = heads.assign(lost=heads["accuracy"] - heads[["accuracy_uniform", "accuracy_random"]].min(axis=1))
    traces = []
    for index, (place, rows) in enumerate(heads.groupby("place", sort=True)):
        marks = points(
            rows["look"],
            100 * rows["lost"],
            color=COLORS[index],
            symbol=SYMBOLS[index],
            name=f"looks at {place}",
            size=7,
        )
        said = [f"{for_plotly(r.group)} seed {r.seed}, layer {r.layer}, head {r.head}" for r in rows.itertuples()]
        hover = "%{customdata}<br>there first: %{x:.0%}; lost %{y:.1f} points<extra></extra>"
        traces.append({**marks, "customdata": said, "hovertemplate": hover, "showlegend": True})
    many, idle = int(heads["interpretable"].sum()), int((heads["interpretable"] & heads["replaceable"]).sum())
    reading = f"{many} of {len(heads)} heads look interpretable; for {idle} of these the pattern does not matter."
    layout = _layout(
        "share of closing brackets with the largest weight there", "accuracy lost without the pattern (points)"
    )
    return Figure(
        name="misleading",
        title="Heads that look interpretable, and what their patterns do (Figures 4–6)",
        reading=reading,
        data=heads,
        command=reproduce_command(done),
        plots=[Plot(alt=f"Scatter plot, a mark per head. {reading}", traces=traces, layout=layout)],
        note="A pattern is replaced in one head at a time by uniform and by random rows; the larger loss counts. Right "
        f"of {INTERPRETABLE:.0%} a head looks interpretable; below {100 * REPLACEABLE:.0f} point its pattern does not "
        "matter.",
    )


def _measured(done: Reproduction, name: str) -> str:
    found = done.claims.loc[done.claims["name"] == name, "measured"]
    return str(found.iloc[0]) if len(found) else "not measured"
