"""The report in a real browser: no errors, no network, hover, keyboard, room on a telephone."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from tests.report.browsing import PATIENCE, cell_at
from tests.report.conftest import opening
from tl_dyck.report import write_report
from tl_dyck.report.figures import FIGURES
from tl_dyck.studies import Study

pytestmark = pytest.mark.once

playwright = pytest.importorskip(
    "playwright.sync_api", reason="playwright is not installed: pip install playwright"
)


@pytest.fixture(scope="module")
def reports(
    tiny_study: Study, evil_study: Study, tmp_path_factory: pytest.TempPathFactory
) -> dict[str, Path]:
    folder = tmp_path_factory.mktemp("reports")
    studies = {"tiny": tiny_study, "evil": evil_study}
    return {name: write_report(study, folder / f"{name}.html") for name, study in studies.items()}


@pytest.fixture(scope="module")
def visit(browser: Any, reports: dict[str, Path]) -> Iterator[Any]:
    """Opens a report, once for each window: tests leave a page as it was."""
    with opening(browser) as open_page:
        yield lambda name, *how, **more: open_page(reports[name], *how, **more)


@pytest.fixture
def page(visit: Any) -> Any:
    return visit("tiny").page


@pytest.mark.parametrize(
    ("name", "width", "scheme"), [("tiny", 1600, "light"), ("evil", 400, "dark")]
)
def test_no_errors_no_requests_no_sideways_scrolling(visit, name, width, scheme):
    seen = visit(name, width, scheme)
    page = seen.page
    assert not seen.scrolls_sideways
    plots = page.locator(".plot")
    assert plots.count() >= len(FIGURES)
    for index in range(plots.count()):
        box = plots.nth(index).bounding_box()
        assert box["x"] >= 0
        assert box["x"] + box["width"] <= width
        assert box["height"] >= 240
        assert plots.nth(index).locator("svg").count() > 0
    box = page.locator("button.open").first.bounding_box()
    assert 110 <= box["width"] <= 300  # large enough to read, small enough to compare
    page.locator("details summary").first.click()
    page.locator("button.open").nth(1).click()
    page.keyboard.press("ArrowUp")


def test_hover_tells_what_a_cell_is_and_marks_it_in_every_seed(page, tiny_study):
    tip, button = page.locator("#tip"), page.locator("button.open").nth(1)
    assert not tip.is_visible()
    # query 5 is the first "]", key 3 the third "[": the top of the stack then
    page.mouse.move(*cell_at(button, 5, 3))
    weights = [float(tiny_study.patterns("gpt", seed)[0, 0, 5, 3]) for seed in (0, 1, 4)]
    assert tip.inner_text().splitlines() == [
        f"weight {weights[1]:.3f} (seed 1)",
        "query “]” at position 5, depth 3",
        "key “[” at position 3, depth 3, the top of the stack",
        f"all seeds: {min(weights):.3f} to {max(weights):.3f}",
    ]
    marked = page.locator(".group").first.locator("rect.cursor")
    assert [(cell.get_attribute("y"), cell.get_attribute("x")) for cell in marked.all()] == [
        ("5", "3")
    ] * 3
    page.mouse.move(5, 5)
    assert not tip.is_visible()
    assert page.locator("rect.cursor").count() == 0


def test_names_of_lines_do_not_cover_each_other(visit):
    for how in ({"width": 390, "touch": True}, {"width": 1000}):
        page = visit("tiny", **how).page
        boxes = [
            name.bounding_box()
            for name in page.locator("[data-plot=stack-0] .annotation-text").all()
        ]
        assert len(boxes) == 3
        for one, other in itertools.combinations(boxes, 2):
            first, second = sorted((one, other), key=lambda box: box["x"])
            beside = first["x"] + first["width"] <= second["x"]
            assert beside or abs(one["y"] - other["y"]) >= 12


@pytest.mark.parametrize(("width", "touch"), [(390, True), (1000, False), (1600, False)])
def test_titles_of_axes_are_within_their_plot(visit, width, touch):
    page = visit("tiny", width, "light", touch=touch).page
    titles = 0
    for plot in page.locator(".plot").all():
        box = plot.bounding_box()
        for title in plot.locator(".xtitle, .ytitle").all():
            found, titles = title.bounding_box(), titles + 1
            for at, size in (("x", "width"), ("y", "height")):
                assert found[at] >= box[at] - 1, title.text_content()
                assert found[at] + found[size] <= box[at] + box[size] + 1, title.text_content()
    assert titles == 20


def test_no_buttons_lie_over_a_legend_where_nothing_hovers(visit):
    assert visit("tiny", 390, "light", touch=True).page.locator(".modebar-btn").count() == 0
    mouse = visit("tiny").page
    assert mouse.locator("[data-plot=stack-0] .modebar--hover .modebar-btn").count() > 3


def test_hover_over_a_plot(page):
    point = page.locator("[data-plot=accuracy-0] .points path").first
    point.scroll_into_view_if_needed()
    point.hover(force=True)
    label = page.locator("[data-plot=accuracy-0] .hovertext")
    label.wait_for()
    assert "seed" in label.text_content()
    assert "in distribution" in label.text_content()


def test_a_map_opens_large_and_is_walked_by_keyboard(visit):
    page = visit("tiny", 390, touch=True).page
    button = page.locator("button.open").nth(1)
    button.focus()
    page.keyboard.press("Enter")
    viewer, cell = page.locator("#viewer"), page.locator("#viewer-cell")
    assert viewer.is_visible()
    assert viewer.bounding_box()["width"] <= 390
    assert page.locator("#viewer-title").inner_text() == "gpt, layer 0, seed 1"
    assert "query “)” at position 16" in cell.inner_text()
    page.keyboard.press("ArrowUp")
    page.keyboard.press("ArrowLeft")
    page.keyboard.press("ArrowRight")  # never beyond the diagonal
    page.keyboard.press("ArrowRight")
    assert "query “)” at position 15" in cell.inner_text()
    assert "key “)” at position 15" in cell.inner_text()
    page.locator("#viewer-next").click()
    page.locator("#viewer-next").click()  # around the end
    assert page.locator("#viewer-title").inner_text() == "gpt, layer 0, seed 0"
    assert "query “)” at position 15" in cell.inner_text()
    page.keyboard.press("Escape")
    assert not viewer.is_visible()
    assert page.evaluate("document.activeElement.dataset.map") == "0"  # the map that was shown last


def test_colours_follow_the_theme_and_paper_is_light(visit):
    seen = visit("tiny")
    light = seen.colors()
    seen.page.emulate_media(color_scheme="dark")
    text = seen.page.locator(".plot .xtick text").first
    playwright.expect(text).not_to_have_css("fill", light[1], timeout=PATIENCE)  # redrawn
    dark = seen.colors()
    assert dark[0] != light[0]
    text.evaluate("() => dispatchEvent(new Event('beforeprint'))")
    assert seen.colors() == light
    text.evaluate("() => dispatchEvent(new Event('afterprint'))")
    assert seen.colors() == dark
    seen.page.emulate_media(color_scheme="light")
    playwright.expect(text).to_have_css("fill", light[1], timeout=PATIENCE)


def test_a_sentence_stays_with_its_figure_on_paper(page):
    page.emulate_media(media="print")
    style = "(boxes, name) => boxes.map((box) => getComputedStyle(box)[name])"
    for selector, name in ((".together", "breakInside"), ("h2, .reading", "breakAfter")):
        found = page.locator(f"main :is({selector})").evaluate_all(style, name)
        assert len(found) > 8
        assert set(found) == {"avoid"}
    page.emulate_media(media="screen")


def test_data_can_be_saved(page, tiny_study, tmp_path):
    with page.expect_download() as waiting:
        page.locator("a[download='accuracy.csv']").click()
    waiting.value.save_as(tmp_path / "accuracy.csv")
    saved = pd.read_csv(tmp_path / "accuracy.csv")
    assert saved["accuracy"].tolist() == tiny_study.models["accuracy"].tolist()


@pytest.mark.parametrize(("how", "is_open"), [({"width": 390, "touch": True}, False), ({}, True)])
def test_contents_are_folded_where_there_is_little_room(visit, how, is_open):
    page = visit("tiny", **how).page
    for expected in (is_open, not is_open):
        assert page.locator("#contents ol").is_visible() == expected
        page.locator("#contents summary").click()
