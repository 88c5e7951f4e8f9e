"""Labelled sentences: from a local folder, or from the Hugging Face hub; vocabulary and synonyms.

Nothing is skipped in silence: a `Corpus` counts the rows that could not be used, and says why.
"""

from __future__ import annotations

import unicodedata
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import final

import numpy as np

from tl_dyck.kit.arguments import checked
from tl_dyck.kit.check import WrongValueError, check_instance, check_integer, check_number
from tl_dyck.kit.errors import DyckError
from tl_dyck.kit.files import LARGEST_TEXT, lines_of, read_regular
from tl_dyck_text.model import CLS, UNKNOWN

_SHOWN = 3
_DIGITS = 18  # of a label


class CorpusError(DyckError, ValueError):
    """Data that cannot be trained on: no usable rows, or labels that are no class numbers."""


_MOST_CLASSES = 10_000


@final
@checked
@dataclass(frozen=True)
class Sentence:
    """A sentence and its class.

    Attributes:
        text: words with white space between.
        label: class, from 0.
    """

    text: str
    label: int

    def __post_init__(self) -> None:
        check_integer("label", self.label, least=0, most=_MOST_CLASSES)


@final
@checked
@dataclass(frozen=True, kw_only=True)
class Corpus:
    """Sentences to learn from, and to test on.

    Attributes:
        train: sentences.
        test: sentences.
        problems: what was left out, counted by reason, with places of the first few.
    """

    train: tuple[Sentence, ...]
    test: tuple[Sentence, ...]
    problems: Mapping[str, str]

    @property
    def n_classes(self) -> int:
        """Number of classes."""
        return 1 + max(sentence.label for sentence in (*self.train, *self.test))

    @checked
    def set_aside(self, share: float) -> Corpus:
        """Some training sentences, always the same ones, in place of those to test on.

        Raises:
            CorpusError: none would be left, on one side or the other.
        """
        share = check_number("share", share, least=0.0, most=1.0)
        order = np.random.default_rng(0).permutation(len(self.train)).tolist()
        n = round(share * len(order))
        if not 0 < n < len(order):
            raise CorpusError(f"{share:g} of {len(order)} training sentences cannot be set aside")
        rows = [self.train[i] for i in order]
        return replace(self, train=tuple(rows[n:]), test=tuple(rows[:n]))


@checked
def load_folder(folder: str | Path) -> Corpus:
    """Read ``train.tsv`` and ``dev.tsv``: lines ``sentence<TAB>label``, the label a class number.

    Lines end with a line feed; all other white space parts words. A first line
    ``sentence<TAB>label`` is taken for a header. Empty lines, lines without a tab, lines that are
    not UTF-8, sentences without a word or with control characters, and labels that are no number
    are left out and counted.

    Raises:
        CorpusError: no usable row in a file, more lines that cannot be used than lines that can, or
            labels with a gap.
        MissingFileError: a file is not there.
        CorruptFileError: a file is no ordinary one, or too large.
    """
    path, problems = Path(folder), _Problems(list)
    train, test = (tuple(_rows(path / name, problems)) for name in ("train.tsv", "dev.tsv"))
    return _checked(train, test, problems, str(path))


def load_sst2() -> Corpus:
    """SST2 (Socher et al. 2013) from the Hugging Face hub, ``stanfordnlp/sst2``.

    The dev split is what is tested on.

    Raises:
        OSError: the hub cannot be reached and nothing is cached.
    """
    from datasets import load_dataset

    data, problems = load_dataset("stanfordnlp/sst2"), _Problems(list)
    train, test = (
        tuple(
            _sentences(
                ((row["sentence"], str(row["label"])) for row in data[split]), split, problems
            )
        )
        for split in ("train", "validation")
    )
    return _checked(train, test, problems, "stanfordnlp/sst2")


@checked
def build_words(sentences: Iterable[Sentence]) -> tuple[str, ...]:
    """The vocabulary of some sentences: "<unk>", "<cls>", then words by frequency."""
    counts: Counter[str] = Counter()
    for sentence in sentences:
        check_instance("sentences", sentence, Sentence, "of the class Sentence")
        counts.update(sentence.text.split())
    words = sorted(counts, key=lambda word: (-counts[word], word))
    return (UNKNOWN, CLS, *(word for word in words if word not in (UNKNOWN, CLS)))


#: Why rows are left out, and where they were seen.
_Problems = defaultdict[str, list[str]]


def _rows(file: Path, problems: _Problems) -> Iterator[Sentence]:
    pairs: list[tuple[str, str]] = []
    for number, line in enumerate(lines_of(read_regular(file, LARGEST_TEXT)), start=1):
        text, tab, label = (line or "").rpartition("\t")
        if line is None:
            problems["lines that are not UTF-8"].append(f"{file.name} line {number}")
        elif not line.strip():
            problems["empty lines"].append(f"{file.name} line {number}")
        elif not tab:
            problems["lines without a tab"].append(f"{file.name} line {number}")
        elif not (number == 1 and label.strip().lower() == "label"):
            pairs.append((text, label))
    try:
        yield from _sentences(pairs, file.name, problems)
    except WrongValueError as error:  # a label that is far too large
        raise CorpusError(f"{str(file)!r}: {error}") from error


def _sentences(
    pairs: Iterable[tuple[str, str]], source: str, problems: _Problems
) -> Iterator[Sentence]:
    for number, (text, label) in enumerate(pairs, start=1):
        words, place = text.split(), f"{source} row {number}"
        if not words:
            problems["sentences without a word"].append(place)
        elif any(map(_is_no_text, text)):
            problems["sentences with characters that are no text"].append(place)
        elif not (
            label.strip().isascii() and label.strip().isdigit() and len(label.strip()) <= _DIGITS
        ):
            problems["labels that are no class number"].append(f"{place}: {label.strip()!r:.40}")
        else:
            yield Sentence(" ".join(words), int(label))


def _is_no_text(character: str) -> bool:
    """Whether nobody sees it, and it parts no words.

    NUL (UTF-16 that is read as UTF-8 has many), escape, …; or a byte-order mark within a line, as
    files have that were put together.
    """
    if character.isprintable() or character.isspace():
        return False
    return character == "\ufeff" or unicodedata.category(character) in ("Cc", "Cs")


def _checked(
    train: tuple[Sentence, ...], test: tuple[Sentence, ...], problems: _Problems, source: str
) -> Corpus:
    counted = {
        reason: f"{len(places):,} ({', '.join(places[:_SHOWN])}{', …' * (len(places) > _SHOWN)})"
        for reason, places in problems.items()
    }
    said = "; ".join(f"{reason}: {count}" for reason, count in counted.items())
    for name, rows in (("train", train), ("dev", test)):
        if not rows:
            raise CorpusError(f"{source!r} has no usable {name} rows (sentence<TAB>label). {said}")
    unusable = sum(len(places) for why, places in problems.items() if why != "empty lines")
    if unusable > len(train) + len(test):
        raise CorpusError(f"most of {source!r} cannot be used; is it sentence<TAB>label? {said}")
    if len({sentence.label for sentence in train}) < 2:
        raise CorpusError(f"{source!r} has a single class to learn, {train[0].label}")
    labels = {sentence.label for sentence in (*train, *test)}
    missing = next(label for label in range(len(labels) + 1) if label not in labels)
    if missing < len(labels):
        raise CorpusError(
            f"the labels of {source!r} must be 0, 1, … without a gap: {max(labels)} is there and "
            f"{missing} is not; number the classes from 0"
        )
    return Corpus(train=train, test=test, problems=counted)
