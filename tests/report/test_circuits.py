"""circuitsvis' views on our models: offline, users' names as text, the model's own numbers."""

from __future__ import annotations

import html
import sys
from typing import Any

import numpy as np
import pytest
import torch

from tests.cases import plain_model
from tests.report.conftest import EVIL, EVIL_BRACKETS
from tests.report.pages import data_block, whole_page
from tl_dyck import build_model, get_config, load_task
from tl_dyck.kit.errors import MissingPackageError
from tl_dyck.report import widgets
from tl_dyck.report.widgets import Widget, circuits

TASK = load_task("dyck-2-4")
TEXT = "[(())]("


@pytest.fixture(scope="module")
def model() -> Any:
    """Two layers with two heads each."""
    return build_model(get_config("gpt", TASK, n_heads=2, d_model=16), seed=1)


def props(widget: Widget) -> dict[str, Any]:
    found: dict[str, Any] = widget.data["props"]
    return found


@pytest.mark.parametrize("view", [widgets.circuitsvis_attention, widgets.circuitsvis_tokens])
def test_offline_and_names_are_text(view, tmp_path):
    model = build_model(get_config("gpt", EVIL, d_model=16), seed=0)
    widget = view(model, "".join(EVIL_BRACKETS[index] for index in (0, 2, 3)))
    path = widget.save(tmp_path / "page.html")
    page = whole_page(path, n_scripts=2)  # with an end tag in a script it would not be well-formed
    assert path.read_text().count("var CircuitsVis=") == 1
    assert "sourceMappingURL" not in path.read_text()
    assert data_block(page)["props"] == props(widget)
    as_html = view is widgets.circuitsvis_tokens  # circuitsvis reads them so there
    assert (html.escape(EVIL_BRACKETS[0]) if as_html else EVIL_BRACKETS[0]) in props(widget)[
        "tokens"
    ]


def test_patterns_of_all_heads_of_two_layers(model):
    shown = props(widgets.circuitsvis_attention(model, TEXT))
    _, cache = model.run_with_cache(TEXT)
    wanted = torch.cat([cache["pattern", layer][0] for layer in (0, 1)])
    assert np.abs(np.array(shown["attention"]) - wanted.numpy()).max() < 1e-4
    assert shown["attentionHeadNames"] == ["L0H0", "L0H1", "L1H0", "L1H1"]
    assert shown["tokens"] == ["<bos>", *TEXT]
    one = props(widgets.circuitsvis_attention(model, TEXT, layer=-1, head=0))
    assert one["attentionHeadNames"] == ["L1H0"]
    assert one["attention"] == shown["attention"][2:3]


def test_what_the_model_thinks_of_every_token(model):
    shown = props(widgets.circuitsvis_tokens(model, TEXT))
    assert shown["tokens"] == list(TEXT)
    chances = model(TEXT)[0].softmax(-1).detach()
    tokens = model.to_tokens(TEXT)[0]
    wanted = [float(chances[at, tokens[at + 1]]) for at in range(len(TEXT))]
    values = np.array(shown["values"])
    assert values[:, 0] == pytest.approx(wanted, abs=1e-4)
    assert values[:, 1] == pytest.approx(np.log(wanted), abs=1e-3)
    assert shown["labels"] == ["probability", "log probability", "logit"]


def test_values_of_ones_own(model):
    depth = TASK.language.depth(model.to_tokens(TEXT)[0].cpu())[:, None].double()
    shown = props(widgets.circuitsvis_tokens(model, TEXT, depth, labels=["depth"]))
    assert shown["tokens"] == ["&lt;bos&gt;", *TEXT]
    assert shown["values"] == [[0], [1], [2], [3], [2], [1], [0], [1]]
    with pytest.raises(ValueError, match="give a row for every token, BOS included"):
        widgets.circuitsvis_tokens(model, TEXT, depth[1:], labels=["depth"])
    with pytest.raises(ValueError, match="finite numbers only"):
        widgets.circuitsvis_tokens(model, TEXT, depth * float("nan"))


@pytest.mark.parametrize("direction", ["causal", "bidirectional"])
def test_a_model_that_looks_ahead_is_drawn_whole(direction):
    model = plain_model("circuits", torch.float32, 8, attention_dir=direction)
    shown = props(widgets.circuitsvis_attention(model, torch.tensor([3, 1, 2])))
    assert shown["tokens"] == ["3", "1", "2"]  # no language names them
    assert shown["maskUpperTri"] == (direction == "causal")
    first = np.array(shown["attention"])[:, 0, 1:]  # of the first token on what follows it
    assert (first > 0).all() == (direction == "bidirectional")
    assert (first == 0).all() == (direction == "causal")


def test_without_the_extra_the_line_to_type_is_said(model: Any, monkeypatch: Any) -> None:
    circuits._bundle.cache_clear()
    monkeypatch.setitem(sys.modules, "circuitsvis", None)
    with pytest.raises(MissingPackageError, match=r"pip install 'tl-dyck\[circuitsvis\]'"):
        widgets.circuitsvis_tokens(model, TEXT)
