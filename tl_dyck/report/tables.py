"""The tables of a study's page: reported beside measured, and every run."""

from __future__ import annotations

from tl_dyck.report.markup import Html, element, percent, table
from tl_dyck.report.shown import good_statuses, is_one_layer
from tl_dyck.studies import Study
from tl_dyck.studies.results import RECALLED_VARIATION


def recalled_table(study: Study) -> Html:
    """Return the figures that Wen et al. 2023 report, as remembered, beside those measured here."""
    rows = []
    seeds = f"{len(study.config.seeds)} seeds per family; there 40"
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
        baseline = f"{study.variation['random_baseline'].iloc[0]:.2f} (exact)"
        rows.append(
            (
                "attention variation, random patterns",
                f"{RECALLED_VARIATION['random']:.2f}",
                baseline,
            )
        )
    for family in study.config.families:
        facts = study.summary["families"][family].get("accuracy")
        measured = (
            f"{percent(facts['mean'])} [{percent(facts['low'])}, {percent(facts['high'])}]"
            if facts
            else "–"
        )
        rows.append((f"accuracy in distribution, {family}", _recalled_accuracy(family), measured))
    caption = (
        "Reported by Wen et al. 2023 (recalled, not checked) and measured here, "
        f"with 95% intervals ({seeds})"
    )
    return table(caption, ("quantity", "reported (recalled)", "measured"), rows, numeric=(1, 2))


def _recalled_accuracy(family: str) -> str:
    if family.endswith("uniform"):
        return "> 99%"
    return "97%" if family == "gpt" else "> 97%"


def run_table(study: Study) -> list[Html | None]:
    """Every run, those that failed to learn included and marked."""
    models = study.models
    failed = models[~models["status"].isin(good_statuses(study))]
    note = (
        element("p", f"All {len(models)} runs ended well.")
        if failed.empty
        else element(
            "p",
            f"{len(failed)} of {len(models)} runs did not reach their target. "
            "They are part of every number above.",
            class_="warning",
        )
    )
    rows = []
    for row in models.itertuples():
        bad = row.Index in failed.index
        rows.append(
            (
                f"{row.family} seed\u00a0{row.seed}",
                element("strong", row.status, class_="failed") if bad else row.status,
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
        )
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
