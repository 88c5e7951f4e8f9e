"""YAML, JSON and texts of users: read in time that grows with them, and as what they say."""

from __future__ import annotations

import ast
import re
from collections.abc import Callable
from pathlib import Path

import pytest
import yaml

from tests.hostile.tools import refusal
from tests.sources import ROOT, SOURCES, nodes, shown
from tests.test_cli import typed
from tl_dyck.certify import load_synonyms
from tl_dyck.cli.certificates import read_lines
from tl_dyck.kit.files import LARGEST_YAML, lines_of, read_json
from tl_dyck.models import load_model
from tl_dyck.runs import load_sweep
from tl_dyck.runs.spec import read_setting
from tl_dyck.runs.store import Store
from tl_dyck_text.corpus import load_folder

Make = Callable[[str], Path]


# --- YAML -----------------------------------------------------------------------------------------


class Key(str):
    """A text that counts how often it is compared."""

    compared = 0

    def __eq__(self, other: object) -> bool:
        Key.compared += 1
        return str.__eq__(self, other)

    __hash__ = str.__hash__


def test_keys_are_compared_once_each(tmp_path, monkeypatch):
    """However many keys a mapping has."""
    made = yaml.ScalarNode.__init__

    def init(self, tag, value, *more, **how):
        made(self, tag, Key(value), *more, **how)

    monkeypatch.setattr(yaml.ScalarNode, "__init__", init)
    counted = []
    for n in (100, 1000):
        Key.compared = 0
        (tmp_path / "x.yaml").write_text("".join(f"k{i}: 1\n" for i in range(n)))
        refusal(lambda: load_sweep(tmp_path / "x.yaml"), "k0")
        counted.append(Key.compared)
    assert counted[1] < 20 * max(counted[0], 100)


def doubled(levels: int) -> str:
    """Merge keys, each level of which has all of the level before ten times."""
    lines = ["a0: &a0 {x: 1}"]
    for i in range(1, levels):
        lines.append(f"a{i}: &a{i} {{<<: [{', '.join([f'*a{i - 1}'] * 10)}]}}")
    return "\n".join(lines)


def laughs(levels: int) -> str:
    lines = ["a0: &a0 [1]"]
    for i in range(1, levels):
        lines.append(f"a{i}: &a{i} [{', '.join([f'*a{i - 1}'] * 10)}]")
    return "\n".join(lines)


YAML = {
    "merge keys": (doubled(9), "merge keys (<<) make too many values"),
    "ten to the tenth": (laughs(10), "aliases and merge keys (<<) make too many values"),
    "a list that holds itself": ("a: &a [*a]", ""),
    "a key twice": ("seeds: 1\nseeds: 2\n", "'seeds' stands twice"),
    "a number twice": ("grid: {x: [{1: a, 01: b}]}", "'01' stands twice"),
    "a truth twice": ("grid: {x: [{true: a, True: b}]}", "'True' stands twice"),
    "nothing twice": ("grid: {x: [{null: a, ~: b}]}", "'~' stands twice"),
    "a merge key twice": ("a: &a {x: 1}\nb: {<<: *a, <<: *a}", "'<<' stands twice"),
    "an empty number": ("seeds: !!float ''", "no value of its kind"),
    "no truth": ("seeds: !!bool x", "no value of its kind"),
    "no number": ("seeds: !!int x", "not valid YAML"),
    "no moment": ("seeds: !!timestamp 2001-99-99", "not valid YAML"),
    "no moment at all": ("seeds: !!timestamp 1", "no value of its kind"),
    "no bytes": ("seeds: !!binary '%'", ""),
    "no mapping": ("seeds: !!map x", "not valid YAML"),
    "no pairs": ("seeds: !!omap x", "not valid YAML"),
    "an object": ("seeds: !!python/object:os.system x", "not valid YAML"),
    "a key that is a list": ("? [a]\n: 1", "not valid YAML"),
    "nested": ("[" * 5000, "not valid YAML"),
    "control characters": ("seeds: \x1b[2J", "not valid YAML"),
    "too long": ("x" * (LARGEST_YAML + 1), "too large"),
}


@pytest.mark.parametrize("what", YAML)
def test_a_sweep_that_is_no_values_is_refused_in_a_line(what, tmp_path):
    text, said = YAML[what]
    (tmp_path / "x.yaml").write_text(text)
    refusal(lambda: load_sweep(tmp_path / "x.yaml"), said)


def test_a_few_aliases_are_read(tmp_path):
    (tmp_path / "x.yaml").write_text("grid: {a: &a [1, 2], b: *a}\n")
    assert load_sweep(tmp_path / "x.yaml").grid["b"] == load_sweep(tmp_path / "x.yaml").grid["a"]


SETTINGS = ["a=!!bool x", "a=!!int x", "a=!!timestamp x", "a=!!binary x", "a=&x [*x]", "a=" + "["]
SETTINGS += ["a=" + "1," * 500_000, "a=" + "x" * 500_000, "a=!!float x", "a=!!float ''"]


@pytest.mark.parametrize("text", SETTINGS, ids=lambda text: text[:12])
def test_a_setting_that_is_none_is_refused_in_a_line(text):
    refusal(lambda: read_setting(text))


@pytest.mark.parametrize("command", [["study"], ["train", "gpt"]])
def test_a_command_says_so(command):
    done = typed([*command, "--set", "training.steps=!!bool x", "--out", "x"])
    assert done.exit_code == 2
    assert done.stderr.startswith("Error: ")
    assert len(done.stderr.splitlines()) == 1


# --- JSON -----------------------------------------------------------------------------------------

JSONS = {
    "model": ("config.json", load_model),
    "sweep": ("sweep.json", lambda folder: Store.at(folder).plan()),
    "corpus": ("synonyms.json", lambda folder: load_synonyms(folder / "synonyms.json")),
    "run": ("result.json", lambda folder: read_json(folder / "result.json")),
}


@pytest.mark.parametrize("name", JSONS)
def test_no_name_stands_twice_in_json(original: Make, name):
    file, read = JSONS[name]
    folder = original(name)
    text = (folder / file).read_text(encoding="utf-8").lstrip()
    assert read(folder) is not None
    first = text[1:].split(":")[0].strip()
    (folder / file).write_text("{" + f"{first}: 1, " + text[1:], encoding="utf-8")
    refusal(lambda: read(folder), "stands twice")
    (folder / file).write_text(text.replace("{", '{"q\\u202e": 1, "q\\u202e": 2, ', 1))
    refusal(lambda: read(folder), r"'q\u202e' stands twice")
    (folder / file).write_text("\ufeff" + text, encoding="utf-8")
    assert read(folder) is not None


def test_a_sweep_of_json_has_no_name_twice(tmp_path):
    (tmp_path / "x.json").write_text('{"seeds": 1, "common": {"x": 1, "x": 2}}')
    refusal(lambda: load_sweep(tmp_path / "x.json"), "'x' stands twice")


# --- texts ----------------------------------------------------------------------------------------

ENDS = {"U+0085": "\x85", "U+2028": "\u2028", "U+2029": "\u2029"}
ENDS |= {"a form feed": "\f", "a vertical tab": "\v", "a separator": "\x1c", "a lone return": "\r"}


@pytest.mark.parametrize("end", ENDS)
def test_a_sentence_ends_with_its_line(tmp_path, end):
    rows = "a good film\t1\na dull film\t0\n"
    (tmp_path / "train.tsv").write_bytes(
        (rows + f"not at all{ENDS[end]} a good film\t0\n").encode()
    )
    (tmp_path / "dev.tsv").write_text(rows)
    corpus = load_folder(tmp_path)
    assert [each.label for each in corpus.train] == [1, 0, 0]
    assert corpus.train[2].text == "not at all a good film"
    assert not corpus.problems
    (tmp_path / "lines.txt").write_bytes(f"[(){ENDS[end]}]\tx\n".encode())
    assert len(read_lines(tmp_path / "lines.txt", None)) == 1


def test_what_is_not_utf_8_is_left_out_and_counted(tmp_path):
    rows = "a good film\t1\na dull film\t0\n"
    (tmp_path / "train.tsv").write_text(rows)
    (tmp_path / "dev.tsv").write_bytes((rows + "a caf\u00e9 film\t1\n").encode("latin-1"))
    corpus = load_folder(tmp_path)
    assert len(corpus.test) == 2
    assert corpus.problems == {"lines that are not UTF-8": "1 (dev.tsv line 3)"}
    (tmp_path / "dev.tsv").write_bytes(rows.encode("utf-16"))
    refusal(lambda: load_folder(tmp_path), "not UTF-8")


def test_a_byte_order_mark_is_no_part_of_a_word(tmp_path):
    rows = "good film\t1\ndull film\t0\n"
    for name in ("train.tsv", "dev.tsv", "strings.txt"):
        (tmp_path / name).write_text(rows, encoding="utf-8-sig")
    assert load_folder(tmp_path).train[0].text == "good film"
    assert read_lines(tmp_path / "strings.txt", None)[0] == ("good film", "1")
    (tmp_path / "train.tsv").write_text("sentence\tlabel\r\n" + rows, encoding="utf-8-sig")
    assert len(load_folder(tmp_path).train) == 2


def test_lines_of_bytes():
    assert lines_of(b"") == []
    assert lines_of(b"a") == lines_of(b"a\n") == lines_of(b"a\r\n") == ["a"]
    assert lines_of(b"\n") == [""]
    assert lines_of(b"a\n\xff\n\nb") == ["a", None, "", "b"]


# --- where files are opened and texts cut ---------------------------------------------------------

#: Modules, and what each may do itself: with what no user wrote, or to lock.
OPENED = {
    "tl_dyck/kit/files.py": {"open", "os.open", "os.fdopen", "mkstemp"},
    "tl_dyck/certify/check_language.py": {"open", "os.open"},  # the one place of the checkers
    "tl_dyck/kit/processes.py": {"os.open"},  # locks
    "tl_dyck/runs/locks.py": {"os.open"},
    "tl_dyck/kit/environment.py": {"read_text"},  # /proc/cpuinfo
    "hooks/tl_dyck_hooks/agents/plain_model.py": {
        "read_text",
        "load_file",
    },  # an agent's own folder
    "tl_dyck/__init__.py": {"read_text"},  # our own files
    "tl_dyck/report/page.py": {"read_text"},
    "tl_dyck/report/widgets/circuits.py": {"read_text"},
    "hooks/tl_dyck_text/page.py": {"read_text"},
    "hooks/tl_dyck_papers/adders.py": {"load"},  # of bytes that `read_regular` gave
}
OPENERS = {"open", "read_text", "read_bytes", "fdopen", "load", "loadtxt", "genfromtxt", "fromfile"}
OPENERS |= {
    "read_csv",
    "read_parquet",
    "read_json",
    "read_table",
    "memmap",
    "safe_open",
    "load_file",
}
OURS = {"read_text", "read_json", "read_table"}  # of tl_dyck.kit.files, when they stand alone


def opened(path: Path) -> set[str]:
    """What a module calls that opens files."""
    found = set()
    for node in nodes(path):
        if isinstance(node, ast.Call):
            called = ast.unparse(node.func)
            owner, _, name = called.rpartition(".")
            if name not in OPENERS or (not owner and name in OURS):
                continue
            if name == "load" and owner not in ("json", "pickle", "np", "numpy", "torch", "yaml"):
                continue
            if (
                name == "open"
                and owner not in ("", "os", "io", "gzip", "Path")
                and "ath" not in owner
            ):
                continue  # a store, a bracket
            found.add(called if owner == "os" else name)
    return found


def test_files_are_opened_in_one_place():
    for path in SOURCES.values():
        name = shown(path)
        calls = opened(path)
        if name == "tl_dyck/models/state_dicts.py":
            calls -= {"load"}  # of bytes that `read_regular` gave
        assert calls <= OPENED.get(name, set()), f"{name} opens files: {calls}"


def test_the_test_would_see_them():
    assert opened(ROOT / "tl_dyck/kit/files.py") >= {"open", "os.open"}
    assert opened(ROOT / "tl_dyck/kit/environment.py") == {"read_text"}


#: Texts that are cut into lines: none that a user's data is in.
LINES = {
    "tl_dyck/kit/registry.py": "docstrings",
    "tl_dyck/judge/declarations.py": "docstrings",
    "tl_dyck/kit/environment.py": "/proc/cpuinfo, errors",
}


def test_texts_of_users_are_cut_at_line_feeds_alone():
    for path in SOURCES.values():
        name = shown(path)
        for node in nodes(path):
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
                if node.func.attr == "splitlines" and name not in LINES:
                    cut = ast.unparse(node.func.value)
                    assert re.search("error|exception|failure", cut), (
                        f"{name} cuts {cut} into lines"
                    )
                words = [word for word in node.keywords if word.arg == "errors"]
                if any(ast.unparse(word.value) in ("'replace'", "'ignore'") for word in words):
                    assert name in LINES or "reconfigure" in ast.unparse(node.func), name
