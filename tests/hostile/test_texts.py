"""Corpora and lists of synonyms that are not what they should be."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from tests.hostile.tools import refusal
from tests.test_cli import typed
from tl_dyck_text.certificates import certify_sentences
from tl_dyck_text.corpus import Sentence, load_folder
from tl_dyck_text.edits import text_space
from tl_dyck_text.model import TextConfig, build_text_model
from tl_dyck_text.training import TextTraining, accuracy, train_text

Make = Callable[[str], Path]


def test_odd_bytes_are_shown_not_fatal(original: Make):
    folder = original("corpus")
    with (folder / "train.tsv").open("ab") as file:
        file.write(b"\xff\xfe \x1b[2J\t1\n\x1b[2J\t1\nx\t\x1b[31m\n")
    corpus = load_folder(folder)
    assert not any("\x1b" in sentence.text for sentence in corpus.train)
    assert corpus.problems["sentences with characters that are no text"] == "1 (train.tsv row 11)"
    assert corpus.problems["lines that are not UTF-8"] == "1 (train.tsv line 11)"
    assert "row 12: '\\x1b[31m'" in corpus.problems["labels that are no class number"]


LONG = " ".join(["good"] * 100)


def test_long_sentences_are_refused_everywhere_alike():
    config = TextConfig(words=("<unk>", "<cls>", "good", "bad"), d_model=4)
    sentences, model = [Sentence("bad", 0), Sentence(LONG, 1)], build_text_model(config)
    space = text_space("dup:2", config, {})
    for call in (
        lambda: train_text(config, sentences, TextTraining(steps=1), progress=False),
        lambda: accuracy(model, sentences),
        lambda: certify_sentences(model, sentences, space),
    ):
        said = refusal(call, "sentence 2 ('good good", "has 100 words", "reads 79")
        assert "n_ctx=101" in said
    # with duplications, 78 words are too many for 79
    almost = [Sentence("bad", 0), Sentence(" ".join(["good"] * 78), 1)]
    train_text(config, almost, TextTraining(steps=1), progress=False)
    refusal(
        lambda: train_text(config, almost, TextTraining(steps=1), space=space, progress=False),
        "2 may be repeated",
    )


def test_the_command_line_makes_room_for_long_sentences(original: Make):
    folder = original("corpus")
    with (folder / "dev.tsv").open("a") as file:
        file.write(f"{LONG}\t1\n")
    words = ["text", "train", "--data", str(folder), "--space", "dup:1"]
    words += ["--set", "training.steps=2", "--set", "model.d_model=4"]
    done = typed([*words, "--out", "m"])
    assert (done.exit_code, done.stderr) == (0, "")
    short = typed([*words, "--out", "n", "--set", "model.n_ctx=80"])
    assert short.exit_code == 2
    assert short.stderr.startswith("Error: sentence 13 ('good good")
    assert len(short.stderr.splitlines()) == 1
    assert not Path("n").exists()
    (folder / "dev.tsv").write_text(f"{'good ' * 5000}\t1\n")
    absurd = typed([*words, "--out", "n"])
    assert absurd.stderr.startswith("Error: a sentence has 5000 words")
    assert len(absurd.stderr.splitlines()) == 1
