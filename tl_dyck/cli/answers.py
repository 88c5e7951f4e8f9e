"""``--json``: what a command found, for programs, in place of what it prints for people.

A command says what it found by `answer`, and prints as it likes. With ``--json`` nothing that it
prints is shown, and its answer is, as one JSON object on standard output; errors stay one line on
standard error, and the exit status is the same.
"""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import inspect
import io
import json
import math
import sys
from collections.abc import Callable, Iterable, Mapping
from contextvars import ContextVar
from typing import Annotated, Any

import typer

#: Exit status of a verdict: nothing was refuted, and something could not be decided.
UNDECIDED = 3

_Json = Annotated[
    bool, typer.Option("--json", help="Print what was found as JSON, and nothing else.")
]

_found: ContextVar[dict[str, Any] | None] = ContextVar("found", default=None)


def answer(**values: Any) -> None:
    """Say what was found, by name; values are made `plain`. Without ``--json`` it does nothing."""
    found = _found.get()
    if found is not None:
        found.update({name: plain(value) for name, value in values.items()})


def answers(command: Callable[..., None]) -> Callable[..., None]:
    """A command with the option ``--json``."""
    signature = inspect.signature(command, eval_str=True)

    @functools.wraps(command)
    def run(*arguments: Any, as_json: bool = False, **options: Any) -> None:
        if not as_json:
            return command(*arguments, **options)
        found: dict[str, Any] = {}
        token, status = _found.set(found), 0
        try:
            with contextlib.redirect_stdout(io.StringIO()):
                command(*arguments, **options)
        except typer.Exit as end:
            status = end.exit_code
        finally:
            _found.reset(token)
        typer.echo(json.dumps(found, indent=1, ensure_ascii=_is_plain(), allow_nan=False))
        if status:
            raise typer.Exit(status)
        return None

    option = inspect.Parameter(
        "as_json", inspect.Parameter.KEYWORD_ONLY, default=False, annotation=_Json
    )
    parameters = [*signature.parameters.values(), option]
    run.__signature__ = signature.replace(parameters=parameters)  # type: ignore[attr-defined]
    run.__annotations__ = {**command.__annotations__, "as_json": _Json}
    return run


def _is_plain() -> bool:
    """Whether standard output cannot show all of Unicode: then JSON has its own escapes."""
    return (getattr(sys.stdout, "encoding", None) or "ascii").lower() not in ("utf-8", "utf8")


def end_with(refuted: bool, undecided: bool) -> None:
    """End a command with the status of its verdict: 0 proved, 1 refuted, 3 undecided."""
    if refuted or undecided:
        raise typer.Exit(1 if refuted else UNDECIDED)


def plain(value: Any) -> Any:
    """A value as JSON has it: arrays are lists, tables lists of rows, what is not finite is null.

    What has a method ``to_dict`` says itself what it is; what is nothing of this is its text.
    """
    if value is None or isinstance(value, (bool, int, str)):
        return value
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, Mapping):
        return {str(name): plain(each) for name, each in value.items()}
    if hasattr(value, "columns") and hasattr(value, "to_dict"):  # a table
        return plain(value.to_dict("records"))
    if hasattr(value, "to_dict"):
        return plain(value.to_dict())
    if hasattr(value, "tolist"):  # of NumPy or torch
        return plain(value.tolist())
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        fields = dataclasses.fields(value)
        return {field.name: plain(getattr(value, field.name)) for field in fields}
    if isinstance(value, Iterable):
        return [plain(each) for each in value]
    return str(value)
