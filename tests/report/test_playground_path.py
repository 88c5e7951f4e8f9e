"""The tour, the numbers behind a weight and the choice of models, in a browser, beside torch."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
import torch

from tests.report.browsing import cell_at
from tl_dyck import build_model, construct, get_config, load_task, write_playground

TASK = load_task("dyck-2-4")
TEXT = "[(())"
MODELS = {
    "gpt 0": build_model(get_config("gpt", TASK), seed=0),
    "gpt 1": build_model(get_config("gpt", TASK), seed=1),
    "heads": build_model(get_config("eq6", TASK, n_heads=2), seed=2),
    "uniform": construct.uniform_attention(TASK.language),
}


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("path") / "page.html"
    return write_playground(MODELS, path, task=TASK, string=TEXT)


def cached(name: str) -> tuple[torch.Tensor, Any]:
    with torch.no_grad():
        logits, cache = MODELS[name].run_with_cache(TEXT)
    return logits[0, -1].double(), cache


def numbers(texts: list[str]) -> list[float]:
    return [float(text.replace("−", "-").split(" ")[-1]) for text in texts]


def column(page: Any, where: str, index: int) -> list[str]:
    cells = page.locator(f"{where} tbody tr td:nth-child({index})").all()
    return [cell.inner_text().removesuffix(" %") for cell in cells]


def vectors(page: Any) -> list[list[float]]:
    each = page.locator("#tour-body .vector").all()
    rows = [[cell.get_attribute("data-tip") for cell in row.locator("span").all()] for row in each]
    assert [text.split(":")[0] for row in rows for text in row] == [
        str(i) for row in rows for i in range(len(row))
    ]
    return [numbers(row) for row in rows]


@pytest.mark.parametrize(
    ("path", "name", "layer", "head"), [(1, "gpt 0", 1, 0), (5, "heads", 0, 1)]
)
def test_the_tour_shows_the_numbers_that_torch_has(opened, made, path, name, layer, head):
    page = opened(made).page
    page.locator("#tour-start").click()
    assert not page.locator(".card").first.is_visible()
    page.locator("#tour-path").select_option(str(path))
    logits, cache = cached(name)
    titles = []
    for step in range(5):
        titles.append(page.inner_text("#tour-title"))
        if step == 0:
            assert f"{name} has read" in page.inner_text("#tour-text")
            assert "Only “]” can close" in page.inner_text("#tour-text")
        if step == 1:
            wanted = [cache["resid_pre", each][0, -1].tolist() for each in sorted({0, layer})]
            assert [pytest.approx(row, rel=2e-3, abs=2e-3) for row in wanted] == vectors(page)
        if step == 2:
            scores = cache["attn_scores", layer][0, head, -1].tolist()
            found = numbers(column(page, "#tour-body", 2))
            assert found == pytest.approx(scores, abs=2e-3)
        if step == 3:
            pattern = cache["pattern", layer][0, head, -1]
            found = numbers(column(page, "#tour-body", 4))
            assert found == pytest.approx((100 * pattern).tolist(), abs=0.06)
            top = f"{100 * pattern[1].item():.1f} % of it is on the top of the stack"
            assert top in page.inner_text("#tour-text")
        if step == 4:
            out, last = vectors(page)
            attention = MODELS[name].blocks[layer].attn
            values = torch.einsum("hd,hde->e", cache["z", layer][0, -1], attention.W_O)
            assert out == pytest.approx((values + attention.b_O).tolist(), rel=2e-3, abs=2e-3)
            assert last == pytest.approx(
                cache["resid_post", MODELS[name].cfg.n_layers - 1][0, -1].tolist(),
                rel=2e-3,
                abs=2e-3,
            )
            assert numbers(column(page, "#tour-body", 2)) == pytest.approx(
                logits[: TASK.language.bos_token + 1].tolist(), abs=2e-3
            )
            right = logits[1] > logits[3]
            said = page.inner_text("#tour-text")
            assert ("That is right." in said, "That is wrong." in said) == (right, not right)
        if step < 4:
            page.locator("#tour-next").click()
    assert [title[:12] for title in titles] == [f"Step {i} of 5:" for i in range(1, 6)]
    assert page.locator("#tour-next").is_disabled()
    assert "tour=5" in page.evaluate("location.hash")
    page.locator("#tour-close").click()
    assert page.locator(".card").first.is_visible()
    assert "tour" not in page.evaluate("location.hash")


def test_a_tour_can_be_linked_and_says_when_nothing_is_open(opened, made):
    page = opened(made).page
    page.evaluate("location.hash = '#string=%5B%5D&at=2&tour=1'")
    page.wait_for_selector("body.touring")
    assert "Nothing is open here" in page.inner_text("#tour-text")
    page.evaluate("location.hash = '#string=%5B%5D&at=2&tour=nonsense'")
    page.wait_for_selector("body:not(.touring)")


def test_a_clicked_weight_shows_what_made_it(opened, made):
    page = opened(made).page
    assert not page.locator("#numbers").is_visible()
    page.mouse.click(*cell_at(page.locator(".card").nth(2).locator(".mapbox").nth(1), 3, 1))
    title = page.inner_text("#numbers-title")
    assert title.startswith("heads, layer 0, head 1: from “(” at position 3")
    assert title.endswith("to “[” at position 1, depth 1")
    _, cache = cached("heads")
    scores, pattern = (cache[part, 0][0, 1, 3, :4].double() for part in ("attn_scores", "pattern"))
    text = page.inner_text("#numbers-text").replace("−", "-")
    scale, score, *_, power, total, weight = map(float, re.findall(r"-?\d+\.\d+", text))
    powers = (scores - scores.max()).exp()
    assert scale == pytest.approx(MODELS["heads"].blocks[0].attn.attn_scale, abs=2e-3)
    assert score == pytest.approx(scores[1].item(), abs=2e-3)
    assert power == pytest.approx(powers[1].item(), abs=2e-3)
    assert total == pytest.approx(powers.sum().item(), abs=4e-3)
    assert weight == pytest.approx(pattern[1].item(), abs=2e-3)
    assert numbers(column(page, "#numbers", 3)) == pytest.approx(powers.tolist(), abs=2e-3)
    assert "at 1" in page.locator("#numbers tr.marked").inner_text()
    page.locator("#previous").click()  # the position before: its query, the same key
    assert "from “(” at position 2" in page.inner_text("#numbers-title")
    page.mouse.click(*cell_at(page.locator(".card").nth(3).locator(".mapbox").first, 4, 0))
    assert "1 / 5 = 0.200" in page.inner_text("#numbers-text")
    page.locator("#numbers-close").click()
    assert not page.locator("#numbers").is_visible()


def test_families_and_seeds_are_chosen(opened, made):
    page = opened(made).page
    page.locator("#choice summary").click()

    def box(name: str) -> Any:
        return page.get_by_role("checkbox", name=name, exact=True)

    def names() -> list[str]:
        return [card.inner_text() for card in page.locator(".card:not([hidden]) h3").all()]

    assert names() == list(MODELS)
    box("gpt").uncheck()
    assert names() == ["heads", "uniform"]
    assert re.match(r"\d of 2 would close", page.inner_text("#glance"))
    assert page.locator("#choice summary").inner_text() == "Models: 2 of 4 shown"
    box("gpt 1").check()
    assert names() == ["gpt 1", "heads", "uniform"]
    assert box("gpt").evaluate("box => box.indeterminate")
    page.wait_for_selector("#pairs[data-done=yes]")
    assert page.locator("#pairs tbody tr").count() == 3
    address = page.evaluate("location.hash")
    for name in ("gpt 1", "heads", "uniform"):
        box(name).click()
    assert names() == ["uniform"]  # one stays
    page.evaluate(f"location.hash = {address!r}")
    page.wait_for_function("document.querySelectorAll('.card:not([hidden])').length === 3")
    assert names() == ["gpt 1", "heads", "uniform"]
