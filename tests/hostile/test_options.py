"""Every option and argument of every command, with what cannot be: refused in a line, no traceback.

The tree of commands is asked what there is, so that a new option is tried too. Nothing is trained:
commands stop where they would hand out their runs.
"""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import Any

import pytest

from tests.hostile.test_command_line import call
from tests.test_cli import commands, flat
from tl_dyck.kit.errors import is_refusal
from tl_dyck.kit.screen import visible
from tl_dyck.report import write
from tl_dyck.report.markup import Html
from tl_dyck.runs import SweepError

HUGE = "9" * 30
VALUES = ("", "nan", "-1", "0", "1e9", "x", HUGE, "no/such/path", "corpus", "[", "1,,2", "=")
VALUES += ("a\x1b[0m\u2028b",)

#: By the metavar of an option: what is no integer, no number, none of a list of them.
REFUSED = {
    "N": ("", "nan", "1e9", "x", HUGE),
    **dict.fromkeys(("S", "X"), ("", "nan", "x")),
    "LIST": ("", "nan", "-1", "1e9", "x", HUGE),
}

#: Nothing else is a number to whatever reads one, which asks for it in one place.
NUMBERS = ("", "nan", "-1", "0", "1e9", "x", HUGE, "a\x1b[0m\u2028b")

#: Where the work begins that takes more than a moment.
BEGINS = (
    *("tl_dyck.runs.execute.open_workers", "tl_dyck.studies.reproduction.run_sweep"),
    *("tl_dyck.judge.run.run_sweep", "tl_dyck.judge.public.run_sweep"),
    *("tl_dyck.training.train", "tl_dyck.training.train_seeds", "tl_dyck_text.training.train_text"),
)

#: A good call of each command: its arguments by name, and the options that keep it small. What is
#: tried takes the place of the argument or option.
CALLS: dict[str, tuple[dict[str, str], str]] = {
    "": ({}, ""),
    "study": ({}, "--steps 1 --seeds 1 --families gpt"),
    "report": ({"results": "study"}, ""),
    "tasks": ({}, ""),
    "models": ({}, ""),
    "train": ({"model": "gpt"}, "--steps 1"),
    "probe": ({"models": "model"}, ""),
    "accuracy": ({"models": "model"}, "--file corpus/brackets.txt"),
    "play": ({"models": "model"}, ""),
    "ablate": ({"models": "model"}, "--steps 0"),
    "export": ({"model": "model", "out": "made"}, ""),
    "certify": ({"model": "rnn"}, "--space dup:1 --text ("),
    "certify-language": ({"model": "model"}, "-n 3"),
    "check": ({"files": "model/config.json"}, ""),
    "reproduce": ({}, ""),
    "judge": ({}, "--methods chance"),
    "text train": (
        {},
        "--data corpus --set training.steps=1 --set model.d_model=4 --objective clean",
    ),
    "text certify": ({"model": "text"}, "--data corpus --space dup:1"),
    "sweep run": ({"file": "small.yaml"}, ""),
    "sweep resume": ({"folder": "sweep"}, ""),
    "sweep status": ({"folder": "sweep"}, ""),
    "sweep results": ({"folder": "sweep"}, ""),
    "sweep report": ({"folder": "sweep"}, ""),
    "sweep merge": ({"into": "all", "folders": "sweep"}, ""),
}


def without(words: list[str], option: Any) -> list[str]:
    """Options and their values without an option, which is given once."""
    pairs = zip(words[::2], words[1::2], strict=True)
    return [
        word for pair in pairs if option.multiple or pair[0] not in option.opts for word in pair
    ]


#: What takes a value, of every command.
OPTIONS = {
    f"{path} {max(each.opts, key=len)}".strip(): (path, each)
    for path, command in ((" ".join(words), command) for words, command in commands())
    for each in command.params
    if not getattr(each, "is_flag", False)
}


def test_there_are_options_of_every_command():
    assert len(OPTIONS) > 120
    assert {path for path, _ in OPTIONS.values()} <= set(CALLS)


def is_refused(end: BaseException | None) -> bool:
    """Whether an end is one, or what lies behind it refuses a value and is no bug."""
    cause = end and (end.__cause__ or end.__context__)
    of_the_command_line = type(cause).__module__.partition(".")[0] in ("typer", "click")
    return not isinstance(cause, Exception) or of_the_command_line or is_refusal(cause)


@pytest.mark.parametrize("name", OPTIONS)
def test_no_value_ends_in_a_traceback(
    place: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
):
    def begin(*arguments: object, **options: object) -> None:
        raise SweepError("runs would begin here")

    for each in place.iterdir():
        (tmp_path / each.name).symlink_to(each)
    monkeypatch.chdir(tmp_path)
    for work in BEGINS:
        monkeypatch.setattr(work, begin)
    for kind, (_, file) in write._PAGES.items():  # where it goes is asked here, not what it says
        monkeypatch.setitem(write._PAGES, kind, (lambda results: Html("page"), file))
    path, option = OPTIONS[name]
    arguments, small = CALLS[path]
    for value in NUMBERS if option.metavar in ("N", "S", "X") else VALUES:
        given = {**arguments, option.name: value}
        if option.param_type_name == "option":
            others = without(shlex.split(small), option)
            words = [*arguments.values(), *others, max(option.opts, key=len), value]
        else:
            words = [*shlex.split(small), "--", *given.values()]
        done = call(*path.split(), *words)
        tried = f"{path} {words}: {done.output}"
        assert done.exit_code in (0, 1, 2, 3), tried
        assert done.exception is None or isinstance(done.exception, SystemExit), tried
        assert "Traceback" not in done.output, tried
        assert sum(line.startswith("Error") for line in done.output.splitlines()) <= 1, tried
        assert is_refused(done.exception), tried
        if done.exit_code == 2 and "Usage:" not in done.stderr:
            assert done.stderr.startswith("Error: "), tried
            assert len(done.stderr.splitlines()) == 1, tried
            assert visible(done.stderr) == done.stderr, tried
        if value in REFUSED.get(str(option.metavar), ()):
            assert done.exit_code == 2, tried


SET = "--set"

#: An option's value where any will do.
SOME = {"N": "1", "S": "1", "X": "1", "LIST": "1"}


@pytest.mark.parametrize("name", sorted({*OPTIONS} | {"certify --tight", "train --json"}))
def test_no_option_is_given_twice_unless_it_may_be(place: Path, name: str):
    path, _, word = name.rpartition(" ")
    path, option = OPTIONS.get(name, (path, None))
    if option is None or option.param_type_name == "argument":
        given = [word] * (option is None)
    else:
        given = [word, SOME.get(str(option.metavar), "some")]
    arguments, small = CALLS[path]
    others = shlex.split(small) if option is None else without(shlex.split(small), option)
    if not given or (option is not None and option.multiple):
        return
    done = call(*path.split(), *arguments.values(), *others, *given, *given)
    assert done.exit_code == 2, done.output
    assert f"{word} is given 2 times; give it once" in flat(done.output)


@pytest.mark.parametrize(
    "words",
    [
        "train gpt --set training.steps=1 --set training.steps=2",
        "study --set training.steps=1 --set training.steps=1",
        "judge --set first_seed=1 --set first_seed=2",
        "text train --data corpus --set training.steps=1 --set training.steps=2",
        "sweep run small.yaml --dry-run --set n=1 --set n=2",
        "probe model --only model=gpt --only model=eq6",
    ],
)
def test_no_name_has_two_values(place: Path, monkeypatch: pytest.MonkeyPatch, words: str):
    """Of options that may be repeated, each for another name."""
    monkeypatch.chdir(place)
    done = call(*words.split())
    assert done.exit_code == 2, done.output
    assert "twice" in done.stderr
    assert "give it once" in done.stderr


@pytest.mark.parametrize(
    "path", sorted({path for path, each in OPTIONS.values() if SET in each.opts})
)
def test_what_has_an_option_is_not_set_too(place: Path, monkeypatch: pytest.MonkeyPatch, path: str):
    """Whichever part the field is of: training.steps is what --steps says."""
    monkeypatch.chdir(place)
    arguments, small = CALLS[path]
    for where, option in OPTIONS.values():
        name = max(option.opts, key=len).lstrip("-")
        if where != path or option.param_type_name == "argument" or option.multiple:
            continue
        given = [f"--{name}", SOME.get(str(option.metavar), "some")]
        words = [*arguments.values(), *without(shlex.split(small), option), *given]
        for before in ("", "training.", "a.b."):
            setting = f"{before}{name.replace('-', '_')}"
            done = call(*path.split(), *words, SET, f"{setting}=1")
            assert done.exit_code == 2, done.output
            assert f"--{name} and --set {setting} give it twice; give it once" in flat(done.output)
