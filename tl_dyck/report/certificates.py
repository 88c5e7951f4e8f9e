"""What a study proved: exact certificates against inserted pairs, beside balance and accuracy."""

from __future__ import annotations

from tl_dyck.files import CorruptFileError
from tl_dyck.plots import scatter
from tl_dyck.report.commands import report_command
from tl_dyck.report.heatmap import color_bar, described_map, string_patterns
from tl_dyck.report.markup import element, percent
from tl_dyck.report.page import Figure
from tl_dyck.report.shown import by_family, long_lengths, tie
from tl_dyck.studies import Study


def certificate_figures(study: Study) -> list[Figure]:
    """The verdicts, and the string that hurts most; nothing if no model can be certified."""
    if study.certificates.empty:
        return []
    return [_verdicts(study), _worst_string(study)]


def _verdicts(study: Study) -> Figure:
    """Worst logit change against balance violation; accuracy at length against the change."""
    table = study.models.dropna(subset=["logit_change"])
    lengths, statuses = long_lengths(study), study.certificates["status"]
    change = "largest change of a logit (exact, over all insertions)"
    panels = [
        (
            "balance_violation",
            "logit_change",
            "balance violation β (mean of S/P, no unit)",
            change,
            1.0,
        ),
        (
            "logit_change",
            "long_accuracy_after_close",
            change,
            f"accuracy after a close, lengths {lengths} (%)",
            100.0,
        ),
    ]
    said = [
        _tie(study, "balance_and_change", "balance violation and the largest change of a logit", 1),
        _tie(
            study, "change_and_length", f"that change and accuracy after a close at {lengths}", -1
        ),
    ]
    counts = {
        status: int((statuses == status).sum()) for status in ("certified", "falsified", "unknown")
    }
    verdicts = ", ".join(f"{count} {status}" for status, count in counts.items() if count)
    reading = (
        f"Of {len(statuses)} predictions (one-layer models, {study.config.measurement.n_certified} "
        f"prefixes each) {verdicts}: "
        f"{percent(counts['certified'] / len(statuses), 0)} provably survive every insertion."
    )
    plots = []
    for (x, y, x_title, y_title, scale), text in zip(panels, said, strict=True):
        rows = table.dropna(subset=[x, y])
        if not rows.empty:
            hover = f"{x.replace('_', ' ')} %{{x:.3f}}<br>{y.replace('_', ' ')} %{{y:.3g}}"
            alt = f"Scatter plot by seed: {y_title} against {x_title}. {text}"
            marks, from_zero = (
                by_family(study, rows, x, y, hover, scale=scale),
                "xy" if scale == 1.0 else "x",
            )
            plots.append(scatter(x_title, y_title, marks, alt=alt, height=360, from_zero=from_zero))
    length = max(study.task.train_lengths) - 1
    blocks = study.config.measurement.n_inserted
    return Figure(
        name="certificates",
        title="Certified against inserted pairs",
        reading=reading,
        data=study.certificates,
        command=report_command(study),
        plots=plots,
        note=f"Prefixes of {length} brackets that end with a closing one and leave one open. Up to "
        f"{blocks} block{'s' * (blocks != 1)} of nested matched pairs may be inserted before the "
        "last bracket; the right closing bracket must keep the largest logit on every such string. "
        "Verdicts are exact: by shortest paths and branch and bound over all of them, not by "
        f"samples. A balanced model (β = 0) would not move at all. {' '.join(filter(None, said))}",
    )


def _worst_string(study: Study) -> Figure:
    """The prediction that insertions hurt most, with attention before and after.

    It is the most wrong one, or the least right.
    """
    rows = study.certificates
    row = rows.loc[rows["margin_seen"].idxmin()]
    family, seed = str(row["family"]), int(row["seed"])
    weights = study.certificate_patterns(family, seed)
    language = study.task.language
    falsified = row["status"] == "falsified"
    maps = []
    for name, text, label in (
        ("original", str(row["prefix"]), "as it was"),
        ("worst", str(row["worst_string"]), "after the insertion"),
    ):
        patterns = string_patterns(language, text)
        if weights[name].shape[-1] != len(patterns.tokens):
            raise CorruptFileError(
                f"the saved patterns of {family} seed {seed} in {str(study.folder)!r} are not of "
                f"{text}"
            )
        mean = weights[name].float().numpy().mean(0)
        maps.append(described_map(patterns, mean, (label,), label))
    reading = (
        f"After {row['prefix']} only {row['target']} closes. {family} seed {seed} is furthest from "
        "saying so "
        f"{'once brackets are inserted: ' if row['prefix'] != row['worst_string'] else ''}after "
        f"{row['worst_string']} that logit is {abs(row['margin_seen']):.3g} "
        f"{'below' if falsified else 'above'} the largest other one."
    )
    edits = element("p", "The insertion: ", element("code", str(row["worst_edits"])))
    return Figure(
        name="worst-string",
        title="The string that hurts most",
        reading=reading,
        data=rows.loc[[row.name]],
        command=report_command(study),
        body=element("div", [color_bar(), edits, element("div", maps, class_="pair")]),
        note="The string of all those searched on which the right closing bracket fares worst, and "
        "the model's attention (layer 0, its only one; mean over heads) on the prefix and on that "
        "string. Rows are queries, columns keys; rings mark the top of the stack.",
    )


def _tie(study: Study, fact: str, what: str, sign: int) -> str:
    """A correlation over seeds in words, for every family that has one."""
    said = []
    for family, facts in study.summary[fact].items():
        how = tie(facts, "rise together", "go against each other", "show no clear tie", sign=sign)
        said.append(f"over {facts['n']} seeds of {family} {what} {how[0]} ({how[1]})")
    return "; ".join(said)[:1].upper() + "; ".join(said)[1:] + "." if said else ""
