"""Every command that we print runs as it was printed; every call that we print can be made.

Commands are made by `tl_dyck.kit.suggest.command` alone. Each place that calls it stands in
`PRINTED` with what prints it; there the command is run, in folders whose names need quotes.
"""

from __future__ import annotations

import ast
import glob
import html
import inspect
import re
import shlex
import shutil
import sys
from dataclasses import replace
from functools import cache
from importlib import import_module
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

import tl_dyck
from tests.sources import SOURCES, nodes
from tests.test_cli import COMMAND, call, commands, flat, typed
from tests.test_cli_certify import save_words
from tl_dyck import construct, load_task, register_experiment, save_model
from tl_dyck.judge import SUITES, Suite, judge_methods
from tl_dyck.kit import suggest
from tl_dyck.report import write_report
from tl_dyck.runs import experiments
from tl_dyck.runs.results import FailedRunsError, load_runs
from tl_dyck.studies import Study
from tl_dyck.studies.reproduction import Reproduction, papers
from tl_dyck.training import train


def calls_of_command() -> set[str]:
    """Where `command` is called: module and function."""
    found = set()
    for module, path in SOURCES.items():
        text = path.read_text(encoding="utf-8")
        if not re.search(r"from tl_dyck.kit.suggest import .*\bcommand\b", text):
            continue
        for function in nodes(path):
            if isinstance(function, ast.FunctionDef) and any(
                isinstance(node, ast.Call) and getattr(node.func, "id", "") == "command"
                for node in ast.walk(function)
            ):
                found.add(f"{module}:{function.name}")
    return found


@cache
def literals() -> list[tuple[str, str]]:
    """Every text in our code that is no docstring, and its module; what is filled in is a space."""
    found = []
    for module, path in SOURCES.items():
        inside: set[int] = set()
        for node in nodes(path):
            if isinstance(node, ast.JoinedStr):
                inside |= {id(part) for part in node.values}
                parts = (getattr(part, "value", " ") for part in node.values)
                text = "".join(part if isinstance(part, str) else "{}" for part in parts)
                found.append((module, text))
            elif isinstance(node, ast.Module | ast.FunctionDef | ast.ClassDef):
                if node.body and isinstance(node.body[0], ast.Expr):
                    inside.add(id(node.body[0].value))
            elif isinstance(getattr(node, "value", None), str) and id(node) not in inside:
                found.append((module, node.value))  # a constant, walked behind what it is in
    return found


# --- what prints each -----------------------------------------------------------------------------

PRINTED = {
    "tl_dyck.report.commands:report_command": "study",
    "tl_dyck.report.commands:probe_command": "study",
    "tl_dyck.report.commands:play_command": "study",
    "tl_dyck.report.commands:study_command": "study",
    "tl_dyck.report.commands:check_command": "study",
    "tl_dyck.report.heads:ablate_command": "ablation",
    "tl_dyck.report.sweep:sweep_page": "sweep",
    "tl_dyck.report.sweep:_metric": "sweep",
    "tl_dyck.report.sweep:_errors": "sweep",
    "tl_dyck.report.judge:judge_command": "judge",
    "tl_dyck.cli.runs:_carry_out": "sweep",
    "tl_dyck.runs.results:load_runs": "sweep",
    "tl_dyck.cli.train:models": "train",
    "tl_dyck.cli.train:train": "train",
    "tl_dyck.cli.certify:_proofs": "certify",
    "tl_dyck.cli.language:_prove": "certify",
    "tl_dyck.studies.reproduction:command": "paper",
}


def test_every_place_that_prints_a_command_is_known() -> None:
    assert calls_of_command() == set(PRINTED)


class Heard:
    """Which places made commands, and which."""

    def __init__(self) -> None:
        self.places: set[str] = set()
        self.lines: list[str] = []

    def __call__(self, *words: object) -> str:
        frame = sys._getframe(1)
        while frame.f_code.co_name.startswith("<"):  # a comprehension, before Python 3.12
            frame = frame.f_back  # type: ignore[assignment]
        self.places.add(f"{frame.f_globals['__name__']}:{frame.f_code.co_name}")
        self.lines.append(original(*words))
        return self.lines[-1]


original = suggest.command


@pytest.fixture
def heard(monkeypatch: pytest.MonkeyPatch) -> Heard:
    found = Heard()
    for place in PRINTED:
        module = import_module(place.partition(":")[0])
        monkeypatch.setattr(module, "command", found)
    return found


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder whose name a shell would take apart."""
    folder = tmp_path / "it's a $folder"
    folder.mkdir()
    monkeypatch.chdir(folder)
    return folder


def on_page(page: Path) -> list[str]:
    """The commands of a page, as a reader copies them."""
    text = page.read_text(encoding="utf-8")
    codes = (html.unescape(code) for code in re.findall(r"<code>(.*?)</code>", text, re.DOTALL))
    return list(dict.fromkeys(code for code in codes if code.startswith("tl-dyck ")))


def on_screen(said: str) -> list[str]:
    return re.findall(r"(?m)^(?:.*: )?(tl-dyck .*)$", said)


def check(heard: Heard, kind: str, lines: list[str], status: tuple[int, ...] = (0,)) -> None:
    """All of this kind were printed, as they were made, and run as they were printed."""
    assert heard.places == {place for place, each in PRINTED.items() if each == kind}
    assert {*lines} == {*heard.lines}
    for line in lines:
        first, *words = shlex.split(line)
        assert first == "tl-dyck"
        words = [each for word in words for each in (glob.glob(word) if "*" in word else [word])]
        done = typed(words)
        assert done.exit_code in status, f"{line}\n{done.output}"


def test_of_a_study(place: Path, tiny_study: Study, heard: Heard) -> None:
    shutil.copytree(tiny_study.folder, place / "study")
    lines = on_page(write_report(replace(tiny_study, folder=place / "study")))
    assert len(lines) >= 5
    check(heard, "study", lines)


@pytest.mark.parametrize("more", ["--steps 0", "--steps 0 --set n=7 --set seed=3"])
def test_of_an_ablation(place: Path, tiny_study: Study, heard: Heard, more: str) -> None:
    shutil.copytree(tiny_study.run_folder("gpt", 0), place / "a model")
    done = call(f"ablate 'a model' --out out --jobs 1 {more}")
    assert done.exit_code == 0, done.output
    before = (place / "out" / "ablation.json").read_text()
    check(heard, "ablation", on_page(place / "out" / "ablation.html"))
    assert (place / "out" / "ablation.json").read_text() == before  # the same was asked


def test_of_a_sweep(place: Path, heard: Heard, monkeypatch: pytest.MonkeyPatch) -> None:
    @register_experiment("some-fail")
    def some_fail(point: Any, seed: int, folder: Path) -> dict[str, float]:
        if seed == 1:
            raise ValueError("no")
        return {"proved dup:1,sub:1": seed, "plain": 1.0}

    try:
        (place / "a sweep.yaml").write_text("experiment: some-fail\nseeds: 3\ngrid: {x: [1, 2]}\n")
        done = call("sweep 'a sweep.yaml' --jobs 1")
        assert done.exit_code == 1, done.output
        lines = on_screen(done.output)
        assert len(lines) == 3
        with pytest.raises(FailedRunsError) as raised:
            load_runs(place / "results" / "a sweep")
        (said,) = re.findall(r"tl-dyck sweep status '.*'", str(raised.value))
        assert call("sweep report 'results/a sweep'").exit_code == 0
        lines += [said, *on_page(place / "results" / "a sweep" / "sweep.html")]
        check(heard, "sweep", list(dict.fromkeys(lines)), (0, 1))
        named = next(line for line in lines if "dup:1,sub:1" in line)
        shown = [line.split("  ") for line in typed(shlex.split(named)[1:]).output.splitlines()]
        rows = [[each.strip() for each in line if each] for line in shown]
        assert [row[2] for row in rows if row[1:2] == ["2 (+ 1 failed)"]] == ["1", "1"]
    finally:
        experiments.unregister("some-fail")


def test_of_a_judgement(place: Path, heard: Heard, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(SUITES, "quick", Suite(name="judge-2/quick", sizes={"uniform": 2}))
    done = call("judge --methods chance,sizes --set sizes.uniform=1 --jobs 1 --out 'a judge'")
    assert done.exit_code == 0, done.output
    before = (place / "a judge" / "sweep.json").read_text()
    page = place / "a judge" / "judge.html"
    check(heard, "judge", on_page(page))
    assert (place / "a judge" / "sweep.json").read_text() == before


@pytest.mark.parametrize(
    "suite",
    [
        Suite(name="judge-2/quick", sizes={"uniform": 1}).with_salt("0123456789abcdef" + 16 * "7"),
        Suite(name="mine", sizes={"uniform": 1}),
        Suite(name="judge-2/quicker", sizes={"uniform": 1}),
    ],
    ids=lambda suite: suite.name,
)
def test_of_a_private_judgement_there_is_none(place: Path, suite: Suite) -> None:
    done = judge_methods(suite, place, ["chance"], n_jobs=1, progress=False)
    page = write_report(done)
    assert on_page(page) == []
    assert "somebody" in page.read_text(encoding="utf-8")


def test_of_training(place: Path, heard: Heard, monkeypatch: pytest.MonkeyPatch) -> None:
    def in_two_steps(*given: Any, options: Any, **how: Any) -> Any:
        return train(*given, options=replace(options, steps=2), **how)

    monkeypatch.setattr("tl_dyck.training.train", in_two_steps)
    trained = call("train minimal-onehot --steps 2 --out 'some models'")
    assert trained.exit_code == 0, trained.output
    lines = on_screen(trained.output) + on_screen(call("models --task dyck-1").output)
    assert len(lines) == 2
    check(heard, "train", lines)


def test_of_proofs(place: Path, heard: Heard) -> None:
    task = load_task("dyck-2-4")
    save_model(construct.uniform_attention(task.language), place / "a model")
    asked = ("--space", "pairs:1", "--text", "[()", "--text", "(", "--proofs")
    lines = []
    done = call("certify 'a model'", *asked, "of a model")
    assert done.exit_code == 0, done.output
    lines += on_screen(done.output)
    assert call("export 'a model' rnn").exit_code == 0
    done = call("certify rnn", *asked, "of an rnn")
    assert done.exit_code == 0, done.output
    lines += on_screen(done.output)
    done = call("certify-language 'a model' -n 4 --proof 'a.proof'")
    assert done.exit_code == 0, done.output
    lines += on_screen(done.output)
    assert len(lines) == 5
    check(heard, "certify", lines)


def test_exit_status_and_words_agree_where_there_is_no_proof(
    place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Proved, but nothing was written: 3, and nothing is there to be checked."""
    save_words(place / "words")
    asked = ("--text", "good film", "--space", "dup:1", "--proofs", "proofs")
    alone = call("certify words", *asked[:-2])
    assert alone.exit_code == 0, alone.output
    from tl_dyck.certify import edit_proofs
    from tl_dyck.certify.proof import NoProofError

    def none(*given: Any, **how: Any) -> None:
        raise NoProofError("the search was stopped")

    monkeypatch.setattr(edit_proofs, "prove_edits", none)
    done = call("certify words", *asked)
    assert done.exit_code == 3, done.output
    assert "string 1 has no proof: the search was stopped" in done.output
    assert "no proof was written" in done.output
    assert "To check" not in done.output
    assert not (place / "proofs").exists()
    refuted = (
        call("certify words --text 'good' --space sub:1 --synonyms s.json --proofs p")
        if ((place / "s.json").write_text('{"good": ["bad"]}'))
        else None
    )
    assert refuted is not None
    assert refuted.exit_code == 1, refuted.output
    assert "To check" not in refuted.output

    import tl_dyck.certify.language_proofs as language_proofs

    save_model(construct.uniform_attention(load_task("dyck-2-4").language), place / "model")
    monkeypatch.setattr(language_proofs, "prove_language", none)
    done = call("certify-language model -n 4 --proof p.proof")
    assert done.exit_code == 3, done.output
    assert "it has no proof: the search was stopped" in done.output
    assert "To check" not in done.output


@pytest.mark.parametrize("paper", papers.names())
@pytest.mark.parametrize("settings", [(), ("seeds=3",)])
def test_of_a_reproduction(
    paper: str, settings: tuple[str, ...], heard: Heard, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Not run, which takes hours: what the command asks for is what was asked."""
    from tl_dyck.studies import reproduction
    from tl_dyck.studies.reproduction import load_paper

    asked: list[tuple[Any, ...]] = []

    def reproduce(*given: Any, **how: Any) -> None:
        asked.append(given)
        raise tl_dyck.DyckError("enough")

    monkeypatch.setattr(reproduction, "reproduce", reproduce)
    scales = load_paper(paper).scales
    for name, scale in scales.items():
        known = scale
        if settings:
            known = replace(scale, seeds=3, name=", ".join([name, *settings]))
        done = SimpleNamespace(scale=known, paper=load_paper(paper))
        line = Reproduction.command.fget(done)  # type: ignore[attr-defined]
        assert "Error: enough" in typed(shlex.split(line)[1:]).stderr
        found = asked[-1][1]
        assert (scales[found] if isinstance(found, str) else found) == known
    assert heard.places == {"tl_dyck.studies.reproduction:command"}


# --- in prose -------------------------------------------------------------------------------------


def test_texts_name_commands_that_there_are_and_give_them_no_words() -> None:
    """With words they would be commands, which `command` makes; examples in helps are run, too."""
    for module, text in literals():
        assert text != "tl-dyck" or module in _NAMES, module  # the first word of a command
        shown = re.sub(r"\[bold\].*?\[/bold\]", "", text, flags=re.DOTALL)
        for words in re.findall(r"tl-dyck((?: [a-z-]+)*)(?= |[^a-z ]|$)", shown):
            known, names = COMMAND, words.split()
            while names and names[0] in getattr(known, "commands", {}):
                known = known.commands[names.pop(0)]
            assert known is not COMMAND or not words or module in _NOT_COMMANDS, (module, text)
        options = re.findall(r"tl-dyck [a-z -]*(--[a-z-]+|\{\}|[a-z]*/)", shown)
        assert not options or module in _NOT_COMMANDS, (module, text)


#: "tl-dyck did not expect this error", "tl-dyck --debug shows all" (which is run elsewhere).
_NAMES = (
    "tl_dyck.cli.entry",
    "tl_dyck.kit.environment",
    "tl_dyck.runs.worker",
    "tl_dyck.kit.suggest",
)
_NOT_COMMANDS = ("tl_dyck.cli.entry", "tl_dyck.kit.suggest")

_CALL = re.compile(r"\b(?:tl_dyck\.)?([a-z_]\w*(?:\.[a-z_]\w*)?)\(([^()]*)")


def test_calls_in_texts_can_be_made() -> None:
    """A public function that a text calls takes the keywords that the text gives it."""
    checked = set()
    for module, text in literals():
        for name, given in _CALL.findall(text):
            function = getattr(tl_dyck, name, None) if name in tl_dyck.__all__ else None
            if name.startswith("task.") or name.startswith("Vocabulary."):
                owner = tl_dyck.DyckTask if name.startswith("task.") else tl_dyck.Vocabulary
                function = getattr(owner, name.partition(".")[2])
            if function is None:
                continue
            taken = inspect.signature(function).parameters
            free = any(each.kind is each.VAR_KEYWORD for each in taken.values())
            for keyword in re.findall(r"(?:^|, )([a-z_]+)=", given):
                assert keyword in taken or free, (module, text)
            checked.add(name)
    assert {"adopt", "load_task"} <= checked


def test_what_is_said_of_bare_words_is_quoted() -> None:
    line = suggest.command("sweep", "status", Path("it's a folder"), 3)
    assert shlex.split(line) == ["tl-dyck", "sweep", "status", "it's a folder", "3"]


def with_settings() -> dict[str, str]:
    """Commands that take ``--set``, and the example in their help."""
    found = {}
    for path, each in commands():
        for option in getattr(each, "params", ()):
            said = (
                re.search(r"Any field of the configuration: (\S+)\. May", option.help or "")
                if ("--set" in option.opts)
                else None
            )
            if said:
                found[" ".join(path)] = said[1]
    return found


#: What each needs besides, to come to its settings.
NEEDS = {"train": "gpt", "text train": "--data none", "ablate": "."}


@pytest.mark.parametrize(("name", "example"), with_settings().items())
def test_the_example_in_a_help_is_a_setting_of_that_command(name: str, example: str) -> None:
    result = call(f"{name} {NEEDS.get(name, '')} --set {example} --set nonsense=1")
    assert result.exit_code == 2
    assert "unknown setting 'nonsense'" in flat(result.stderr)


def test_every_command_with_settings_has_an_example() -> None:
    assert {*with_settings()} == {"study", "train", "ablate", "judge", "reproduce", "text train"}
