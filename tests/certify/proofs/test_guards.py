"""Every guard of the checkers refuses a file that, without it, would be believed.

Guards are found in the source: what `need` asks, each operand of an "and" by itself. For each there
is a file here; the checker refuses it, and with that guard taken out says what the table says: that
it is proved, or (where a guard spares work, or says in words what another would not) what else.
"""

from __future__ import annotations

import ast
import contextlib
import copy
import functools
import inspect
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from types import ModuleType
from typing import Any, NamedTuple

import numpy as np
import pytest

from tests.certify.proofs.common import CHECKERS
from tests.certify.proofs.tampered import TABLES
from tests.certify.proofs.test_two_layer_proofs import make
from tl_dyck.certify import (
    check_bounds,
    check_edits,
    check_language,
    check_layer,
    check_model,
    check_paths,
)
from tl_dyck.certify.proof import pack

#: Without a kind of file of their own: asked by way of edits.
STOOD_ON = check_paths, check_bounds, check_layer

# --- guards ---------------------------------------------------------------------------------------


class Guard(NamedTuple):
    """Something that must be true: where, and what it is in the source."""

    module: ModuleType
    function: str
    line: int
    operand: int
    asks: str


def _operands(node: ast.expr) -> list[ast.expr]:
    return node.values if isinstance(node, ast.BoolOp) and isinstance(node.op, ast.And) else [node]


def _asked(node: ast.stmt) -> ast.expr | None:
    """What a statement asks: `need(…)`."""
    call = node.value if isinstance(node, ast.Expr) else None
    asks = isinstance(call, ast.Call) and ast.unparse(call.func) in ("need", "base.need")
    return call.args[0] if asks else None


def _functions(tree: ast.Module) -> Iterator[tuple[str, ast.FunctionDef]]:
    """The outermost ones, and methods."""
    for node in tree.body:
        if isinstance(node, ast.FunctionDef):
            yield node.name, node
        for each in node.body if isinstance(node, ast.ClassDef) else ():
            if isinstance(each, ast.FunctionDef):
                yield f"{node.name}.{each.name}", each


def _guarded(function: ast.FunctionDef) -> Iterator[tuple[ast.stmt, ast.expr]]:
    """Statements that ask something, and what; `need(fits)` asks what `fits` was made of."""
    statements = [node for node in ast.walk(function) if isinstance(node, ast.stmt)]
    asked = [(node, what) for node in statements if (what := _asked(node)) is not None]
    names = {what.id for _, what in asked if isinstance(what, ast.Name)} - {"n"}
    yield from ((node, what) for node, what in asked if ast.unparse(what) not in names)
    for node in statements:
        if isinstance(node, ast.Assign | ast.AugAssign):
            target = node.targets[0] if isinstance(node, ast.Assign) else node.target
            if ast.unparse(target) in names:
                yield node, node.value


@functools.cache
def parsed(module: ModuleType) -> ast.Module:
    """What is written in it; leave it as it is."""
    return ast.parse(inspect.getsource(module))


@functools.cache
def guards() -> list[Guard]:
    found = []
    for module in CHECKERS:
        for name, function in _functions(parsed(module)):
            for node, what in _guarded(function):
                for i, operand in enumerate(_operands(what)):
                    if ast.unparse(operand) != "known":  # and more
                        found.append(Guard(module, name, node.lineno, i, ast.unparse(operand)))
    return found


@contextlib.contextmanager
def without(guard: Guard) -> Iterator[None]:
    """The checker with a guard taken out: what it asks is looked at, and does not matter."""
    *classes, name = guard.function.split(".")
    tree = copy.deepcopy(dict(_functions(parsed(guard.module)))[guard.function])
    for node, what in _guarded(tree):
        if node.lineno != guard.line:
            continue
        anything = ast.parse(f"({guard.asks}) or True").body[0].value
        left = [anything if i == guard.operand else x for i, x in enumerate(_operands(what))]
        one = left[0] if len(left) == 1 else ast.BoolOp(ast.And(), left)
        if isinstance(node, ast.Expr):
            node.value.args[0] = one
        else:
            node.value = one
    body = ast.fix_missing_locations(ast.Module([tree], type_ignores=[]))
    made = compile(body, guard.module.__file__, "exec")
    here: Any = guard.module
    for each in classes:
        here = getattr(here, each)
    function = inspect.unwrap(vars(here)[name])
    whole = function.__code__
    try:
        function.__code__ = next(
            each for each in made.co_consts if getattr(each, "co_name", "") == name
        )
        yield
    finally:
        function.__code__ = whole


# --- files ----------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def two(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """A proof of two layers, and its model."""
    return make(tmp_path_factory.mktemp("two"))


def plain(source: str) -> str:
    """Without parentheses, of which versions of Python print more or fewer."""
    return re.sub("[() ]", "", source)


def entry(guard: Guard) -> str:
    """The name of a guard in its table: what it asks, or how that begins."""
    name = plain(guard.asks)
    keys = {plain(key): key for key in TABLES[guard.module]}
    begun = [own for own in keys if name == own or (len(own) > 1 and name.startswith(own))]
    assert begun, f"{guard.function} asks {guard.asks}, and no file here tests it"
    return keys[max(begun, key=len)]


def named(guard: Guard) -> str:
    return f"{guard.module.__name__.rpartition('.')[2]}-{guard.function}-{guard.asks[:40]}"


def test_every_file_here_is_about_a_guard() -> None:
    used = [(guard.module, entry(guard)) for guard in guards()]
    assert len(used) == len(set(used)) == sum(map(len, TABLES.values()))


@pytest.mark.parametrize("guard", guards(), ids=named)
def test_without_a_guard_a_file_is_believed(
    guard: Guard,
    request: pytest.FixtureRequest,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    case, folders = TABLES[guard.module][entry(guard)], []
    if isinstance(case.make, str):
        path, *folders = request.getfixturevalue(case.make)
        facts, arrays = check_language.read(path)
        del facts["arrays"]
    else:
        facts, arrays = case.make()
    for (module, name), value in case.limits.items():
        monkeypatch.setattr(module, name, value)
    (facts.update if isinstance(case.change, Mapping) else lambda x: x(facts, arrays))(case.change)
    whole = pack(facts, {name: np.ascontiguousarray(each) for name, each in arrays.items()})
    if case.how is not None:
        whole, folders = (whole, case.how(*folders)) if folders else (case.how(whole), folders)
    path = Path(whole) if isinstance(whole, str) else tmp_path / "x"
    if isinstance(whole, bytes):
        path.write_bytes(whole)

    def how(*proof: Any) -> str:
        compared = folders if guard.module is check_model else ()
        module = check_edits if guard.module in STOOD_ON else guard.module
        return module.check(*proof, *compared)

    proved, said = check_language.verdict(path, how)
    assert not proved, said
    with without(guard):
        _, then = check_language.verdict(path, how)
    assert then != said
    assert then.startswith(case.then), then


def test_the_page_counts_the_conditions() -> None:
    cases = [case for table in TABLES.values() for case in table.values()]
    believed = sum(case.then == "proved: " for case in cases)
    page = (Path(__file__).parents[3] / "docs" / "findings" / "every_string.md").read_text("utf-8")
    assert f"for {len(cases)} conditions" in page
    assert f"{believed} of these files are believed; the other {len(cases) - believed}" in page
