"""``tl-dyck export`` and ``certify``: checkpoint to verdict, one clear line for each mistake."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

import tl_dyck.certify
from tests.test_cli import call, flat
from tl_dyck import register_transformation
from tl_dyck.certify import (
    Certificate,
    InsertMatchedPairs,
    PerturbationSpace,
    SwapAdjacent,
    certify,
)
from tl_dyck.certify.space_parser import _BUILT_IN, Resources, transformations
from tl_dyck.models import load_model
from tl_dyck.rnn import RNNConfig, TwoLayerRNN, load_rnn, save_rnn, weight_shapes
from tl_dyck.studies import Study

WORDS = ("<unk>", "the", "film", "movie", "was", "good", "bad", "fine")


@pytest.fixture
def checkpoint(tiny_study: Study) -> Path:
    return tiny_study.run_folder("minimal-onehot", 0)


@pytest.fixture
def exported(checkpoint: Path, tmp_path: Path) -> Path:
    assert call("export", checkpoint, tmp_path / "rnn").exit_code == 0
    return tmp_path / "rnn"


def save_words(folder: Path) -> Path:
    """A classifier of words: the sum of their scores decides, since all keys are alike."""
    sizes = {"d_model": 2, "n_heads": 1, "d_head": 2, "d_vocab": len(WORDS), "d_vocab_out": 2}
    text: Any = {"alphabet": WORDS, "separator": " ", "unknown_token": 0}
    config = RNNConfig(**sizes, n_ctx=16, residual=False, **text)
    shapes = weight_shapes(config)
    weights = {name: torch.zeros(shape, dtype=torch.float64) for name, shape in shapes.items()}
    weights["W_E"][:, 1] = torch.tensor([0.0, 0.0, 0.0, 0.0, 0.0, 1.0, -1.5, 0.4])
    weights["W_E"][:, 0] = 0.1
    for name in ("W_V", "W_O"):
        weights[name][0] = torch.eye(2)
    weights["W_U"][1, 1] = 1.0
    weights["W_U"][0, 0] = 1.0
    save_rnn(TwoLayerRNN(config, weights), folder)
    return folder


@pytest.fixture
def words(tmp_path: Path) -> Path:
    return save_words(tmp_path / "words")


@pytest.fixture
def synonyms(tmp_path: Path) -> Path:
    (tmp_path / "synonyms.json").write_text(
        json.dumps({"good": ["fine", "bad"], "film": ["movie", "flick"]})
    )
    return tmp_path / "synonyms.json"


def test_export_says_what_it_wrote(checkpoint: Path, tmp_path: Path) -> None:
    pytest.importorskip("onnx", reason="the extra tl-dyck[onnx] is not installed")
    result = call("export", checkpoint, tmp_path / "rnn", "--onnx", 9)
    assert result.exit_code == 0
    assert "layer 1 carries depth" in flat(result.stdout)
    wrote = {path.name for path in (tmp_path / "rnn").iterdir()}
    assert wrote == {"rnn.json", "rnn.safetensors", "network-9.onnx"}
    model, rnn = load_model(checkpoint, device="cpu"), load_rnn(tmp_path / "rnn")
    tokens = model.to_tokens("[([])")
    assert torch.allclose(rnn(tokens), model(tokens), atol=1e-5)


def test_an_exported_rnn_gets_its_network(exported: Path, tmp_path: Path) -> None:
    onnx = pytest.importorskip("onnx", reason="the extra tl-dyck[onnx] is not installed")
    result = call("export", exported, tmp_path / "networks", "--onnx", 9)
    assert result.exit_code == 0
    assert "Compared" not in result.stdout  # there is no model to compare it with
    assert call("export", exported, exported, "--onnx", 9).exit_code == 0  # beside itself
    onnx.checker.check_model(onnx.load(tmp_path / "networks" / "network-9.onnx"))
    for name in ("rnn.json", "rnn.safetensors", "network-9.onnx"):
        one, other = (folder / name for folder in (tmp_path / "networks", exported))
        assert one.read_bytes() == other.read_bytes()
    refused = call("export", exported, tmp_path / "again")
    assert refused.exit_code == 2
    assert "is an exported RNN already; --onnx N writes its network" in flat(refused.stderr)
    assert not (tmp_path / "again").exists()


@pytest.mark.parametrize("source", ["checkpoint", "exported"])
def test_the_verdict_is_that_of_the_library(
    source: str, request: pytest.FixtureRequest, checkpoint: Path
) -> None:
    folder = request.getfixturevalue(source)
    model = load_model(checkpoint, device="cpu")
    space = PerturbationSpace([(InsertMatchedPairs(model.cfg.language), 2)])
    expected = certify(model, model.to_tokens("[([]")[0], None, space)
    result = call(
        "certify", folder, "--text", "[([]", "--space", "pairs:2", "--out", folder / "out.json"
    )
    assert result.exit_code == {"proved": 0, "refuted": 1, "open": 3}[expected.status]
    assert result.stdout.startswith(expected.status)
    (row,) = json.loads((folder / "out.json").read_text())
    assert row["text"] == "[([]"
    assert row["status"] == expected.status
    # the model's own logits, in float32, or the RNN's
    assert row["upper"] == pytest.approx(expected.upper, rel=1e-5)


def test_a_counterexample_shows_its_edits(words: Path, synonyms: Path) -> None:
    text = "the film was good"
    result = call("certify", words, "--text", text, "--space", "sub:1", "--synonyms", synonyms)
    assert result.exit_code == 1
    assert result.stdout.startswith("refuted")
    assert "the film was bad" in result.stdout
    assert "‹good→bad›" in result.stdout
    kept = call(
        "certify", words, "--text", text, "--space", "sub:1,del:1", "--synonyms", synonyms, "--k", 1
    )
    assert kept.stdout.startswith("proved")


@pytest.mark.parametrize(
    ("needs", "option"),
    [("substitutes", "--synonyms"), ("insertions", "--insert"), ("language", ""), ("others", "")],
)
def test_what_somebody_elses_edits_need_is_read_too(
    words: Path, synonyms: Path, needs: str, option: str
) -> None:
    @register_transformation("theirs")
    def theirs(resources: Resources) -> Any:
        resources.need(needs, "theirs")
        return SwapAdjacent()

    try:
        asked = ("certify", words, "--text", "good film", "--space", "theirs:1")
        result = call(*asked)
        assert result.exit_code == 2
        said = option or {"language": "the bracket language", "others": "needs others"}[needs]
        assert said in flat(result.stderr)
        assert "theirs" in flat(result.stderr)
        if option:
            given = {"--synonyms": synonyms, "--insert": "the"}[option]
            assert call(*asked, option, given).exit_code in (0, 1)
    finally:
        transformations.unregister("theirs")


def test_a_table_for_many_strings(words: Path, synonyms: Path, tmp_path: Path) -> None:
    (tmp_path / "lines.tsv").write_text(
        "the film was good\t1\n\nthe film was good\t0\ngood good good\n"
    )
    arguments = ("--file", tmp_path / "lines.tsv", "--text", "bad", "--synonyms", synonyms)
    result = call("certify", words, *arguments, "--space", "sub:1", "--out", tmp_path / "out.json")
    assert result.exit_code == 1
    rows = json.loads((tmp_path / "out.json").read_text())
    assert [row["text"] for row in rows] == [
        "bad",
        "the film was good",
        "the film was good",
        "good good good",
    ]
    assert [row["target"] for row in rows] == [0, 1, 0, 1]
    assert [row["status"] for row in rows] == ["proved", "refuted", "refuted", "proved"]
    assert "2 proved, 2 refuted" in flat(result.stdout)


def test_proofs_are_counted_timed_and_named(words: Path, synonyms: Path, tmp_path: Path) -> None:
    """Two of three are proved: of each its file, how large it is, and how long it took."""
    texts = ("--text", "bad", "--text", "the film was good", "--text", "good good good")
    asked = (*texts, "--space", "sub:1", "--synonyms", synonyms, "--proofs", tmp_path / "kept")
    result = call("certify", words, *asked)
    assert result.exit_code == 1  # one is refuted
    sizes = {n: (tmp_path / "kept" / f"{n}.proof").stat().st_size for n in (1, 3)}
    cells = [line.split() for line in result.stdout.splitlines() if ".proof " in line]
    assert [row[:3] for row in cells if len(row) == 4] == [
        [f"{n}", f"{n}.proof", f"{size:,}"] for n, size in sizes.items()
    ]
    assert "2 of 2 proofs written, in" in result.stdout
    rows = json.loads(call("certify", words, *asked, "--json").stdout)["proofs"]
    assert [(row["number"], row["bytes"]) for row in rows] == list(sizes.items())
    assert all(row["seconds"] > 0 for row in rows)


def test_what_is_open_says_why(words: Path, tmp_path: Path) -> None:
    """A table has no room for a column of reasons: they stand where edits would."""
    texts = ("--text", "good film good bad", "--text", "the film was good")
    limit = ("--space", "dup:2", "--time-limit", "1e-9", "--proofs", tmp_path / "kept")
    result = call("certify", words, *texts, *limit)
    assert result.exit_code == 3
    said = flat(result.stdout)
    assert said.count(": the time limit of 1e-09 s was reached") == 2
    assert "no proof was written; 0 of 2 strings are proved" in said
    assert not (tmp_path / "kept").exists()


def test_stopping_early_keeps_what_is_done(
    words: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = tl_dyck.certify.certify_each

    def interrupted(*arguments: Any, **options: Any) -> Iterator[Certificate]:
        yield next(iter(real(*arguments, **options)))
        raise KeyboardInterrupt

    monkeypatch.setattr(tl_dyck.certify, "certify_each", interrupted)
    texts = ("--text", "good", "--text", "bad", "--text", "fine")
    result = call("certify", words, *texts, "--space", "dup:1", "--out", tmp_path / "out.json")
    assert result.exit_code == 130
    assert "stopped after 1 of 3 strings" in flat(result.stdout)
    assert len(json.loads((tmp_path / "out.json").read_text())) == 1


def test_the_help_names_every_edit_that_a_space_may_have():
    said = flat(call("certify", "--help").output)
    assert {name for name in _BUILT_IN if not re.search(rf"\b{name}:\d: ", said)} == set()
