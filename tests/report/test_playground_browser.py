"""The playground in a real browser: torch's logits, the grammar, what one types, links, room."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from tests.foreign import VOCABULARY, foreign
from tests.report.browsing import cell_at
from tests.report.conftest import EVIL, EVIL_BRACKETS, EVIL_TASK, opening
from tl_dyck import (
    adopt,
    build_model,
    construct,
    get_config,
    list_models,
    load_task,
    write_playground,
)

expect: Any = pytest.importorskip(
    "playwright.sync_api", reason="playwright is not installed: pip install playwright"
).expect
TASK = load_task("dyck-2-4")
LANGUAGE = TASK.language
BOS = LANGUAGE.bos_token

VARIANTS: dict[str, tuple[str, dict[str, Any]]] = {
    "without norm": ("attn-only", {"normalization_type": None}),
    **{name: (name, {}) for name in list_models()},
    "four heads": ("gpt-learned", {"n_heads": 4, "n_layers": 3}),
    "gelu": ("eq49", {"act_fn": "gelu", "d_mlp": 20}),
    "gelu_new": ("gpt", {"act_fn": "gelu_new", "eps": 1e-2}),
    "silu": ("eq6", {"act_fn": "silu", "n_heads": 5, "d_head": 3, "ln_c": 5.0}),
    "float64": ("gpt-sinusoidal", {"dtype": torch.float64}),
}


def shaken(family: str, **fields: Any) -> Any:
    """A model whose biases and norms count as well."""
    model = build_model(get_config(family, TASK, **fields), seed=3)
    generator = torch.Generator().manual_seed(4)
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.requires_grad:
                noise = torch.randn(parameter.shape, generator=generator, dtype=torch.float64)
                parameter += (0.15 * noise).to(parameter)
    return model


def strings(n: int) -> list[list[int]]:
    """Of the language and not, of every length up to 20 in each kind if there are 60."""
    generator = torch.Generator().manual_seed(1)
    found = []
    for index in range(n):
        length = 60 if index % 50 == 49 else 1 + index % 20
        if index % 3:
            tokens = TASK.distribution.sample(1, length, mode="prefix", generator=generator)[0]
        else:
            tokens = torch.randint(0, BOS, (length,), generator=generator)
        found.append([BOS, *tokens.tolist()])
    return found


@pytest.fixture(scope="module")
def models() -> dict[str, Any]:
    made = {name: shaken(family, n_ctx=61, **fields) for name, (family, fields) in VARIANTS.items()}
    for name in ("uniform_attention", "balanced", "stack"):
        made[f"construct.{name}"] = getattr(construct, name)(LANGUAGE, n_ctx=61)
    for shape in ("no-norm", "gpt2"):  # with tokens that are no brackets
        made[f"adopted.{shape}"] = adopt(foreign(shape, seed=2, n_ctx=501), VOCABULARY)
    return made


@pytest.fixture(scope="module")
def pages(models: dict[str, Any], tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    folder = tmp_path_factory.mktemp("play")
    seeds = [build_model(get_config("minimal-onehot", TASK), seed=seed) for seed in range(3)]
    evils = {EVIL_BRACKETS[1]: build_model(get_config("gpt", EVIL), seed=1)}
    return {
        "all": write_playground(models, folder / "all.html", task=TASK),
        "seeds": write_playground(seeds, folder / "seeds.html", task=TASK, string="[(())"),
        "evil": write_playground(evils, folder / "evil.html", task=EVIL),
    }


@pytest.fixture
def visit(opened: Any, pages: dict[str, Path]) -> Any:
    return lambda name, *how: opened(pages[name], *how)


@pytest.fixture(scope="module")
def seeds(browser: Any, pages: dict[str, Path]) -> Iterator[Any]:
    """The page of three seeds, for tests that say themselves which string is in it."""
    with opening(browser) as open_page:
        yield open_page(pages["seeds"]).page


def test_logits_and_attention_are_those_of_torch(visit, models):
    page, texts = visit("all").page, strings(60)
    found = page.evaluate(
        """texts => {
            const data = JSON.parse(document.getElementById("data").textContent);
            const language = grammar(data.language, data.law);
            return Object.fromEntries(data.models.map((packed) => {
                const run = network(packed);
                return [packed.name, texts.map((ids) => {
                    const result = run(ids, language.read(ids).clipped, language.D + 1);
                    const last = result.layers.at(-1).patterns.at(-1);
                    const logits = Array.from(ids.keys(), (at) => Array.from(result.logits(at)));
                    return [logits, Array.from(last.slice(-ids.length))];
                })];
            }));
        }""",
        texts,
    )
    assert set(found) == set(models)
    rows = torch.full((len(texts), max(map(len, texts))), BOS)  # what follows changes nothing
    for row, ids in zip(rows, texts, strict=True):
        row[: len(ids)] = torch.tensor(ids)
    for name, model in models.items():
        with torch.no_grad():
            logits, cache = model.run_with_cache(
                rows, names_filter=f"blocks.{model.cfg.n_layers - 1}.attn.hook_pattern"
            )
        wanted = cache["pattern", -1][:, -1].double().numpy()
        for index, (ids, (ours, pattern)) in enumerate(zip(texts, found[name], strict=True)):
            n = len(ids)
            error = np.abs(np.array(ours) - logits[index, :n].double().numpy()).max()
            assert error < 1e-3, (name, ids)
            assert np.abs(np.array(pattern) - wanted[index, n - 1, :n]).max() < 1e-3, (name, ids)


def test_the_grammar_is_the_languages(seeds):
    texts = strings(210)
    found = seeds.evaluate(
        """texts => {
            const data = JSON.parse(document.getElementById("data").textContent);
            const language = grammar(data.language, data.law);
            return texts.map((ids) => {
                const { depth, clipped, pair, stacks, wrong } = language.read(ids);
                const free = grammar(data.language, { ...data.law, open: [] });
                const law = free.law(language.read(ids), ids.length - 1);
                const top = stacks.map((stack) => stack.at(-1) ?? -1);
                const end = wrong?.at ?? ids.length;
                return { depth, clipped, pair, top, wrong: end, law: law?.chances };
            });
        }""",
        texts,
    )
    outside = 0
    for ids, said in zip(texts, found, strict=True):
        tokens = torch.tensor(ids)
        assert said["depth"] == LANGUAGE.depth(tokens).tolist()
        assert said["clipped"] == LANGUAGE.clipped_depth(tokens).tolist()
        assert said["pair"] == LANGUAGE.matching(tokens).tolist()
        assert said["top"] == LANGUAGE.top_of_stack(tokens).tolist()
        assert said["wrong"] == int(LANGUAGE.valid_up_to(tokens).sum())
        if said["wrong"] < len(ids):
            assert said["law"] is None
            outside += 1
        else:
            exact = TASK.distribution.next_token_probs(tokens)[-1].tolist()
            assert said["law"] == pytest.approx(exact)
    assert 35 < outside < 100


def test_typing_stepping_and_links(visit, pages):
    seen = visit("seeds")
    page = seen.page
    assert page.input_value("#text") == "[(())"
    page.locator("#text").fill("[()]")
    assert page.inner_text("#status") == "4 brackets, balanced at the end."
    assert "no bracket to close" in page.inner_text("#glance")
    page.locator("#key-0").click()
    page.locator("#text").press("End")
    page.keyboard.type("(")
    assert page.input_value("#text") == "[()][("
    assert "On top: “(”, so only “)” can close" in page.inner_text("#depth")
    page.keyboard.press("ArrowLeft")  # the caret chooses the position
    expect(page.locator("#depth")).to_contain_text("On top: “[”")
    page.locator("#previous").click()
    assert page.locator("#slider").get_attribute("aria-valuetext") == "“]” at position 4, depth 0"
    address = page.evaluate("location.hash")
    assert dict(pair.split("=") for pair in address[1:].split("&")) == {
        "string": "%5B%28%29%5D%5B%28",
        "at": "4",
    }
    page.locator("#back").click()
    assert page.input_value("#text") == "[()[("
    page.evaluate("location.hash = '#string=%5B%28&at=1'")
    expect(page.locator("#text")).to_have_value("[(")
    assert "On top: “[”" in page.inner_text("#depth")
    page.locator("#text").fill("[)x")
    assert page.inner_text("#status").startswith("“x” is no bracket of this language ([ ] ( )).")
    assert "position 2, depth 0, does not match “[” at position 1" in page.inner_text("#status")
    assert page.locator(".verdict").first.inner_text() == "no right answer"
    page.locator("#text").fill("[" * 150)
    assert "at most 100 brackets" in page.inner_text("#status")
    assert page.locator("#strip .cell").count() == 101
    page.locator("#longer").click()
    assert "Not in the language" not in page.inner_text("#status")


def test_cards_say_what_torch_says(seeds):
    page = seeds
    page.evaluate("location.hash = '#string=%5B%28%28%29&at=4'")  # [(()
    expect(page.locator("#text")).to_have_value("[(()")
    right = 0
    for seed, card in enumerate(page.locator(".card").all()):
        model = build_model(get_config("minimal-onehot", TASK), seed=seed)
        with torch.no_grad():
            logits, cache = model.run_with_cache("[(()")
        chances = logits[0, -1].softmax(-1).tolist()
        said = [float(text.inner_text().rstrip(" %")) for text in card.locator(".number").all()]
        assert said == pytest.approx([100 * chance for chance in chances[: len(said)]], abs=0.051)
        closes = [chances[1], chances[3]]
        fine = closes[1] > closes[0]
        right += fine
        verdict = "✓ closes right: “)”" if fine else "✗ closes wrong: “]”"
        share = (
            f"has {100 * max(closes) / sum(closes):.1f} % of the probability on closing brackets"
        )
        assert card.locator(".verdict").inner_text() == f"{verdict} {share}"
        assert card.locator(".what").inner_text() == "probability of each next token"
        top = 100 * cache["pattern", 0][0, 0, 4, 2].item()
        assert card.locator(".tells").inner_text() == f"{top:.1f} % on the top of the stack"
        scores = cache["attn_scores", 0][0, 0, 4].logsumexp(-1).item()
        assert f"state: depth 2; log of the running sum {scores:.2f}" in card.inner_text()
    assert page.inner_text("#glance").startswith(f"{right} of 3 would close with “)”")


def test_only_what_is_all_is_100_percent(seeds):
    shares = [0, 1e-10, 1e-7, 0.0123, 0.9994, 0.9999938, 1 - 1e-10, 1]
    said = seeds.evaluate("shares => shares.map((x) => [view.percent(x), view.exactly(x)])", shares)
    assert [short for short, _ in said] == [
        *("0 %", "0 %", "< 0.1 %", "1.2 %", "99.9 %", "> 99.9 %", "100 %", "100 %")
    ]
    assert [long for _, long in said] == [
        *("0 %", "0 %", "< 0.1 %", "1.2 %", "99.9 %", "99.99938 %", "100 %", "100 %")
    ]


def test_on_a_telephone_the_stack_and_the_first_model_are_on_the_first_screen(visit):
    page = visit("seeds", 390).page
    assert page.locator(".card .chances").first.bounding_box()["y"] < 844
    stack, depth = (page.locator(name).bounding_box() for name in ("#stack", "#depth"))
    assert stack["y"] > page.locator("#strip").bounding_box()["y"]  # under what is typed
    assert depth["y"] + depth["height"] < page.locator("#glance").bounding_box()["y"]


def test_blocks_taken_out_and_pairs_put_in(seeds):
    page = seeds
    page.evaluate("location.hash = '#string=%5B%28%28%29%29&at=5'")  # [(())
    page.wait_for_selector("#pairs[data-done=yes]")
    rows = [
        [cell.inner_text() for cell in row.locator("td").all()]
        for row in page.locator("#pairs tbody tr").all()
    ]
    without = {"[()": 0, "[": 1}  # what is left when (), then when (()) is taken out
    for seed, row in enumerate(rows):
        model = build_model(get_config("minimal-onehot", TASK), seed=seed)
        with torch.no_grad():
            whole = model("[(())")[0, -1].double().softmax(-1)
            for text, column in without.items():
                moved = (model(text)[0, -1].double().softmax(-1) - whole).abs().sum().item() / 2
                assert float(row[column].rstrip(" %")) == pytest.approx(100 * moved, abs=0.06)
    page.locator("#search").click()
    page.wait_for_selector("#near li:nth-child(3)")
    fooled = 0
    for seed, line in enumerate(page.locator("#near li").all()):
        if line.locator(".found").count():
            text = line.locator(".found").inner_text()
            model = build_model(get_config("minimal-onehot", TASK), seed=seed)
            kept = "".join(each.inner_text() for each in line.locator(".found span").all())
            assert kept == "[(())"
            assert LANGUAGE.depth(LANGUAGE.parse(text))[-1] == 1
            with torch.no_grad():
                logits = model(text)[0, -1]
            assert logits[3] > logits[1]
            fooled += 1
    assert fooled > 0  # of models that were never trained
    page.locator("#near button").first.click()
    assert page.input_value("#text").count("[") > 1


def test_pointing_and_keyboard(visit):
    page = visit("seeds").page
    box = page.locator(".mapbox").nth(1)
    at = cell_at(box, 3, 1)
    page.mouse.move(*at)
    model = build_model(get_config("minimal-onehot", TASK), seed=1)
    with torch.no_grad():
        _, cache = model.run_with_cache("[(())")
    lines = page.inner_text("#tip").splitlines()
    assert lines[0] == f"weight {cache['pattern', 0][0, 0, 3, 1].item():.3f} (seed 1, layer 0)"
    assert lines[1:3] == ["query “(” at position 3, depth 3", "key “[” at position 1, depth 1"]
    assert page.locator("rect.cursor").count() == 3
    page.mouse.click(*at)
    assert page.input_value("#slider") == "3"
    box.focus()
    page.keyboard.press("ArrowUp")
    page.keyboard.press("ArrowRight")  # never beyond the diagonal
    told = page.locator(".tells").nth(1).inner_text()
    assert "query “(” at position 2, depth 2" in told
    assert "key “(” at position 2, depth 2, the top of the stack" in told


@pytest.mark.parametrize(
    ("name", "width", "scheme"),
    [("all", 390, "dark"), ("evil", 400, "light")],
)
def test_room_on_a_telephone_and_names_as_text(visit, name, width, scheme):
    seen = visit(name, width, scheme)
    page = seen.page
    assert not seen.scrolls_sideways
    for button in page.locator(".keys button:visible").all():
        room = button.bounding_box()
        assert min(room["width"], room["height"]) >= 44  # what a finger needs
    if name == "evil":
        assert page.inner_text("h1") == f"Playground: gpt, {EVIL_TASK}"
        assert page.locator(".card h3").inner_text() == EVIL_BRACKETS[1]
        assert page.locator("#key-0").inner_text() == EVIL_BRACKETS[0]
        page.locator("#clear").click()
        page.locator("#key-2").click()
        assert json.dumps(page.input_value("#text")) == json.dumps(EVIL_BRACKETS[2])
    else:
        page.locator("#show").select_option("0-0")
        shown = [box.is_visible() for box in page.locator(".card").first.locator(".mapbox").all()]
        assert shown[0]
        assert not any(shown[1:])
        page.set_viewport_size({"width": 1400, "height": 900})
        assert not seen.scrolls_sideways
