"""The page of a study: figures, tables, and parts in words: lead, findings, how it was made."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from tl_dyck.estimates import Estimate, ends_text, interval_words, place_of
from tl_dyck.report.accuracy import again_of, intervals_of
from tl_dyck.report.commands import report_command, seed_text, study_commands
from tl_dyck.report.figures import figures, is_one_layer
from tl_dyck.report.heads import ablation_figures
from tl_dyck.report.markup import Html, element, percent, table
from tl_dyck.report.page import Page, Section, again, cell, made_with, whole_configuration
from tl_dyck.report.patterns import pattern_parts
from tl_dyck.studies import Study, findings
from tl_dyck.studies.findings import Finding
from tl_dyck.studies.results import RECALLED_VARIATION, reference_means


def study_page(study: Study) -> Html:
    """The page of a study; the same study gives the same bytes.

    Raises:
        CorruptFileError: a run's attention patterns are missing or damaged.
    """
    config, patterns, found = study.config, pattern_parts(study), findings(study)
    return Page(
        title=f"tl_dyck study: {config.task}",
        lead=_lead(study),
        parts=[
            Section("summary", "What was found", [*_summary(found), patterns.example]),
            *patterns.figures,
            *figures(study, found),
            Section("again", "As many other seeds", _other_seeds(study)),
            *ablation_figures(study.folder / "ablation"),
            Section("recalled", "Reported and measured", recalled_table(study)),
            Section("runs", "All runs", run_table(study)),
        ],
        command=report_command(study),
        about=[
            *(again(what, command) for what, command in study_commands(study).items()),
            element(
                "p",
                f"Intervals of means: {intervals_of(study)}; of attention variation: "
                f"{interval_words(study.variation)}. Beside them: "
                f"{again_of(study)}. Numbers called "
                "“recalled” are those of Wen et al. 2023 (arXiv 2312.01429) as remembered; they "
                "are shown for orientation, and nothing depends on them.",
            ),
            whole_configuration(config.to_dict()),
        ],
        made={
            **made_with(study.summary["environment"]),
            "Seeds": f"models {seed_text(config.seeds)}; measurements "
            f"{config.measurement.data_seed}",
            "Training": f"{study.models['seconds'].sum():,.0f} s in all runs together",
        },
        patterns=patterns.data,
    ).html


def _lead(study: Study) -> list[Any]:
    """Aim and means, for a reader from elsewhere."""
    config, models, language = study.config, study.models, study.task.language
    target = config.training.target
    ended = (
        f"reached the target accuracy of {percent(target)}"
        if target is not None
        else "were trained to the end"
    )
    return [
        f"{len(models)} transformers ({len(config.families)} families, {len(config.seeds)} seeds "
        f"each) learned to predict strings of balanced brackets with {language.n_types} types and "
        f"depth at most {language.max_depth}, such as ",
        element("code", study.summary["probe_string"]),
        f". {int(study.learned.sum())} of {len(models)} {ended}. Here the right answer is known: "
        "only one closing bracket can follow a prefix, the partner of the bracket on top of the "
        "stack. So it can be checked what attention patterns tell about what a model does.",
    ]


def _summary(every: Sequence[Finding]) -> list[Html | None]:
    """The findings in words, the three most interesting first, and notes on them."""
    found = [finding for finding in every if not finding.is_note]
    notes = [
        element("p", element("em", f"{finding.title}. "), finding.text, class_="note")
        for finding in every
        if finding.is_note
    ]
    rest = None
    # three are read; the rest is a click away
    if len(found) > 3:
        more = element("ul", _items(found[3:]), class_="findings more")
        rest = element(
            "details", element("summary", f"What else was found ({len(found) - 3})"), more
        )
    first = element("ol", _items(found[:3]), class_="findings")
    return [first, *notes, rest]


def _items(found: Iterable[Finding]) -> list[Html]:
    return [
        element(
            "li",
            element("h3", element("a", finding.title, href=f"#{finding.figure}")),
            element("p", finding.sentence),
            element("p", finding.number, class_="number"),
            element("details", element("summary", "In full"), element("p", finding.text)),
        )
        for finding in found
    ]


# --- tables ---------------------------------------------------------------------------------------


def recalled_table(study: Study) -> Html:
    """The numbers that Wen et al. 2023 report, as remembered, beside those measured here."""
    rows = []
    known = study.variation[study.variation["recalled"].notna()]
    comparable = is_one_layer(known)
    for row in known[comparable].itertuples():
        measured = f"{row.variation:.2f} {ends_text(row.low, row.high, '.2f')}"
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
        recalled = "> 99%" if family.endswith("uniform") else "97%" if family == "gpt" else "> 97%"
        measured = Estimate.of(facts).text(percent) if facts else "–"
        rows.append((f"accuracy in distribution, {family}", recalled, measured))
    caption = (
        "Reported by Wen et al. 2023 (recalled, not checked) and measured here, "
        f"with {intervals_of(study)} ({len(study.config.seeds)} seeds per family; there 40)"
    )
    return table(caption, ("quantity", "reported (recalled)", "measured"), rows, numeric=(1, 2))


def _other_seeds(study: Study) -> list[Html | None]:
    """The means beside those of the models that come with the package, and where these may be."""
    reference = reference_means(study)
    rows = [
        [
            family,
            name.replace("_", " "),
            f"{facts['mean']:.4g}",
            ends_text(facts["low"], facts["high"]),
            ends_text(facts["again_low"], facts["again_high"]),
            _reference(facts, reference.get(family, {}).get(name)),
        ]
        for family, of in study.summary["families"].items()
        for name, facts in of.items()
        if isinstance(facts, dict) and not name.endswith("error")
    ]
    caption = (
        f"Means over {len(study.config.seeds)} seeds, with {intervals_of(study)}; and "
        f"{again_of(study)}. A machine that rounds otherwise trains other models: if the means of "
        "the reference models, which come with tl_dyck, are there, nothing tells the two apart."
    )
    columns = ("family", "measure", "mean", "interval", "as many other seeds", "reference models")
    return [table(caption, columns, rows, numeric=(2, 3, 4))]


def _reference(facts: Mapping[str, float], mean: float | None) -> str:
    """The reference models' mean, and whether it is where other seeds may be."""
    if mean is None:
        return "–"
    place = place_of(mean, facts["again_low"], facts["again_high"])
    return f"{mean:.4g}" + (f", {place}" if place != "not known" else "")


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
        {
            "run": f"{row.family} seed\u00a0{row.seed}",
            "status": row.status
            if good[row.Index]
            else element("strong", row.status, class_="failed"),
            "steps": f"{row.steps:,}",
            "time (s)": f"{row.seconds:.1f}",
            "accuracy": percent(row.accuracy),
            "after a close": percent(row.accuracy_after_close),
            "accuracy, long": percent(row.long_accuracy),
            "after a close, long": percent(row.long_accuracy_after_close),
            "entropy gap (nats)": f"{row.entropy_gap:.4f}",
            "balance violation": cell(row.balance_violation, ".3f"),
        }
        for row in models.itertuples()
    ]
    caption = (
        "Every run: accuracy on all closing brackets, and on those after a closing one, where a "
        "stack is needed; – where a measure is not defined"
    )
    return [note, table(caption, rows[0], map(dict.values, rows), numeric=range(2, 10))]
