"""The report's file: whole, self-contained, honest, and unmoved by what users name things."""

from __future__ import annotations

import hashlib
import itertools
import re
from dataclasses import replace
from importlib.resources import files
from pathlib import Path

import pytest

from tests.report.conftest import EVIL_BRACKETS, EVIL_FAMILIES, EVIL_TASK
from tests.report.pages import csv, data_block, read_page, whole_page
from tl_dyck.report import write_report
from tl_dyck.report.figures import FIGURES
from tl_dyck.report.page import asset
from tl_dyck.runs.saved import find_models
from tl_dyck.studies import Study, findings, load_study
from tl_dyck.studies.ablation import AblateConfig, ablate_runs


@pytest.fixture(scope="module")
def evil(evil_study: Study, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_report(evil_study, tmp_path_factory.mktemp("evil-report") / "report.html")


def test_one_file_of_moderate_size_and_the_same_each_time(tiny_study, report, tmp_path):
    assert report.stat().st_size < 2_000_000
    again = write_report(load_study(tiny_study.folder), tmp_path / "new" / "again.html")
    assert again.read_bytes() == report.read_bytes()
    assert [path.name for path in again.parent.iterdir()] == ["again.html"]
    (tmp_path / "runs").symlink_to(tiny_study.folder / "runs")  # by default it is with the study
    assert write_report(replace(tiny_study, folder=tmp_path)) == tmp_path / "report.html"


def test_nothing_is_fetched_and_no_other_script_runs(evil):
    whole_page(evil, n_scripts=2)
    banner = r"\* plotly\.js \(basic - minified\) v\d"
    assert len(re.findall(banner, evil.read_text())) == 1  # inlined once


def test_markup_in_names_is_text(evil, evil_study):
    page = read_page(evil)
    assert page.find("title")[0].text == f"tl_dyck study: {EVIL_TASK}"
    assert page.find("h1")[0].text == f"tl_dyck study: {EVIL_TASK}"
    for family in EVIL_FAMILIES:
        assert any(family in heading.text for heading in page.find("h3"))
        assert any(family in cell.text for cell in page.find("th", scope="row"))
    for finding in findings(evil_study):
        assert finding.text in page.find("section", id="summary")[0].text
    patterns = data_block(page, "data-patterns")
    assert set(EVIL_BRACKETS) <= set(patterns["tokens"])
    assert patterns["groups"][0]["name"].startswith(EVIL_FAMILIES[0])
    assert EVIL_BRACKETS[0] in page.find("p", class_="lead")[0].text
    assert set(csv(page, "accuracy")["family"]) == set(EVIL_FAMILIES)


def test_plotly_gets_names_as_text(evil):
    """Plotly reads a little HTML in labels, so there must be no tag but our own line breaks."""
    plots = data_block(read_page(evil), "data-plots")

    def texts(value):
        if isinstance(value, str):
            yield value
        elif isinstance(value, dict):
            for key, part in value.items():
                if key != "hovertemplate":  # ours alone; it ends with <extra></extra>
                    yield from texts(part)
        elif isinstance(value, list):
            for part in value:
                yield from texts(part)

    found = list(texts(plots))
    assert {tag for text in found for tag in re.findall(r"<[^>]*>", text)} <= {"<br>"}
    assert any("&lt;img src=x" in text for text in found)


def test_the_script_that_draws_is_the_one_that_was_published():
    """plotly.js-basic-dist-min 4.1.1 from the npm registry, with its licence."""
    folder = files("tl_dyck.report").joinpath("plotly")
    for name, digest in (
        ("plotly-basic.min.js", "99784e3abfb07b142a15e521a439e6d9addceadb3f79553fd24c72774f0649ba"),
        ("LICENSE", "8c45d9eaf50c2f72dd9c7ab9ef440788ba58a3538484b5c51c1f17d5128752e7"),
    ):
        assert hashlib.sha256(folder.joinpath(name).read_bytes()).hexdigest() == digest
    assert "plotly.js (basic - minified) v4.1.1" in asset("plotly/plotly-basic.min.js")[:100]


def test_contents_lead_to_every_section_in_order(page):
    sections = [section.attributes["id"] for section in page.find("main")[0].find("section")]
    links = [link.attributes["href"] for link in page.find("nav")[0].find("a")]
    assert links == [f"#{name}" for name in sections]
    assert sections[:2] == ["summary", "worst-string"]
    others = "patterns after-close depth accuracy variation stack balance entropy-gap training"
    assert {*others.split(), "recalled", "runs"} <= set(sections)
    for section in page.find("section"):
        assert section.find("h2")[0].attributes["id"] == section.attributes["aria-labelledby"]


def test_findings_come_first_the_most_interesting_three_in_order(page, tiny_study):
    found = [finding for finding in findings(tiny_study) if not finding.is_note]
    (first,) = page.find("ol", class_="findings")
    (rest,) = page.find("ul", class_="findings more")
    items = [*first.find("li"), *rest.find("li")]
    assert len(first.find("li")) == 3
    shown = [(each.find("h3")[0], *each.find("p")) for each in items]
    assert [tuple(part.text for part in parts) for parts in shown] == [
        (finding.title, finding.sentence, finding.number, finding.text) for finding in found
    ]
    for finding, (*_, number, text) in zip(found, shown, strict=True):
        assert finding.sentence.endswith(".")
        assert len(finding.sentence) <= 160  # one sentence
        assert any(digit.isdigit() for digit in finding.number)
        assert number.attributes["class"] == "number"
        assert text.parent.name == "details"  # the rest can be unfolded


def test_every_figure_is_read_aloud_downloadable_and_reproducible(page, tiny_study):
    names = [link.attributes["download"] for link in page.find("a", class_="download")]
    made = [each for make in FIGURES if (each := make(tiny_study)) is not None]
    assert {f"{each.name}.csv" for each in made} <= {*names}
    assert len({*names}) == len(names)
    for name in names:
        (section,) = page.find("section", id=name.removesuffix(".csv"))
        (reading,) = section.find("p", class_="reading")
        assert reading.text.endswith(".")
        assert "nan" not in reading.text.lower().split()
        (tools,) = section.find("div", class_="tools")
        assert tools.find("code")[0].text.startswith("tl-dyck ")
        assert str(tiny_study.folder) in tools.find("code")[0].text


def test_who_cannot_see_or_point_gets_the_same(page):
    for plot in page.find("div", class_="plot"):
        assert plot.attributes["role"] == "img"
        assert len(plot.attributes["aria-label"]) > 40
    for svg in page.find("svg"):
        assert svg.attributes["aria-hidden"] == "true"
        assert len(svg.parent.attributes["aria-label"]) > 40  # the button or image that it is in
    for button in page.find("button"):
        assert button.attributes.get("aria-label") or button.text
    for table in page.find("table"):
        assert table.find("caption")[0].text
        assert all(cell.attributes["scope"] in ("row", "col") for cell in table.find("th"))
        widths = {len(row.children) for row in table.find("tr")}
        assert len(widths) == 1
    levels = [int(node.name[1]) for node in page.find("*") if re.fullmatch("h[1-6]", node.name)]
    assert levels.count(1) == 1
    assert all(after <= before + 1 for before, after in itertools.pairwise(levels))
    assert page.find("html")[0].attributes["lang"] == "en"


def test_the_report_of_a_study_shows_its_ablation(tiny_study, tmp_path):
    for path in tiny_study.folder.iterdir():
        (tmp_path / path.name).symlink_to(path)
    runs = [found.folder for found in find_models(tmp_path, {"model": "gpt"})[:2]]
    config = AblateConfig(finetune=None, leave_one_out=None, n=10)
    out = tmp_path / "ablation"
    ablate_runs(runs, out, config=config, n_jobs=1, progress=False)
    moved = replace(tiny_study, folder=tmp_path)
    page = read_page(write_report(moved, tmp_path / "new.html"))
    sections = [section.attributes["id"] for section in page.find("main")[0].find("section")]
    assert sections.index("heads") < sections.index("recalled")
    assert "#heads" in [link.attributes["href"] for link in page.find("nav")[0].find("a")]
    without = read_page(write_report(tiny_study, tmp_path / "without.html"))
    assert not without.find("section", id="heads")
