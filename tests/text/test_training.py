"""Training: what objectives achieve on a small corpus, repeatably; models on disk; the table."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch

from tests.docs.test_docs import DOCS, load
from tests.recorded import numbers
from tests.test_cli import call, flat
from tests.text.conftest import SYNONYMS
from tl_dyck.cli.text import train_table
from tl_dyck.environment import cpu_name
from tl_dyck.files import CorruptFileError
from tl_dyck.models.text import TextConfig, build_text_model, load_text_model, save_text_model
from tl_dyck.rnn import export_rnn
from tl_dyck.runs import sweep_status
from tl_dyck.runs.results import load_runs
from tl_dyck.studies.sentences import TextTable, run_table, summarise
from tl_dyck.text import (
    OBJECTIVES,
    TextTraining,
    TextTrainingError,
    accuracy,
    build_words,
    certify_sentences,
    load_folder,
    text_space,
    train_text,
)

FIELDS = [
    {},
    {"d_mlp": 8, "n_heads": 2},
    {"normalization": "ln", "d_mlp": 8},
    {"position": "linear"},
    {"position": "sinusoidal", "normalization": "ln"},
]


@pytest.mark.parametrize("objective", OBJECTIVES)
def test_every_objective_learns_and_is_the_same_each_time(folder: Path, objective: str) -> None:
    corpus = load_folder(folder)
    config = TextConfig(words=build_words(corpus.train), d_model=8)
    space = text_space("dup:1,sub:1", config, SYNONYMS)
    options = TextTraining(objective=objective, steps=80, learning_rate=2e-2, weight_decay=0.0)
    model, curve = train_text(config, corpus.train, options, space=space, progress=False)
    assert curve[-1]["clean_loss"] < 0.8 * curve[0]["clean_loss"]
    assert accuracy(model, corpus.test) > 0.7
    options = replace(options, steps=12)  # all sentences, and some again
    assert 12 * options.batch_size > len(corpus.train)
    one, again, other = (
        train_text(config, corpus.train, options, space=space, seed=seed, progress=False)[0]
        for seed in (0, 0, 1)
    )
    for name, parameter in one.named_parameters():
        assert torch.equal(parameter, again.get_parameter(name))
    assert not torch.equal(one.W_E, other.W_E)


@pytest.mark.parametrize("steps", [1, 5, 50, 73])
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
    _, curve = train_text(
        config, corpus.train, TextTraining(seconds=0.05, batch_size=4), progress=False
    )
    assert curve[-1]["step"] == len(made) - steps


def test_training_on_worst_strings_certifies_more(folder: Path) -> None:
    """ "dull" may become "warm": whoever does not defend against it relies on the word."""
    corpus = load_folder(folder)
    config = TextConfig(words=build_words(corpus.train), d_model=8)
    space = text_space("dup:2,sub:2", config, SYNONYMS)
    certified = {}
    for objective in ("clean", "worst"):
        options = TextTraining(
            objective=objective, steps=150, learning_rate=2e-2, weight_decay=0.0, weight=0.8
        )
        model, _ = train_text(config, corpus.train, options, space=space, progress=False)
        found = certify_sentences(model, corpus.test, space)
        certified[objective] = np.mean([certificate.status == "certified" for certificate in found])
    assert certified["worst"] > certified["clean"] + 0.1


def test_what_cannot_be_trained() -> None:
    config = TextConfig(words=("<unk>", "<cls>", "good"))
    with pytest.raises(ValueError, match="needs a space"):
        train_text(config, [], TextTraining(objective="worst"))
    with pytest.raises(ValueError, match="unknown objective 'worse'"):
        TextTraining(objective="worse")
    with pytest.raises(ValueError, match="weight must be at most 1"):
        TextTraining(weight=1.5)
    with pytest.raises(ValueError, match="seconds must be above 0, got 0"):
        TextTraining(seconds=0.0)


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


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"d_model": 10**9}, "by its sizes"),
        ({"words": ["<unk>", "<cls>"]}, "by its sizes"),
        ({"n_heads": 3}, "must be a multiple"),
        ({"position": "rotary"}, "unknown position"),
        ({"extra": 1}, "unknown parameter"),
    ],
)
def test_altered_models_are_refused(
    change: dict[str, object], message: str, tmp_path: Path
) -> None:
    save_text_model(
        build_text_model(TextConfig(words=("<unk>", "<cls>", "good"), d_model=8)), tmp_path
    )
    saved = json.loads((tmp_path / "config.json").read_text())
    saved["config"].update(change)
    (tmp_path / "config.json").write_text(json.dumps(saved))
    with pytest.raises(CorruptFileError, match=message):
        load_text_model(tmp_path)


def test_altered_weights_are_refused(tmp_path: Path) -> None:
    save_text_model(
        build_text_model(TextConfig(words=("<unk>", "<cls>", "good"), d_model=8)), tmp_path
    )
    data = bytearray((tmp_path / "model.safetensors").read_bytes())
    data[-1] ^= 1
    (tmp_path / "model.safetensors").write_bytes(data)
    with pytest.raises(CorruptFileError, match=r"model\.safetensors"):
        load_text_model(tmp_path)


def test_the_table_holds_what_its_certificates_say_and_resumes(
    folder: Path, tmp_path: Path
) -> None:
    corpus = load_folder(folder)
    synonyms = {word: tuple(found) for word, found in SYNONYMS.items()}
    rows = run_table(corpus, synonyms, tmp_path, numbers.TABLE, n_jobs=1, progress=False)
    assert len(rows) == 2 * 2 * 2
    numbers.check("table", numbers.of_table(rows))
    assert (rows["disagreements"] == 0).all()
    assert rows["enumerated"].sum() >= 40
    assert (rows["certified"] >= rows["interval"]).all()
    assert (rows["certified"] + rows["falsified"] + rows["undecided"]).to_numpy() == pytest.approx(
        1.0
    )
    runs = load_runs(tmp_path).set_index(["objective", "k", "seed"])
    row = rows.iloc[-1]
    kept = Path(runs.loc[(row.objective, row.k, row.seed), "folder"])
    model = load_text_model(kept)
    test = corpus.test[: numbers.TABLE.limit]
    found = certify_sentences(model, test, text_space(row["space"], model.text, synonyms, 1))
    assert row["certified"] == np.mean([certificate.status == "certified" for certificate in found])
    assert row["clean"] == accuracy(model, test)
    timed = ["median_ms", "p95_ms", "interval_ms", "seconds"]
    lost, other = (Path(runs.loc[("worst", 1, seed), "folder"]) for seed in (1, 0))
    for name in ("dup1-sub1.json", "training.json"):  # copied from another seed: not believed
        (lost / name).write_bytes((other / name).read_bytes())
    lost.with_suffix(".json").unlink()  # as if it had been killed
    again = run_table(corpus, synonyms, tmp_path, numbers.TABLE, n_jobs=1, progress=False)
    pd.testing.assert_frame_equal(again.drop(columns=timed), rows.drop(columns=timed))
    assert (rows["steps"] == 40).all()
    means = summarise(rows)
    assert len(means) == 4
    assert (means["certified_low"] <= means["certified"]).all()
    assert (means["certified"] <= means["certified_high"]).all()
    assert sweep_status(tmp_path).others == 0
    small = replace(numbers.TABLE, objectives=("clean",), seeds=(0,))
    run_table(corpus, synonyms | {"film": ()}, tmp_path, small, n_jobs=1, progress=False)
    assert sweep_status(tmp_path).others == 4  # other data: other runs


def test_the_command_line(folder: Path, tmp_path: Path) -> None:
    """Train, certify with pictures, and one string through the exported RNN."""
    synonyms, out = folder / "synonyms.json", tmp_path / "model"
    shared = ("--data", folder, "--synonyms", synonyms, "--k", 2)
    trained = call("text", "train", *shared, "--steps", 60, "--d-model", 8, "--out", out)
    assert trained.exit_code == 0, trained.stderr
    assert "unknown words in the test set" in flat(trained.stdout)
    done = call("text", "certify", out, *shared, "--space", "dup:1,sub:1")
    assert done.exit_code == 0, done.stderr
    assert len(json.loads((out / "sentences.json").read_text())) == 40
    page = (out / "sentences.html").read_text()
    assert "<script" not in page
    assert "of the attention" in page
    one = call(
        "certify",
        out / "rnn",
        "--text",
        "the film was good <cls>",
        "--space",
        "sub:1",
        "--synonyms",
        synonyms,
    )
    assert one.exit_code == 0, one.stderr
    missing = call("text", "train", "--data", tmp_path / "nothing", "--out", tmp_path / "x")
    assert missing.exit_code == 2
    assert "train.tsv" in missing.stderr
    assert "Traceback" not in missing.stderr


def test_the_printed_table_leaves_what_a_record_of_it_needs(folder: Path, tmp_path: Path) -> None:
    table = TextTable(
        objectives=("worst",), ks=(1,), seeds=(0, 1), spaces=("dup:1,sub:1",), limit=9,
        training=TextTraining(steps=3), model=(("d_model", 4),),
    )  # fmt: skip
    list(train_table(str(folder), folder / "synonyms.json", tmp_path, table, n_jobs=1))
    record = load(DOCS / "record.py").record_text(tmp_path)
    assert record["command"].endswith("--steps 3")
    assert record["cpu"] == cpu_name()
    rows = pd.read_parquet(tmp_path / "table.parquet")
    (row,) = record["rows"]
    assert row["steps"] == 3
    assert row["certified"]["dup:1,sub:1"]["mean"] == pytest.approx(rows["certified"].mean())
