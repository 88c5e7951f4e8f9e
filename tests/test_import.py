"""Importing: what it loads, what it offers, and what it says about a typo."""

from __future__ import annotations

import ast
import importlib
import json
import subprocess
import sys
from pathlib import Path

import pytest

import tl_dyck

HEAVY = ("torch", "transformer_lens", "transformers", "numpy", "pandas", "plotly", "circuitsvis")


def loaded_by(code: str) -> set[str]:
    """Which of the heavy libraries, and of our packages, a fresh interpreter has loaded after `code`."""
    report = f"{code}\nimport json, sys\nprint(json.dumps(sorted(sys.modules)))"
    run = subprocess.run([sys.executable, "-c", report], capture_output=True, text=True, timeout=600)
    assert run.returncode == 0, run.stderr
    modules = json.loads(run.stdout.splitlines()[-1])
    return {name for name in modules if name in HEAVY or name.startswith("tl_dyck")}


def test_import_loads_nothing_but_itself() -> None:
    assert loaded_by("import tl_dyck; tl_dyck.__all__; tl_dyck.__version__") == {"tl_dyck"}


def test_tab_completion_offers_what_is_not_loaded_yet() -> None:
    offer = "assert {*tl_dyck.__all__, *tl_dyck._SUBMODULES} <= {*dir(tl_dyck)}, dir(tl_dyck)"
    assert loaded_by(f"import tl_dyck\n{offer}") == {"tl_dyck"}


def test_import_prints_nothing() -> None:
    run = subprocess.run([sys.executable, "-c", "import tl_dyck"], capture_output=True, text=True, timeout=600)
    assert (run.returncode, run.stdout, run.stderr) == (0, "", "")


@pytest.mark.parametrize(
    "code",
    ["import tl_dyck.registry, tl_dyck.probes; tl_dyck.probes.list_probes()", "from tl_dyck import Registry"],
)
def test_listing_plugs_loads_none(code: str) -> None:
    assert loaded_by(code) <= {"tl_dyck", "tl_dyck.registry", "tl_dyck.probes"}


def test_loads_without_transformer_lens() -> None:
    """These parts do without: so does what their names in `tl_dyck` load. (One process, since torch takes seconds.)"""
    parts = ("language", "tasks", "rnn", "certify", "runs")
    code = "import sys, tl_dyck.language\nassert 'transformers' not in sys.modules, 'language'"
    for part in parts:
        public = [name for name, where in tl_dyck._EXPORTS.items() if where.split(":")[0] == f"tl_dyck.{part}"]
        # The tokenizer is a Hugging Face one; it may load that library when it is asked for, not before.
        code += f"\nimport tl_dyck.{part}\nfrom tl_dyck import {', '.join(public) or part}"
        code += f"\nassert not {{'transformer_lens', 'tl_dyck.models'}} & {{*sys.modules}}, '{part}'"
    assert {f"tl_dyck.{part}" for part in parts} <= loaded_by(code)


@pytest.mark.parametrize("name", tl_dyck.__all__)
def test_every_public_name_is_there(name: str) -> None:
    value = getattr(tl_dyck, name)
    assert getattr(tl_dyck, name) is value  # kept after the first use
    module, _, path = tl_dyck._EXPORTS[name].partition(":")
    defined = importlib.import_module(module)
    for part in (path or name).split("."):
        defined = getattr(defined, part)
    assert value == defined


@pytest.mark.parametrize("name", tl_dyck._SUBMODULES)
def test_every_subpackage_is_there(name: str) -> None:
    assert getattr(tl_dyck, name) is importlib.import_module(f"tl_dyck.{name}")


def test_type_checkers_see_what_python_sees() -> None:
    """The block under TYPE_CHECKING offers the names of the table, from the same modules, and no others."""
    tree = ast.parse(Path(tl_dyck.__file__).read_text(encoding="utf-8"))
    block = next(node for node in tree.body if isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING")
    origin: dict[str, str] = {}
    for node in block.body:
        if isinstance(node, ast.ImportFrom):
            origin.update({alias.asname or alias.name: f"{node.module}:{alias.name}" for alias in node.names})
        else:
            assert isinstance(node, ast.Assign)
            registry, _, rest = ast.unparse(node.value).partition(".")
            origin[ast.unparse(node.targets[0])] = f"{origin[registry]}.{rest}"
    seen = {name: where for name, where in origin.items() if not name.startswith("_")}
    assert seen == {name: where if ":" in where else f"{where}:{name}" for name, where in tl_dyck._EXPORTS.items()}


def test_only_the_front_door_names_the_plugs() -> None:
    """Arrows point from the plugs to the library; the way back is the registry, or the module of our own probes."""
    folder = Path(tl_dyck.__file__).parent
    naming = [
        path.relative_to(folder).as_posix()
        for path in folder.rglob("*.py")
        if any(
            (isinstance(node, ast.Import) and any("tl_dyck_hooks" in alias.name for alias in node.names))
            or (isinstance(node, ast.ImportFrom) and "tl_dyck_hooks" in (node.module or ""))
            for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        )
    ]
    assert sorted(naming) == ["__init__.py", "probes.py"]


@pytest.mark.parametrize(
    ("typo", "nearest"),
    [("load_tsk", "load_task"), ("DyckLangauge", "DyckLanguage"), ("register_prob", "register_probe")],
)
def test_typo(typo: str, nearest: str) -> None:
    with pytest.raises(AttributeError, match=f"has no attribute '{typo}'; did you mean '{nearest}'"):
        getattr(tl_dyck, typo)
    assert not hasattr(tl_dyck, typo)


def test_typo_near_to_nothing() -> None:
    with pytest.raises(AttributeError, match=r"'xyzzy'; see dir\(tl_dyck\)"):
        _ = tl_dyck.xyzzy  # type: ignore[attr-defined]
    with pytest.raises(ImportError, match="xyzzy"):
        exec("from tl_dyck import xyzzy")
