"""The figures of a reproduction: variation, length against balance, Theorem 2, heads, patterns."""

from __future__ import annotations

from functools import partial

import numpy as np
import pandas as pd

from tl_dyck.intervals import regression
from tl_dyck.plots import (
    COLORS,
    SYMBOLS,
    Line,
    Series,
    dots_by_row,
    for_plotly,
    jitter,
    scatter,
    series_by,
)
from tl_dyck.report.page import Figure
from tl_dyck.report.paper_gallery import gallery, reproduce_command
from tl_dyck.studies.paper.evidence import Evidence
from tl_dyck.studies.paper.measure import INTERPRETABLE, MASS, NAMED, REPLACEABLE
from tl_dyck.studies.paper.readings import LONG, length_points
from tl_dyck.studies.paper.scales import contrastive_name
from tl_dyck.studies.reproduction import Reproduction

#: Of the paper's recalled variations, as shares of its recalled baseline.
_RECALLED = {"gpt": 2.27 / 2.85, "gpt-linear": 2.20 / 2.85, "minimal-onehot": 0.24 / 2.85}

_scatter = partial(scatter, height=420, top=60)


def paper_figures(done: Reproduction) -> list[Figure]:
    """All figures, in the order of the page."""
    made = [
        _variation(done),
        gallery(done),
        _balance(done, "complete", "Figure 3"),
        _balance(done, "prefix", "Figure 10"),
        _checkpoints(done),
        _lengths(done),
        _heads(done),
    ]
    return [figure for figure in made if figure is not None]


def _variation(done: Reproduction) -> Figure:
    table = _variations(done.evidence)
    shares = {name: table[name] / table["random_baseline"] for name in ("variation", "low", "high")}
    place = list(range(len(table)))
    labels = [f"{row.group}, layer {row.layer}" for row in table.itertuples()]
    said = [
        f"{for_plotly(label)}<br>{row.variation:.2f} [{row.low:.2f}, {row.high:.2f}], random "
        f"{row.random_baseline:.2f}"
        for label, row in zip(labels, table.itertuples(), strict=True)
    ]
    series = [
        Series(
            name="measured, 95% interval",
            x=shares["variation"],
            y=place,
            said=said,
            low=shares["low"],
            high=shares["high"],
            caps=4,
        ),
        Series(
            name="reported for 40 seeds (recalled)",
            x=table["recalled_share"],
            y=place,
            color="@c1",
            symbol="diamond-open",
            hover="reported (recalled)",
        ),
    ]
    above = int((shares["low"] > 0.5).sum())
    reading = (
        f"In {above} of {len(table)} layers seeds clearly differ by more than half of what random "
        "patterns do."
    )
    return Figure(
        name="variation",
        title="Attention variation (Section 4.1, Table 1)",
        reading=reading,
        data=table,
        command=reproduce_command(done),
        plots=[
            dots_by_row(
                labels,
                "variation as a share of that of random patterns",
                series,
                alt=f"Dot plot with intervals, a row per group and layer. {reading}",
                marked=[Line(0.5, "half"), Line(1.0, "random")],
                row=26,
            )
        ],
        note="Mean over pairs of seeds of ‖A₁ − A₂‖² on the string with all types and depths, "
        "divided by its expectation for rows drawn uniformly from the simplex of allowed "
        "positions. Intervals: bootstrap over seeds.",
    )


def _variations(evidence: Evidence) -> pd.DataFrame:
    """A row per group and layer, but for those groups that are of interest for their balance."""
    rows = []
    for group in evidence.groups():
        if group.training.contrastive_weight or group.longest:
            continue
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
    return pd.DataFrame(rows)


def _balance(done: Reproduction, mode: str, where: str) -> Figure | None:
    """Accuracy at length against β, with the regression over all weights."""
    scale = done.scale
    names = {contrastive_name(mode, weight): weight for weight in scale.weights}
    table = done.evidence.of(*names)[["group", "seed", "beta", LONG, "accuracy"]].dropna()
    if len(table) < 3 or np.ptp(table["beta"]) == 0:
        return None
    table = table.assign(weight=table["group"].map(names))
    scaled = table.assign(**{LONG: 100 * table[LONG]})
    parts = [(f"λ = {weight:g}", scaled[scaled["weight"] == weight]) for weight in scale.weights]
    hover = "β %{x:.3f}, accuracy at length %{y:.1f}%"
    series = [
        *_regression(done, scaled),
        *series_by(parts, "beta", LONG, _weights, hover),
    ]
    alone = _measured(done, f"correlation-{mode}")
    reading = f"Rank correlation without regularisation: {alone}."
    strings = "complete strings" if mode == "complete" else "prefixes"
    plot = _scatter(
        "balance violation β (mean of S/P, no unit)",
        "accuracy after a closing bracket at lengths 400–500 (%)",
        series,
        alt="Scatter plot of accuracy at length against balance violation, "
        f"with a regression line. {reading}",
    )
    return Figure(
        name=f"balance-{mode}",
        title=f"Balance violation and accuracy at length, {strings} ({where})",
        reading=reading,
        data=table,
        command=reproduce_command(done),
        plots=[plot],
        note="One mark per model with a minimal first layer (Eq. 19), all trained for as many "
        "steps; λ is the weight of the contrastive regularisation (Eq. 22). The line is by least "
        "squares, its interval a bootstrap over models.",
    )


def _weights(models: pd.DataFrame) -> list[str]:
    return [f"seed {row.seed}, λ = {row.weight:g}" for row in models.itertuples()]


def _regression(done: Reproduction, table: pd.DataFrame) -> list[Series]:
    """A line by least squares, and its interval."""
    x, y = table["beta"].to_numpy(), table[LONG].to_numpy()
    at = np.linspace(x.min(), x.max(), 40)
    line, low, high = regression(x, y, at, done.scale.n_bootstrap, done.scale.data_seed)
    band = {"fill": "tonexty", "fillcolor": "@grid"}
    return [
        Series(name="", x=at, y=low, size=0, legend=False, line={"width": 0}),
        Series(name="its 95% interval", x=at, y=high, size=0, line={"width": 0}, more=band),
        Series(name="regression", x=at, y=line, size=0, color="@muted", line={"width": 2}),
    ]


def _checkpoints(done: Reproduction) -> Figure | None:
    table = done.evidence.checkpoints.dropna(subset=["loss", "beta"])
    if table.empty:
        return None
    lengths = {name: longest for longest, name in length_points(done.evidence)}
    known = sorted(set(table["group"]), key=lambda name: lengths.get(name, 0))
    series: list[Series] = []
    for (group, seed), run in table.groupby(["group", "seed"]):
        index, name = known.index(group), f"N = {lengths.get(group, '?')}"
        series.append(
            Series(
                name=name,
                x=run["loss"] - run["entropy_floor"],
                y=run["beta"],
                color=COLORS[index % len(COLORS)],
                symbol=SYMBOLS[index % len(SYMBOLS)],
                size=5,
                said=[f"{name}, seed {seed}, step {step}" for step in run["step"]],
                hover="%{x:.4f} nats above the floor, β %{y:.3f}",
                legend=all(each.more["legendgroup"] != group for each in series),
                line={},
                more={"legendgroup": group},
            )
        )
    tie = _measured(done, "theorem-2-loss")
    reading = f"Rank correlation of loss and β over seeds at the same step: {tie}."
    plot = _scatter(
        "loss above the entropy floor (nats per token)",
        "balance violation β",
        series,
        alt=f"Line plot of β against loss, a line per run. {reading}",
        from_zero="",
        logarithmic="x",
    )
    return Figure(
        name="theorem-2-loss",
        title="Violation on the way down (Theorem 2)",
        reading=reading,
        data=table,
        command=reproduce_command(done),
        plots=[plot],
        note="Training runs from right to left, a line per run. Models with a minimal first layer, "
        "trained on complete strings of at most N brackets, without regularisation; loss on fresh "
        "strings of these lengths.",
    )


def _lengths(done: Reproduction) -> Figure | None:
    evidence, rows = done.evidence, []
    for longest, name in length_points(evidence):
        for model in evidence.of(name).dropna(subset=["beta"]).itertuples():
            row = {
                "longest": longest,
                "seed": model.seed,
                "beta": model.beta,
                "largest_ratio": model.largest_ratio,
            }
            rows.append({**row, LONG: getattr(model, LONG), "loss": model.loss})
    if not rows:
        return None
    table = pd.DataFrame(rows)
    said = [f"N = {row.longest}, seed {row.seed}" for row in table.itertuples()]
    at = table["longest"] * (1 + 0.3 * jitter(table["seed"]))
    series = [
        Series(
            name=label,
            x=at,
            y=table[column],
            color=color,
            symbol=symbol,
            said=said,
            hover=f"{label} %{{y:.3f}}",
        )
        for column, label, color, symbol in (
            ("beta", "β", "@c0", "circle"),
            ("largest_ratio", "largest S/P", "@c1", "diamond-open"),
        )
    ]
    reading = f"Rank correlation of N and β: {_measured(done, 'theorem-2-length')}."
    plot = _scatter(
        "longest training strings N (brackets)",
        "violation (no unit)",
        series,
        alt=f"Scatter plot of violation against training length. {reading}",
        from_zero="",
        logarithmic="xy",
    )
    return Figure(
        name="theorem-2-length",
        title="Violation and training length (Theorem 2)",
        reading=reading,
        data=table,
        command=reproduce_command(done),
        plots=[plot],
        note="The theorem bounds every S/P by a constant over N for a loss that is small at length "
        "N. Both axes are logarithmic, so 1/N is a straight line downwards.",
    )


def _heads(done: Reproduction) -> Figure | None:
    heads = done.evidence.heads
    deep = heads.groupby("group")["layer"].transform("max") > 0
    heads = heads[deep & (heads["group"] != "gpt-uniform")]
    if heads.empty:
        return None
    looks = [f"look_{place}" for place in NAMED]
    heads = heads.assign(
        look=heads[looks].max(axis=1), place=heads[looks].idxmax(axis=1).str.removeprefix("look_")
    )
    heads = heads.assign(
        lost=heads["accuracy"] - heads[["accuracy_uniform", "accuracy_random"]].min(axis=1)
    )
    scaled = heads.assign(lost=100 * heads["lost"])
    parts = [(f"looks at {place}", rows) for place, rows in scaled.groupby("place", sort=True)]
    hover = "there first: %{x:.0%}; lost %{y:.1f} points"
    series = series_by(parts, "look", "lost", _head_names, hover, size=7)
    many, idle = (
        int(heads["interpretable"].sum()),
        int((heads["interpretable"] & heads["replaceable"]).sum()),
    )
    reading = (
        f"{many} of {len(heads)} heads look interpretable; "
        f"for {idle} of these the pattern does not matter."
    )
    plot = _scatter(
        "share of closing brackets with the largest weight there",
        "accuracy lost without the pattern (points)",
        series,
        alt=f"Scatter plot, a mark per head. {reading}",
    )
    return Figure(
        name="misleading",
        title="Heads that look interpretable, and what their patterns do (Figures 4–6)",
        reading=reading,
        data=heads,
        command=reproduce_command(done),
        plots=[plot],
        note="A pattern is replaced in one head at a time by uniform and by random rows; the "
        f"larger loss counts. Right of {INTERPRETABLE:.0%}, and with a mean weight above {MASS}, a "
        f"head looks interpretable; below "
        f"{100 * REPLACEABLE:.0f} point its pattern does not matter.",
    )


def _head_names(heads: pd.DataFrame) -> list[str]:
    return [
        f"{for_plotly(r.group)} seed {r.seed}, layer {r.layer}, head {r.head}"
        for r in heads.itertuples()
    ]


def _measured(done: Reproduction, name: str) -> str:
    found = done.claims.loc[done.claims["name"] == name, "measured"]
    return str(found.iloc[0]) if len(found) else "not measured"
