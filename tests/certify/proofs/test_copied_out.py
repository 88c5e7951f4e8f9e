"""Checkers copied out: what a referee takes, and what it needs."""

from __future__ import annotations

import ast
import json
import sys
from pathlib import Path

import pytest

from tests.certify.proofs.common import (
    CHECKERS,
    run_copied_out,
)
from tl_dyck.certify import (
    check_edits,
    check_language,
)


@pytest.mark.parametrize("module", CHECKERS)
def test_the_checkers_import_numpy_and_each_other_alone(module):
    names = {
        alias.name.partition(".")[0]
        for node in ast.walk(ast.parse(Path(module.__file__).read_text(encoding="utf-8")))
        if isinstance(node, (ast.Import, ast.ImportFrom))
        for alias in (node.names if isinstance(node, ast.Import) else [ast.alias(node.module)])
    }
    each_other = {"tl_dyck", *(Path(each.__file__).stem for each in CHECKERS)}
    assert names - sys.stdlib_module_names - each_other <= {"numpy"}


@pytest.mark.parametrize(("module", "most"), [(check_language, 300), (check_edits, 500)])
def test_a_checker_stays_as_short_as_is_said(module, most):
    assert len(Path(module.__file__).read_text(encoding="utf-8").splitlines()) <= most


def test_the_checkers_stand_by_themselves(proof, tmp_path):
    said = run_copied_out(tmp_path, CHECKERS, proof[0], "--model", proof[1])
    assert "proved: the bracket that closes" in said


def test_one_file_checks_a_language(proof, tmp_path):
    said = run_copied_out(tmp_path, [check_language], proof[0])
    digest = json.loads((proof[1] / "config.json").read_text())["sha256"]
    assert f"of Dyck(2, 3) of up to 20 brackets; weights '{digest}'" in said
