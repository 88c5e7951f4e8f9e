"""The tables of a study's page: reported beside measured, and every run."""

from __future__ import annotations

import pandas as pd

from tl_dyck.report.markup import Html, element, percent, table
from tl_dyck.studies import Study
from tl_dyck.studies.results import RECALLED_VARIATION


def is_one_layer(rows: pd.DataFrame) -> pd.Series[bool]:
    """Whether a row is of a family with one layer, in a table with a row per family and layer.

    Only such a row can be held beside a number of the paper, which names no layers.
    """
    return rows.groupby("family")["layer"].transform("size") == 1


def recalled_table(study: Study) -> Html:
    """The numbers that Wen et al. 2023 report, as remembered, beside those measured here."""
    rows = []
    known = study.variation[study.variation["recalled"].notna()]
    comparable = is_one_layer(known)
    for row in known[comparable].itertuples():
        measured = f"{row.variation:.2f} [{row.low:.2f}, {row.high:.2f}]"
        what = f"attention variation, {row.family}, layer {row.layer}"
        rows.append((what, f"{row.recalled:.2f}", measured))
    for row in known[~comparable].drop_duplicates("family").itertuples():
        what = f"attention variation, {row.family}, of a layer that is not named"
        rows.append((what, f"{row.recalled:.2f}", "not comparable"))
    if not study.variation.empty:
        measured = f"{study.variation['random_baseline'].iloc[0]:.2f} (exact)"
        recalled = f"{RECALLED_VARIATION['random']:.2f}"
        rows.append(("attention variation, random patterns", recalled, measured))
    for family in study.config.families:
        facts = study.summary["families"][family].get("accuracy")
        mean, low, high = (percent(facts[key]) if facts else "" for key in ("mean", "low", "high"))
        recalled = "> 99%" if family.endswith("uniform") else "97%" if family == "gpt" else "> 97%"
        measured = f"{mean} [{low}, {high}]" if facts else "–"
        rows.append((f"accuracy in distribution, {family}", recalled, measured))
    caption = (
        "Reported by Wen et al. 2023 (recalled, not checked) and measured here, "
        f"with 95% intervals ({len(study.config.seeds)} seeds per family; there 40)"
    )
    return table(caption, ("quantity", "reported (recalled)", "measured"), rows, numeric=(1, 2))


def run_table(study: Study) -> list[Html | None]:
    """Every run, those that failed to learn included and marked."""
    models, good = study.models, study.learned
    failed = int((~good).sum())
    note = element(
        "p",
        f"{failed} of {len(models)} runs did not reach their target. They are part of every number "
        "above."
        if failed
        else f"All {len(models)} runs ended well.",
        class_="warning" if failed else None,
    )
    rows = [
        (
            f"{row.family} seed\u00a0{row.seed}",
            row.status if good[row.Index] else element("strong", row.status, class_="failed"),
            f"{row.steps:,}",
            f"{row.seconds:.1f}",
            percent(row.accuracy),
            percent(row.accuracy_after_close),
            percent(row.long_accuracy),
            percent(row.long_accuracy_after_close),
            f"{row.entropy_gap:.4f}",
            "–"
            if row.balance_violation != row.balance_violation
            else f"{row.balance_violation:.3f}",
        )
        for row in models.itertuples()
    ]
    columns = (
        "run",
        "status",
        "steps",
        "time (s)",
        "accuracy",
        "after a close",
        "accuracy, long",
        "after a close, long",
        "entropy gap (nats)",
        "balance violation",
    )
    caption = (
        "Every run: accuracy on all closing brackets, and on those after a closing one, where it "
        "takes a stack; – where a measure is not defined"
    )
    return [note, table(caption, columns, rows, numeric=range(2, 10))]
