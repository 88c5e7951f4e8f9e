"""The figures of a reproduction: variation, length against balance, Theorem 2, heads, patterns."""

from __future__ import annotations

from functools import partial

import numpy as np
import pandas as pd

from tl_dyck.estimates import Estimate, interval_words
from tl_dyck.intervals import distances, regression
from tl_dyck.plotting.plot_recipes import dots, marks
from tl_dyck.plotting.plots import COLORS, SYMBOLS, Line, Series, jitter, scatter
from tl_dyck.report.heatmap import color_bar, described_map, text_in
from tl_dyck.report.markup import element, percent
from tl_dyck.report.page import Figure
from tl_dyck.studies.reproduction import Reproduction
from tl_dyck.studies.results import RECALLED_VARIATION
from tl_dyck.tasks import load_task
from tl_dyck_papers.wen_2023.evidence import Evidence
from tl_dyck_papers.wen_2023.measure import INTERPRETABLE, MASS, NAMED, REPLACEABLE
from tl_dyck_papers.wen_2023.readings import LONG
from tl_dyck_papers.wen_2023.scales import contrastive_name, length_points

#: Groups whose two most different seeds are shown, and the figures of the paper that they stand
#: beside.
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

#: The interval of the line.
BAND = Estimate(value=0, low=0, high=0, n=0, kind="bootstrap").words("models")

_scatter = partial(scatter, height=420, top=60)


def paper_figures(done: Reproduction) -> list[Figure | None]:
    """All figures, in the order of the page."""
    return [
        _variation(done),
        _gallery(done),
        _balance(done, "complete", "Figure 3"),
        _balance(done, "prefix", "Figure 10"),
        _checkpoints(done),
        _lengths(done),
        _heads(done),
    ]


def _variation(done: Reproduction) -> Figure:
    table = _variations(done.evidence)
    shares = {
        f"{name}_share": table[name] / table["random_baseline"]
        for name in ("variation", "low", "high")
    }
    above = int((shares["low_share"] > 0.5).sum())
    return Figure(
        name="variation",
        title="Attention variation (Section 4.1, Table 1)",
        reading=f"In {above} of {len(table)} layers seeds clearly differ by more than half of what "
        "random patterns do.",
        data=table,
        plots=[
            dots(
                table.assign(**shares),
                {
                    "measured, with its interval": "variation_share",
                    "reported for 40 seeds (recalled)": "recalled_share",
                },
                rows="{group}, layer {layer}",
                said="{group}, layer {layer}<br>{variation:.2f} [{low:.2f}, {high:.2f}], random "
                "{random_baseline:.2f}",
                unit="variation as a share of that of random patterns",
                bars=("low_share", "high_share"),
                marked=[Line(0.5, "half"), Line(1.0, "random")],
                include=(0,),
            )
        ],
        note="Mean over pairs of seeds of ‖A₁ − A₂‖² on the string with all types and depths, "
        "divided by its expectation for rows drawn uniformly from the simplex of allowed "
        f"positions. Intervals: {interval_words(table)}.",
    )


def _variations(evidence: Evidence) -> pd.DataFrame:
    """A row per group and layer, but for those groups that are of interest for their balance."""
    share = {name: each / RECALLED_VARIATION["random"] for name, each in RECALLED_VARIATION.items()}
    rows = []
    for group in evidence.groups():
        if not group["training.contrastive_weight"] and "task.train_lengths" not in group:
            name = group["group"]
            layers, shown = evidence.layers(name), {"group": name, "task": group["task"]}
            recalled = {len(layers) - 1: share.get(name, np.nan)}  # of the last
            for layer, row in enumerate(layers):
                rows.append({**shown, **row, "recalled_share": recalled.get(layer, np.nan)})
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
    kinds = {weight: f"λ = {weight:g}" for weight in scale.weights}
    hover = "β %{x:.3f}, accuracy at length %{y:.1f}%"
    said = "seed {seed}, λ = {weight:g}"
    strings = "complete strings" if mode == "complete" else "prefixes"
    return Figure(
        name=f"balance-{mode}",
        title=f"Balance violation and accuracy at length, {strings} ({where})",
        reading="Rank correlation without regularisation: "
        f"{_measured(done, f'correlation-{mode}')}.",
        data=table,
        plots=[
            _scatter(
                "balance violation β (mean of S/P, no unit)",
                "accuracy after a closing bracket at lengths 400–500 (%)",
                [
                    *_regression(done, scaled),
                    *marks(scaled, "beta", LONG, by="weight", kinds=kinds, said=said, hover=hover),
                ],
            )
        ],
        note="One mark per model with a minimal first layer (Eq. 19), all trained for as many "
        "steps; λ is the weight of the contrastive regularisation (Eq. 22). The line is by least "
        f"squares, with {BAND}.",
    )


def _regression(done: Reproduction, table: pd.DataFrame) -> list[Series]:
    """A line by least squares, and its interval."""
    x, y = table["beta"].to_numpy(), table[LONG].to_numpy()
    at = np.linspace(x.min(), x.max(), 40)
    line, low, high = regression(x, y, at, done.scale.n_bootstrap, done.scale.measurement.data_seed)
    band = {"fill": "tonexty", "fillcolor": "@grid"}
    return [
        Series(name="", x=at, y=low, size=0, legend=False, line={"width": 0}),
        Series(name="its interval", x=at, y=high, size=0, line={"width": 0}, more=band),
        Series(name="regression", x=at, y=line, size=0, color="@muted", line={"width": 2}),
    ]


def _checkpoints(done: Reproduction) -> Figure | None:
    table = done.evidence.checkpoints.dropna(subset=["loss", "beta"])
    if table.empty:
        return None
    lengths = {name: longest for longest, name in length_points(done.scale)}
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
    plot = _scatter(
        "loss above the entropy floor (nats per token)",
        "balance violation β",
        series,
        from_zero="",
        logarithmic="x",
    )
    return Figure(
        name="theorem-2-loss",
        title="Violation on the way down (Theorem 2)",
        reading="Rank correlation of loss and β over seeds at the same step: "
        f"{_measured(done, 'theorem-2-loss')}.",
        data=table,
        plots=[plot],
        note="Training runs from right to left, a line per run. Models with a minimal first layer, "
        "trained on complete strings of at most N brackets, without regularisation; loss on fresh "
        "strings of these lengths.",
    )


def _lengths(done: Reproduction) -> Figure | None:
    evidence, rows = done.evidence, []
    for longest, name in length_points(done.scale):
        models = evidence.of(name).dropna(subset=["beta"])
        shown = ["longest", "seed", "beta", "largest_ratio", LONG, "loss"]
        rows.append(models.assign(longest=longest)[shown])
    if not sum(map(len, rows)):
        return None
    table = pd.concat(rows, ignore_index=True)
    names = {"beta": "β", "largest_ratio": "largest S/P"}
    at = table["longest"] * (1 + 0.3 * jitter(table["seed"]))
    each = table.assign(at=at).melt(["longest", "at", "seed"], list(names), "measure")
    said, hover = "N = {longest}, seed {seed}", "violation %{y:.3f}"
    plot = _scatter(
        "longest training strings N (brackets)",
        "violation (no unit)",
        marks(each, "at", "value", by="measure", kinds=names, said=said, hover=hover),
        from_zero="",
        logarithmic="xy",
    )
    return Figure(
        name="theorem-2-length",
        title="Violation and training length (Theorem 2)",
        reading=f"Rank correlation of N and β: {_measured(done, 'theorem-2-length')}.",
        data=table,
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
    looks = heads[[f"look_{place}" for place in NAMED]]
    replaced = heads[["accuracy_uniform", "accuracy_random"]].min(axis=1)
    heads = heads.assign(
        look=looks.max(axis=1),
        place=looks.idxmax(axis=1).str.removeprefix("look_"),
        lost=heads["accuracy"] - replaced,
    )
    many, idle = (
        int(heads["interpretable"].sum()),
        int((heads["interpretable"] & heads["replaceable"]).sum()),
    )
    series = marks(
        heads.assign(lost=100 * heads["lost"]),
        "look",
        "lost",
        by="place",
        kinds={place: f"looks at {place}" for place in sorted(set(heads["place"]))},
        said="{group} seed {seed}, layer {layer}, head {head}",
        hover="there first: %{x:.0%}; lost %{y:.1f} points",
        size=7,
    )
    plot = _scatter(
        "share of closing brackets with the largest weight there",
        "accuracy lost without the pattern (points)",
        series,
    )
    return Figure(
        name="misleading",
        title="Heads that look interpretable, and what their patterns do (Figures 4–6)",
        reading=f"{many} of {len(heads)} heads look interpretable; for {idle} of these the pattern "
        "does not matter.",
        data=heads,
        plots=[plot],
        note="A pattern is replaced in one head at a time by uniform and by random rows; the "
        f"larger loss counts. Right of {INTERPRETABLE:.0%}, and with a mean weight above {MASS}, a "
        f"head looks interpretable; below "
        f"{100 * REPLACEABLE:.0f} point its pattern does not matter.",
    )


def _measured(done: Reproduction, name: str) -> str:
    found = done.claims.loc[done.claims["name"] == name, "measured"]
    return str(found.iloc[0]) if len(found) else "not measured"


def _gallery(done: Reproduction) -> Figure | None:
    """The two most different seeds of some groups."""
    evidence, parts, rows = done.evidence, [color_bar()], []
    accuracy = evidence.models.set_index(["group", "seed"])["accuracy"].to_dict()
    for group, where in _GALLERY.items():
        if len(evidence.of(group)) < 2:
            continue
        patterns, seeds = evidence.patterns(group)[:, -1, 0], evidence.sound(group)
        apart = distances(patterns, patterns)
        pair = [int(index) for index in np.unravel_index(apart.argmax(), apart.shape)]
        if pair[0] == pair[1]:
            continue
        language = load_task(str(evidence.of(group)["task"].iloc[0])).language
        drawn = text_in(language, language.probe_string)
        maps = []
        for index in pair:
            seed, share = f"seed {seeds[index]}", percent(accuracy[group, seeds[index]])
            maps.append(described_map(drawn, patterns[index], (seed, share), f"of {group}, {seed}"))
        distance = float(apart[tuple(pair)])
        small = element("small", f"{where}; these two differ by {distance:.2f}")
        heading = element("h3", group, " ", small)
        parts.append(element("div", heading, element("div", maps, class_="pair"), class_="group"))
        rows.append((group, seeds[pair[0]], seeds[pair[1]], distance))
    if not rows:
        return None
    table = pd.DataFrame(rows, columns=["group", "seed", "other_seed", "difference"])
    most = table.loc[table["difference"].idxmax(), "group"]
    return Figure(
        name="patterns",
        title="The two seeds that differ most (Figures 1, 2, 7, 9)",
        reading="Models that differ in nothing but their seed attend differently, the most in "
        f"{most}.",
        data=table,
        body=element("div", parts),
        note="Last layer. Rows are queries, columns keys; every row sums to 1. Rings mark the top "
        "of the stack, where a parser would look. Percentages are accuracies in distribution.",
    )
