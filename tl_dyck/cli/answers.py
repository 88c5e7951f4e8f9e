"""What commands return, and how it is given: printed for people, or with ``--json`` as one object.

Knows: the parts of an answer, how a row becomes cells, the option ``--json``, exit statuses.

A command is a generator: it yields the parts of its answer, in the order in which people read
them. A text is a note, `Rows` are a table, `Saved` is a path and `Next` a command on a line of its
own, a mapping is for
programs only, and anything else is printed as it prints itself. With ``--json`` nothing is printed
but one JSON object, of all parts that have names; errors stay one line on standard error, and the
exit status is the same.
"""

from __future__ import annotations

import contextlib
import dataclasses
import inspect
import io
import json
import re
import string
import sys
import typing
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, final

import typer
import typer.core
from rich.table import Table
from rich.text import Text

from tl_dyck.cli.options import flag
from tl_dyck.kit.json_values import plain
from tl_dyck.kit.screen import console, in_a_line, visible

#: Exit status of a verdict: nothing was refuted, and something could not be decided.
UNDECIDED = 3

#: What a command returns.
Answer = Iterator[Any]

_MISSING = "–"
# also "[0.1, 0.2]", "(3)" and a missing value: a column of these is one of numbers
_NUMBER = re.compile(r"[-+(\[]?\d.*|–|")
#: Words that have a colour, wherever they are all there is in a cell or line.
_STYLES = {"proved": "green", "refuted": "red", "open": "yellow"}


# --- parts of an answer ---------------------------------------------------------------------------


@final
@dataclass(frozen=True)
class Rows:
    """A table, and for programs all of its rows by a name.

    Attributes:
        name: the key in JSON; "" for what people see only.
        rows: mappings by column, or a DataFrame.
        columns: what people see: head to format of a row, such as ``"{mean:.1%} of {n}"``. A cell
            whose value is missing, or no number, is a dash.
    """

    name: str
    rows: Any
    columns: Mapping[str, str]

    def show(self) -> None:
        """Print it; an empty table is not printed."""
        rows: Any = self.rows.to_dict("records") if hasattr(self.rows, "columns") else self.rows
        forms = self.columns.values()
        cells = [[_CELLS.vformat(form, (), row) for form in forms] for row in rows]
        for places in _fitting(list(self.columns), cells, console().width) if cells else ():
            heads = [[*self.columns][place] for place in places]
            console().print(text_table(heads, [[row[place] for place in places] for row in cells]))

    def found(self) -> dict[str, Any]:
        """For programs."""
        return {self.name: self.rows} if self.name else {}


@final
@dataclass(frozen=True)
class Saved:
    """A path that was written: its line is never broken, so that it can be copied.

    Attributes:
        what: is there; in small letters the key in JSON.
        path: where.
    """

    what: str
    path: Path

    def show(self) -> None:
        """Print it."""
        out = console()
        out.print()
        out.print(Text.assemble((f"{self.what}: ", "bold"), in_a_line(self.path)), soft_wrap=True)

    def found(self) -> dict[str, Any]:
        """For programs."""
        return {self.what.lower(): str(self.path)}


@final
@dataclass(frozen=True)
class Next:
    """A command that may come next, on a line of its own that is never broken; not in JSON.

    Attributes:
        what: it does.
        line: the command, from `tl_dyck.kit.suggest.command`.
    """

    what: str
    line: str

    def show(self) -> None:
        """Print it."""
        console().print(Text(f"{self.what}: {self.line}"), soft_wrap=True)

    def found(self) -> dict[str, Any]:
        """Nothing for programs."""
        return {}


class _Table(Table):
    """A table whose cells are `visible` before their widths are measured.

    What users named is text, never rich's markup: ``[[]]`` is a bracket string, not a style.
    """

    def add_column(self, header: Any = "", *arguments: Any, **options: Any) -> None:
        super().add_column(visible(str(header)), *arguments, **options)

    def add_row(self, *cells: Any, **options: Any) -> None:
        shown = (Text(in_a_line(cell), _STYLES.get(cell, "")) for cell in cells)
        super().add_row(*shown, **options)


def text_table(heads: Sequence[str], cells: Sequence[Sequence[str]]) -> Table:
    """A table of texts without borders, for 80 columns; only its last column wraps.

    So names can be copied. Columns of numbers are to the right, words of verdicts coloured.
    """
    # top, right, bottom, left: two spaces between columns
    made = _Table(box=None, header_style="bold", pad_edge=False, padding=(0, 2, 0, 0))
    # a table without heads has no empty line in their place
    made.show_header = any(heads)
    for index, head in enumerate(heads):
        numbers = all(_NUMBER.fullmatch(row[index]) for row in cells)
        justify: Any = "right" if numbers else "left"
        made.add_column(head, justify=justify, no_wrap=index < len(heads) - 1)
    for row in cells:
        made.add_row(*row)
    return made


_LEAST_LAST = 12  # characters of the last column, which wraps


def _fitting(heads: Sequence[str], cells: Sequence[Sequence[str]], width: int) -> list[list[int]]:
    """The columns of a table, or of several where one is too wide: each begins with the first."""
    # two spaces between columns
    wide = [max(map(len, column)) + 2 for column in zip(heads, *cells, strict=True)]
    wide[-1] = min(wide[-1], _LEAST_LAST)
    tables, taken = [[0]], wide[0]
    for place in range(1, len(wide)):
        if taken + wide[place] > width + 2 and len(tables[-1]) > 1:
            tables.append([0])
            taken = wide[0]
        tables[-1].append(place)
        taken += wide[place]
    return tables


class _Missing(Exception):
    """A value that a cell would show is not there."""


class _Cells(string.Formatter):
    """Formats the cells of a row."""

    def vformat(self, form: str, args: Any, kwargs: Any) -> str:
        try:
            return super().vformat(form, args, kwargs)
        except _Missing:
            return _MISSING

    def get_field(self, name: str, args: Any, kwargs: Any) -> Any:
        try:
            return super().get_field(name, args, kwargs)
        except (AttributeError, IndexError, KeyError, TypeError):
            raise _Missing from None

    def format_field(self, value: Any, form: str) -> str:
        # NaN differs from itself
        if value is None or value != value:
            raise _Missing
        return format(value, form)


_CELLS = _Cells()


# --- commands -------------------------------------------------------------------------------------


class _Options:
    """A flag takes no value in a help, as late releases of typer show; no option is given twice.

    Nor is it by ``--set``, too. Typer would take the last of several values, and say nothing of the
    others.
    """

    def get_params(self, ctx: Any) -> list[Any]:
        found: list[Any] = super().get_params(ctx)  # type: ignore[misc]
        for parameter in found:
            if getattr(parameter, "is_flag", False):
                parameter.metavar = ""
        return found

    def make_parser(self, ctx: Any) -> Any:
        parser = super().make_parser(ctx)  # type: ignore[misc]
        parse = parser.parse_args

        def parse_args(args: list[str]) -> Any:
            found = parse(args)
            if ctx.resilient_parsing:
                return found
            # (values, arguments left over, parameters in the order in which they were given)
            times = Counter(each for each in found[2] if each.param_type_name == "option")
            given = {each: max(each.opts, key=len) for each in times}
            for each, n in times.items():
                if n > 1 and not each.multiple:
                    ctx.fail(f"{given[each]} is given {n} times; give it once")
            own = {option.lstrip("-").replace("-", "_"): option for option in given.values()}
            for each in times:
                for setting in found[0][each.name] if "--set" in each.opts else ():
                    # training.steps and steps are both what --steps is
                    name = setting.partition("=")[0].strip()
                    if (option := own.get(name.rpartition(".")[2])) is not None:
                        ctx.fail(f"{option} and --set {name} give it twice; give it once")
            return found

        parser.parse_args = parse_args
        return parser


class Command(_Options, typer.core.TyperCommand):
    """A command whose help shows flags as flags."""


class Group(_Options, typer.core.TyperGroup):
    """The same for a group of commands."""


def answers(command: Callable[..., Answer]) -> Callable[..., None]:
    """What typer is given for a command: it takes ``--json`` besides, and gives the answer.

    A parameter that is annotated with a dataclass stands for options of its fields.
    """
    signature = inspect.signature(command, eval_str=True)
    parameters: list[inspect.Parameter] = []
    bundles: dict[str, tuple[Any, list[str]]] = {}
    for each in signature.parameters.values():
        if dataclasses.is_dataclass(each.annotation):
            options = _options(each.annotation)
            bundles[each.name] = (each.annotation, [option.name for option in options])
            parameters += options
        else:
            parameters.append(each.replace(kind=inspect.Parameter.KEYWORD_ONLY))
    parameters.append(
        _option(
            "as_json",
            Annotated[bool, flag("--json", "Print what was found as JSON, and nothing else.")],
            False,
        )
    )

    def run(*, as_json: bool, **given: Any) -> None:
        for name, (kind, names) in bundles.items():
            given[name] = kind(**{each: given.pop(each) for each in names})
        status, found = 0, dict[str, Any]()
        # what others print would make the output no JSON
        hidden = contextlib.redirect_stdout(io.StringIO()) if as_json else contextlib.nullcontext()
        try:
            with hidden:
                for part in command(**given):
                    _show(part)
                    if as_json:
                        named = part.found() if isinstance(part, Rows | Saved | Next) else part
                        if isinstance(named, Mapping):
                            found |= {name: plain(value) for name, value in named.items()}
        except typer.Exit as end:
            status = end.exit_code
        if as_json:
            text = json.dumps(found, indent=1, ensure_ascii=_is_plain(), allow_nan=False)
            typer.echo(text)
        if status:
            raise typer.Exit(status)

    run.__name__, run.__doc__ = command.__name__, command.__doc__
    run.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    run.__annotations__ = {each.name: each.annotation for each in parameters}
    return run


def _show(part: Any) -> None:
    if isinstance(part, str):
        say_note(part)
    elif isinstance(part, Rows | Saved | Next):
        part.show()
    elif callable(getattr(part, "summary", None)):  # a certificate
        (_, status), *rows = part.summary()
        console().print(Text(status, style=f"bold {_STYLES[status]}"))
        console().print(text_table(("", ""), rows))
    elif not isinstance(part, Mapping):
        console().print(part, soft_wrap=getattr(part, "no_wrap", None) is True)


def _options(bundle: Any) -> list[inspect.Parameter]:
    """The options of a dataclass's fields."""
    hints = typing.get_type_hints(bundle, include_extras=True)
    fields = inspect.signature(bundle).parameters.values()
    return [_option(each.name, hints[each.name], each.default) for each in fields]


def _option(name: str, annotation: Any, default: Any) -> inspect.Parameter:
    kind = inspect.Parameter.KEYWORD_ONLY
    return inspect.Parameter(name, kind, default=default, annotation=annotation)


def _is_plain() -> bool:
    """Whether standard output cannot show all of Unicode: then JSON has its own escapes."""
    return (getattr(sys.stdout, "encoding", None) or "ascii").lower() not in ("utf-8", "utf8")


def say_note(text: str) -> None:
    """A line of explanation."""
    console().print(Text(text, style="dim"))


def end_with(refuted: bool, undecided: bool) -> None:
    """End a command with the status of its verdict: 0 proved, 1 refuted, 3 undecided."""
    if refuted or undecided:
        # a refuted one decides, whatever else is open; 2 is a mistake of usage
        raise typer.Exit(1 if refuted else UNDECIDED)
