"""Widgets: what they say about models, strings and certificates, read as a browser would."""

from __future__ import annotations

import html
import json
import re
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch

from tests.cases import plain_model
from tests.report.conftest import EVIL, EVIL_BRACKETS, WIDGETS, make_widgets
from tests.report.pages import Node, data_block, read_page, whole_page
from tl_dyck import (
    balance_violation,
    build_model,
    construct,
    export_rnn,
    get_config,
    load_task,
)
from tl_dyck.certify import Edit, Witness, apply_edits, certify, certify_dyck, parse_space
from tl_dyck.reading.inputs import token_texts
from tl_dyck.report import widgets
from tl_dyck.report.heatmap import text_of, thousandths
from tl_dyck.report.widgets import Widget
from tl_dyck.report.widgets.attention import figure_of
from tl_dyck.report.widgets.certificates import marks
from tl_dyck.report.widgets.strings import UnreadableTextError

TASK = load_task("dyck-2-4")
LANGUAGE = TASK.language
TEXT = "[(())]("


@pytest.fixture(scope="module")
def gpt() -> Any:
    return build_model(get_config("gpt", TASK, n_heads=2, d_model=16), seed=1)


@pytest.fixture(scope="module")
def minimal() -> Any:
    return build_model(get_config("minimal-onehot", TASK), seed=2)


def opened(widget: Widget, folder: Path) -> Node:
    return read_page(widget.save(folder / "widget.html"))


def triangle(n: int, weights: list[int]) -> np.ndarray:
    pattern = np.zeros((n, n))
    pattern[np.tril_indices(n)] = np.array(weights) / 1000
    return pattern


def test_there_are_three_themes():
    widget = Widget(title="t", height=300, body="b", data={})
    with pytest.raises(ValueError, match=r"unknown theme 'drak'\. Did you mean 'dark'"):
        widget.with_theme("drak")
    assert widget.with_theme("auto") == widget
    assert "prefers-color-scheme" not in widget.with_theme("light").html


# --- every widget ---------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def evil_widgets() -> dict[str, Widget]:
    return make_widgets(EVIL)


@pytest.mark.parametrize("name", WIDGETS)
def test_a_widget_is_whole_and_what_users_named_is_shown_not_run(name, evil_widgets, tmp_path):
    widget = evil_widgets[name]
    page = whole_page(widget.save(tmp_path / "widget.html"), n_scripts=1)
    assert data_block(page) == json.loads(json.dumps(widget.data))
    assert len(widget.html) < (200_000 if name == "seeds" else 80_000)
    assert 300 <= widget.height <= 1000
    if name != "balance":  # whose brackets are the usual ones
        shown = page.text + json.dumps(widget.data["strings"])
        assert EVIL_BRACKETS[3] in shown.replace('\\"', '"')


def test_in_a_notebook_it_stands_in_a_frame_of_fixed_height(gpt):
    widget = widgets.attention(gpt, TEXT)
    shown = widget._repr_html_()
    (source,) = re.findall(r'srcdoc="([^"]*)"', shown)
    assert html.unescape(source) == widget.html
    assert re.match(r"<iframe [^>]*></iframe>$", shown)
    assert f'height="{widget.height}"' in shown
    assert 'sandbox="allow-scripts"' in shown
    assert repr(widget) == "Widget('Attention of gpt', 0.04 MB)"


# --- attention ------------------------------------------------------------------------------------


def test_attention_holds_every_pattern(gpt):
    data = widgets.attention(gpt, TEXT).data
    _, cache = gpt.run_with_cache(TEXT)
    expected = {
        f"layer {layer}, head {head}": cache[f"blocks.{layer}.attn.hook_pattern"][0, head].numpy()
        for layer in range(2)
        for head in range(2)
    }
    assert [entry["name"] for entry in data["maps"]] == list(expected)
    for entry in data["maps"]:
        assert (
            np.abs(triangle(8, entry["weights"]) - expected[entry["name"]]).max() <= 0.0005 + 1e-7
        )
    assert data["strings"] == [
        {
            "tokens": ["<bos>", *TEXT],
            "depth": [0, 1, 2, 3, 2, 1, 0, 1],
            "pair": [-1, 6, 5, 4, 3, 2, 1, -1],
            "top": [-1, 1, 2, 3, 2, 1, -1, 7],
        }
    ]


def test_one_layer_and_one_head_can_be_chosen(gpt):
    names = [entry["name"] for entry in widgets.attention(gpt, TEXT, layer=-1, head=0).data["maps"]]
    assert names == ["layer 1, head 0"]
    with pytest.raises(ValueError, match="no layer 2; the model has 2"):
        widgets.attention(gpt, TEXT, layer=2)
    with pytest.raises(ValueError, match="no head -3"):
        widgets.attention(gpt, TEXT, head=-3)


def test_partners_share_a_colour_and_an_arc(gpt, tmp_path):
    page = opened(widgets.attention(gpt, TEXT), tmp_path)
    cells = [
        node for node in page.find("span") if "cell" in node.attributes.get("class", "").split()
    ]
    colors = [node.attributes["class"].split()[1:] for node in cells]
    assert colors == [[], ["d0"], ["d1"], ["d2"], ["d2"], ["d1"], ["d0"], ["d0"]]
    arcs = [node for node in page.find("path") if "arc" in node.attributes.get("class", "").split()]
    assert [node.attributes["data-at"] for node in arcs] == ["1", "2", "3", "7"]
    ends = [re.findall(r"M([\d.]+) .*H([\d.]+)", node.attributes["d"])[0] for node in arcs]
    assert ends == [("1.5", "6.5"), ("2.5", "5.5"), ("3.5", "4.5"), ("7.5", "8")]
    assert ["dashed" in node.attributes["class"] for node in arcs] == [False, False, False, True]


def test_a_plain_hooked_transformer_has_attention_but_no_brackets(tmp_path):
    model = plain_model("widgets", torch.float32, n_ctx=8, d_vocab=7)
    widget = widgets.attention(model, torch.tensor([3, 1, 4, 1]))
    data = widget.data
    assert data["strings"] == [
        {"tokens": ["3", "1", "4", "1"], "depth": None, "pair": [-1] * 4, "top": [-1] * 4}
    ]
    assert len(data["maps"]) == model.cfg.n_heads
    assert not opened(widget, tmp_path).find("svg", class_="arcs")


def test_tokens_have_the_names_that_the_model_gives_them(gpt):
    ids = gpt.to_tokens("[()")[0]
    assert token_texts(gpt, ids, LANGUAGE) == ["<bos>", "[", "(", ")"]
    assert token_texts(gpt, ids, None) == ["<bos>", "[", "(", ")"]  # its tokenizer
    rnn = export_rnn(build_model(get_config("figure2-split", TASK)))
    assert token_texts(rnn, ids, None) == ["<bos>", "[", "(", ")"]  # its alphabet
    assert token_texts(SimpleNamespace(), ids, None) == ["4", "0", "2", "3"]


@pytest.mark.parametrize("direction", ["causal", "bidirectional"])
def test_attention_that_looks_ahead_is_drawn_whole(direction):
    model = plain_model("ahead", torch.float32, 8, attention_dir=direction)
    tokens = torch.tensor([3, 1, 2, 0, 1])
    widget = widgets.attention(model, tokens, layer=0, head=0)
    with torch.no_grad():
        pattern = model.run_with_cache(tokens[None])[1]["pattern", 0][0, 0].double().numpy()
    rows = [range(5 if direction == "bidirectional" else q + 1) for q in range(5)]
    wanted = [round(1000 * pattern[q, k]) for q, keys in enumerate(rows) for k in keys]
    assert widget.data["maps"][0]["weights"] == wanted
    ground = "".join(f"M0 {q}h{len(keys)}v1h-{len(keys)}z" for q, keys in enumerate(rows))
    assert f'<path class="h0" d="{ground}"/>' in widget.html


def test_too_much_to_read_is_refused(gpt):
    model = construct.uniform_attention(LANGUAGE)
    with pytest.raises(UnreadableTextError, match="1 to 256"):
        widgets.attention(model, "[]" * 128)
    with pytest.raises(UnreadableTextError, match="65 patterns"):
        widgets.attention_seeds([gpt] * 65, "[]")
    with pytest.raises(UnreadableTextError, match="no model"):
        widgets.attention_seeds([], "[]")


def test_seeds_side_by_side(minimal):
    other = build_model(get_config("minimal-onehot", TASK), seed=5)
    widget = widgets.attention_seeds([minimal, other], TEXT)
    data = widget.data
    assert widget.title == "Attention of 2 minimal-onehot models, layer 0"
    assert [entry["name"] for entry in data["maps"]] == ["seed 0", "seed 1"]
    for entry, model in zip(data["maps"], (minimal, other), strict=True):
        pattern = model.run_with_cache(TEXT)[1]["pattern", 0][0, 0].numpy()
        assert np.abs(triangle(8, entry["weights"]) - pattern).max() <= 0.0005 + 1e-7
    names = widgets.attention_seeds({"a": minimal, "b": other}, TEXT).data["maps"]
    assert [entry["name"] for entry in names] == ["a", "b"]
    three = build_model(get_config("gpt", "dyck-3-4"))
    with pytest.raises(UnreadableTextError, match="different tokens"):
        widgets.attention_seeds([minimal, three], "[]")


def test_a_pattern_that_is_not_finite_is_said_to_be_none():
    pattern = np.tril(np.full((3, 3), np.nan))
    string = text_of([4, 0, 1], ["<bos>", "[", "]"], LANGUAGE)
    made = figure_of("layer 0", string, 0, pattern)
    assert "the weights are not finite" in made
    assert "data-map" not in made  # the script leaves it alone
    assert thousandths(pattern) == [None] * 6


# --- balance --------------------------------------------------------------------------------------


def test_balance_table_holds_every_cell(minimal, tmp_path):
    result = balance_violation(minimal)
    page = opened(widgets.balance_heatmap(result), tmp_path)
    assert f"β = {result.beta:.3g}" in page.text
    cells = [node for node in page.find("td") if "data-tip" in node.attributes]
    # rows: closing brackets by depth, then type; columns: pairs by depth, then type
    expected = result.ratio.transpose(0, 3, 1, 2).ravel()
    assert len(cells) == expected.size == 3 * 2 * 4 * 2
    for cell, value in zip(cells, expected, strict=True):
        assert abs(float(cell.text) - value) <= 0.005 + 1e-9
    tips = [cell.attributes["data-tip"].splitlines() for cell in cells]
    assert tips[9][0] == f"S/P {result.ratio[0, 0, 1, 1]:.3g}"
    assert tips[9][1] == f"S {result.S[0, 0, 1, 1]:.3g}: “(” at depth 1 and its “)”"
    assert tips[9][2] == f"P {result.P[0, 1]:.3g}: query “)” at depth 1"


def test_a_balanced_model_has_a_blank_table(tmp_path):
    page = opened(
        widgets.balance_heatmap(balance_violation(construct.balanced(LANGUAGE, seed=0))), tmp_path
    )
    cells = [node for node in page.find("td") if "data-tip" in node.attributes]
    assert {(cell.text, cell.attributes["class"]) for cell in cells} == {("0", "b0")}
    assert "no matched pair, anywhere, disturbs" in page.text


# --- certificates ---------------------------------------------------------------------------------


def sure(model: Any, text: str) -> Any:
    """A certificate on an untrained model, whose prediction is as good as any."""
    return certify(model, LANGUAGE.tokenize(text), None, parse_space("pairs:1", language=LANGUAGE))


def test_a_certificate_shows_strings_edits_and_logits(minimal, tmp_path):
    row = certify_dyck(minimal, TASK, prefixes=[LANGUAGE.tokenize("[[]").tolist()], budget=1).rows[
        0
    ]
    cert = row.certificate
    assert cert.status == "refuted"  # an untrained model
    page = opened(widgets.certificate(row, minimal), tmp_path)
    assert (
        "There is a string in the space pairs:1 on which the model no longer prefers “]”"
        in page.text
    )
    words = [
        [span.text for span in box.find("span")]
        for box in page.find("div", class_="words brackets")
    ]
    assert cert.worst is not None
    assert words == [list("[[]"), list(LANGUAGE.to_string(torch.tensor(cert.worst.tokens)))]
    marked = [ins.text for ins in page.find("ins")]
    assert "".join(marked) == "".join(
        LANGUAGE.to_string(torch.tensor(edit.inserted)) for edit in cert.worst.edits
    )
    rows = [
        [cell.text for cell in row.find("*") if cell.name in ("th", "td")]
        for row in page.find("tr")
    ][1:]
    before = minimal("[[]")[0, -1].tolist()
    assert rows[0] == ["“]” (target)", f"{before[1]:.3f}", f"{cert.worst.logits[1]:.3f}"]
    assert sorted(float(row[2]) for row in rows[1:])[::-1] == [float(row[2]) for row in rows[1:]]


def test_the_three_verdicts_in_words(minimal, tmp_path):
    rnn = export_rnn(minimal)
    cert = sure(rnn, "[")
    kinds = {
        "proved": (0.5, 1.0, "by at least 0.5. This is proved."),
        "refuted": (-2.0, -1.0, "its logit is 1 below another"),
        "open": (-2.0, 1.0, "lies between -2 (proved) and 1 (seen)"),
    }
    for status, (lower, upper, said) in kinds.items():
        made = replace(cert, status=status, lower=lower, upper=upper)
        page = opened(widgets.certificate(made, rnn), tmp_path)
        assert said in page.text
        assert page.find("strong", class_=f"verdict {status}")


def test_marks_are_where_the_edits_are():
    string = (0, 1, 2, 3, 4)
    edits = (
        Edit("ins", 1, (), (7, 8)),
        Edit("del", 2, (2,), ()),
        Edit("sub", 3, (3, 4), (9, 9, 9)),
    )
    taken, put = marks(edits)
    worst = apply_edits(string, edits)
    assert taken == {2, 3, 4}
    assert [worst[index] for index in sorted(put)] == [7, 8, 9, 9, 9]
    assert [worst[index] for index in range(len(worst)) if index not in put] == [0, 1]


def test_a_classifier_of_words_is_certified_in_words(tmp_path):
    model = plain_model("widgets", torch.float64, n_ctx=8, d_vocab=5, d_vocab_out=2)
    rnn = export_rnn(model, alphabet=("a", "<b>", "c", "d", "e"), separator=" ")
    cert = certify(rnn, (0, 1, 2), None, parse_space("dup:1"))
    witness = Witness(
        tokens=(0, 1, 1, 2), edits=(Edit("dup", 1, (1,), (1, 1)),), logits=(0.0, 1.0), margin=-1.0
    )
    made = replace(cert, worst=witness, target=0, status="refuted", lower=-1.0, upper=-1.0)
    page = opened(widgets.certificate(made, rnn), tmp_path)
    assert "“<b>” at position 1 becomes “<b> <b>” (dup)" in page.text
    assert [node.text for node in page.find("del")] == ["<b>"]
    assert [node.text for node in page.find("ins")] == ["<b>", "<b>"]
    assert "“class 0” (target)" in page.text


# --- the RNN --------------------------------------------------------------------------------------


@pytest.mark.parametrize("family", ["minimal-onehot", "figure2-split", "minimal-uniform"])
def test_steps_are_those_of_the_rnn_that_reads_token_by_token(family):
    model = build_model(get_config(family, TASK), seed=4)
    rnn = export_rnn(model)
    steps = widgets.rnn_steps(rnn, TEXT).data["steps"]
    carry = rnn.initial(1)
    for index, token in enumerate(rnn.to_tokens(TEXT)[0]):
        carry, logits = rnn.step(carry, token[None])
        assert steps["logits"][index] == pytest.approx(logits[0].tolist(), abs=6e-4)
        assert steps["chances"][index] == pytest.approx(logits[0].softmax(-1).tolist(), abs=6e-5)
        own = token * 5 + carry.state.clamp(
            max=4
        )  # Eq. 19-21: one query for each token at each depth
        log_z = (carry.sums.running_max + carry.sums.total.log())[0, int(own)]
        assert steps["logz"][index] == pytest.approx(log_z.tolist(), abs=6e-4)
    assert steps["state"] == [f"depth {depth}" for depth in (0, 1, 2, 3, 2, 1, 0, 1)]
    assert steps["outputs"] == ["[", "]", "(", ")", "<bos>"]


def test_shares_of_the_sum_are_the_attention_pattern(minimal):
    (entry,) = widgets.rnn_steps(minimal, TEXT).data["maps"]
    pattern = minimal.run_with_cache(TEXT)[1]["pattern", 0][0, 0].numpy()
    assert np.abs(triangle(8, entry["weights"]) - pattern).max() <= 0.0005 + 1e-6


@pytest.mark.parametrize(
    ("family", "states"),
    [
        ("gpt", "nothing: this model's embedding needs the token alone"),
        ("gpt-learned", "position 2"),
        ("minimal-onehot", "depth 2"),
    ],
)
def test_what_the_state_machine_carries_is_said(family, states):
    overrides = {} if family == "minimal-onehot" else {"n_layers": 1}
    widget = widgets.rnn_steps(build_model(get_config(family, TASK, **overrides)), "[(")
    assert widget.data["steps"]["state"][2] == states
    assert widget.data["strings"][0]["depth"] == [0, 1, 2]
