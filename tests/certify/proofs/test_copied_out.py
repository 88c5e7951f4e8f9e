"""Checkers copied out: what a referee takes, and what it needs."""

from __future__ import annotations

import ast
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

from tests.certify.proofs.changed import make_automaton, make_edits
from tests.certify.proofs.common import CHECKERS, PAIR, copied_out, run_copied_out
from tl_dyck import construct
from tl_dyck.certify import (
    check_agreement,
    check_automaton,
    check_bounds,
    check_edits,
    check_language,
    check_layer,
    check_paths,
    check_two_layers,
)
from tl_dyck.certify.language_proofs import prove_language


def imported(module):
    """What it imports, when it is run as a file."""
    return {
        alias.name.partition(".")[0]
        for node in ast.walk(ast.parse(Path(module.__file__).read_text(encoding="utf-8")))
        if isinstance(node, (ast.Import, ast.ImportFrom))
        for alias in (node.names if isinstance(node, ast.Import) else [ast.alias(node.module)])
    }


def test_the_checkers_import_numpy_and_each_other_alone():
    names = set().union(*map(imported, CHECKERS))
    each_other = {"tl_dyck", *(Path(each.__file__).stem for each in CHECKERS)}
    assert names - sys.stdlib_module_names - each_other <= {"numpy"}


@pytest.mark.parametrize(("module", "most"), [(check_language, 394), (check_edits, 122)])
def test_a_checker_stays_as_short_as_is_said(module, most):
    lines = Path(module.__file__).read_text(encoding="utf-8").splitlines()
    assert sum(not line.lstrip().startswith("#") for line in lines) <= most  # comments are welcome


def test_the_library_is_out_of_reach_of_what_is_copied_out(tmp_path):
    (tmp_path / "imports.py").write_text("import numpy, tl_dyck", encoding="utf-8")
    alone = SimpleNamespace(__file__=tmp_path / "imports.py")
    assert "No module named 'tl_dyck'" in copied_out(tmp_path, [alone]).stderr


def test_the_checkers_stand_by_themselves(proof, tmp_path):
    said = run_copied_out(tmp_path, CHECKERS, proof[0], "--model", proof[1])
    assert "proved: the bracket that closes" in said
    assert said.endswith("compared with the model\n")


PATHS = [check_paths, check_bounds, check_layer, check_language]
#: What a referee copies, the file that is run first.
COPIED = {
    "a language": [check_language],
    "two models": [check_agreement, check_language],
    "edits": [check_edits, *PATHS],
    "an automaton": [check_automaton, *PATHS],
    "two layers": [check_two_layers, check_bounds, check_layer, check_language],
}
SAID = {
    "a language": "prefixes of Dyck(1, 2) of up to 8 brackets; weights called '",
    "two models": "two models predict the same token, after each of",
    "edits": "each of 14 ways of editing a string '0 3 0 5 1' (at most 2 of 5 called 'sub')",
    "an automaton": "strings of 0 to 3 tokens of an automaton of 3 states, called 'an automaton'",
    "two layers": "each of 4 prefixes of Dyck(1, 2) of up to 2 brackets; weights",
}


def make_two_layers(folder: Path) -> tuple[Path, None]:
    model = construct.uniform_attention(PAIR.language, first_layer="attention")
    return prove_language(model, PAIR, 2, "valid_token").save(folder / "a.proof"), None


@pytest.mark.parametrize("kind", COPIED)
def test_just_these_files_are_enough_and_each_is_needed(kind, little, pair, tmp_path):
    makers = {"edits": make_edits, "an automaton": make_automaton, "two layers": make_two_layers}
    found = {"a language": little, "two models": pair}
    file = (found[kind] if kind in found else makers[kind](tmp_path))[0]
    modules = COPIED[kind]
    assert SAID[kind] in run_copied_out(tmp_path, modules, file)
    needed = set().union(*map(imported, modules))
    assert needed >= {Path(each.__file__).stem for each in modules[1:]}


@pytest.mark.parametrize("kind", COPIED)
def test_each_names_the_files_that_are_copied(kind):
    said = ast.get_docstring(ast.parse(Path(COPIED[kind][0].__file__).read_text(encoding="utf-8")))
    first = " ".join(said.split("\n\n")[1].split())
    number = ("this file alone", "two files", "", "four files", "five files")[len(COPIED[kind]) - 1]
    assert number in first
    for module in COPIED[kind]:
        assert f"{Path(module.__file__).stem}.py" in first
