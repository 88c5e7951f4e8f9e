"""What commands share: options, and how what users type is read."""

from __future__ import annotations

import errno
import os
import re
import stat
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, final

import typer

from tl_dyck.cli.completion import named, saved_models
from tl_dyck.kit.addresses import split_address
from tl_dyck.kit.check import check_integer, check_number, check_seed
from tl_dyck.kit.errors import DyckError

if TYPE_CHECKING:
    from tl_dyck.runs import RunOptions

MOST = 10**9  # of whatever is counted
MOST_SEEDS = 10_000

# --- paths, checked before torch and TransformerLens are loaded --------------------------------


class NoSuchPathError(DyckError, FileNotFoundError):
    """There is nothing at a path."""


class CannotWriteError(DyckError, OSError):
    """What is to be written cannot be written there; said before anything is computed."""


def existing(*paths: Path | None) -> None:
    """Insist that there is something at each path; None is passed over."""
    for path in paths:
        if path is not None and not path.exists():
            raise NoSuchPathError(f"there is no file or folder {str(path)!r}")


def existing_models(*addresses: str | None) -> None:
    """Insist that there is a folder where each address of a model begins; None is passed over."""
    existing(*(split_address(address)[0] for address in addresses if address is not None))


def study_folder(path: Path) -> Path:
    """The folder of a finished study, from itself or from its ``results.json``."""
    existing(path)
    folder = path.parent if path.name == "results.json" else path
    if not (folder / "results.json").exists():
        raise NoSuchPathError(
            f"{str(path)!r} is not the folder of a finished study: it has no results.json; "
            "tl-dyck study makes one"
        )
    return folder


def writable_folder(path: Path) -> Path:
    """Insist that files can be made in a folder, which need not be there yet."""
    _look(path)
    here = Path(os.path.realpath(path))
    if os.path.lexists(path) and not here.exists():
        raise _cannot(path, "it is a link that leads nowhere")
    # up to the nearest folder that is there; the root is its own parent
    while not here.exists() and here != here.parent:
        here = here.parent
    if not here.is_dir():
        raise _cannot(path, f"{str(here)!r} is no folder")
    # to make a file in a folder takes both
    if not os.access(here, os.W_OK | os.X_OK):
        raise _cannot(path, f"{str(here)!r} is read-only")
    return path


def writable_file(path: Path) -> Path:
    """Insist that a file can be written, as `tl_dyck.kit.files.write_output` writes it."""
    found = _look(path)
    if found is None or stat.S_ISREG(found.st_mode):
        writable_folder(Path(os.path.realpath(path)).parent)
    elif stat.S_ISDIR(found.st_mode):
        raise CannotWriteError(f"{str(path)!r} is a folder: name a file in it")
    # a pipe or a terminal may be written to; a socket or a disk may not
    elif not (stat.S_ISFIFO(found.st_mode) or stat.S_ISCHR(found.st_mode)):
        raise CannotWriteError(f"{str(path)!r} is neither a file nor a pipe: name another one")
    elif not os.access(path, os.W_OK):
        raise CannotWriteError(f"{str(path)!r} cannot be written to: name another one")
    return path


def _look(path: Path) -> os.stat_result | None:
    """What is at a path; None if there is nothing."""
    try:
        return os.stat(path)
    except ValueError as error:
        raise CannotWriteError(f"{str(path)!r} is no name of a file: {error}") from error
    except OSError as error:
        # nothing there, or a part of the path is a file
        if error.errno in (errno.ENOENT, errno.ENOTDIR):
            return None
        raise CannotWriteError(f"{str(path)!r} cannot be written: {error.strerror}") from error


def _cannot(path: Path, why: str) -> CannotWriteError:
    return CannotWriteError(f"cannot write to the folder {str(path)!r} ({why}); choose another one")


# --- checks, made while options are read: before anything is loaded or computed -------------------


def _checking(check: Callable[[str, Any], Any]) -> Callable[..., Any]:
    """A callback of an option that checks its value, or each of its values, by its name."""

    def callback(ctx: typer.Context, param: typer.CallbackParam, value: Any) -> Any:
        if value is None or ctx.resilient_parsing:  # the latter while words are completed
            many = getattr(param, "multiple", False)  # of which early typer asks for the length
            return () if value is None and many else value
        # "--seeds", not "-s"
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


def argument(metavar: str, what: str, **more: Any) -> Any:
    """An argument."""
    return typer.Argument(metavar=metavar, help=what, show_default=False, **more)


# --- options --------------------------------------------------------------------------------------

Task = Annotated[
    str,
    option(
        "NAME",
        "A task, see [bold]tl-dyck tasks[/bold].",
        "--task",
        "-t",
        autocompletion=named("tasks"),
    ),
]
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
        str,
        option(
            "NAME",
            '"loky" for this machine; "dask", … for a cluster.',
            autocompletion=named("backends"),
        ),
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

    certifier: Annotated[
        str,
        option("NAME", "exact, interval, exhaustive, …", autocompletion=named("certifiers")),
    ] = "exact"
    time_limit: Annotated[float, option("S", "Seconds a string.", check=some_seconds)] = 10.0
    jobs: Processes = 1

    @property
    def how(self) -> dict[str, Any]:
        """As `certify_many` takes them."""
        return {"certifier": self.certifier, "time_limit": self.time_limit, "n_jobs": self.jobs}


def names(text: str) -> tuple[str, ...]:
    """Names that are separated by commas."""
    return tuple(name.strip() for name in text.split(",") if name.strip())


def refuse_twice(option: str, given: Iterable[str]) -> None:
    """Raise ValueError if a name has two values, of which one would be passed over."""
    values: dict[str, str] = {}
    for text in given:
        name, _, value = (part.strip() for part in text.partition("="))
        if name in values:
            raise ValueError(
                f"{option} gives {name!r:.80} twice, {values[name]!r:.80} and {value!r:.80}; "
                "give it once"
            )
        values[name] = value


def chosen_values(only: Iterable[str] | None) -> dict[str, str]:
    """Parameters and their values, from texts such as ``"model=gpt"``."""
    parts = [text.partition("=") for text in only or ()]
    for name, equals, _ in parts:
        if not equals:
            raise ValueError(f"--only {name!r}: give a parameter and its value, such as model=gpt")
    refuse_twice("--only", only or ())
    return {name: value for name, _, value in parts}


def parse_seeds(text: str) -> tuple[int, ...]:
    """Seeds from ``"8"`` (eight of them, from 0), ``"0-7"``, ``"0,3,5"``, or ``"0-3,8"``.

    Raises:
        ValueError: something else, or more than ten thousand.
    """
    wrong = f'seeds {text!r}: give a number of seeds ("8"), a range ("0-7") or a list ("0,3,5")'
    # nine digits: a longer number is refused before it is counted up to
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
    from tl_dyck.kit.environment import check_device

    return check_device(name)


# --- saved models ---------------------------------------------------------------------------------

#: What one saved model is called, in helps.
MODEL = "A saved model: its folder, or as in [bold]results/study:gpt/seed-3[/bold]."
#: Where there may be several.
MODELS = (
    "Saved models: [bold]results/study[/bold] for all of a study's, "
    "[bold]results/study:gpt[/bold], [bold]results/study:gpt/seed-3[/bold], or a folder."
)
ModelOrRNN = Annotated[
    str,
    argument("MODEL", f"{MODEL} Or the folder of an exported RNN.", autocompletion=saved_models),
]


@final
@dataclass(frozen=True, kw_only=True)
class EditOptions:
    """The options that say what may be done to a string."""

    space: Annotated[
        str,
        option("SPACE", "Edits and how many of each at most: pairs:2, or swap:1,dup:1; see above."),
    ]
    synonyms: Synonyms = None
    k: Annotated[
        int | None, option("N", "Synonyms of each word. \\[default: all]", check=whole(1))
    ] = None
    delete: Annotated[
        str | None, option("WORDS", "For del; '*' for any. \\[default: a and the of to]")
    ] = None
    insert: Annotated[str | None, option("TEXTS", "For ins: strings, separated by commas.")] = None
