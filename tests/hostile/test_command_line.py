"""What can be typed, and names that disturb a terminal: one line, exit code 2, no traceback."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest
from click.testing import Result

from tests.hostile.conftest import RECORD
from tests.hostile.tools import alter
from tests.test_cli import typed
from tl_dyck.kit.screen import visible
from tl_dyck.runs import Sweep, load_results
from tl_dyck.runs.store import Store, point_id, run_id

Make = Callable[[str], Path]


def call(*words: object) -> Result:
    return typed(list(map(str, words)), columns=200)


#: Escapes, markup, devices and pipes; numbers and names that cannot be are test_options'.
WRONG = """\
study --task \x1b[2J
study --task [/]
study --task ../../etc/passwd
study --families gpt,[bold]
study --seeds [red]
study --device meta
study --out /dev/null
study --out /proc/x
train \x1b[2J
models --task [/]
report /dev/zero
probe /dev/null
probe model --probe [/]
probe model -s \x1b
probe pipe
export model /dev/null
export /dev/zero x
certify rnn --space [/]:1 --text (
certify rnn --space dup:1 --text \x1b[2J
certify rnn --space dup:1 --file pipe
certify rnn --space dup:1 --file /dev/zero
certify rnn --space dup:1 --text ( --target \x1b]0;x\x07
certify rnn --space sub:1 --text ( --synonyms /dev/zero
reproduce --scale \x1b
sweep pipe
sweep /dev/zero
sweep status /dev/null
sweep results sweep --metrics \x1b[2J
sweep merge /dev/null sweep
sweep huge.yaml
sweep huge.yaml --dry-run
text train --data /dev/zero
text train --data corpus --space [/]:1
text train --data corpus --set \x1b=1
text train --data corpus --set training.steps=[/]
text train --data corpus --synonyms /dev/zero
text train --data corpus --space dup:1 --set model.position=[/]
text certify text --data corpus --certifier [/] --space dup:1
[/]
\x1b[2J
""".splitlines()


@pytest.mark.parametrize("words", WRONG)
def test_what_cannot_be_is_said_in_a_line(place: Path, monkeypatch: pytest.MonkeyPatch, words: str):
    monkeypatch.chdir(place)
    files = os.listdir()
    result = call(*words.split(" "))
    assert result.exit_code == 2, result.output
    assert isinstance(result.exception, SystemExit)
    if "Usage:" not in result.stderr:  # then typer has said it
        assert result.stderr.startswith("Error: ")
        assert len(result.stderr.splitlines()) == 1
        assert visible(result.stderr) == result.stderr
    assert "Traceback" not in result.output
    assert set(os.listdir()) <= {*files, "results"}


ESCAPES = "\x1b[2J\x1b]0;owned\x9c"


def test_an_alphabet_and_a_name_with_escapes(original: Make):
    rnn = original("rnn")
    alphabet = ["\x1b[31m", "[/]", "(", "\u202e", "<bos>"]
    alter(rnn / "rnn.json", "config", "alphabet", value=alphabet)
    alter(rnn / "rnn.json", "config", "separator", value=" ")
    alter(rnn / "rnn.json", "config", "model_name", value="\x1b]0;owned\x07")
    result = call("certify", rnn, "--space", "dup:1", "--text", "\x1b[31m [/]")
    assert result.exit_code in (0, 1)  # proved or refuted
    assert result.stderr == ""
    assert visible(result.stdout) == result.stdout
    assert "\\x1b[31m [/]" in result.stdout
    unknown = call("certify", rnn, "--space", "dup:1", "--text", ESCAPES)
    assert unknown.exit_code == 2
    assert visible(unknown.stderr) == unknown.stderr


def test_a_path_with_escapes(original: Make):
    folder = original("model").rename(Path(f"a{ESCAPES}[red]b"))
    done = call("export", folder, Path(f"out{ESCAPES}[/]"))
    assert (done.exit_code, done.stderr) == (0, "")
    assert visible(done.stdout) == done.stdout
    assert "[/]" in done.stdout
    nowhere = call("probe", f"no{ESCAPES}")
    assert nowhere.exit_code == 2
    assert visible(nowhere.stderr) == nowhere.stderr


NAMES = (
    "loss[train]",
    "[/]",
    ESCAPES,
    "\u202egnp",
    "two\nlines",
    "[link=http://x]y",
)


@pytest.mark.parametrize("name", NAMES)
def test_names_of_parameters_metrics_values_and_errors(tmp_path: Path, name: str):
    point = point_id("mine", {"x": 1})
    store = Store.create(
        tmp_path / "s",
        Sweep(grid={name: [name, "other"]}, seeds=[0], experiment="mine").to_dict(),
        (point, "x"),
    )
    store.start(run := run_id(point, 0))
    metric = f"metric {name}"
    record = {
        **RECORD,
        "id": run,
        "point": point,
        "parameters": {name: name},
        "metrics": {metric: 0.5},
    }
    store.write_record(run, record, took=0.0)
    run = run_id("x", 0)
    failed = {**record, "id": run, "point": "x", "parameters": {name: "other"}}
    del failed["metrics"]
    store.write_failure(run, failed, f"ValueError: {name}", "", took=0.0)
    for words in (("status",), ("results",), ("results", "--by", name)):
        result = call("sweep", words[0], tmp_path / "s", *words[1:])
        assert (result.exit_code, result.stderr) == (0, "")
        assert visible(result.stdout) == result.stdout
        for line in visible(name).splitlines():
            assert line in result.stdout
    assert [*load_results(tmp_path / "s")][3] == name
