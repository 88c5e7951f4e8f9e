"""Every option of every command with values that are wrong: ``python -m tests.arguments.commands``.

What is refused says so in one line, and the exit code is 2; what is taken ends, or is stopped where
the work begins.
"""

from __future__ import annotations

import contextlib
import os
import sys
import tempfile
import warnings
from collections.abc import Iterator
from typing import Any
from unittest import mock

from tests.arguments import calls
from tests.test_cli import COMMAND, CliRunner
from tl_dyck.kit.errors import is_refusal
from tl_dyck_text.model import save_text_model

WRONG = [
    "",
    "text",
    "-1",
    "0",
    "nan",
    "9" * 30,
    "[",
    "a\x1b[0m\u2028b",
    "no/such/place",
    "1,,2",
    "=",
]
#: What else a command needs.
NEEDED = {
    "certify": "--space swap:1 --text []",
    "certify-language": "--length 2",
    "text train": "--data corpus --space dup:1",
    "text certify": "--data corpus --space dup:1",
}
#: Where the work begins that takes more than a moment.
STOPPED = (
    *("tl_dyck.runs.execute.Store.create", "tl_dyck.studies.run.run_sweep"),
    *("tl_dyck.studies.reproduction.run_sweep", "tl_dyck.judge.run.run_sweep"),
    "tl_dyck.judge.public.run_sweep",
    *("tl_dyck.training.loop.train_together", "tl_dyck.training.train"),
    *("tl_dyck.training.train_seeds", "tl_dyck_text.training.train_text"),
)


def places() -> dict[str, str]:
    """What stands for the arguments that have no option."""
    proof = calls.folder() / "a.proof"
    proof.write_text("{}")
    sweep = calls.folder() / "sweep.yaml"
    sweep.write_text("experiment: train\ngrid: {task: [dyck-2-4], model: [gpt]}\nseeds: 1\n")
    model, swept = str(calls.saved()), str(calls.swept())
    return {
        "train model": "gpt",
        "report results": str(calls.study().folder),
        "sweep run file": str(sweep),
        "check files": str(proof),
        "text certify model": str(save_text_model(calls.reader(), calls.folder() / "reader")),
        "export out": "exported",
        **dict.fromkeys(("model", "models"), model),
        **dict.fromkeys(("folder", "folders"), swept),
        "into": "merged",
    }


def commands(group: Any, path: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], Any]]:
    """All commands with the words that call them."""
    for name, each in getattr(group, "commands", {}).items():
        yield from commands(each, (*path, name))
    if not hasattr(group, "commands"):
        yield path, group


def tried(runner: CliRunner) -> Iterator[str]:
    """What is wrong with what a command makes of a wrong value."""
    given = places()
    for path, each in commands(COMMAND):
        name = " ".join(path)
        bare = [p for p in each.params if p.param_type_name == "argument"]
        right = {
            p.name: given.get(f"{name} {p.name}", given.get(p.name, "")) for p in bare if p.required
        }
        for parameter in each.params:
            if getattr(parameter, "is_flag", False) or parameter.name == "help":
                continue
            for value in WRONG:
                if parameter in bare:
                    words = [*path, "--", *{**right, parameter.name: value}.values()]
                else:
                    needed = NEEDED.get(name, "").replace("corpus", str(calls.corpus_folder()))
                    option = f"{parameter.opts[0]}={value}"
                    pairs = zip(needed.split()[::2], needed.split()[1::2], strict=True)
                    others = [x for pair in pairs if pair[0] not in parameter.opts for x in pair]
                    words = [*path, *others, option, *right.values()]
                wrong = told(runner.invoke(COMMAND, words))
                if wrong:
                    yield f"{name} {parameter.opts[0]}={value!r}: {wrong}"


def told(result: Any) -> str | None:
    """What is wrong with an end; None if it is a refusal in a line, or no refusal at all."""
    error = result.exception
    if error is None or isinstance(error, calls.Stop):
        return None
    if not isinstance(error, SystemExit):
        return f"a bug: {type(error).__name__}: {str(error)[:100]}"
    cause = error.__cause__ or error.__context__
    ours = type(cause).__module__.partition(".")[0] in ("typer", "click") or cause is None
    if not ours and isinstance(cause, Exception) and not is_refusal(cause):
        return f"no refusal: {type(cause).__name__}: {str(cause)[:100]}"
    said = [line for line in result.output.splitlines() if line.startswith("Error")]
    if error.code not in (0, 1, 2) or "Traceback" in result.output or len(said) > 1:
        return f"exit code {error.code}: {result.output[-200:]!r}"
    return None


def main() -> None:
    warnings.simplefilter("ignore")
    out, sys.stderr = sys.stdout, open(os.devnull, "w")  # noqa: SIM115 - bars of progress
    places()
    os.chdir(tempfile.mkdtemp())
    with contextlib.ExitStack() as stack:
        stack.enter_context(calls.announced_once())
        for place in STOPPED:
            stack.enter_context(mock.patch(place, calls.stop))
        for line in tried(CliRunner(env={"COLUMNS": "80", "TERM": "dumb"})):
            print(line, file=out, flush=True)
    print("done", file=out, flush=True)


if __name__ == "__main__":
    main()
