"""Reading labelled sentences: what is used, what is left out, and that it is said."""

from __future__ import annotations

from pathlib import Path

import pytest

from tl_dyck_text.corpus import CorpusError, Sentence, build_words, load_folder, load_sst2
from tl_dyck_text.recipe import TextRecipe


def write(folder: Path, train: str, dev: str = "fine\t1\n") -> Path:
    (folder / "train.tsv").write_text(train, encoding="utf-8")
    (folder / "dev.tsv").write_text(dev, encoding="utf-8")
    return folder


def test_rows_become_sentences(tmp_path: Path) -> None:
    corpus = load_folder(
        write(tmp_path, "sentence\tlabel\na  fine film\t1\nso\tdull\t0\nnaïve “film”\t1\n")
    )
    assert corpus.train == (
        Sentence("a fine film", 1),
        Sentence("so dull", 0),
        Sentence("naïve “film”", 1),
    )
    assert corpus.test == (Sentence("fine", 1),)
    assert corpus.problems == {}
    assert corpus.n_classes == 2


def test_what_cannot_be_used_is_counted_with_its_place(tmp_path: Path) -> None:
    text = "good\t1\nbad\t0\n\nno tab\n\t1\ngood\tyes\nbad\t-1\nfine\t1\nok\t1\nmeh\t0\nnah\t0\n"
    corpus = load_folder(write(tmp_path, text))
    assert len(corpus.train) == 6
    assert corpus.problems["empty lines"] == "1 (train.tsv line 3)"
    assert corpus.problems["lines without a tab"] == "1 (train.tsv line 4)"
    assert corpus.problems["sentences without a word"].startswith("1 (train.tsv row")
    assert corpus.problems["labels that are no class number"].startswith("2 (train.tsv row")
    assert "'yes'" in corpus.problems["labels that are no class number"]


@pytest.mark.parametrize(
    "spoilt",
    ["goo\0d", "good \0 film", "good\x1b[31m", "go\x7fod", "good\x86", "good \ufefffilm", "\ufeff"],
)
def test_characters_that_nobody_sees_make_no_words(tmp_path: Path, spoilt: str) -> None:
    """UTF-16 that is read as UTF-8 has NULs; files that were put together have marks within."""
    rows = f"sentence\tlabel\nfine\t1\nbad\t0\n{spoilt}\t1\nflag 🏴\u200d☠️ naïve\xadly\t1\n"
    corpus = load_folder(write(tmp_path, rows))
    words = build_words(corpus.train)
    assert set(words) == {"<unk>", "<cls>", "fine", "bad", "flag", "🏴\u200d☠️", "naïve\xadly"}
    assert corpus.problems == {"sentences with characters that are no text": "1 (train.tsv row 3)"}


def test_a_file_in_utf_16_is_no_corpus(tmp_path: Path) -> None:
    write(tmp_path, "")
    for encoding in ("utf-16", "utf-16-le", "utf-16-be"):
        (tmp_path / "train.tsv").write_bytes("good\t1\nbad\t0\nfine\t1\n".encode(encoding))
        with pytest.raises(CorpusError, match="no usable train rows"):
            load_folder(tmp_path)


@pytest.mark.parametrize(
    ("train", "dev", "message"),
    [
        ("", "fine\t1\n", "no usable train rows"),
        ("good\t1\nbad\t0\n", "\n", "no usable dev rows"),
        ("good\t1\nbad\t0\nx\ny\nz\nu\n", "fine\t1\n", "most of .* cannot be used"),
        ("good\t1\nfine\t1\n", "fine\t1\n", "a single class to learn, 1"),
    ],
)
def test_data_that_cannot_be_learned_from(
    tmp_path: Path, train: str, dev: str, message: str
) -> None:
    with pytest.raises(CorpusError, match=message):
        load_folder(write(tmp_path, train, dev))


def test_the_vocabulary_is_that_of_the_training_sentences() -> None:
    rows = [Sentence("b a b", 0), Sentence("a c <cls>", 1)]
    assert build_words(rows) == ("<unk>", "<cls>", "a", "b", "c")


def test_sst2_from_the_hub(monkeypatch: pytest.MonkeyPatch) -> None:
    """The hub's rows, without the network: "test" has labels of -1 there, and is not read."""
    asked = []

    def load_dataset(name: str) -> dict[str, list[dict[str, object]]]:
        asked.append(name)
        rows = [
            {"idx": 0, "sentence": "a fine film ", "label": 1},
            {"idx": 1, "sentence": "dull", "label": 0},
        ]
        return {
            "train": rows,
            "validation": rows[:1],
            "test": [{"idx": 2, "sentence": "?", "label": -1}],
        }

    monkeypatch.setattr("datasets.load_dataset", load_dataset)
    corpus = load_sst2()
    assert asked == ["stanfordnlp/sst2"]
    assert corpus.train == (Sentence("a fine film", 1), Sentence("dull", 0))
    assert corpus.test == (Sentence("a fine film", 1),)


def test_sentences_kept_aside_stand_for_the_test_set(folder: Path) -> None:
    whole = load_folder(folder)
    read = TextRecipe(data=str(folder), space="dup:1", aside=0.1).read()
    train, test = read.corpus.train, read.corpus.test
    assert len(test) == 30
    assert sorted((*train, *test), key=repr) == sorted(whole.train, key=repr)
    assert read.config.words == build_words(train)
    assert read.corpus == whole.set_aside(0.1)
    assert [row.label for row in test].count(1) > 5  # not the first or last lines of a sorted file
    with pytest.raises(CorpusError, match=r"0.001 of 300 training sentences cannot be set aside"):
        whole.set_aside(0.001)
