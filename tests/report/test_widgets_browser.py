"""Saved widgets in a real browser: no errors, no network, hover, keyboard, room on a telephone."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

from tests.cases import plain_model
from tests.report.browsing import PATIENCE, Visit, cell_at
from tests.report.conftest import EVIL, EVIL_BRACKETS, WIDGETS, make_widgets
from tl_dyck import build_model, construct, get_config, load_task
from tl_dyck.report import widgets

TEXT = "[(())]("


def test_a_map_that_looks_ahead_is_read_above_the_diagonal(opened, tmp_path):
    model = plain_model("ahead", torch.float32, 8, attention_dir="bidirectional")
    tokens = torch.tensor([3, 1, 2, 0, 1])
    page = opened(widgets.attention(model, tokens, layer=0, head=1).save(tmp_path / "w.html")).page
    with torch.no_grad():
        pattern = model.run_with_cache(tokens[None])[1]["pattern", 0][0, 1].double()
    page.mouse.move(*cell_at(page.locator("figure .map").nth(0), 1, 4))
    assert (
        page.inner_text("#tip").splitlines()[0] == f"weight {pattern[1, 4]:.3f} (layer 0, head 1)"
    )
    most = int(pattern[1].argmax())
    said = f"at 1 attends most to “{tokens[most]}” at {most}: {pattern[1].max():.3f}"
    assert said in page.locator(".tells").inner_text()
    late = [cell.get_attribute("class").split() for cell in page.locator(".cell").all()]
    assert not any("late" in names for names in late)  # every position is seen
    assert float(page.locator("rect.row").get_attribute("width")) == 5


@pytest.fixture(scope="module")
def saved(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    folder = tmp_path_factory.mktemp("widgets")
    return {
        f"{prefix}{name}": widget.save(folder / f"{prefix}{name}.html")
        for prefix, task in (("", load_task("dyck-2-4")), ("evil-", EVIL))
        for name, widget in make_widgets(task).items()
    }


@pytest.fixture
def visit(opened: Any, saved: dict[str, Path]) -> Any:
    return lambda name, *how: opened(saved[name], *how)


@pytest.mark.parametrize("name", WIDGETS)
def test_no_errors_no_requests_no_sideways_scrolling(visit, name):
    seen = visit(f"evil-{name}", 400, "dark")
    page = seen.page
    assert page.locator("main").inner_text().strip()
    for summary in page.locator("summary").all():
        summary.click()
    for width in (400, 1600):
        page.set_viewport_size({"width": width, "height": 900})
        assert not seen.scrolls_sideways
        for box in (found.bounding_box() for found in page.locator("figure .map").all()):
            assert box["x"] >= 0
            assert box["x"] + box["width"] <= width
            assert box["width"] >= 110
    page.mouse.move(200, 300)
    page.keyboard.press("Tab")


def test_hover_tells_weight_tokens_depths_in_every_map(visit):
    page = visit("seeds").page
    model = build_model(get_config("minimal-onehot", "dyck-2-4"), seed=3)
    weight = float(model.run_with_cache(TEXT)[1]["pattern", 0][0, 0, 5, 1])
    page.mouse.move(*cell_at(page.locator("figure .map").nth(3), 5, 1))
    lines = page.locator("#tip").inner_text().splitlines()
    assert lines[0] == f"weight {weight:.3f} (seed 3)"
    assert lines[1] == "query “)” at position 5, depth 1"
    assert lines[2] == "key “[” at position 1, depth 1, the top of the stack"
    assert lines[3].startswith("all patterns: 0.")
    marked = page.locator("rect.cell-at")
    assert [(cell.get_attribute("y"), cell.get_attribute("x")) for cell in marked.all()] == [
        ("5", "1")
    ] * 8
    page.mouse.move(2, 2)
    assert not page.locator("#tip").is_visible()
    assert marked.count() == 0


def test_a_query_is_chosen_by_pointer_and_by_keyboard(visit):
    page = visit("attention").page
    cells = page.locator(".cell")
    assert cells.nth(7).get_attribute("class").split()[-2:] == ["now", "top"]  # one stays open
    cells.nth(4).hover()
    assert (
        page.locator("#tip").inner_text() == "“)” at position 4, depth 2\nits partner is “(” at 3"
    )
    assert "now" in cells.nth(4).get_attribute("class")
    assert "top" in cells.nth(2).get_attribute("class")
    assert page.locator(".arc.now").count() == 1
    slider = page.locator(".query")
    slider.focus()
    page.keyboard.press("ArrowRight")
    assert slider.get_attribute("aria-valuetext") == "“)” at position 5, depth 1"
    assert "now" in cells.nth(5).get_attribute("class")
    assert page.locator(".tells").first.inner_text().startswith("“)” at 5 attends most to “")
    assert [row.get_attribute("y") for row in page.locator("rect.row").all()] == ["5", "5"]
    heights = cells.locator(".weight span").evaluate_all(
        "bars => bars.map(bar => bar.style.height)"
    )
    assert heights[6:] == ["0%", "0%"]  # later tokens are not looked at
    assert "100%" in heights


def test_an_rnn_steps_by_keyboard(visit):
    page = visit("rnn").page
    assert "depth 1" in page.locator("#step-state").inner_text()
    page.locator(".query").focus()
    page.keyboard.press("Home")
    for _ in range(3):
        page.keyboard.press("ArrowRight")
    state = " ".join(page.locator("#step-state").inner_text().split())
    assert state == "after “(”, token 3: depth 3"
    assert "one term for each of 4 tokens" in page.locator("#step-sums").inner_text()
    chances = (
        build_model(get_config("minimal-onehot", "dyck-2-4"), seed=0)("[((")[0, -1]
        .softmax(-1)
        .tolist()
    )
    amounts = page.locator("#step-logits .amount").all_inner_texts()
    assert [float(amount.split(" ")[0]) for amount in amounts] == pytest.approx(
        [100 * c for c in chances], abs=0.06
    )


def test_a_widget_works_in_the_frame_of_a_notebook(browser, tmp_path):
    widget = widgets.attention(construct.stack(load_task("dyck-2-4").language), TEXT)
    path = tmp_path / "notebook.html"
    path.write_text(
        "<!DOCTYPE html><html "
        f"data-drawn=yes><body>{widget._repr_html_()}{widget._repr_html_()}</body></html>"
    )
    seen = Visit(browser, path, 900, "light")
    frames = [seen.page.frame_locator("iframe").nth(index) for index in range(2)]
    for frame in frames:
        frame.locator(".cell").nth(4).hover()
        assert frame.locator("#tip").inner_text().startswith("“)” at position 4")
        assert frame.locator(".tells").first.inner_text().endswith("at 2: 1.000")
    assert seen.said == []
    assert seen.asked[0] == path.as_uri()
    assert all(address.startswith("about:srcdoc") for address in seen.asked[1:])
    seen.context.close()


@pytest.mark.parametrize("view", [widgets.circuitsvis_attention, widgets.circuitsvis_tokens])
def test_views_of_circuitsvis_draw_and_ask_for_nothing(browser, tmp_path, view):
    model = build_model(get_config("gpt", EVIL, n_heads=2, d_model=16), seed=1)
    path = view(model, "".join(EVIL_BRACKETS[i] for i in (0, 2, 3, 1))).save(tmp_path / "view.html")
    seen = Visit(browser, path, 900, "dark")
    shown = seen.page.locator("#view")
    if view is widgets.circuitsvis_attention:
        shown.locator("canvas").nth(4).wait_for()  # four heads, and one of them large
        assert "L1H1" in shown.inner_text()
    else:
        shown.get_by_text("alert(2)").first.wait_for()
        assert "log probability" in shown.inner_text()
    assert shown.locator("img, script").count() == 0
    bad = ("alert", "dialog", "error:")
    assert [said for said in seen.said if any(word in said for word in bad)] == []
    assert seen.asked == [path.as_uri()]
    seen.context.close()


@pytest.mark.parametrize(("theme", "scheme"), [("dark", "light"), ("light", "dark")])
def test_a_theme_is_kept_whatever_the_system_has(browser, tmp_path, theme, scheme):
    widget = widgets.attention(build_model(get_config("minimal-onehot", "dyck-2-4")), TEXT)
    widget.with_theme(theme).save(tmp_path / "told.html")
    widget.save(tmp_path / "auto.html")
    told = Visit(browser, tmp_path / "told.html", 800, scheme)
    auto = Visit(browser, tmp_path / "auto.html", 800, theme)
    script = """() => ["body", ".b0", ".b23"].map((name) => {
        const style = getComputedStyle(document.querySelector(name));
        return [style.backgroundColor, style.color, style.fill, style.colorScheme];
    })"""
    wanted = auto.page.evaluate(script)
    found = told.page.evaluate(script)
    assert [each[:3] for each in found] == [each[:3] for each in wanted]
    assert {each[3] for each in found} == {theme}
    for each in (told, auto):
        each.context.close()


def test_a_box_says_on_which_side_there_is_more(opened, tmp_path):
    task = load_task("dyck-2-4")
    model = construct.decoy_head(construct.uniform_attention(task.language), "stack")
    saved = widgets.attention(model, task.language.probe_string).save(tmp_path / "two.html")
    box = opened(saved, 390, "light").page.locator(".scroll").first
    found = []
    for left in (0, 60, 1e4):  # its width is more than 60 pixels beyond the window
        box.evaluate("(box, left) => { box.scrollLeft = left; }", left)
        said = "box => new Promise((done) => setTimeout(() => done(box.dataset.more), 100))"
        found.append(box.evaluate(said))
    assert found == ["more →", "← more · more →", "← more"]
    wide = opened(saved, 1600, "light").page.locator(".scroll").first
    assert wide.get_attribute("data-more") is None


@pytest.mark.parametrize("by", ["us", "circuitsvis"])
def test_a_frame_says_when_there_is_more_below(by, browser, tmp_path):
    model = build_model(get_config("minimal-onehot", "dyck-2-4"))
    if by == "us":
        widget = widgets.attention_seeds({f"model {i}": model for i in range(30)}, TEXT)
    else:
        widget = widgets.circuitsvis_attention(model, TEXT)
    frame = widget._repr_html_()
    page = tmp_path / "notebook.html"
    page.write_text(f"<!DOCTYPE html><html data-drawn=yes><body>{frame}</body></html>", "utf-8")
    seen = Visit(browser, page, 700, "light")
    inside = seen.page.frame_locator("iframe")
    more = inside.locator(".more")
    more.wait_for(state="visible", timeout=PATIENCE)
    assert more.inner_text() == "more below ↓"
    inside.locator("body").evaluate("() => scrollTo(0, 1e6)")
    more.wait_for(state="hidden", timeout=PATIENCE)
    assert seen.said == []
    seen.context.close()
