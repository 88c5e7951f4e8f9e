"""The page of an ablation: answers, correlations, importance by head, and gates closing."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from tl_dyck.ablation import FINETUNED, FROZEN, INTERPRETABILITY, FinetuneConfig
from tl_dyck.ablation.figures import gate_curves, importance_dots
from tl_dyck.estimates import interval_words
from tl_dyck.kit.json_values import plain
from tl_dyck.kit.suggest import command
from tl_dyck.plotting.plot_recipes import dots, marks
from tl_dyck.plotting.plots import Line, scatter
from tl_dyck.report.markup import Html, element, percent, table
from tl_dyck.report.page import Figure, Page, Section, again, cell, whole_configuration
from tl_dyck.studies.ablation import AblateConfig, Ablation, load_ablation

_MOST = 6  # groups that are drawn; all are in the tables


def ablation_figures(source: Ablation | Path) -> list[Figure]:
    """The figures of an ablation, for a report; none if the folder does not exist."""
    if isinstance(source, Path):
        if not source.exists():
            return []
        source = load_ablation(source)
    draw = (_answers, _correlations, _importance, _gates, _cost)
    made = [figure for each in draw if (figure := each(source)) is not None]
    return [replace(figure, command=ablate_command(source)) for figure in made]


def ablate_command(ablation: Ablation) -> str:
    """Measure the same models again."""
    asked = {name: value for name, value in ablation.config.items() if name != "n_bootstrap"}
    tuned = asked["finetune"]
    words = [*ablation.sources, "--steps", tuned["steps"] if tuned else 0]
    same = FinetuneConfig(steps=tuned["steps"]) if tuned else None
    usual = plain(AblateConfig(finetune=same, leave_one_out=same).to_dict())
    for name, value in _changed(asked, usual):
        words += ["--set", f"{name}={value}"]
    return command("ablate", *words, "--out", ablation.folder.as_posix())


def _changed(asked: Mapping[str, Any], usual: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    """The fields that have another value, by their dotted names."""
    for name, value in asked.items():
        if isinstance(value, Mapping) and isinstance(usual[name], Mapping):
            inner = _changed(value, usual[name])
            yield from ((f"{name}.{field}", each) for field, each in inner)
        elif value != usual[name]:
            yield name, "none" if value is None else value


def _intervals(ablation: Ablation) -> str:
    """What the intervals of the correlations are."""
    named = {"spearman_low": "low", "spearman_high": "high"}
    return interval_words(ablation.comparison.correlations.rename(columns=named), "models")


def _groups(ablation: Ablation) -> list[str]:
    return [str(group) for group in ablation.comparison.heads["group"].unique()]


def _answers(ablation: Ablation) -> Figure:
    answers, groups = ablation.answers, _groups(ablation)
    blocks = []
    for question in dict.fromkeys(answer.question for answer in answers):
        told = [answer for answer in answers if answer.question == question]
        items = [
            element("li", element("p", element("strong", f"{answer.group}. "), answer.text))
            for answer in told
        ]
        blocks.append([element("h3", question), element("ul", items)])
    first = answers[0].question if answers else ""
    count = Counter(answer.verdict for answer in answers if answer.question == first)
    tally = ", ".join(
        f"{text} for {count[verdict]}" for verdict, text in _VERDICTS.items() if count[verdict]
    )
    reading = "Nothing to compare: a rank correlation takes at least three heads in a model."
    if tally:
        reading = f"{first} {tally[:1].upper()}{tally[1:]} of {len(groups)} kinds of models."
    return Figure(
        name="heads",
        title="Which heads matter",
        reading=reading,
        data=pd.DataFrame([vars(answer) for answer in answers]),
        body=element("div", blocks),
        note="Correlations are rank correlations over the heads of one model, averaged over "
        f"models, with {_intervals(ablation)}, not corrected for how many "
        "there are. "
        "Frozen importance: the drop of the log-likelihood (nats per token) when a head is "
        "replaced and all else stays. Fine-tuned: how long its gate stays open while all weights "
        "adapt and open gates become more and more expensive (gates), or what is lost without it "
        "after the others adapted (leave-one-out).",
    )


_VERDICTS = {
    "yes": "yes",
    "no": "the other way round",
    "mixed": "it depends on the measure",
    "not clear": "not clear",
}


def _correlations(ablation: Ablation) -> Figure | None:
    comparison, groups = ablation.comparison, _groups(ablation)[:_MOST]
    present = [name for name in (*FROZEN, *FINETUNED) if name in comparison.heads]
    pairs = [
        (look, name) for look in INTERPRETABILITY if look in comparison.heads for name in present
    ]
    pairs += [(present[0], name) for name in FINETUNED if name in present and name != present[0]]
    rows = [
        {"pair": f"{a}, {b}", **comparison.correlation(group, a, b).to_dict()}
        for a, b in pairs
        for group in groups
    ]
    drawn = pd.DataFrame(rows).dropna(subset=["spearman"]) if rows else pd.DataFrame()
    if drawn.empty:
        return None
    strongest = drawn.loc[drawn["spearman"].abs().idxmax()]
    return Figure(
        name="heads-correlations",
        title="Importance beside what heads look like",
        reading="The strongest of these ties is between "
        f"{strongest['pair'].replace(', ', ' and ')} for {strongest['group']}: Spearman "
        f"{strongest['spearman']:+.2f}.",
        data=comparison.correlations,
        plots=[
            dots(
                drawn,
                {"spearman": "spearman"},
                rows="{pair}",
                said="{group}<br>{pair}: {spearman:+.2f} [{spearman_low:+.2f}, "
                "{spearman_high:+.2f}]",
                hover="",
                unit="Spearman correlation over heads",
                bars=("spearman_low", "spearman_high"),
                by="group",
                kinds={group: group for group in groups},
                marked=[Line(0.0, "")],
                include=(-1, 1),
            )
        ],
        note="stack-likeness: attention of closing brackets on the top of the stack. entropy: of "
        "the attention, so that a negative correlation means that sharp heads are the important "
        "ones.",
    )


def _importance(ablation: Ablation) -> Figure | None:
    heads = ablation.comparison.heads
    frozen = next((name for name in FROZEN if name in heads), None)
    tuned = next((name for name in FINETUNED if name in heads), None)
    if frozen is None or tuned is None:
        return None
    plots = [
        importance_dots(
            heads[heads["group"] == group],
            frozen,
            tuned,
            title=group,
            x_title=f"frozen ({frozen}): drop (nats per token)",
            y_title=f"fine-tuned ({tuned})",
            # 0.2 at least: where no head is stack-like, none is to look it
            brightest=float(np.nanmax([0.2, *heads["stack-likeness"]]))
            if "stack-likeness" in heads
            else 1.0,
        )
        for group in _groups(ablation)[:_MOST]
    ]
    rank = [
        ablation.comparison.correlation(group, frozen, tuned)["spearman"]
        for group in _groups(ablation)
    ]
    said_ranks = (
        f"{np.nanmin(rank):+.2f} to {np.nanmax(rank):+.2f}"
        if np.isfinite(rank).any()
        else "not defined"
    )
    return Figure(
        name="heads-importance",
        title="Frozen against fine-tuned, head by head",
        reading=f"Within a model the two rank heads alike with a mean correlation of {said_ranks}, "
        "by kind of model.",
        data=heads,
        plots=plots,
        note="A dot per head of every model; "
        "its colour says how stack-like it is before any fine-tuning.",
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
        plots.append(gate_curves(part, title=group, of=f"{model} of {group}"))
    data = pd.concat(shown, ignore_index=True)
    return Figure(
        name="heads-gates",
        title="The pruning path",
        reading="Gates of one model of each kind as open heads become more expensive, from a "
        f"penalty of {data['penalty'].min():g} to {data['penalty'].max():g} nats per token.",
        data=data,
        plots=plots,
        note=f"Shown: {', '.join(data['model'].unique())}; `load_ablation` gives those of all. A "
        "hard-concrete gate multiplies the output of each head (Louizos et al. 2018); all weights "
        "adapt while the price of an open gate rises (Voita et al. 2019).",
    )


def _cost(ablation: Ablation) -> Figure | None:
    """Draw the metric against the number of heads that are still open."""
    if ablation.paths.empty:
        return None
    before = ablation.models.set_index(["group", "model"])["metric"].to_dict()
    table = ablation.paths.assign(
        lost=[before[row.group, row.model] - row.metric for row in ablation.paths.itertuples()]
    )
    groups, said, parts = _groups(ablation)[:_MOST], [], []
    for index, group in enumerate(groups):
        part = table[table["group"] == group]
        # groups side by side within half a unit around each whole number of heads
        apart = 0.5 * (index + 0.5) / len(groups) - 0.25
        parts.append(part.assign(place=part["n_open"] + apart))
        # 0.01 nats a token, as the text says; with no head open nothing attends
        cheap = part[(part["lost"] < 0.01) & (part["n_open"] > 0)]
        least = cheap.groupby("model")["n_open"].min()
        if len(least):
            said.append(
                f"{least.mean():.1f} heads for {group} ({len(least)} of {part['model'].nunique()} "
                "models)"
            )
    series = marks(
        pd.concat(parts),
        "place",
        "lost",
        by="group",
        kinds={group: group for group in groups},
        said="{model}<br>penalty {penalty:g}, {n_open} heads open",
        hover="%{y:.4f} nats per token lost",
    )
    return Figure(
        name="heads-cost",
        title="How many heads are needed once the rest adapts",
        reading=f"Losing less than 0.01 nats per token takes, on average, {'; '.join(said)}."
        if said
        else "No model came through the pruning with less than 0.01 nats per token lost.",
        data=table,
        plots=[
            scatter(
                "heads still open at the end of a stage",
                "log-likelihood lost (nats per token)",
                series,
                # a line of the legend for each kind of model
                top=40 + 12 * len(groups),
                left=56,
                from_zero="",
            )
        ],
        note="A dot per model and stage of the penalty. "
        "Less than nothing is lost where fine-tuning also helped.",
    )


# --- the page -------------------------------------------------------------------------------------


def ablation_page(ablation: Ablation) -> Html:
    """The page of an ablation."""
    groups = ", ".join(_groups(ablation))
    return Page(
        title="tl_dyck: which heads matter",
        lead=f"{len(ablation.comparison.heads)} attention heads of {len(ablation.models)} "
        f"transformers ({groups}). Each head was disabled while all else stayed, and gated while "
        "all else could adapt. Are the heads that look like a stack those that matter?",
        parts=[
            *ablation_figures(ablation),
            Section("models", "All models", _models(ablation)),
        ],
        about=[
            again("Measure again", ablate_command(ablation)),
            element("p", f"Intervals: {_intervals(ablation)}."),
            whole_configuration(ablation.config),
        ],
        made={"Versions": ", ".join(f"{name} {said}" for name, said in ablation.versions.items())},
    ).html


def _models(ablation: Ablation) -> Html:
    rows = [
        {
            "model": str(row.model),
            "kind": str(row.group),
            "accuracy": "–" if row.accuracy != row.accuracy else percent(row.accuracy),
            "log-likelihood (nats per token)": cell(row.metric, ".4f"),
            "gates": str(row.status),
        }
        for row in ablation.models.itertuples()
    ]
    caption = "Every model, whether it learned its task or not"
    return table(caption, rows[0], map(dict.values, rows), numeric=(2, 3))
