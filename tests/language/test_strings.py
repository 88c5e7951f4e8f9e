"""Files of strings as people publish them, against strings that were written by hand."""

from __future__ import annotations

import gzip
import random
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from tl_dyck import DyckLanguage, SymbolLanguage, load_task, read_strings
from tl_dyck.kit import files
from tl_dyck.kit.files import CorruptFileError, MissingFileError, read_each_line
from tl_dyck.language import strings as of_files
from tl_dyck.language.checks import DyckStringError
from tl_dyck.language.strings import as_strings, joined

LETTERS = DyckLanguage(2, 3, brackets=("(a", "a)", "(b", "b)"))
WANTED = [[0, 2, 3, 1], [], [2, 3], [0]]

#: How a line may be written: spaces, or none, or tabs; and what may stand around it.
FORMS = {
    "Hewitt's": b"(a (b b) a) END\nEND\n(b b) END\n(a END\n",
    "side by side": b"(a(bb)a)\nEND\n(bb)\n(a\n",
    "Windows": b"(a (b b) a) END\r\nEND\r\n(b b) END\r\n(a END\r\n",
    "a byte-order mark": b"\xef\xbb\xbf(a (b b) a) END\nEND\n(b b)\n(a\n",
    "no last line feed": b"(a (b b) a) END\nEND\n(b b) END\n(a END",
    "blank lines": b"\n\n(a (b b) a) END\n \t\nEND\n(b b) END\n\r\n(a END\n\n\n",
    "tabs, spaces at ends": b"  (a\t(b b)  a)\tEND  \nEND\n (b b)\n(a \n",
    "BOS": b"<bos> (a (b b) a) END\n<bos>\n<bos> (b b)\n<bos> (a END\n",
}


@pytest.mark.parametrize("packed", [False, True])
@pytest.mark.parametrize("form", FORMS)
def test_files_as_people_publish_them(tmp_path: Path, form: str, packed: bool) -> None:
    path = tmp_path / "dev.txt"
    path.write_bytes(gzip.compress(FORMS[form]) if packed else FORMS[form])
    found = read_strings(path, LETTERS)
    assert [found[i].tolist() for i in range(len(found))] == WANTED
    assert found.lengths.tolist() == [4, 0, 2, 1]
    assert found[-1].tolist() == [0]


def test_an_end_that_is_a_symbol_stays_and_another_word_may_end_lines(tmp_path: Path) -> None:
    path = tmp_path / "strings.txt"
    path.write_text("a b END\na b </s>\n")
    ended = SymbolLanguage("ended", ("a", "b", "END"))
    with pytest.raises(CorruptFileError, match="line 2 of"):
        read_strings(path, ended)
    path.write_text("a b END\na\n")
    assert [each.tolist() for each in read_strings(path, ended)] == [[0, 1, 2], [0]]
    path.write_text("a b </s>\na\n")
    found = read_strings(str(path), SymbolLanguage("letters", ("a", "b")), end="</s>")
    assert [found[0].tolist(), found[1].tolist()] == [[0, 1], [0]]
    spaced = SymbolLanguage("spaced", ("a", " "))
    path.write_text("a a\n")
    assert read_strings(path, spaced)[0].tolist() == [0, 1, 0]


#: What a file may have on its second line, and what is said of it.
WRONG = {
    "(a (b a)": "cannot close",
    "a)": "closes nothing",
    "(a (a (a (a": "too deep",
    "(a x a)": "unknown bracket 'x'",
    "(a END (b": "END stands before its end",
    "(a \x1b[31m a)": r"unknown bracket '\\x1b'",
    "1,(a a)": "unknown bracket '1'.*; of a table, write the column of strings into a file",
    "(a a)\t0": "; of a table, write the column of strings",
}


@pytest.mark.parametrize("line", WRONG)
def test_what_is_not_of_the_language_is_said_in_a_line(tmp_path: Path, line: str) -> None:
    path = tmp_path / "dev.txt"
    path.write_text(f"(a a)\n{line}\n")
    with pytest.raises(CorruptFileError, match=f"line 2 of .*{WRONG[line]}") as error:
        read_strings(path, LETTERS)
    assert "\n" not in str(error.value)


def test_files_that_cannot_be_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path, good = tmp_path / "dev.txt", b"(a a)\n" * 100
    packed = gzip.compress(good)
    for data, said in (
        (b"", "has no string"),
        (b"\n\n", "has no string"),
        (b"(a a)\n\xff\n", "line 2 .* no UTF-8"),
        (packed[:-9], "cannot be unpacked"),
        (packed[:20] + b"x" * 20, "cannot be unpacked"),
        (packed[:-8] + b"12345678", "cannot be unpacked"),
    ):
        path.write_bytes(data)
        with pytest.raises(CorruptFileError, match=said) as error:
            read_strings(path, LETTERS)
        assert "\n" not in str(error.value)
    with pytest.raises(MissingFileError):
        read_strings(tmp_path / "none", LETTERS)
    with pytest.raises(TypeError, match="must be a language or a task"):
        read_strings(path, "dyck-2-4")
    path.write_bytes(good)
    monkeypatch.setattr(of_files, "MOST_SYMBOLS", 199)
    with pytest.raises(CorruptFileError, match="more than 199 symbols"):
        read_strings(path, LETTERS)


def test_what_unpacks_to_too_much_is_refused_before_it_is_there(tmp_path: Path) -> None:
    """Lines are read one at a time: no more than a limit is ever unpacked."""
    path = tmp_path / "bomb.gz"
    path.write_bytes(gzip.compress(b"x" * 10_000_000))
    with pytest.raises(CorruptFileError, match=r"line 1 of .* more than 1,000 bytes"):
        next(read_each_line(path, longest=1000))
    path.write_bytes(gzip.compress(b"x\n" * 5_000_000))
    most = path.stat().st_size  # unpacked it has a thousand times as much
    lines = read_each_line(path, most)
    assert [next(lines) for _ in range(most // 2)] == ["x"] * (most // 2)
    with pytest.raises(CorruptFileError, match=f"has more than {most:,} bytes"):
        next(lines)
    assert files.LONGEST_LINE < files.LARGEST_TEXT


def test_strings_in_batches_are_all_strings_once() -> None:
    rng = random.Random(0)
    strings = [[rng.randrange(4) for _ in range(rng.choice([0, 1, 5, 40]))] for _ in range(200)]
    kept = joined(SymbolLanguage("letters", tuple("abcd")), strings)
    for most in (1, 30, 1000, 10**6):
        found: dict[int, list[int]] = {}
        for rows, tokens in kept.batches(most):
            assert tokens.numel() <= max(most, 41)
            for index, row in zip(rows.tolist(), tokens.tolist(), strict=True):
                assert row[0] == 4
                assert index not in found
                found[index] = [x for x in row if x != 4]
        assert [found[i] for i in range(200)] == strings
    assert kept.lengths.tolist() == [*map(len, strings)]


def test_texts_are_strings_too() -> None:
    language = load_task("dyck-2-4").language
    found = as_strings(["[ ( ) ]", "[()]\n", "[ END"], language)
    assert [found[i].tolist() for i in range(3)] == [[0, 2, 3, 1], [0, 2, 3, 1], [0]]
    assert as_strings(found, language) is found
    wrong: tuple[tuple[Any, type[Exception], str], ...] = (
        ("[()]", TypeError, "a list of texts"),
        (torch.tensor([[0]]), TypeError, "a list of texts"),
        ([[0, 1]], TypeError, "must be texts"),
        (found, DyckStringError, "symbols are not those"),
        (["[)"], DyckStringError, "cannot close"),
    )
    for given, kind, said in wrong:
        of = LETTERS if given is found else language
        with pytest.raises(kind, match=said):
            as_strings(given, of)
    assert np.array_equal(found.ends, [4, 8, 9])
