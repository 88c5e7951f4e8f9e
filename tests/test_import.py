"""Importing: what it loads, what it offers, and what it says about a typo."""

from __future__ import annotations

import ast
import importlib
import inspect
import json
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

import tl_dyck
from tests.patience import PATIENCE
from tl_dyck.models.hooked import installed

HEAVY = (
    *("torch", "transformer_lens", "transformers", "numpy", "pandas", "plotly", "circuitsvis"),
    *("pyarrow", "scipy", "datasets", "transformer_lens.model_bridge"),
)


def loaded_by(*steps: str) -> list[set[str]]:
    """Which heavy libraries, and of our packages, an interpreter has loaded after each step."""
    report = "\nimport json, sys\nprint(json.dumps(sorted(sys.modules)))\n"
    run = subprocess.run(
        [sys.executable, "-c", report.join([*steps, ""])],
        capture_output=True, text=True, timeout=PATIENCE,
    )  # fmt: skip
    assert run.returncode == 0, run.stderr
    lines = run.stdout.splitlines()
    assert len(lines) == len(steps)  # and nothing else
    assert run.stderr == ""
    return [
        {name for name in json.loads(line) if name in HEAVY or name.startswith("tl_dyck")}
        for line in lines
    ]


def test_import_loads_nothing_but_itself_and_prints_nothing() -> None:
    """What is not loaded yet is offered to tab completion."""
    code = "import tl_dyck; tl_dyck.__all__; tl_dyck.__version__\n"
    code += "assert {*tl_dyck.__all__, *tl_dyck._ORIGINS} <= {*dir(tl_dyck)}, dir(tl_dyck)"
    assert loaded_by(code) == [{"tl_dyck"}]


@pytest.mark.parametrize(
    "code",
    [
        "import tl_dyck.kit.registry, tl_dyck.probes; tl_dyck.probes.list_probes()",
        "from tl_dyck import Registry",
    ],
)
def test_listing_plugs_loads_none(code: str) -> None:
    kit = ("announced", "annotations", "arguments", "check", "errors", "modes", "processes")
    kit += ("registry",)
    known = {"tl_dyck", "tl_dyck.kit", "tl_dyck.probes", "tl_dyck.kit.visible"}
    known |= {f"tl_dyck.kit.{part}" for part in kit}
    (loaded,) = loaded_by(code)
    assert loaded <= known


def without_transformer_lens() -> str:
    """Code that loads the parts that do without: so does what their names in `tl_dyck` load."""
    code = "import sys, tl_dyck.language\nassert 'transformers' not in sys.modules, 'language'"
    for part in WITHOUT:
        public = [
            name
            for name, where in tl_dyck._ORIGINS.items()
            if f"{where}.".startswith(f"tl_dyck.{part}.")
        ]
        # The tokenizer is a Hugging Face one; it may load that library when it is asked for, not
        # before.
        code += f"\nimport tl_dyck.{part}\nfrom tl_dyck import {', '.join(public)}"
        code += (
            f"\nassert not {{'transformer_lens', 'tl_dyck.models'}} & {{*sys.modules}}, '{part}'"
        )
    return code


WITHOUT = ("language", "tasks", "rnn", "certify", "runs")


def commands(*lines: str) -> str:
    """Code that carries out these commands."""
    said = "with redirect_stdout(StringIO()), redirect_stderr(StringIO()), suppress(SystemExit): "
    code = "from contextlib import redirect_stderr, redirect_stdout, suppress\n"
    code += "from io import StringIO\n"
    code += "import warnings\nwarnings.simplefilter('ignore')\nfrom tl_dyck.cli import app\n"
    return code + "\n".join(f"{said}app({shlex.split(line)!r})" for line in lines)


def test_helps_of_all_commands_load_nothing_heavy() -> None:
    from tests.test_cli import COMMANDS, UNDER

    helps = commands(*(f"{command} --help" for command in ("", *COMMANDS, *UNDER)))
    (loaded,) = loaded_by(helps)
    assert loaded.isdisjoint(HEAVY)
    assert "tl_dyck.cli.judge" in loaded


def test_models_are_loaded_late_and_what_judges_and_reports_later() -> None:
    """Of parts, tasks, a dry run and a model; more processes would import the same again.

    Languages are on torch, which takes a second; TransformerLens would take two to five more. It
    loads pandas, pyarrow and datasets; 3 loads its bridges, and with them scipy. Those of 4 are its
    adapters of all architectures: more than all of torch.
    """
    file = Path(__file__).parents[1] / "demos" / "sweep.yaml"
    model = (
        "import tl_dyck\ntask = tl_dyck.load_task('dyck-2-4')\n"
        "tl_dyck.build_model(tl_dyck.get_config('gpt', task))('[()]')"
        "\nfrom tl_dyck import frozen_importance, head_truths, judge, probes, widgets"
    )
    dry = commands(f"sweep {shlex.quote(str(file))} --dry-run")
    (tasks,) = loaded_by(commands("tasks"))
    parts, points, built = loaded_by(without_transformer_lens(), dry, model)
    assert tasks.isdisjoint({*HEAVY, "tl_dyck.models"} - {"torch", "numpy"})
    assert "torch" in tasks
    assert {f"tl_dyck.{part}" for part in WITHOUT} <= parts
    assert not [name for name in parts if name.startswith("tl_dyck_hooks.tasks")]  # nor examples
    # fields of a model are those of TransformerLens' class, so it is loaded, and it is the floor
    late = {"plotly", "circuitsvis"}
    late |= {"transformer_lens.model_bridge", "scipy"} if installed.MAJOR >= 4 else set()
    assert points.isdisjoint({"tl_dyck.report", "tl_dyck.judge"} | late)
    assert "tl_dyck.studies.measurement" in points
    assert "tl_dyck.judge" in built
    assert built.isdisjoint(late)


def test_sweeps_are_read_counted_and_copied_without_torch(tmp_path: Path) -> None:
    """So are mistakes in their files; and a dry run says what is in the file before it checks it.

    Of a folder, the table of results needs pandas, which takes a quarter of a second.
    """
    (tmp_path / "typo.yaml").write_text("gird: {x: [1]}")
    (tmp_path / "unknown.yaml").write_text("{experiment: trian, grid: {x: [1, 2]}}")
    made = "from tl_dyck.runs.spec import Sweep\nfrom tl_dyck.runs.store import Store\n"
    made += f"sweep = Sweep(experiment='train').to_dict()\nfolder = {str(tmp_path / 'one')!r}\n"
    made += "Store.create(folder, sweep, ('a-point',))\nimport tl_dyck.runs\n"
    made += "assert {*tl_dyck.runs.__all__} <= {*dir(tl_dyck.runs)}"
    place = shlex.quote(str(tmp_path))
    carried_out = commands(
        *(f"sweep {place}/{file}.yaml --dry-run" for file in ("typo", "unknown")),
        *(f"sweep {verb} {place}/one" for verb in ("status", "results")),
        f"sweep merge {place}/two {place}/one",
    )
    _, loaded = loaded_by(made, carried_out)
    assert (tmp_path / "two" / "sweep.json").exists()  # that is, no command was refused
    assert loaded.isdisjoint({*HEAVY, "tl_dyck.models"} - {"numpy", "pandas", "pyarrow", "scipy"})
    assert {"tl_dyck.runs.merge", "tl_dyck.runs.status", "pandas"} <= loaded


@pytest.mark.parametrize("name", tl_dyck.__all__)
def test_every_public_name_is_there(name: str) -> None:
    value = getattr(tl_dyck, name)
    assert getattr(tl_dyck, name) is value  # kept after the first use
    assert value is getattr(importlib.import_module(tl_dyck._ORIGINS[name]), name)


@pytest.mark.parametrize("name", sorted({*tl_dyck._ORIGINS} - {*tl_dyck.__all__}))
def test_every_subpackage_is_there(name: str) -> None:
    assert getattr(tl_dyck, name) is importlib.import_module(f"{tl_dyck._ORIGINS[name]}.{name}")


def test_the_stub_offers_type_checkers_what_python_has() -> None:
    """Names are imported as themselves, which makes them public; once each."""
    tree = ast.parse(Path(tl_dyck.__file__).with_suffix(".pyi").read_text(encoding="utf-8"))
    names = [
        alias for node in tree.body if isinstance(node, ast.ImportFrom) for alias in node.names
    ]
    assert [alias.asname for alias in names] == [alias.name for alias in names]
    assert len({alias.name for alias in names}) == len(names) > 50
    rest = [ast.unparse(node) for node in tree.body[1:] if not isinstance(node, ast.ImportFrom)]
    assert rest == [
        "__version__: str",
        "__all__: list[str]",
        "def __dir__() -> list[str]:\n    ...",
    ]


def test_typos() -> None:
    with pytest.raises(AttributeError, match="attribute 'load_tsk'; did you mean 'load_task'"):
        _ = tl_dyck.load_tsk  # type: ignore[attr-defined]
    with pytest.raises(AttributeError, match=r"'xyzzy'; see dir\(tl_dyck\)"):
        _ = tl_dyck.xyzzy  # type: ignore[attr-defined]
    with pytest.raises(ImportError, match="xyzzy"):
        exec("from tl_dyck import xyzzy")


def test_a_call_of_a_module_is_a_call_of_its_function() -> None:
    """`from tl_dyck import certify, judge` names modules, and people call them."""
    from tl_dyck import certify, certify_edits, construct, judge, judge_method, load_task

    model = construct.uniform_attention(load_task("dyck-2-4").language)
    called = certify(model, "[()[]", None, "pairs:1")  # type: ignore[operator]
    asked = certify_edits(model, "[()[]", None, "pairs:1")
    assert (called.status, called.lower, called.worst) == (asked.status, asked.lower, asked.worst)
    cases = [("uniform", 0)]
    found = judge("chance", cases)  # type: ignore[operator]
    assert found.index.equals(judge_method("chance", cases).index)
    for module, function in ((certify, certify_edits), (judge, judge_method)):
        assert inspect.signature(module) == inspect.signature(function)  # type: ignore[arg-type]
        assert inspect.ismodule(module)
        assert importlib.import_module(module.__name__) is module
    import tl_dyck.certify.exact

    assert tl_dyck.certify is certify
    assert tl_dyck.certify.certify is certify_edits
    assert tl_dyck.judge.judge is judge_method
