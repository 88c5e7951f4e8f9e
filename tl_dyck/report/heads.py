"""The figures of an ablation: answers, correlations, importance head by head, and gates on their way down."""

from __future__ import annotations

import math
import shlex
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from tl_dyck.ablation import FINETUNED, FROZEN, INTERPRETABILITY
from tl_dyck.report.figures import Figure
from tl_dyck.report.markup import Html, element, for_plotly
from tl_dyck.report.plots import COLORS, SYMBOLS, Line, Plot, interval, numbers, points, row_layout, scatter_layout
from tl_dyck.studies.heads import Ablation, load_ablation

__all__ = ["ablate_command", "ablation_figures", "ablation_section"]

_MOST = 6  # groups that are drawn; all are in the tables


def ablation_figures(source: Ablation | Path) -> list[Figure]:
    """The figures of an ablation, for a report; none if the folder does not exist.

    Raises:
        CorruptFileError: the folder holds something else, or a damaged one.
    """
    if isinstance(source, Path):
        if not source.exists():
            return []
        source = load_ablation(source)
    made = [_answers(source), _correlations(source), _importance(source), _gates(source), _cost(source)]
    return [figure for figure in made if figure is not None]


def ablation_section(folder: Path) -> list[Html] | None:
    """The answers alone, as markup; None if the folder of the study has no ablation."""
    path = folder / "ablation"
    if not path.exists():
        return None
    body = _answers(load_ablation(path)).body
    return None if body is None else [body]


def ablate_command(ablation: Ablation) -> str:
    """Measure the same models again."""
    tuned = ablation.config["finetune"]
    steps = ["--steps", str(tuned["steps"] if tuned else 0)]
    return shlex.join(["tl-dyck", "ablate", *ablation.sources, *steps, "--out", ablation.folder.as_posix()])


def _groups(ablation: Ablation) -> list[str]:
    return [str(group) for group in ablation.comparison.heads["group"].unique()]


def _answers(ablation: Ablation) -> Figure:
    answers, groups = ablation.answers, _groups(ablation)
    blocks = []
    for question in dict.fromkeys(answer.question for answer in answers):
        told = [answer for answer in answers if answer.question == question]
        items = [element("li", element("p", element("strong", f"{answer.group}. "), answer.text)) for answer in told]
        blocks.append([element("h3", question), element("ul", items)])
    first = answers[0].question if answers else ""
    count = {verdict: sum(a.question == first and a.verdict == verdict for a in answers) for verdict in _VERDICTS}
    tally = ", ".join(f"{text} for {count[verdict]}" for verdict, text in _VERDICTS.items() if count[verdict])
    reading = "Nothing to compare: a rank correlation takes at least three heads in a model."
    if tally:
        reading = f"{first} {tally[:1].upper()}{tally[1:]} of {len(groups)} kinds of models."
    return Figure(
        name="heads",
        title="Which heads matter",
        reading=reading,
        data=pd.DataFrame([vars(answer) for answer in answers]),
        command=ablate_command(ablation),
        body=element("div", blocks),
        note="Correlations are rank correlations over the heads of one model, averaged over models, with 95% bootstrap "
        "intervals over models, not corrected for how many there are. Frozen importance: the drop of the "
        "log-likelihood (nats per token) when a head is replaced and all else stays. Fine-tuned: how long its gate "
        "stays open while all weights adapt and open gates become more and more expensive (gates), or what is lost "
        "without it after the others adapted (leave-one-out).",
    )


_VERDICTS = {"yes": "yes", "no": "the other way round", "mixed": "it depends on the measure", "not clear": "not clear"}


def _correlations(ablation: Ablation) -> Figure | None:
    comparison, groups = ablation.comparison, _groups(ablation)[:_MOST]
    present = [name for name in (*FROZEN, *FINETUNED) if name in comparison.heads]
    pairs = [(look, name) for look in INTERPRETABILITY if look in comparison.heads for name in present]
    pairs += [(present[0], name) for name in FINETUNED if name in present and name != present[0]]
    table = comparison.correlations
    rows = []
    for a, b in pairs:
        for group in groups:
            found = comparison.correlation(group, a, b)
            if math.isfinite(found["spearman"]):
                rows.append({"row": pairs.index((a, b)), "label": f"{a}, {b}", **found.to_dict()})
    if not rows:
        return None
    drawn, traces = pd.DataFrame(rows), []
    for index, group in enumerate(groups):
        part = drawn[drawn["group"] == group]
        shift = 0.5 * (index + 0.5) / len(groups) - 0.25
        color = COLORS[index % len(COLORS)]
        marks = points(part["spearman"], part["row"] + shift, color=color, symbol=SYMBOLS[index % 6], name=group)
        marks["error_x"] = interval(part["spearman"], part["spearman_low"], part["spearman_high"], color=color, width=3)
        said = [
            f"{for_plotly(group)}<br>{r.label}: {r.spearman:+.2f} [{r.spearman_low:+.2f}, {r.spearman_high:+.2f}]"
            for r in part.itertuples()
        ]
        traces.append(
            {**marks, "customdata": said, "hovertemplate": "%{customdata}<extra></extra>", "showlegend": True}
        )
    layout = row_layout(
        [f"{a}, {b}" for a, b in pairs], "Spearman correlation over heads", [Line(0.0, "")], [-1.05, 1.05]
    )
    layout["margin"] = {**layout["margin"], "t": 66 + 12 * len(groups)}
    layout["height"] += 12 * len(groups)
    strongest = drawn.loc[drawn["spearman"].abs().idxmax()]
    reading = (
        f"The strongest of these ties is between {strongest['label'].replace(', ', ' and ')} for {strongest['group']}: "
        f"Spearman {strongest['spearman']:+.2f}."
    )
    return Figure(
        name="heads-correlations",
        title="Importance beside what heads look like",
        reading=reading,
        data=table,
        command=ablate_command(ablation),
        plots=[
            Plot(alt=f"Dot plot with intervals, a row per pair of measures. {reading}", traces=traces, layout=layout)
        ],
        note="stack-likeness: attention of closing brackets on the top of the stack. entropy: of the attention, so "
        "that a negative correlation means that sharp heads are the important ones.",
    )


def _importance(ablation: Ablation) -> Figure | None:
    heads = ablation.comparison.heads
    frozen = next((name for name in FROZEN if name in heads), None)
    tuned = next((name for name in FINETUNED if name in heads), None)
    if frozen is None or tuned is None:
        return None
    plots = []
    brightest = float(np.nanmax([0.2, *heads["stack-likeness"]])) if "stack-likeness" in heads else 1.0
    for group in _groups(ablation)[:_MOST]:
        part = heads[heads["group"] == group]
        said = [f"{for_plotly(row.model)}<br>layer {row.layer}, head {row.head}" for row in part.itertuples()]
        marks = points(part[frozen], part[tuned], color="@c0", symbol="circle", name=group)
        hover = f"%{{customdata}}<br>{frozen} %{{x:.4f}}<br>{tuned} %{{y:.3f}}"
        if "stack-likeness" in part:
            marks["marker"] |= {
                "color": numbers(part["stack-likeness"]), "colorscale": "Cividis", "cmin": 0, "cmax": brightest,
                "colorbar": {"title": {"text": "stack-<br>likeness"}, "thickness": 12},
            }  # fmt: skip
            marks["marker"]["line"] = {"width": 1, "color": "@ink"}
        plots.append(
            Plot(
                alt=f"Scatter plot of {tuned} against {frozen} importance for {group}, a dot per head.",
                traces=[{**marks, "customdata": said, "hovertemplate": f"{hover}<extra></extra>", "showlegend": False}],
                layout={
                    "height": 340,
                    "title": {"text": for_plotly(group), "font": {"size": 13}, "x": 0.02, "xanchor": "left"},
                    "margin": {"t": 40, "r": 16, "b": 48, "l": 56},
                    "xaxis": {"title": {"text": f"frozen ({frozen}): drop (nats per token)"}},
                    "yaxis": {"title": {"text": f"fine-tuned ({tuned})"}},
                },
            )
        )
    rank = [ablation.comparison.correlation(group, frozen, tuned)["spearman"] for group in _groups(ablation)]
    said_ranks = f"{np.nanmin(rank):+.2f} to {np.nanmax(rank):+.2f}" if np.isfinite(rank).any() else "not defined"
    return Figure(
        name="heads-importance",
        title="Frozen against fine-tuned, head by head",
        reading=f"Within a model the two rank heads alike with a mean correlation of {said_ranks}, by kind of model.",
        data=heads,
        command=ablate_command(ablation),
        plots=plots,
        note="A dot per head of every model; its colour says how stack-like it is before any fine-tuning.",
    )


def _gates(ablation: Ablation) -> Figure | None:
    if ablation.trajectories.empty:
        return None
    plots, shown = [], []
    for group in _groups(ablation)[:_MOST]:
        part = ablation.trajectories[ablation.trajectories["group"] == group]
        if part.empty:
            continue
        model = part["model"].iloc[0]
        part = part[part["model"] == model]
        shown.append(part)
        traces = [_curve(index, key, rows) for index, (key, rows) in enumerate(part.groupby(["layer", "head"]))]
        stages = part.groupby("penalty")["step"].max().iloc[:-1]
        plots.append(
            Plot(
                alt=f"Line plot: the gates of {model} of {group} against the steps of fine-tuning, a line per head.",
                traces=traces,
                layout={
                    "height": 340,
                    "title": {
                        "text": for_plotly(group),
                        "font": {"size": 13},
                        "x": 0.02,
                        "xanchor": "left",
                    },
                    "margin": {"t": 40, "r": 16, "b": 48, "l": 56},
                    "xaxis": {"title": {"text": "step; at each line the penalty rises"}},
                    "yaxis": {"title": {"text": "expected gate"}, "range": [-0.03, 1.03]},
                    "shapes": [_stage(int(step)) for step in stages],
                },
            )
        )
    data = pd.concat(shown, ignore_index=True)
    return Figure(
        name="heads-gates",
        title="The pruning path",
        reading=f"Gates of one model of each kind as open heads become more expensive, from a penalty of "
        f"{data['penalty'].min():g} to {data['penalty'].max():g} nats per token.",
        data=data,
        command=ablate_command(ablation),
        plots=plots,
        note=f"Shown: {', '.join(data['model'].unique())}; of all models: trajectories.parquet. A hard-concrete gate "
        "multiplies the output of each head (Louizos et al. 2018); all weights adapt while the price of an open gate "
        "rises (Voita et al. 2019).",
    )


def _curve(index: int, key: Any, rows: pd.DataFrame) -> dict[str, Any]:
    """The gate of one head."""
    layer, head = key
    dash = ("solid", "dash", "dot")[index // len(COLORS) % 3]
    return {
        "type": "scatter",
        "mode": "lines",
        "name": f"L{layer}H{head}",
        "x": numbers(rows["step"]),
        "y": numbers(rows["expected_gate"]),
        "line": {"width": 2, "color": COLORS[index % len(COLORS)], "dash": dash},
        "hovertemplate": f"layer {layer}, head {head}<br>step %{{x}}, expected gate %{{y:.3f}}<extra></extra>",
        "showlegend": True,
    }


def _stage(step: int) -> dict[str, Any]:
    line = {"dash": "dot", "width": 1, "color": "@muted"}
    return {"type": "line", "layer": "below", "line": line, "x0": step, "x1": step, "yref": "paper", "y0": 0, "y1": 1}


def _cost(ablation: Ablation) -> Figure | None:
    """What is lost with how many heads."""
    if ablation.paths.empty:
        return None
    before = ablation.models.set_index(["group", "model"])["metric"].to_dict()
    table = ablation.paths.assign(
        lost=[before[row.group, row.model] - row.metric for row in ablation.paths.itertuples()]
    )
    traces, said = [], []
    groups = _groups(ablation)
    for index, group in enumerate(groups[:_MOST]):
        part = table[table["group"] == group]
        jitter = 0.5 * (index + 0.5) / min(len(groups), _MOST) - 0.25
        marks = points(part["n_open"] + jitter, part["lost"], color=COLORS[index], symbol=SYMBOLS[index], name=group)
        names = [
            f"{for_plotly(row.model)}<br>penalty {row.penalty:g}, {row.n_open} heads open" for row in part.itertuples()
        ]
        hover = "%{customdata}<br>%{y:.4f} nats per token lost<extra></extra>"
        traces.append({**marks, "customdata": names, "hovertemplate": hover, "showlegend": True})
        cheap = part[(part["lost"] < 0.01) & (part["n_open"] > 0)]
        least = cheap.groupby("model")["n_open"].min()
        if len(least):
            said.append(f"{least.mean():.1f} heads for {group} ({len(least)} of {part['model'].nunique()} models)")
    reading = f"Losing less than 0.01 nats per token takes, on average, {'; '.join(said)}."
    if not said:
        reading = "No model came through the pruning with less than 0.01 nats per token lost."
    return Figure(
        name="heads-cost",
        title="How many heads are needed once the rest adapts",
        reading=reading,
        data=table,
        command=ablate_command(ablation),
        plots=[
            Plot(
                alt=f"Scatter plot of what is lost against the number of open heads. {reading}",
                traces=traces,
                layout=scatter_layout(
                    "heads still open at the end of a stage",
                    "log-likelihood lost (nats per token)",
                    top=40 + 12 * min(len(groups), _MOST),
                    left=56,
                    from_zero=False,
                ),
            )
        ],
        note="A dot per model and stage of the penalty. Less than nothing is lost where fine-tuning also helped.",
    )
