"""No file keeps a checker busy or takes its memory; what is no file of a sane size is not read."""

from __future__ import annotations

import contextlib
import hashlib
import inspect
import json
import os
import resource
import socket
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cases import thinned
from tests.certify.proofs import too_large
from tests.certify.proofs.common import CHECKERS, copied_out
from tests.test_cli import typed
from tl_dyck.certify import check_language, check_model
from tl_dyck.certify.check_language import MOST_WORK, WORK
from tl_dyck.certify.proof import pack

#: Small files of these kinds prove nothing: their trees are too few.
TREES = {"an automaton", "two layers"}
MEGABYTES, CALLS = 400, 1_000_000  # with a small part of the work that is allowed


@pytest.mark.parametrize("kind", too_large.KINDS)
def test_the_small_file_that_is_blown_up_is_not_too_large(kind, tmp_path):
    proved, said = check_model.verdict(too_large.write(tmp_path / "x", kind))
    assert proved is (kind not in TREES)
    assert "too large" not in said


@contextlib.contextmanager
def little_memory() -> Iterator[None]:
    """Who asks for more memory than a few megabytes is refused it, where a process can be."""
    pages = Path("/proc/self/statm")
    if not pages.exists():
        yield
        return
    before = resource.getrlimit(resource.RLIMIT_AS)
    used = int(pages.read_text().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (used + MEGABYTES * 2**20, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_AS, before)


@pytest.mark.parametrize(("kind", "what"), thinned(too_large.every()))
def test_what_is_too_large_is_refused_before_it_is_done(kind, what, tmp_path):
    """Whatever the checker says it counts: few functions are called, and little memory is taken."""
    path, calls = too_large.write(tmp_path / "x", kind, what), 0

    def count(frame: object, event: str, of: object) -> None:
        nonlocal calls
        calls += 1

    with little_memory():
        sys.setprofile(count)
        try:
            proved, said = check_model.verdict(path, work=MOST_WORK / 1000)
        finally:
            sys.setprofile(None)
    assert calls < CALLS
    assert said.isprintable()
    assert not proved


def test_more_can_be_allowed_and_less(little, tmp_path, capsys):
    path, _ = little
    assert check_model.verdict(path)[0]
    done = WORK.done
    share = min(1, 0.05 + path.stat().st_size / check_language.WHOLE)
    for module in (check_language, check_model):
        for work, proved in ((done / share * 99, True), (done / share * 0.9, False)):
            assert module.verdict(path, work=work)[0] is proved
            assert module.main([str(path), f"--work={work}"]) is not proved
            said = capsys.readouterr().out
            assert proved or "too large: it asks for work or memory of" in said
    done = typed(["check", str(path), "--work", "1e3"])
    assert (done.exit_code, "--work allows more" in done.stdout) == (1, True)
    assert typed(["check", str(path), "--work", "1e9"]).exit_code == 0
    # 0 is not the default, and no number is no limit
    assert typed(["check", str(path), "--work", "0"]).exit_code == 1
    for module in (check_language, check_model):
        assert module.main([str(path), "--work=nan"])
    for work in ("nan", "-1"):
        assert typed(["check", str(path), "--work", work]).exit_code == 2


@pytest.mark.parametrize("what", ["16,000 bounds", "16,000 bounds of rays"])
def test_after_the_first_leaf_it_is_known_that_all_are_too_many(what, tmp_path):
    _, said = check_model.verdict(too_large.write(tmp_path / "x", "edits", what))
    assert "too large: it asks for" in said


def test_what_searches_for_a_proof_is_not_limited(little):
    check_language.verdict(little[0], work=1)
    WORK.spend(1e30, 1e30)


# --- files ----------------------------------------------------------------------------------------


def endless(path: Path) -> None:
    path.symlink_to("/dev/zero")


def sparse(path: Path) -> None:
    with path.open("wb") as file:
        file.truncate(40 * 2**30)


def a_socket(path: Path) -> None:
    with socket.socket(socket.AF_UNIX) as here:
        os.chdir(path.parent)  # the whole path may be too long for one
        here.bind(path.name)


def linked(make):
    def both(path: Path) -> None:
        make(path.with_name("elsewhere"))
        path.symlink_to(path.with_name("elsewhere"))

    return both


NO_FILES = {
    "an endless device": endless,
    "a pipe": os.mkfifo,
    "a socket": a_socket,
    "a folder": Path.mkdir,
    "40 GB of nothing": sparse,
    "a loop of links": lambda path: path.symlink_to(path),
}
NO_FILES |= {f"a link to {what}": linked(make) for what, make in NO_FILES.items()}


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="no such files here")
@pytest.mark.parametrize("what", NO_FILES)
def test_no_file_is_not_read(what, little, tmp_path, monkeypatch):
    """As a proof, and as either file of the model beside it."""
    path, model = little
    for name in ("a.proof", "config.json", "model.safetensors", "rnn.json"):
        folder = tmp_path / name
        folder.mkdir()
        monkeypatch.chdir(folder)
        for each in model.iterdir():
            (folder / each.name).write_bytes(each.read_bytes())
        (folder / "a.proof").write_bytes(path.read_bytes())
        (folder / name).unlink(missing_ok=True)
        NO_FILES[what](folder / name)
        (proved, said), (alone, _) = (
            check_model.verdict(folder / "a.proof", *folders) for folders in ([folder], [])
        )
        assert alone is (name != "a.proof")
        assert proved is (name == "rnn.json")  # is not looked at
        assert proved or "not an ordinary file" in said or "unreadable" in said
        assert len(said.splitlines()) == 1


def test_checkers_open_files_in_one_place():
    opened = [
        line.strip()
        for module in CHECKERS
        for line in inspect.getsource(module).splitlines()
        if any(word in line for word in ("open(", "read_bytes", "read_text", "fromfile", "np.load"))
    ]
    assert len(opened) == 1
    assert opened[0] in inspect.getsource(check_language.contents)


# --- what a file says -----------------------------------------------------------------------------

FORGED = "2\ndyck.proof: proved: all\x1b[31m\u202e\u2028x\x85"


@pytest.mark.parametrize("name", ["max_depth", "n_types", "n_layers", "position", "block"])
def test_a_model_beside_a_proof_says_nothing_in_its_name(name, proof, tmp_path, monkeypatch):
    folder = tmp_path / "model"
    folder.mkdir()
    for each in proof[1].iterdir():
        (folder / each.name).write_bytes(each.read_bytes())
    saved = check_language.parsed((folder / "config.json").read_bytes())
    saved["config"][name] = FORGED
    (folder / "config.json").write_text(json.dumps(saved))
    said = check_model.verdict(proof[0], folder)[1]
    assert said.isprintable()
    assert said.startswith("not proved: ")
    file = tmp_path / f"a{FORGED.replace('/', '')}.proof"
    file.write_bytes(b"nothing")
    done = copied_out(tmp_path, CHECKERS, file)
    assert done.stdout.removesuffix("\n").isprintable()
    done = typed(["check", str(file)])
    assert done.stdout.removesuffix("\n").isprintable()


def test_no_name_stands_twice_in_a_file(little, tmp_path):
    digest, line, rest = little[0].read_bytes().split(b"\n", 2)
    rest = line.replace(b'{"format"', b'{"length": 9, "format"') + b"\n" + rest
    digest = hashlib.sha256(rest).hexdigest().encode()
    (tmp_path / "x").write_bytes(digest + b"\n" + rest)
    assert check_model.verdict(tmp_path / "x") == (
        False,
        "not proved: a name stands twice in its JSON",
    )


CALLED = {
    "little": "weights called '0000",
    "pair": "weights called '0000",
    "edits": "(at most 2 of 5 called 'harmless')",
    "automaton": "an automaton of 3 states, called 'all of English'",
}


@pytest.mark.parametrize("kind", CALLED)
def test_what_a_proof_calls_things_is_said_to_be_a_name(kind, tmp_path, request):
    """Signed again with another name of the model, or of edits, it is true of its weights."""
    path, *folders = request.getfixturevalue(kind)
    facts, arrays = check_language.read(path)
    del facts["arrays"]
    names = {"model": "0" * 64, "name": "all of English", "names": ["harmless"]}
    facts |= {key: value for key, value in names.items() if key in facts}
    (tmp_path / "x").write_bytes(pack(facts, arrays))
    proved, said = check_model.verdict(tmp_path / "x")
    assert proved
    assert said.endswith(
        "true of the weights in the file, whatever they are called (--model compares)"
    )
    assert CALLED[kind] in said
    assert check_model.verdict(tmp_path / "x", *folders)[0] is ("model" not in facts)


def test_words_of_a_proof_are_bound_by_the_model_alone(edits, tmp_path):
    facts, arrays = check_language.read(edits[0])
    del facts["arrays"]
    facts["texts"] = ["never", *"abcdefghij"][: len(facts["tokens"])]
    (tmp_path / "x").write_bytes(pack(facts, arrays))
    proved, said = check_model.verdict(tmp_path / "x")
    assert proved
    assert "ways of editing a string called 'never " in said
    assert check_model.verdict(tmp_path / "x", edits[1])[1] == (
        "not proved: texts is None in the model"
    )
