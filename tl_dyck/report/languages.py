"""What a study decided about every prefix: how far each model is proved, its likeliest error."""

from __future__ import annotations

import pandas as pd

from tl_dyck.files import CorruptFileError
from tl_dyck.plots import Line, Series, dots_by_row
from tl_dyck.report.commands import report_command
from tl_dyck.report.heatmap import color_bar, described_map, string_patterns
from tl_dyck.report.markup import Html, element, percent, table
from tl_dyck.report.page import Figure
from tl_dyck.report.shown import model_names, rows_of
from tl_dyck.studies import Study


def language_figures(study: Study) -> list[Figure]:
    """How far each model is proved; nothing if no model can be decided."""
    decided = study.languages
    if decided.empty:
        return []
    merged = decided.merge(study.models, on=["family", "seed"], suffixes=("", "_of_run"))
    families = [family for family in study.config.families if family in set(decided["family"])]
    longest, trained = int(decided["length"].max()), max(study.task.train_lengths)
    proved = int((decided["status"] == "proved").sum())
    perfect = merged[merged["accuracy"] == 1]
    refuted = int((perfect["status"] == "refuted").sum())
    reading = (
        f"{proved} of {len(decided)} models are right on every prefix up to length {longest}. "
        f"{len(perfect)} close every sampled bracket right; {refuted} of them are proved wrong on "
        "some prefix."
    )
    marks = Series(
        name="one model",
        x=merged["proved_to"],
        y=rows_of(merged, families),
        said=model_names(merged.assign(status=merged["status_of_run"])),
        hover="proved up to length %{x}",
        color="@c0",
        symbol="circle",
    )
    plot = dots_by_row(
        families,
        "every prefix proved right up to length (brackets)",
        [marks],
        alt=f"Dot plot, a row per family, a dot per seed. {reading}",
        marked=[Line(trained, f"trained up to {trained}", "right")],
        limits=[-1, longest + 2],
        row=120,
    )
    return [
        Figure(
            name="languages",
            title="Every prefix decided",
            reading=reading,
            data=decided,
            command=report_command(study),
            plots=[plot],
            note="A one-layer model without positions sees of a prefix its last bracket and how "
            "often each bracket occurs at each depth, so that all prefixes up to a length can be "
            "decided, where a sample only finds some.",
        ),
        _errors(study, merged),
    ]


def _errors(study: Study, merged: pd.DataFrame) -> Figure:
    """Accuracy sampled and counted, and attention on the likeliest error."""
    reading, shown = _likeliest(study, merged)
    return Figure(
        name="likeliest-errors",
        title="Exact accuracy, and the likeliest error",
        reading=reading,
        data=study.languages,
        command=report_command(study),
        body=element("div", _table(merged), shown),
        note="The likeliest error is the most probable prefix that the model continues wrongly. "
        "The pattern is of layer 0, the only one, the mean over heads. Rows are queries, columns "
        "keys; rings mark the top of the stack.",
    )


def _table(merged: pd.DataFrame) -> Html:
    rows = []
    for row in merged.itertuples():
        known = row.accuracy_low == row.accuracy_low
        exact = "–" if not known else _accuracy(row.accuracy_low, row.accuracy_high)
        found = isinstance(row.likeliest, str)
        rows.append(
            (
                f"{row.family} seed\u00a0{row.seed}",
                f"{row.accuracy:.2%}",
                exact,
                f"{row.proved_to}",
                element("code", row.likeliest) if found else "none",
                f"{row.probability:.1e}" if found else "–",
            )
        )
    return table(
        "Accuracy on closing brackets in distribution, sampled and counted",
        ("model", "sampled", "exact", "proved to length", "likeliest error", "its probability"),
        rows,
        numeric=(1, 2, 3, 5),
    )


def _accuracy(low: float, high: float) -> str:
    """One minus the error, in as many digits as tell it from 1."""
    if high - low > 1e-6:
        return f"{low:.4%} to {high:.4%}"
    error = 1 - (low + high) / 2
    return f"1 − {error:.1e}" if 0 < error < 1e-4 else f"{1 - error:.4%}"


def _likeliest(study: Study, merged: pd.DataFrame) -> tuple[str, Html | None]:
    """A sentence on the most accurate model that is refuted, and its attention on that error."""
    refuted = merged.dropna(subset=["likeliest"])
    if refuted.empty:
        return "No model is wrong on any prefix that was decided.", None
    row = refuted.loc[refuted["accuracy"].idxmax()]
    family, seed, text = str(row["family"]), int(row["seed"]), str(row["likeliest"])
    weights = study.language_pattern(family, seed)
    patterns = string_patterns(study.task.language, text)
    if weights.shape[-1] != len(patterns.tokens):
        raise CorruptFileError(
            f"the saved pattern of {family} seed {seed} in {str(study.folder)!r} is not of {text}"
        )
    mean = weights.float().numpy().mean(0)
    label = f"{family} seed {seed}"
    language = study.task.language
    tokens = language.parse(text)
    right = language.alphabet[int(language.right_bracket(tokens)[-1])]
    reading = (
        f"{label} closes {percent(float(row['accuracy']))} of sampled brackets right. Its "
        f"likeliest error is after {text}: there {right} closes, and {row['predicted']} has the "
        "largest logit."
    )
    shown = described_map(patterns, mean, (f"seed {seed}",), f"of {label} on {text}")
    return reading, element("div", color_bar(), element("div", shown, class_="pair"))
