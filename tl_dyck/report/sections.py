"""The parts of a report in words: lead, findings, what surrounds a figure, how it was made."""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any

from tl_dyck.report.commands import report_command, seed_text, study_command
from tl_dyck.report.figures import Figure, good_statuses, percent
from tl_dyck.report.markup import Html, csv_link, element, table
from tl_dyck.report.patterns import Patterns, heat_map, striking_pair
from tl_dyck.studies import Study, findings
from tl_dyck.studies.findings import Finding

__all__ = ["about", "figure_section", "lead", "summary", "versions", "viewer"]

_TEXT_LIMIT = 450  # characters of a finding, and how many are shown of a longer one
_TEXT_BEGINNING = 230
_TABLE_LIMIT = 120  # rows; longer data is in the CSV file alone


def lead(study: Study) -> Html:
    """What was done and why, for who comes from elsewhere."""
    config, models, language = study.config, study.models, study.task.language
    learned = int(models["status"].isin(good_statuses(study)).sum())
    target = config.training.target
    ended = f"reached the target accuracy of {percent(target)}" if target is not None else "were trained to the end"
    return element(
        "p",
        f"{len(models)} transformers ({len(config.families)} families, {len(config.seeds)} seeds each) learned to "
        f"predict strings of balanced brackets with {language.n_types} types and depth at most {language.max_depth}, "
        "such as ",
        element("code", study.summary["probe_string"]),
        f". {learned} of {len(models)} {ended}. Here the right answer is known: only one closing bracket can follow a "
        "prefix, the partner of the bracket on top of the stack. So it can be checked what attention patterns tell "
        "about what a model does.",
        class_="lead",
    )


def summary(study: Study, patterns: Patterns) -> list[Html | None]:
    """The findings in words, the three most interesting first, and one example to look at."""
    found = findings(study)
    rest = None
    if len(found) > 3:
        more = element("ul", _items(found[3:]), class_="findings more")
        rest = element("details", element("summary", f"What else was found ({len(found) - 3})"), more)
    return [element("ol", _items(found[:3]), class_="findings"), rest, _example(study, patterns)]


def _items(found: Iterable[Finding]) -> list[Html]:
    return [element("li", element("h3", finding.title), _text(finding.text)) for finding in found]


def _text(text: str) -> list[Html]:
    """A finding's text; of one that lists a lot, the beginning, so that it does not push the others off the page."""
    if len(text) <= _TEXT_LIMIT:
        return [element("p", text)]
    entries, found, _ = text[:_TEXT_BEGINNING].rpartition("), ")  # never in the middle of a pair of brackets
    beginning = f"{entries})," if found else text[:_TEXT_BEGINNING].rpartition(" ")[0]
    return [
        element("p", f"{beginning} …"),
        element("details", element("summary", "All of it"), element("p", text)),
    ]


def _example(study: Study, patterns: Patterns) -> Html | None:
    """The two models of one family whose attention differs most: the claim without numbers."""
    pair = striking_pair(study, patterns)
    if pair is None:
        return None
    group, *positions = pair
    accuracy = study.models.set_index(["family", "seed"])["accuracy"].to_dict()
    maps, said = [], []
    for position in positions:
        seed, weights = group.seeds[position], group.weights[position]
        share = percent(accuracy[group.family, seed])
        said.append(f"seed {seed} is {share}")
        label = f"Attention pattern of {group.name}, seed {seed}; {patterns.in_words(weights)}."
        maps.append(element("div", heat_map(patterns, weights, (f"seed {seed}", share)), role="img", aria_label=label))
    caption = element(
        "figcaption",
        element("p", element("strong", "The two models of one family that differ most. ")),
        element(
            "p",
            f"Both are {group.name}, trained alike but for the seed; {' and '.join(said)} accurate. Rows are queries, "
            "columns keys; darker means more attention (lighter on a dark page). Rings mark the bracket on top of the "
            "stack, the one that a parser would look at.",
        ),
    )
    return element("figure", element("div", maps, class_="pair"), caption, class_="hero")


def figure_section(figure: Figure) -> list[Html | None]:
    """A figure with its reading, how it was measured, its data, and how to make it again."""
    plots = [
        element(
            "div",
            class_="plot",
            data_plot=f"{figure.name}-{index}",
            role="img",
            aria_label=plot.alt,
            style=f"height:{plot.layout['height']}px",
        )
        for index, plot in enumerate(figure.plots)
    ]
    again = element("span", "Make it again: ", element("code", figure.command))
    return [
        element("p", figure.reading, class_="reading"),
        element("div", plots, class_="plots" if len(plots) > 1 else None) if plots else figure.body,
        element("p", figure.note, class_="note"),
        element("div", csv_link(figure.data, figure.name), again, class_="tools"),
        _data_table(figure) if len(figure.data) <= _TABLE_LIMIT else None,
    ]


def _data_table(figure: Figure) -> Html:
    data = figure.data
    rows = [[_cell(value) for value in row] for row in data.itertuples(index=False)]
    numeric = [index for index, column in enumerate(data.columns) if data[column].dtype.kind in "iuf"]
    columns = [column.replace("_", " ") for column in data.columns]
    return element(
        "details", element("summary", "Data table"), table(f"Data: {figure.title}", columns, rows, numeric=numeric)
    )


def _cell(value: Any) -> str:
    if value is None or value != value:
        return "–"
    return f"{value:.4g}" if isinstance(value, float) else str(value)


def about(study: Study) -> list[Html]:
    """How to make everything again, and what the numbers mean."""
    config = study.config
    return [
        *_again(study),
        element("p", "This page from saved results, without training: ", element("code", report_command(study))),
        element(
            "p",
            "Every interval is a 95% percentile bootstrap over seeds. Numbers called “recalled” are those of Wen et "
            "al. 2023 (arXiv 2312.01429) as remembered; they are shown for orientation, and nothing depends on them.",
        ),
        element(
            "details",
            element("summary", "The whole configuration"),
            element("pre", element("code", json.dumps(config.to_dict(), indent=1, ensure_ascii=False)), tabindex="0"),
        ),
    ]


def _again(study: Study) -> list[Html]:
    """As a command if the command line can say all of the configuration, else in Python."""
    command = study_command(study)
    if command is not None:
        return [element("p", "Train, measure and report again: ", element("code", command))]
    call = f"run_study(StudyConfig.from_dict({study.config.to_dict()!r}), {study.folder.as_posix()!r})"
    code = f"from tl_dyck.studies import StudyConfig, run_study\n\n{call}"
    return [element("p", "Train and measure again:"), element("pre", element("code", code), tabindex="0")]


def versions(study: Study) -> Html:
    """Versions, machine, seeds."""
    facts = study.summary["environment"]
    packages = ", ".join(f"{name} {version}" for name, version in facts["versions"].items())
    entries = {
        "Versions": f"{packages}, Python {facts['python']}",
        "Machine": f"{facts['platform']}, {facts.get('cpu') or 'CPU not recorded'}, {facts['cpu_cores']} CPU cores, "
        f"{facts['gpu'] or 'no GPU'}",
        "Seeds": f"models {seed_text(study.config.seeds)}; measurements {study.config.measurement.data_seed}",
        "Training": f"{study.models['seconds'].sum():,.0f} s in all runs together",
    }
    return element("dl", [[element("dt", name), element("dd", value)] for name, value in entries.items()])


def viewer() -> Html:
    """The dialog in which one map is shown large; the page's script fills it."""
    buttons = [
        element("button", text, type="button", id=f"viewer-{name}")
        for name, text in (("previous", "Previous seed"), ("next", "Next seed"), ("close", "Close"))
    ]
    stage = element(
        "div",
        id="viewer-map",
        tabindex="0",
        role="application",
        aria_labelledby="viewer-title",
        aria_describedby="viewer-cell",
    )
    return element(
        "dialog",
        element("div", element("h2", id="viewer-title"), buttons, class_="head"),
        stage,
        element("p", id="viewer-cell", aria_live="polite"),
        element("p", "Arrow keys move from cell to cell.", class_="note"),
        id="viewer",
        aria_labelledby="viewer-title",
    )
