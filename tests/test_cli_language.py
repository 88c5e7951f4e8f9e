"""``tl-dyck certify-language``: from a checkpoint to a verdict on a whole language."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from tests.test_cli import call, flat
from tl_dyck.certify.language import certify_language
from tl_dyck.models import build_model, construct, get_config, load_model, save_model
from tl_dyck.rnn import UnsupportedModelError, export_rnn, save_rnn
from tl_dyck.studies import Study
from tl_dyck.tasks import load_task


@pytest.fixture
def checkpoint(tiny_study: Study) -> Path:
    return tiny_study.run_folder("minimal-onehot", 0)


@pytest.mark.parametrize("task", ["shuffle-dyck", "anbncn"])
def test_the_task_of_another_language_is_found(task: str, tmp_path: Path) -> None:
    """By the language's name, with --task or without."""
    known = load_task(task)
    save_model(build_model(get_config("gpt", known, n_layers=1)), tmp_path / "model")
    alone = call("certify-language", tmp_path / "model", "-n", 4, "--json")
    named = call("certify-language", tmp_path / "model", "-n", 4, "--task", task, "--json")
    assert alone.exit_code == named.exit_code
    assert alone.exit_code in (0, 1, 3), alone.output
    found, same = (json.loads(each.stdout)["verdict"] for each in (alone, named))
    assert found["language"] == same["language"] == task
    assert (found["status"], found["by_length"]) == (same["status"], same["by_length"])


def test_a_language_that_nobody_registered_is_named(tmp_path: Path) -> None:
    task = replace(load_task("anbncn"), name="letters")
    save_model(build_model(get_config("gpt", task, n_layers=1)), tmp_path / "model")
    result = call("certify-language", tmp_path / "model", "-n", 4)
    assert result.exit_code == 2
    assert "letters" in result.stderr
    assert "Dyck languages only" not in result.stderr


def test_two_layers_with_positions_are_told_what_is_true(tmp_path: Path) -> None:
    """They are decided by running prefixes: nobody says that one layer alone is supported."""
    model = build_model(get_config("gpt", "dyck-2-4", position="linear"))
    save_model(model, tmp_path / "model")
    said = flat(call("certify-language", tmp_path / "model", "-n", 4).output)
    assert "prefixes were run: the model has 2 layers; pos_embed: the model has positions" in said
    assert "one-layer" not in said
    with pytest.raises(UnsupportedModelError, match="certify_language takes models of any number"):
        export_rnn(model)
    three = build_model(get_config("gpt", "dyck-2-4", n_layers=3))
    assert certify_language(three, "dyck-2-4", 3).by_length


@pytest.mark.parametrize("family", ["minimal-onehot", "gpt"])  # of one layer, and of two
def test_a_model_is_refuted_with_its_likeliest_error(
    family: str, tiny_study: Study, tmp_path: Path
) -> None:
    checkpoint = tiny_study.run_folder(family, 0)
    result = call("certify-language", checkpoint, "-n", 6, "-o", tmp_path / "found.json")
    assert result.exit_code == 1, result.output
    found = certify_language(load_model(checkpoint, device="cpu"), "dyck-2-4", 6)
    assert found.likeliest is not None
    assert f"likeliest error {found.likeliest.text} " in flat(result.output)
    written = json.loads((tmp_path / "found.json").read_text())
    assert written | {"seconds": 0} == found.to_dict() | {"seconds": 0, "sampled": []}


def test_an_rnn_that_is_right_is_proved_so(tmp_path: Path) -> None:
    rnn = export_rnn(construct.uniform_attention(load_task("dyck-2-4").language))
    save_rnn(rnn, tmp_path / "rnn")
    result = call("certify-language", tmp_path / "rnn", "-n", 8, "--shortest", 3, "--jobs", 1)
    assert result.exit_code == 0, result.output
    assert result.output.strip().startswith("proved")
    assert "lengths 3 to 8" in result.output


def test_a_task_that_asks_before_the_first_symbol_is_decided(tmp_path: Path) -> None:
    task = load_task("dyck-1")
    model = build_model(get_config("gpt", task, n_layers=1, d_model=8, d_mlp=8))
    with torch.no_grad():
        model.unembed.b_U.copy_(torch.tensor([0.0, 90.0, 0.0]))  # always )
    save_model(model, tmp_path / "model")
    result = call("certify-language", tmp_path / "model", "--task", "dyck-1", "-n", 4)
    assert result.exit_code == 1, result.output
    assert "the empty prefix" in result.output
    assert "no length" in result.output
    # no prefix of an odd length leaves no bracket open
    result = call(
        "certify-language", tmp_path / "model", "--task", "dyck-1", "-n", 1, "--shortest", 1
    )
    assert result.exit_code == 0, result.output
    assert "proved        length 1 " in result.output


def test_the_error_at_longer_lengths_is_sampled(checkpoint: Path, tmp_path: Path) -> None:
    out = tmp_path / "found.json"
    result = call("certify-language", checkpoint, "-n", 3, "--sample", 9, "--sample", 8, "-o", out)
    (first, second) = json.loads(out.read_text())["sampled"]
    assert (first["length"], second["length"], second["n"]) == (8, 9, 10_000)
    (row,) = certify_language(load_model(checkpoint, device="cpu"), "dyck-2-4", [9]).by_length
    assert second["error_low"] <= row.error.low <= second["error_high"]
    assert "error at 9" in flat(result.output)
    assert "sampled, 10,000 prefixes, level 1 - 1e-09" in flat(result.output)


def test_two_models_are_compared(checkpoint: Path, tmp_path: Path) -> None:
    save_model(construct.balanced(load_task("dyck-2-4").language), tmp_path / "exact")
    claim = ("--property", "agree", "--other", tmp_path / "exact")
    result = call("certify-language", checkpoint, "-n", 4, *claim)
    assert result.exit_code == 1, result.output
    assert "agree, Dyck(2, 4), lengths 0 to 4" in flat(result.output)
