"""The figures of a study that are plots. What was found is read from them in `studies.findings`."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import replace

import pandas as pd

from tl_dyck.estimates import interval_words
from tl_dyck.plotting.plot_recipes import dots, in_words, marks
from tl_dyck.plotting.plots import Line, Plot, Series, curves, scatter
from tl_dyck.report.accuracy import ACCURACY_FIGURES, NAME, between
from tl_dyck.report.commands import probe_command
from tl_dyck.report.page import Figure
from tl_dyck.report.patterns import likeliest_errors
from tl_dyck.studies import Study
from tl_dyck.studies.findings import Finding, tie


def figures(study: Study, found: Sequence[Finding]) -> list[Figure]:
    """The plots of a study, in the report's order, except those without data."""
    said: dict[str, list[str]] = defaultdict(list)
    for finding in found:
        said[finding.figure].append(finding.text)
    made = [figure for draw in FIGURES if (figure := draw(study)) is not None]
    for index, each in enumerate(made):
        probe = _PROBES.get(each.name)
        command = probe_command(study, str(each.data["family"].iloc[0]), probe) if probe else ""
        words = each.reading or " ".join(said[each.name])
        made[index] = replace(each, reading=words, command=each.command or command)
    return made


#: What measures a figure's numbers again.
_PROBES = {
    "variation": "attention_variation",
    "stack": "stack_likeness",
    "balance": "balance_violation",
}


# --- attention ------------------------------------------------------------------------------------


def _variation(study: Study) -> Figure | None:
    table = study.variation[study.variation["variation"].notna()]
    if table.empty:
        return None
    named = is_one_layer(table)
    data = table.assign(recalled=table["recalled"].astype(float).where(named))
    values = {"measured, with its interval": "variation"}
    if data["recalled"].notna().any():
        values["reported for 40 seeds (recalled)"] = "recalled"
    unnamed = table[table["recalled"].notna() & ~named].drop_duplicates("family")
    said = " and ".join(f"{row.recalled:.2f} for {row.family}" for row in unnamed.itertuples())
    baseline = float(table["random_baseline"].iloc[0])
    return Figure(
        name="variation",
        title="Attention variation between seeds",
        data=data,
        plots=[
            dots(
                data,
                values,
                rows="{family}, layer {layer}",
                said="{family}, layer {layer}<br>{variation:.2f} [{low:.2f}, {high:.2f}]",
                unit="attention variation ‖A₁ − A₂‖² (squared Frobenius norm)",
                bars=("low", "high"),
                marked=[Line(baseline, f"random patterns: {baseline:.2f}")],
                include=(0,),
            )
        ],
        note="Mean over pairs of seeds of the squared Frobenius norm of the difference of their "
        "attention patterns on the probe string; 0 means the same pattern. "
        f"Intervals: {interval_words(table)}, since pairs are not independent. "
        "Random: rows drawn uniformly from all distributions over the allowed positions."
        + (f" The paper reports {said} (recalled); of which layer, it does not say." * bool(said)),
    )


def is_one_layer(rows: pd.DataFrame) -> pd.Series[bool]:
    """Whether a row is of a family with one layer, in a table with a row per family and layer.

    Only such a row can be held beside a number of the paper, which names no layers.
    """
    return rows.groupby("family")["layer"].transform("size") == 1


def _stack(study: Study) -> Figure | None:
    heads = study.heads[study.heads["mass_at_closing"].notna()]
    if heads.empty:
        return None
    facts = study.summary["stack_chance"]
    chance, ceiling = float(facts["chance_at_closing"]), float(facts["ceiling_at_closing"])
    marked = [
        Line(chance, f"chance: {chance:.2f}"),
        Line(ceiling, f"at most, if equal brackets look alike: {ceiling:.2f}", "right"),
        Line(1.0, "a parser: 1", "right"),
    ]
    return Figure(
        name="stack",
        title="Is attention stack-like?",
        data=heads,
        plots=[
            dots(
                heads,
                {"one head": "mass_at_closing"},
                rows="{family}, layer {layer}",
                said="{family} seed {seed}, layer {layer}, head {head}<br>largest weight there: "
                "{argmax_at_closing:.1%} of closing brackets",
                hover="weight on the top of the stack: %{x:.3f}",
                unit="attention weight on the top of the stack (share, 0 to 1)",
                marked=marked,
                include=(0, 1),
            )
        ],
        note="A parser would look at the last bracket that is still open. Mean weight there over "
        "queries that are closing brackets, "
        f"on {min(study.config.measurement.n_strings, 500):,} training strings. That a head cannot "
        "single out the top of the stack where several equal brackets of equal depth have been "
        "read is no evidence against a stack.",
    )


# --- what is held beside what ---------------------------------------------------------------------


def _by_family(
    study: Study, x: tuple[str, str], y: tuple[str, str], scale: float = 1.0, height: int = 400
) -> Plot:
    """A mark per model in the colour of its family."""
    table = study.models.dropna(subset=[x[0], y[0]])
    names = {axis: title.partition(" (")[0] for axis, (_, title) in (("x", x), ("y", y))}
    series = marks(
        table.assign(**{y[0]: scale * table[y[0]]}),
        x[0],
        y[0],
        by="family",
        kinds={family: family for family in study.config.families},
        said=NAME,
        hover="<br>".join(f"{name}: %{{{axis}:.4g}}" for axis, name in names.items()),
        size=11,
    )
    # a share in percent (scale 100) lies near its top, where a figure from zero would show nothing
    from_zero = "xy" if scale == 1.0 else "x"
    return scatter(x[1], y[1], series, height=height, from_zero=from_zero)


_BETA = ("balance_violation", "balance violation β (mean of S/P, no unit)")
_CHANGE = ("logit_change", "largest change of a logit (exact, over all insertions)")


def _at_length(study: Study) -> tuple[str, str]:
    name = f"accuracy after a closing bracket, lengths {study.long_lengths} (%)"
    return "long_accuracy_after_close", name


def _balance(study: Study) -> Figure | None:
    table = study.models.dropna(subset=["balance_violation"])
    if table.empty:
        return None
    return Figure(
        name="balance",
        title="Balance violation and accuracy at length",
        reading=""
        if study.summary["balance_and_length"]
        else "These seeds do not tell whether balance violation and accuracy at length are tied.",
        data=table[["family", "seed", "balance_violation", "long_accuracy_after_close"]],
        plots=[_by_family(study, _BETA, _at_length(study), 100.0)],
        note="β is 0 for a model on whose output a matched pair of brackets, wherever it stands, "
        "has no influence: a condition for generalising to any length. It is defined for families "
        "with a minimal first layer.",
    )


def _certificates(study: Study) -> Figure | None:
    """Worst logit change against balance violation; accuracy at length against the change."""
    if study.certificates.empty:
        return None
    counts = study.certificates["status"].value_counts()
    verdicts = ", ".join(f"{count} {status}" for status, count in counts.items())
    change = "the largest change of a logit"
    length = f"accuracy after a close at lengths {study.long_lengths}"
    ties = [
        tie(family, facts, first, second, sign=sign)
        for fact, first, second, sign in (
            ("balance_and_change", "balance violation", change, 1),
            ("change_and_length", change, length, -1),
        )
        for family, facts in study.summary[fact].items()
    ]
    pairs = ((_BETA, _CHANGE, 1.0), (_CHANGE, _at_length(study), 100.0))
    blocks = study.config.measurement.n_inserted
    return Figure(
        name="certificates",
        title="Certified against inserted pairs",
        data=study.certificates,
        plots=[
            _by_family(study, x, y, scale, height=360)
            for x, y, scale in pairs
            if study.models[[x[0], y[0]]].notna().all(axis=1).any()
        ],
        note=f"{len(study.certificates)} prefixes of {max(study.task.train_lengths) - 1} brackets "
        f"that end with a closing one and leave one open ({verdicts}). Up to {blocks} "
        f"block{'s' * (blocks != 1)} of nested matched pairs may be inserted before the last "
        "bracket; the right closing bracket must keep the largest logit on every such string. "
        "Verdicts are exact: by shortest paths and branch and bound over all of them, not by "
        f"samples. A balanced model (β = 0) would not move at all. {' '.join(ties)}",
    )


def _languages(study: Study) -> Figure | None:
    """How far each model is proved; nothing if no model can be decided."""
    decided = study.languages
    if decided.empty:
        return None
    runs = study.models[["family", "seed", "status"]].rename(columns={"status": "run"})
    longest, trained = int(decided["length"].max()), max(study.task.train_lengths)
    return Figure(
        name="languages",
        title="Every prefix decided",
        data=decided,
        plots=[
            dots(
                decided.merge(runs, on=["family", "seed"]),
                {"one model": "proved_to"},
                rows="{family}",
                said="{family} seed {seed} ({run})",
                hover="proved up to length %{x}",
                unit="every prefix proved right up to length (brackets)",
                marked=[Line(trained, f"trained up to {trained}", "right")],
                include=(0, longest),
            )
        ],
        note="A one-layer model without positions sees of a prefix its last bracket and how "
        "often each bracket occurs at each depth, so that all prefixes up to a length can be "
        "decided, where a sample only finds some. Of two layers, every prefix of up to about 11 "
        "brackets is run, and longer ones are decided as long as there is time.",
    )


# --- loss -----------------------------------------------------------------------------------------


def _entropy_gap(study: Study) -> Figure:
    models = study.models
    # ± 2 standard errors: about 95 %
    spread, floor = 2 * models["loss_error"], float(models["entropy_floor"].iloc[0])
    gaps = between(study, "entropy_gap", lambda value: f"{value:.3f}")
    return Figure(
        name="entropy-gap",
        title="Distance from the entropy floor",
        reading=f"On average the families end {gaps} nats per token above the floor of "
        f"{floor:.3f}.",
        data=models[["family", "seed", "loss", "loss_error", "entropy_floor", "entropy_gap"]],
        plots=[
            dots(
                models.assign(
                    low=models["entropy_gap"] - spread, high=models["entropy_gap"] + spread
                ),
                {"one model, ± 2 standard errors": "entropy_gap"},
                rows="{family}",
                said=NAME,
                hover="%{x:.4f} nats per token above the floor",
                unit="cross-entropy above the floor (nats per token)",
                bars=("low", "high"),
                means=study.summary["families"],
                marked=[Line(0.0, "floor")],
            )
        ],
        note="The floor is exact: the least cross-entropy that any model can reach which is not "
        "told how long a string will be. "
        f"Loss on {study.config.measurement.n_strings:,} fresh training strings.",
    )


def _training(study: Study) -> Figure:
    history, models = study.history, study.models
    losses, floor = history["loss"].astype(float), float(history["floor"].iloc[0])
    # of runs that all diverged there is no loss
    top = float(losses.max()) if losses.notna().any() else floor + 1
    # room below the floor, so that its line is not the frame's
    pad = 0.12 * (top - floor)
    good, status = (
        dict(zip(zip(models["family"], models["seed"], strict=True), values, strict=True))
        for values in (study.learned, models["status"])
    )

    def curve(run: tuple[str, int], steps: pd.DataFrame) -> Series:
        return Series(
            name=f"seed {run[1]}",
            x=steps["step"],
            y=steps["loss"],
            color="@c0" if good[run] else "@c1",
            symbol="circle" if good[run] else "x",
            # a mark at the last step alone
            size=[0] * (len(steps) - 1) + [8],
            said=in_words(f"seed {run[1]} ({status[run]})<br>accuracy {{accuracy:.1%}}", steps),
            hover="step %{x}, loss %{y:.4f}",
            legend=False,
            line={},
        )

    steps = models["steps"]
    reached = f"{int((models['status'] == 'reached').sum())} of {len(models)} runs reached the "
    reached += f"target accuracy; training took {steps.min():,} to {steps.max():,} steps."
    return Figure(
        name="training",
        title="Training curves",
        reading=f"All runs made {steps.max():,} steps."
        if study.config.training.target is None
        else reached,
        data=history[["family", "seed", "step", "loss", "floor", "accuracy", "learning_rate"]],
        plots=[
            curves(
                family,
                "step",
                "loss (nats per token)",
                [curve((family, seed), steps) for seed, steps in rows.groupby("seed")],
                height=300,
                limits={
                    # 5 % room for the mark at the end
                    "x": [0.0, 1.05 * int(rows["step"].max())],
                    "y": [floor - pad, top + pad / 2],
                },
                marked=[Line(floor, f"floor: {floor:.3f}")],
            )
            for family in study.config.families
            if len(rows := history[history["family"] == family])
        ],
        note="Mean training loss since the measurement before, a line per seed, and the entropy "
        "floor. A cross at the end, and another colour, mark a run that did not learn.",
    )


#: The figures of a study in the order of the report: functions of a study, which return None if
#: there is no data.
FIGURES: list[Callable[[Study], Figure | None]] = [
    *ACCURACY_FIGURES,
    _variation,
    _stack,
    _balance,
    _entropy_gap,
    _training,
    _certificates,
    _languages,
    likeliest_errors,
]
