"""Proofs beside saved models: whose weights they are."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

from tests.certify.proofs.common import FAMILIES, PAIR, SMALL, check_file
from tl_dyck.certify import check_model, language_proofs
from tl_dyck.certify.check_language import ProofError, read
from tl_dyck.certify.check_model import compare_language
from tl_dyck.certify.language_proofs import prove_language
from tl_dyck.cli import app
from tl_dyck.models import build_model, get_config, load_model, save_model
from tl_dyck.rnn import export_rnn

OPTIONS = {
    "ln_c": 0.5,
    "d_head": 7,
    "max_depth": 3,
    "n_layers": 2,
    "n_heads": 2,
    "position": "learned",
    "block": "eq49",
    "embedding": "onehot",
    "act_fn": "gelu",
}


@pytest.mark.parametrize("name", OPTIONS)
def test_a_model_with_another_option_is_refused(little, tmp_path, name):
    shutil.copytree(little[1], tmp_path / "model")
    file = tmp_path / "model" / "config.json"
    saved = json.loads(file.read_text())
    assert saved["config"][name] != OPTIONS[name]
    saved["config"][name] = OPTIONS[name]
    file.write_text(json.dumps(saved))
    with pytest.raises(ProofError):
        check_file(little[0], tmp_path / "model")


@pytest.mark.parametrize("family", [*FAMILIES, "minimal-uniform", "figure2-yao"])
def test_a_saved_model_is_compared_with_its_proof(family, tmp_path):
    model = build_model(get_config(family, SMALL, n_layers=1), 0)
    save_model(model, tmp_path)
    facts, weights = language_proofs.facts_and_weights(
        export_rnn(model), SMALL.language, "any_token", 4
    )
    facts["model"] = json.loads((tmp_path / "config.json").read_text())["sha256"]
    compare_language(facts, weights, tmp_path)
    with pytest.raises(ProofError, match="is not the one that the proof names"):
        compare_language({**facts, "model": "0" * 64}, weights, tmp_path)
    for name, weight in weights.items():
        if weight.size:
            cosines = name == "W_E" and "yao" in family
            other = weight.copy()
            other.flat[0] += 1e-6 if cosines else 1e-9 + np.spacing(abs(other.flat[0]))
            with pytest.raises(ProofError, match=f"{name} is not that of the model"):
                compare_language(facts, {**weights, name: other}, tmp_path)


def test_two_models_are_compared_each_with_its_own(pair, tmp_path):
    path, one, two = pair
    assert check_file(*pair).endswith("compared with the models")
    assert check_file(path).endswith("whatever they are called (--model compares)")
    digests = [json.loads((each / "config.json").read_text())["sha256"] for each in (one, two)]
    assert f"weights called '{digests[0]}' and '{digests[1]}'" in check_file(*pair)
    for folders in ((two, one), (one, one), (two, two), (one,), (one, two, two)):
        with pytest.raises(ProofError):
            check_file(path, *folders)
    runner, words = CliRunner(), ["check", str(path), "--model", str(one), "--model", str(two)]
    assert runner.invoke(app, words).exit_code == 0
    assert runner.invoke(app, words[:-2]).exit_code == 1
    assert check_model.main(words[1:]) == 0
    out = tmp_path / "x.proof"
    words = ["certify-language", str(one), "-n", "6", "--property", "agree"]
    assert runner.invoke(app, [*words, "--other", str(two), "--proof", str(out)]).exit_code == 0
    assert check_file(out, one, two) == check_file(*pair)


def with_options(folder: Path, copy: Path, **options: object) -> Path:
    shutil.copytree(folder, copy)
    saved = json.loads((copy / "config.json").read_text())
    saved["config"] |= options
    (copy / "config.json").write_text(json.dumps(saved))
    return copy


def test_a_block_that_has_norms_of_its_own_is_refused(little, tmp_path):
    facts, arrays = read(little[0])
    model = with_options(little[1], tmp_path / "gpt", block="gpt")
    facts |= {"norm": False, "floor": 0.0, "added": "before"}
    with pytest.raises(ProofError, match="layer_norm is True"):
        compare_language(facts, arrays, model)


def test_the_other_model_is_of_the_same_language(pair, tmp_path):
    facts, arrays = read(pair[0])
    facts["other"]["max_depth"] = 3
    other = with_options(pair[2], tmp_path / "two", max_depth=3)
    with pytest.raises(ProofError, match="max_depth is 3 in the model"):
        compare_language(facts, arrays, pair[1], other)


def test_a_proof_about_a_head_is_about_one_model(pair, tmp_path):
    path = prove_language(load_model(pair[1]), PAIR, 6, "head", head=0).save(tmp_path / "a")
    said = check_file(path, pair[1])
    assert "the prediction stays the same when the head attends uniformly, after each of" in said
    assert said.endswith("compared with the model")
    with pytest.raises(ProofError, match=r"about 1 model\(s\), not 2"):
        check_file(path, *pair[1:])


def test_from_the_command_line(proof, tmp_path, monkeypatch):
    runner, folder = CliRunner(), proof[1]
    words = ["certify-language", str(folder), "-n", "10", "--proof", str(tmp_path / "x.proof")]
    done = runner.invoke(app, words)
    assert (done.exit_code, "To check it" in done.stdout) == (0, True)
    done = runner.invoke(app, ["check", str(tmp_path / "x.proof"), "--model", str(folder)])
    assert done.exit_code == 0
    assert "of up to 10 brackets" in done.stdout.replace("\n", " ")
    done = runner.invoke(app, ["check", "--beside", str(tmp_path / "x.proof")])
    assert (done.exit_code, "unreadable" in done.stdout) == (1, True)
    shutil.copytree(folder, tmp_path, dirs_exist_ok=True)
    done = runner.invoke(app, ["check", "--beside", str(tmp_path / "x.proof")])
    assert (done.exit_code, "compared with the model" in done.stdout) == (0, True)
    (tmp_path / "y.proof").write_text("nothing")
    done = runner.invoke(app, ["check", str(tmp_path / "x.proof"), str(tmp_path / "y.proof")])
    assert done.exit_code == 1
    assert "not proved" in done.stdout


BLOCK = {
    "n_types": 1,
    "max_depth": 2,
    "d_head": 4,
    "eps": 1e-5,
    "ln_c": 0.5,
    "act_fn": "relu",
    "embedding": "token",
}


@pytest.mark.parametrize("block", ["bare", "gpt", "eq6", "eq49"])
@pytest.mark.parametrize("mlp", [{}, {"mlp": True}, {"mlp": False}], ids=str)
def test_layers_have_an_mlp_unless_bare_or_without(block, mlp):
    """A file of before there was a choice has one."""
    has = block != "bare" and mlp.get("mlp") is not False
    for layer in check_model.layers_of(BLOCK | {"block": block} | mlp):
        assert layer["act_fn"] == ("relu" if has else None)
        assert layer["ln2"] == ("ln" if has and block == "gpt" else None)
        assert layer["ln1"] == ("ln" if block == "gpt" else None)
