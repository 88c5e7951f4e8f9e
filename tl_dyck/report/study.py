"""The page of a study: figures, tables, and parts in words: lead, findings, how it was made."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any, NamedTuple

from tl_dyck.estimates import Estimate, ends_text, interval_words, place_of
from tl_dyck.report.accuracy import again_of, intervals_of
from tl_dyck.report.commands import report_command, seed_text, study_commands
from tl_dyck.report.figures import figures, is_one_layer
from tl_dyck.report.heads import ablation_figures
from tl_dyck.report.markup import Html, element, percent, table
from tl_dyck.report.page import Figure, Page, Section, again, cell, made_with, whole_configuration
from tl_dyck.report.patterns import (
    Patterns,
    all_seeds,
    read_patterns,
    two_that_differ,
    worst_string,
)
from tl_dyck.studies import Study, findings
from tl_dyck.studies.findings import Finding
from tl_dyck.studies.results import RECALLED_VARIATION, reference_means


class Material(NamedTuple):
    """What a page is made of, read once: the study, what was found, the patterns of its models."""

    study: Study
    found: list[Finding]
    patterns: Patterns


#: Parts of a page, as a function of `Material` makes them; None is none.
Parts = Iterable[Figure | Section | None]


def study_page(study: Study) -> Html:
    """The page of a study; the same study gives the same bytes.

    Raises:
        CorruptFileError: a run's attention patterns are missing or damaged.
    """
    shown = Material(study, findings(study), read_patterns(study))
    config = study.config
    return Page(
        title=f"tl_dyck study: {config.task}",
        lead=_lead(study),
        parts=[part for make in PARTS for part in make(shown)],
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
        patterns=shown.patterns.to_json(),
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


def _summary(shown: Material) -> Parts:
    """The findings in words, the three most interesting first, and notes on them; an example."""
    every = shown.found
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
    example = two_that_differ(shown.patterns)
    return [Section("summary", "What was found", [first, *notes, rest, example])]


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


def _recalled(shown: Material) -> Parts:
    """The numbers that Wen et al. 2023 report, as remembered, beside those measured here."""
    study, rows = shown.study, []
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
    columns = ("quantity", "reported (recalled)", "measured")
    numbers = table(caption, columns, rows, numeric=(1, 2))
    return [Section("recalled", "Reported and measured", numbers)]


def _other_seeds(shown: Material) -> Parts:
    """The means beside those of the models that come with the package, and where these may be."""
    study, reference = shown.study, reference_means(shown.study)
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
    means = table(caption, columns, rows, numeric=(2, 3, 4))
    return [Section("again", "As many other seeds", [means])]


def _reference(facts: Mapping[str, float], mean: float | None) -> str:
    """The reference models' mean, and whether it is where other seeds may be."""
    if mean is None:
        return "–"
    place = place_of(mean, facts["again_low"], facts["again_high"])
    return f"{mean:.4g}" + (f", {place}" if place != "not known" else "")


def _runs(shown: Material) -> Parts:
    """Every run, those that failed to learn included and marked."""
    models, good = shown.study.models, shown.study.learned
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
    runs = table(caption, rows[0], map(dict.values, rows), numeric=range(2, 10))
    return [Section("runs", "All runs", [note, runs])]


#: The parts of the page, in their order; a part of yours is appended.
PARTS: list[Callable[[Material], Parts]] = [
    _summary,
    lambda shown: [worst_string(shown.study), all_seeds(shown.study, shown.patterns)],
    lambda shown: figures(shown.study, shown.found),
    _other_seeds,
    lambda shown: ablation_figures(shown.study.folder / "ablation"),
    _recalled,
    _runs,
]
