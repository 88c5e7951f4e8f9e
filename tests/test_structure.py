"""The shape of the source: no circles of imports, one class a name, small functions and modules."""

from __future__ import annotations

import ast
import functools
import re
import tokenize
from collections import Counter, defaultdict
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import pytest

from tests.sources import ROOT, SOURCES, module, nodes, shown

pytestmark = pytest.mark.once

# lines: of a module without comments, which are welcome; of a function without its docstring
LONGEST_MODULE, LONGEST_FUNCTION = 400, 60


@functools.cache
def imported(module: str) -> set[str]:
    """What is imported, in functions and for type checkers, too: a reader has to know both."""
    found: set[str] = set()
    for node in nodes(SOURCES[module]):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        if isinstance(node, ast.ImportFrom):
            assert node.level == 0, "imports are absolute"
            names = {f"{node.module}.{alias.name}" for alias in node.names}
            found |= {name if name in SOURCES else str(node.module) for name in names}
    return found


def test_no_circle_of_imports() -> None:
    imports = {name: imported(name) - {name} for name in SOURCES}
    assert SOURCES.keys() <= set(TopologicalSorter(imports).static_order())
    with pytest.raises(CycleError):
        TopologicalSorter({**imports, "tl_dyck.kit.errors": {"tl_dyck.certify.edits"}}).prepare()


#: Rooms and loose modules of the library, the highest first: each imports lower ones only.
LEVELS = (
    ("__main__",), ("cli",), ("report",), ("studies", "judge"), ("ablation",),
    ("training", "probes", "certify"), ("runs", "rnn"), ("models",), ("tasks",), ("reading",),
    ("language", "intervals"), ("estimates", "kit", "plotting"),
)  # fmt: skip


@functools.cache
def arrows() -> set[tuple[str, str]]:
    """Which room of the library imports which other; the names of the library itself are none."""
    found = {
        (name.split(".")[1], each.split(".")[1])
        for name in SOURCES
        for each in imported(name)
        if name.startswith("tl_dyck.") and each.startswith("tl_dyck.")
    }
    return {(room, other) for room, other in found if room != other}


def test_no_arrow_runs_up() -> None:
    level = {room: place for place, rooms in enumerate(LEVELS) for room in rooms}
    assert {room for arrow in arrows() for room in arrow} == level.keys()
    assert {(room, other) for room, other in arrows() if level[room] >= level[other]} == set()
    assert len(arrows()) > 50


@functools.cache
def rooms() -> dict[str, str]:
    """Every package, and the docstring of its `__init__`."""
    inits = {name: path for name, path in SOURCES.items() if path.name == "__init__.py"}
    return {name: ast.get_docstring(module(path)) or "" for name, path in inits.items()}


@pytest.mark.parametrize("room", sorted(rooms()))
def test_a_room_says_what_it_knows_and_imports_nothing_that_it_does_not(room: str) -> None:
    said = rooms()[room].partition("\nKnows: ")[2].partition("\n\n")[0]
    knows, _, not_known = said.partition("\nDoes not know: ")
    assert knows.endswith(".")
    assert not_known.endswith(".")
    foreign = tuple(f"{name}." for name in re.findall(r"`(tl_dyck[\w.]*)`", not_known))
    inside = [name for name in SOURCES if f"{name}.".startswith(f"{room}.")]
    found = {each for name in inside for each in imported(name) if f"{each}.".startswith(foreign)}
    assert found == set()


#: What each package may import besides itself; what it does not name, it finds by registries.
MAY_IMPORT = {
    "tl_dyck": set(),
    "tl_dyck_hooks": {"tl_dyck"},
    "tl_dyck_papers": {"tl_dyck"},
    "tl_dyck_text": {"tl_dyck"},
}


def test_the_library_never_imports_what_uses_it() -> None:
    found: dict[str, set[str]] = {package: set() for package in MAY_IMPORT}
    for name in SOURCES:
        package = name.partition(".")[0]
        packages = {each.partition(".")[0] for each in imported(name)}
        found[package] |= {each for each in packages if each.startswith("tl_dyck")} - {package}
    assert found == MAY_IMPORT


def test_no_two_classes_of_one_name() -> None:
    places = defaultdict(list)
    for name, path in SOURCES.items():
        for node in nodes(path):
            if isinstance(node, ast.ClassDef):
                places[node.name].append(name)
    assert {name: where for name, where in places.items() if len(where) > 1} == {}
    assert len(places) > 100


def test_modules_and_functions_are_small() -> None:
    for path in SOURCES.values():
        lines = path.read_text(encoding="utf-8").splitlines()
        assert sum(not line.lstrip().startswith("#") for line in lines) <= LONGEST_MODULE, path
    sizes: Counter[str] = Counter()
    for name, path in SOURCES.items():
        for node in nodes(path):
            if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
                first = node.body[0]
                said = ast.get_docstring(node) is not None
                docstring = (first.end_lineno or 0) - first.lineno + 1 if said else 0
                n = (node.end_lineno or 0) - node.lineno + 1 - docstring
                sizes[f"{name}.{node.name}"] = max(sizes[f"{name}.{node.name}"], n)
    assert {name: n for name, n in sizes.items() if n > LONGEST_FUNCTION} == {}
    assert max(sizes.values()) > LONGEST_FUNCTION // 2


LEAST_COMMENTED = 0.03  # of lines: where a number is set, or a sign or an index chosen


@functools.cache
def commented(path: Path) -> set[int]:
    """Lines of a file with a comment for readers, not for tools."""
    with path.open("rb") as file:
        found = [each for each in tokenize.tokenize(file.readline) if each.type == tokenize.COMMENT]
    tools = ("# type:", "# noqa", "# pragma", "# fmt", "#!")
    return {each.start[0] for each in found if not each.string.startswith(tools)}


def test_what_is_no_word_is_explained() -> None:
    files = sorted((ROOT / "tl_dyck").rglob("*.py"))
    lines = sum(len(path.read_text(encoding="utf-8").splitlines()) for path in files)
    assert sum(len(commented(path)) for path in files) >= LEAST_COMMENTED * lines


def has_number(value: ast.expr) -> bool:
    """Whether it is a number, or a sum, product, power or tuple with one."""
    if isinstance(value, ast.Tuple):
        return any(map(has_number, value.elts))
    if isinstance(value, ast.UnaryOp):
        return has_number(value.operand)
    if isinstance(value, ast.BinOp):
        return has_number(value.left) or has_number(value.right)
    return isinstance(value, ast.Constant) and type(value.value) in (int, float)


def unexplained(path: Path) -> list[str]:
    """Constants of a module that are numbers, without a comment there or above, or a docstring."""
    body, found = module(path).body, []
    for node, after in zip(body, [*body[1:], None], strict=True):
        if not isinstance(node, ast.Assign) or not has_number(node.value):
            continue
        said = isinstance(after, ast.Expr) and isinstance(after.value, ast.Constant)
        lines = range(node.lineno - 1, (node.end_lineno or node.lineno) + 1)
        name = ast.unparse(node.targets[0])
        if name.isupper() and not said and commented(path).isdisjoint(lines):
            found.append(f"{shown(path)}: {name}")
    return found


def test_every_constant_says_what_it_is_of() -> None:
    files = sorted((ROOT / "tl_dyck").rglob("*.py"))
    assert [each for path in files for each in unexplained(path)] == []


#: What waits for something else than the end of a process, by a number of its own.
_SHORT_WAITS = {
    ("tests/demos/test_jupyterlab.py", "5"),  # one of 600 tries
    ("tests/demos/test_jupyterlab.py", "60"),  # when all is done
    ("tests/runs/test_cluster.py", "20"),  # then it is killed
}


_WAITING = ("join", "wait", "result", "communicate", "set_default_timeout")


def waits(text: str) -> set[str]:
    """The numbers by which a test waits, also where they are multiplied or divided."""
    found = set()
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Call):
            given = [each.value for each in node.keywords if each.arg == "timeout"]
            name = node.func.attr if isinstance(node.func, ast.Attribute) else ""
            given += node.args if name in _WAITING else []
            for each in given:
                if isinstance(each, ast.BinOp) and name != "join":  # of texts: "()" * 9
                    given += [each.left, each.right]
                if isinstance(each, ast.Constant) and type(each.value) in (int, float):
                    found.add(repr(each.value))
    return found


def test_no_test_gives_up_on_a_busy_machine() -> None:
    """Who waits for a process waits as `tests.patience` says, and not by a number of its own."""
    found = {
        (shown(file), number)
        for file in sorted((ROOT / "tests").rglob("*.py"))
        for number in waits(file.read_text(encoding="utf-8"))
    }
    assert found == _SHORT_WAITS


@pytest.mark.parametrize(
    "line",
    ["run(x, timeout=300)", "run(x, timeout=5 * 60)", "p.join(9)", "p.communicate(None, 9)",
     "future.result(9)", "page.set_default_timeout(9.0)", "p.wait(PATIENCE / 9)"],
)  # fmt: skip
def test_each_way_of_giving_up_is_seen(line: str) -> None:
    assert waits(line)
    assert not waits(
        line.replace("300", "PATIENCE").replace("9.0", "x").replace("9", "x").replace("5 * 60", "x")
    )
