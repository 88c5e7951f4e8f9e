"""Training: what objectives achieve on a small corpus, repeatably; models on disk; the table."""

from __future__ import annotations

import json
import re
import shutil
from dataclasses import replace
from datetime import date
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch

from tests.docs.test_docs import DOCS, load
from tests.recorded import numbers
from tests.test_cli import call, flat
from tests.text.conftest import SYNONYMS
from tl_dyck.kit.environment import cpu_name
from tl_dyck.rnn import export_rnn
from tl_dyck.runs import run_sweep, sweep_status
from tl_dyck.runs.results import load_runs
from tl_dyck_text.certificates import certify_sentences
from tl_dyck_text.corpus import build_words, load_folder
from tl_dyck_text.edits import text_space
from tl_dyck_text.model import TextConfig, build_text_model, load_text_model, save_text_model
from tl_dyck_text.study import SentencesExperiment, sentences_table
from tl_dyck_text.training import OBJECTIVES, TextTraining, TextTrainingError, accuracy, train_text

FIELDS = [
    {"d_mlp": 8, "n_heads": 2},
    {"position": "linear"},
    {"position": "sinusoidal", "normalization": "ln"},
]


@pytest.mark.parametrize("objective", OBJECTIVES)
def test_every_objective_learns_and_is_the_same_each_time(folder: Path, objective: str) -> None:
    corpus = load_folder(folder)
    config = TextConfig(words=build_words(corpus.train), d_model=8)
    space = text_space("dup:1,sub:1", config, SYNONYMS)
    options = TextTraining(objective=objective, steps=40, learning_rate=2e-2, weight_decay=0.0)
    model, curve = train_text(config, corpus.train, options, space=space, progress=False)
    assert curve[-1]["clean_loss"] < 0.8 * curve[0]["clean_loss"]
    assert accuracy(model, corpus.test) > 0.7
    options = replace(options, steps=12)  # all sentences, and some again
    assert 12 * options.batch_size > len(corpus.train)
    seeds = (0, 0, 1) if objective == "clean" else (0, 0)
    one, again, *other = (
        train_text(config, corpus.train, options, space=space, seed=seed, progress=False)[0]
        for seed in seeds
    )
    for name, parameter in one.named_parameters():
        assert torch.equal(parameter, again.get_parameter(name))
    assert not any(torch.equal(one.W_E, each.W_E) for each in other)


@pytest.mark.parametrize("steps", [5, 73])
def test_the_curve_ends_with_the_steps_that_were_made(
    folder: Path, steps: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = []
    step = torch.optim.AdamW.step
    monkeypatch.setattr(torch.optim.AdamW, "step", lambda self: (made.append(1), step(self)))
    corpus = load_folder(folder)
    config = TextConfig(words=build_words(corpus.train), d_model=4)
    _, curve = train_text(
        config, corpus.train, TextTraining(steps=steps, batch_size=4), progress=False
    )
    assert curve[-1]["step"] == len(made) == steps
    assert [row["step"] for row in curve] == sorted({1, steps, *range(50, steps, 50)})


def test_training_on_worst_strings_certifies_more(folder: Path) -> None:
    """ "dull" may become "warm": whoever does not defend against it relies on the word."""
    corpus = load_folder(folder)
    config = TextConfig(words=build_words(corpus.train), d_model=8)
    space = text_space("dup:2,sub:2", config, SYNONYMS)
    certified = {}
    for objective in ("clean", "worst"):
        options = TextTraining(
            objective=objective, steps=80, learning_rate=2e-2, weight_decay=0.0, weight=0.8
        )
        model, _ = train_text(config, corpus.train, options, space=space, progress=False)
        found = certify_sentences(model, corpus.test, space)
        certified[objective] = np.mean([certificate.status == "proved" for certificate in found])
    assert certified["worst"] > certified["clean"] + 0.1


def test_what_cannot_be_trained() -> None:
    config = TextConfig(words=("<unk>", "<cls>", "good"))
    with pytest.raises(ValueError, match="needs a space"):
        train_text(config, [], TextTraining(objective="worst"))
    with pytest.raises(ValueError, match="unknown objective 'worse'"):
        TextTraining(objective="worse")
    with pytest.raises(ValueError, match="weight must be at most 1"):
        TextTraining(weight=1.5)


def test_a_loss_that_explodes_is_an_error(folder: Path) -> None:
    corpus = load_folder(folder)
    config = TextConfig(words=build_words(corpus.train), d_model=8)
    with pytest.raises(TextTrainingError, match="lower learning_rate"):
        train_text(config, corpus.train, TextTraining(steps=50, learning_rate=1e30), progress=False)


@pytest.mark.parametrize("fields", FIELDS, ids=str)
def test_models_come_back_from_disk_and_export(fields: dict[str, object], tmp_path: Path) -> None:
    config = TextConfig(
        words=("<unk>", "<cls>", "good", "bad", "film"), d_model=8, n_ctx=12, **fields
    )  # type: ignore[arg-type]
    model = build_text_model(config, seed=3)
    save_text_model(model, tmp_path)
    again = load_text_model(tmp_path)
    assert again.text == config
    tokens = torch.tensor([config.encode("a good film")])
    assert torch.equal(again(tokens), model(tokens))
    rnn = export_rnn(model, alphabet=config.words, separator=" ", unknown_token=0)
    assert torch.allclose(rnn(rnn.to_tokens("a good film <cls>")), model(tokens), atol=1e-5)


def asked_of(folder: Path, **more: Any) -> dict[str, Any]:
    """The sweep of `numbers`, on a corpus in a folder."""
    data = {"data": str(folder), "synonyms": str(folder / "synonyms.json")}
    common = {**numbers.SENTENCES["common"], "space": "dup:2,del:2,sub:2", **data}
    return {**numbers.SENTENCES, "common": common, **more}


def run(asked: dict[str, Any], folder: Path) -> pd.DataFrame:
    run_sweep(asked, folder, experiment=SentencesExperiment(), n_jobs=1, progress=False)
    return sentences_table(folder)


def test_the_table_holds_what_its_certificates_say_and_resumes(
    folder: Path, tmp_path: Path
) -> None:
    corpus, out = load_folder(folder), tmp_path / "out"
    asked = asked_of(folder)
    rows = run(asked, out)
    assert len(rows) == 2 * 2 * 2
    numbers.check("table", numbers.of_table(rows))
    assert (rows["disagreements"] == 0).all()
    assert rows["enumerated"].sum() >= 40
    assert (rows["proved"] >= rows["interval"]).all()
    assert (rows["proved"] + rows["refuted"] + rows["open"]).to_numpy() == pytest.approx(1.0)
    runs = load_runs(out).set_index(["training.objective", "seed"])
    row = rows.iloc[-1]
    model = load_text_model(Path(runs.loc[(row.objective, row.seed), "folder"]))
    test = corpus.test[: asked["common"]["measure"]["limit"]]
    found = certify_sentences(model, test, text_space(row["space"], model.text, SYNONYMS, 1))
    assert row["proved"] == np.mean([certificate.status == "proved" for certificate in found])
    assert row["clean"] == accuracy(model, test)
    assert runs.loc[(row.objective, row.seed), f"proved {row['space']}"] == row["proved"]
    timed = ["median_ms", "p95_ms", "interval_ms", "seconds"]
    lost, other = (Path(runs.loc[("worst", seed), "folder"]) for seed in (1, 0))
    for name in ("dup1-sub1.json", "training.json"):  # copied from another seed: not believed
        (lost / name).write_bytes((other / name).read_bytes())
    lost.with_suffix(".json").unlink()  # as if it had been killed
    pd.testing.assert_frame_equal(run(asked, out).drop(columns=timed), rows.drop(columns=timed))
    assert (rows["steps"] == 40).all()
    assert sweep_status(out).others == 0
    shutil.copytree(folder, tmp_path / "corpus")
    (tmp_path / "corpus" / "synonyms.json").write_text(json.dumps({**SYNONYMS, "film": []}))
    small = {"seeds": 1, "grid": {"training.objective": ["clean"]}}
    run(asked_of(tmp_path / "corpus", **small), out)
    assert sweep_status(out).others == 4  # other data: other runs


@pytest.mark.parametrize(
    ("point", "message"),
    [
        ({}, "needs the parameter 'data'"),
        ({"data": "."}, "train.tsv"),
        ({"data": ".", "k": 0}, "k must be at least 1, got 0"),
        ({"data": ".", "objective": "worst"}, "unknown parameter 'objective'"),
        ({"data": ".", "model.d_modle": 3}, "Did you mean 'model.d_model'?"),
        ({"data": ".", "measure.space": "x"}, "Did you mean 'measure.spaces'?"),
        ({"data": ".", "training.objective": "worst"}, "needs synonyms, a JSON file"),
    ],
)
def test_points_that_are_none(point: dict[str, Any], message: str, tmp_path: Path) -> None:
    if "data" in point:
        point = {**point, "data": str(tmp_path)}
    with pytest.raises(ValueError, match=re.escape(message)):
        SentencesExperiment().prepare(point)


def test_the_command_line(folder: Path, tmp_path: Path) -> None:
    """Train, certify with pictures, and one string through the exported RNN."""
    synonyms, out = folder / "synonyms.json", tmp_path / "model"
    shared = ("--data", folder, "--synonyms", synonyms, "--k", 2)
    small = ("--set", "training.steps=60", "--set", "model.d_model=8")
    trained = call("text", "train", *shared, *small, "--out", out)
    assert trained.exit_code == 0, trained.stderr
    assert "unknown words in the test set" in flat(trained.stdout)
    assert load_text_model(out).text.d_model == 8
    done = call("text", "certify", out, *shared, "--space", "dup:1,sub:1")
    assert done.exit_code == 0, done.stderr
    assert len(json.loads((out / "sentences.json").read_text())) == 40
    page = (out / "sentences.html").read_text()
    assert "of the attention" in page
    text = ("--text", "the film was good <cls>", "--space", "sub:1", "--synonyms", synonyms)
    one = call("certify", out / "rnn", *text)
    assert one.exit_code == 0, one.stderr
    missing = call("text", "train", "--data", tmp_path / "nothing", "--objective", "clean")
    assert missing.exit_code == 2
    assert "train.tsv" in missing.stderr
    assert "Traceback" not in missing.stderr


def test_a_sweep_is_a_table_of_the_documentation(folder: Path, tmp_path: Path) -> None:
    asked = asked_of(folder, grid={"training.objective": ["worst"]})
    asked["common"] |= {
        "training": {"steps": 3},
        "measure": {"spaces": ["dup:1,sub:1"], "limit": 9},
    }
    rows = run(asked, tmp_path)
    head, _, line, _, origin = load(DOCS / "tables.py").sentences(tmp_path).splitlines()
    assert head == "| training | steps | clean | proved dup:1,sub:1 |"
    cells = [cell.strip() for cell in line.strip("|").split("|")]
    assert cells[:2] == ["worst", "3"]
    assert cells[2].startswith(f"{rows['clean'].mean():.1%} [")
    assert cells[3].startswith(f"{rows['proved'].mean():.1%} [")
    assert origin.startswith(f"Recorded: `tl-dyck sweep sentences.yaml`; {date.today():%Y}")
    assert cpu_name() in origin
