"""What commands share: options, and how what users type is read."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, final

import typer

from tl_dyck.check import check_integer, check_number, check_seed
from tl_dyck.cli.early import writable_file, writable_folder

if TYPE_CHECKING:
    from tl_dyck.runs import RunOptions

MOST = 10**9  # of whatever is counted
MOST_SEEDS = 10_000

# --- checks, made while options are read: before anything is loaded or computed -------------------


def _checking(check: Callable[[str, Any], Any]) -> Callable[..., Any]:
    """A callback of an option that checks its value, or each of its values, by its name."""

    def callback(ctx: typer.Context, param: typer.CallbackParam, value: Any) -> Any:
        if value is None or ctx.resilient_parsing:  # the latter while words are completed
            many = getattr(param, "multiple", False)  # of which early typer asks for the length
            return () if value is None and many else value
        name = max(param.opts, key=len) if param.param_type_name == "option" else param.name
        if isinstance(value, (list, tuple)):
            return [check(str(name), each) for each in value]
        return check(str(name), value)

    return callback


def whole(least: int = 0, most: int = MOST) -> Callable[..., Any]:
    """The callback of an option that is an integer."""
    return _checking(lambda name, value: check_integer(name, value, least, most))


def real(least: float = 0.0, above: bool = False) -> Callable[..., Any]:
    """The callback of an option that is a finite number."""
    return _checking(lambda name, value: check_number(name, value, least, above=above))


#: The callbacks of options that are a time limit, and a seed.
some_seconds = real(above=True)
one_seed = _checking(lambda name, value: check_seed(value, name))


def out_file(what: str, *names: str) -> Any:
    """The option ``--out`` (or of other names) of a command that writes a file."""
    check = _checking(lambda _, value: writable_file(value))
    return option("FILE", what, *(names or ("--out", "-o")), check=check)


def out_folder(what: str, *names: str, **more: Any) -> Any:
    """The option ``--out`` (or of other names) of a command that writes a folder."""
    check = _checking(lambda _, value: writable_folder(value))
    return option("FOLDER", what, *(names or ("--out", "-o")), check=check, **more)


def folder_to_write(metavar: str, what: str) -> Any:
    """An argument that is a folder to be written."""
    check = _checking(lambda _, value: writable_folder(value))
    return typer.Argument(metavar=metavar, help=what, show_default=False, callback=check)


def option(metavar: str, what: str, *names: str, check: Any = None, **more: Any) -> Any:
    """An option that takes a value; its name is the parameter's if there are no names."""
    return typer.Option(*names, metavar=metavar, help=what, callback=check, **more)


def flag(name: str, what: str) -> Any:
    """An option that takes no value."""
    return typer.Option(name, help=what)


def argument(metavar: str, what: str) -> Any:
    """An argument."""
    return typer.Argument(metavar=metavar, help=what, show_default=False)


# --- options --------------------------------------------------------------------------------------

Task = Annotated[str, option("NAME", "A task, see [bold]tl-dyck tasks[/bold].", "--task", "-t")]
Steps = Annotated[int | None, option("N", "Training steps at most.", check=whole(1))]
Jobs = Annotated[
    int | None, option("N", "Worker processes. \\[default: one per core; one on a GPU]", min=1)
]
Processes = Annotated[int, option("N", "Worker processes.", "--jobs", min=1)]
Device = Annotated[
    str | None, option("NAME", '"cpu", "cuda", "cuda:1", … \\[default: a GPU if there is one]')
]
Out = Annotated[Path, out_folder("Folder for runs, tables and report.")]
Synonyms = Annotated[
    Path | None, option("FILE", "JSON for sub: word to list of words, best first.")
]

Only = Annotated[
    list[str] | None,
    option(
        "NAME=VALUE",
        "Of a sweep or study, these only: model=gpt, seed=3. May be repeated.",
        "--only",
    ),
]


@final
@dataclass(frozen=True, kw_only=True)
class Runs:
    """The options of whatever is many runs."""

    jobs: Jobs = None
    backend: Annotated[
        str, option("NAME", '"loky" for this machine; "dask" or "ray" for a cluster.')
    ] = "loky"
    address: Annotated[
        str | None, option("ADDRESS", "Of the cluster's scheduler. \\[default: one made here]")
    ] = None
    retry_failed: Annotated[bool, flag("--retry-failed", "Try failed runs again.")] = False

    @property
    def how(self) -> RunOptions:
        """As `run_sweep` takes them."""
        return {
            "n_jobs": self.jobs,
            "backend": self.backend,
            "address": self.address,
            "retry_failed": self.retry_failed,
        }


@final
@dataclass(frozen=True, kw_only=True)
class Certifying:
    """The options of whatever asks a certifier about many strings."""

    certifier: Annotated[str, option("NAME", "exact, interval, exhaustive, …")] = "exact"
    time_limit: Annotated[float, option("S", "Seconds a string.", check=some_seconds)] = 10.0
    jobs: Processes = 1

    @property
    def how(self) -> dict[str, Any]:
        """As `certify_many` takes them."""
        return {"certifier": self.certifier, "time_limit": self.time_limit, "n_jobs": self.jobs}


def names(text: str) -> tuple[str, ...]:
    """Names that are separated by commas."""
    return tuple(name.strip() for name in text.split(",") if name.strip())


def chosen_values(only: Iterable[str] | None) -> dict[str, str]:
    """Parameters and their values, from texts such as ``"model=gpt"``."""
    parts = [text.partition("=") for text in only or ()]
    for name, equals, _ in parts:
        if not equals:
            raise ValueError(f"--only {name!r}: give a parameter and its value, such as model=gpt")
    return {name: value for name, _, value in parts}


def parse_seeds(text: str) -> tuple[int, ...]:
    """Seeds from ``"8"`` (eight of them, from 0), ``"0-7"``, ``"0,3,5"``, or ``"0-3,8"``.

    Raises:
        ValueError: something else, or more than ten thousand.
    """
    wrong = f'seeds {text!r}: give a number of seeds ("8"), a range ("0-7") or a list ("0,3,5")'
    if re.fullmatch(r"\s*[0-9]{1,9}\s*", text):
        ends = [(0, int(text) - 1)]
    else:
        parts = [
            re.fullmatch(r"\s*([0-9]{1,9})(?:\s*-\s*([0-9]{1,9}))?\s*", part)
            for part in text.split(",")
        ]
        if not all(parts):
            raise ValueError(wrong)
        ends = [(int(part[1]), int(part[2] or part[1])) for part in parts if part]
    if any(last < first for first, last in ends):
        raise ValueError(wrong)
    if sum(last - first + 1 for first, last in ends) > MOST_SEEDS:
        raise ValueError(f"seeds {text!r}: more than {MOST_SEEDS:,} seeds")
    return tuple(seed for first, last in ends for seed in range(first, last + 1))


def usable_device(name: str | None) -> str | None:
    """Check a device before anything is done on it."""
    from tl_dyck.environment import check_device

    return check_device(name)
