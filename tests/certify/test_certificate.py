"""What a certificate says of itself."""

from __future__ import annotations

import dataclasses
import importlib.metadata
import json
import math
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.certify.oracles import SpaceRecipe, spaces, tokens
from tl_dyck.certify import (
    Certificate,
    Edit,
    Symbols,
    Witness,
    certify,
    certify_dyck,
    certify_many,
    parse_space,
    passages,
)
from tl_dyck.certify.language import certify_language
from tl_dyck.certify.spaces import placed
from tl_dyck.kit.registry import UnknownNameError
from tl_dyck.language import DyckStringError
from tl_dyck.models import construct
from tl_dyck.rnn import export_rnn
from tl_dyck.tasks import load_task

WITNESS = Witness(
    tokens=(1, 2, 2), edits=(Edit("dup", 1, (2,), (2, 2)),), logits=(0.5, -0.5), margin=-1.0
)


def certificate(**fields: Any) -> Certificate:
    values: dict[str, Any] = {
        "status": "refuted",
        "tokens": (1, 2),
        "target": 1,
        "lower": -math.inf,
        "upper": -1.0,
        "worst": WITNESS,
        "certifier": "exact",
        "space": "dup:2",
        "seconds": 0.25,
        "stats": {"strings_run": 12345},
    }
    return Certificate(**{**values, **fields})


def test_the_margin_is_what_settles_the_verdict() -> None:
    falsified, certified = certificate(), certificate(status="proved", lower=0.5, upper=0.75)
    assert (falsified.margin, falsified.counterexample) == (-1.0, WITNESS)
    assert (certified.margin, certified.counterexample) == (0.5, None)
    assert math.isnan(certificate(status="open", lower=-1.0, upper=1.0).margin)


def test_repr_names_everything_a_reader_needs() -> None:
    text = repr(certificate(reason="because"))
    for part in (
        "refuted",
        "-1 seen",
        "dup:2",
        "1 2 2",
        "‹2→2 2›",
        "because",
        "12,345 strings run",
        "0.25 s",
    ):
        assert part in text
    assert "proved" not in text
    assert "there are allowed edits" in text
    assert "7 nodes" not in repr(certificate(stats={"strings_run": 1, "nodes": 7}))


def test_html_is_escaped() -> None:
    page = certificate(certifier="<script>alert(1)</script>", reason="a < b & c")._repr_html_()
    assert "<script>" not in page
    assert "&lt;script&gt;" in page
    assert "a &lt; b &amp; c" in page


def test_a_certificate_carries_its_text() -> None:
    edits = (Edit("ins", 1, (), (3,)), Edit("sub", 1, (2,), (0, 0)), Edit("del", 3, (1,), ()))
    worst = Witness(tokens=(9, 3, 0, 0, 2), edits=edits, margin=-1.0)
    made = certificate(tokens=(9, 2, 2, 1), worst=worst)
    assert made.words() == ["9", "2", "2", "1"]
    assert made.marked() == "9 ‹+3› ‹2→0 0› 2 ‹1→›"
    words = made.with_symbols(Symbols(("bad", "film", "good", "very"), " ", silent=9))
    assert words.words() == ["good", "good", "film"]
    assert words.marked() == "‹+very› ‹good→bad bad› good ‹film→›"
    assert "‹+very› ‹good→bad bad› good ‹film→›" in repr(words)
    assert words.with_symbols(Symbols(("a", "b", "c", "d"), "")).marked() == "9‹+d›‹c→aa›c‹b→›"


@settings(max_examples=60)
@given(recipe=spaces(), string=tokens(), seed=st.integers(0, 99))
def test_passages_are_the_two_strings(
    recipe: SpaceRecipe, string: tuple[int, ...], seed: int
) -> None:
    space, symbols = recipe.build(), Symbols(tuple("abcdefg"), "")
    (worst,) = space.sample(string, 1, generator=torch.Generator().manual_seed(seed))
    edits = space.edits(string, worst)
    assert edits is not None
    parts = passages(string, edits, symbols)
    assert "".join(part.before for part in parts) == symbols.text(string)
    assert "".join(part.after for part in parts) == symbols.text(worst)
    assert all(part.before == part.after for part in parts if part.edit is None)
    for edit, at in placed(edits):
        assert worst[at : at + len(edit.inserted)] == edit.inserted


def test_plain_types_for_json() -> None:
    plain = certificate().to_dict()
    assert json.loads(json.dumps(plain, allow_nan=False)) == plain
    assert plain["lower"] is None
    assert plain["worst"]["edits"] == [
        {"transformation": "dup", "start": 1, "removed": [2], "inserted": [2, 2]}
    ]
    assert plain["stats"] == {"strings_run": 12345}


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"status": "proved"}, "must be positive"),
        ({"status": "proved", "lower": 0.0, "upper": 1.0}, "must be positive"),
        ({"upper": 0.0}, "without a string"),
        ({"worst": None}, "without a string"),
        ({"lower": 1.0}, "not an interval"),
        ({"lower": math.nan}, "not an interval"),
    ],
)
def test_contradictions_are_refused(fields: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        certificate(**fields)


def test_text_in_and_text_out() -> None:
    language = load_task("dyck-2-4").language
    model = construct.uniform_attention(language)
    space = parse_space("pairs:1", language=language)
    by_ids = certify(model, language.tokenize("[()[]"), 1, space)
    by_text = certify(model, "[()[]", "]", "pairs:1")
    ignored = {"seconds": 0.0}
    assert by_text.to_dict() | ignored == by_ids.to_dict() | ignored
    lines = dict(line.split(maxsplit=1) for line in repr(by_text).splitlines()[1:])
    assert (lines["answer"], lines["string"]) == ("]", "[()[]")
    (row,) = certify_many(model, ["[("], [")"], "pairs:1")
    assert row == dataclasses.replace(certify(model, "[(", 3, space), seconds=row.seconds)
    with pytest.raises(UnknownNameError, match="unknown target '<'"):
        certify(model, "[()[]", "<", "pairs:1")
    with pytest.raises(DyckStringError, match="'<', symbol 2"):
        certify(model, "[<", None, "pairs:1")


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_certificates_name_dtype_torch_and_transformer_lens(dtype):
    """By importlib, the packages' own word; of an RNN no TransformerLens, which it does without."""
    task = load_task("dyck-2-4")
    model = construct.uniform_attention(task.language).to(dtype)
    rnn = export_rnn(model)
    versions = {
        "dtype": str(dtype).removeprefix("torch."),
        "torch": importlib.metadata.version("torch").partition("+")[0],
    }
    both = {**versions, "transformer_lens": importlib.metadata.version("transformer_lens")}
    for network, wanted in ((model, both), (rnn, versions)):
        edits = certify(network, "[()", None, parse_space("swap:1"))
        language = certify_language(network, task, 3)
        dyck = certify_dyck(network, task, n=1, length=3, budget=1)
        for found in (edits, language, dyck):
            assert found.to_dict()["made_with"] == wanted
            said = dict(found.summary())["computed"]
            assert said == ", ".join(v if k == "dtype" else f"{k} {v}" for k, v in wanted.items())
