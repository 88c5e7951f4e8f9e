"""The page of a study: figures, tables, and parts in words: lead, findings, how it was made."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from tl_dyck.report.commands import play_command, report_command, seed_text, study_command
from tl_dyck.report.figures import figures
from tl_dyck.report.heads import ablation_figures
from tl_dyck.report.markup import Html, element, percent
from tl_dyck.report.page import Page, Section, again, made_with, whole_configuration
from tl_dyck.report.patterns import Patterns, example, pattern_figure, read_patterns, worst_string
from tl_dyck.report.tables import recalled_table, run_table
from tl_dyck.studies import Study, findings
from tl_dyck.studies.findings import Finding

_TEXT_LIMIT = 450  # characters of a finding, and how many are shown of a longer one
_TEXT_BEGINNING = 230


def study_page(study: Study) -> Html:
    """The page of a study; the same study gives the same bytes.

    Raises:
        CorruptFileError: a run's attention patterns are missing or damaged.
    """
    config, patterns, found = study.config, read_patterns(study), findings(study)
    return Page(
        title=f"tl_dyck study: {config.task}",
        lead=_lead(study),
        parts=[
            Section("summary", "What was found", _summary(study, found, patterns)),
            worst_string(study),
            pattern_figure(study, patterns),
            *figures(study, found),
            *ablation_figures(study.folder / "ablation"),
            Section("recalled", "Reported and measured", recalled_table(study)),
            Section("runs", "All runs", run_table(study)),
        ],
        command=report_command(study),
        about=[
            again("Train, measure and report again", study_command(study)),
            again("This page from saved results, without training", report_command(study)),
            again(
                "Type strings of your own and see what these models do with them",
                play_command(study, config.families[0]),
            ),
            element(
                "p",
                "Every interval is a 95% percentile bootstrap over seeds. Numbers called "
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
        patterns=patterns.to_json(),
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


def _summary(study: Study, every: Sequence[Finding], patterns: Patterns) -> list[Html | None]:
    """The findings in words, the three most interesting first; notes on them; one example."""
    found = [finding for finding in every if not finding.is_note]
    notes = [
        element("p", element("em", f"{finding.title}. "), finding.text, class_="note")
        for finding in every
        if finding.is_note
    ]
    rest = None
    if len(found) > 3:
        more = element("ul", _items(found[3:]), class_="findings more")
        rest = element(
            "details", element("summary", f"What else was found ({len(found) - 3})"), more
        )
    first = element("ol", _items(found[:3]), class_="findings")
    return [first, *notes, rest, example(study, patterns)]


def _items(found: Iterable[Finding]) -> list[Html]:
    return [
        element(
            "li",
            element("h3", element("a", finding.title, href=f"#{finding.figure}")),
            _text(finding.text),
        )
        for finding in found
    ]


def _text(text: str) -> list[Html]:
    """A finding's text; of one that lists a lot, the beginning.

    So it does not push the others off the page.
    """
    if len(text) <= _TEXT_LIMIT:
        return [element("p", text)]
    entries, found, _ = text[:_TEXT_BEGINNING].rpartition(
        "), "
    )  # never in the middle of a pair of brackets
    beginning = f"{entries})," if found else text[:_TEXT_BEGINNING].rpartition(" ")[0]
    return [
        element("p", f"{beginning} …"),
        element("details", element("summary", "All of it"), element("p", text)),
    ]
