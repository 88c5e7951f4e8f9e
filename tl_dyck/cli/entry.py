"""The application: its commands, and what it says when something goes wrong.

Tried instead of typer: cyclopts 5.5, which reads nested dataclasses by itself and would save some
300 lines here. Errors become boxes, lists take spaces or repetition, options such as
``--empty-families`` appear, and typer is installed anyway, by Hugging Face's hub.
"""

from __future__ import annotations

import io
import sys
from typing import Annotated, Any, NoReturn

import typer
import typer.core
from rich.text import Text

from tl_dyck.cli.ablate import ablate
from tl_dyck.cli.accuracy import accuracy
from tl_dyck.cli.answers import Command, Group, answers
from tl_dyck.cli.certify import certify, check, export
from tl_dyck.cli.judge import judge
from tl_dyck.cli.language import certify_language
from tl_dyck.cli.probe import play, probe
from tl_dyck.cli.reproduce import reproduce
from tl_dyck.cli.runs import sweep_app
from tl_dyck.cli.study import report, study
from tl_dyck.cli.train import models, tasks, train
from tl_dyck.kit.errors import is_refusal
from tl_dyck.kit.registry import Registry
from tl_dyck.kit.screen import console


class _Commands(Group):
    """Says in one line why something is refused; other errors are bugs and keep their traceback."""

    def invoke(self, ctx: Any) -> Any:
        try:
            return super().invoke(ctx)
        except KeyboardInterrupt:
            console(stderr=True).print(
                Text("stopped; run again to go on from the checkpoint", style="yellow")
            )
            raise typer.Exit(130) from None
        except BrokenPipeError:  # the reader of a pipe went away: typer ends quietly
            raise
        except Exception as error:
            if type(error).__module__.partition(".")[0] in (
                "typer",
                "click",
            ):  # wrong usage, --help: typer says it
                raise
            if not is_refusal(error):
                text = (
                    "tl-dyck did not expect this error: please report it, "
                    "with the traceback that follows."
                )
                console(stderr=True).print(Text(text, style="red"), soft_wrap=True)
                raise
            if ctx.params.get("debug"):
                raise
            _fail(error)


app = typer.Typer(
    name="tl-dyck",
    cls=_Commands,
    no_args_is_help=True,
    rich_markup_mode="rich",
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
    epilog="Start with [bold]tl-dyck study[/bold]: about two minutes on two cores. Exit status: 0 "
    "done or proved, 1 refuted or runs failed, 2 a mistake, 3 undecided, 130 stopped.",
)

for _command in (
    study,
    report,
    tasks,
    models,
    train,
    probe,
    accuracy,
    play,
    ablate,
    export,
    certify,
    certify_language,
    check,
    reproduce,
    judge,
):
    app.command(cls=Command)(answers(_command))
app.add_typer(sweep_app, name="sweep")

#: Groups of commands of other packages, each a `typer.Typer`; they load nothing heavy before one
#: is called.
commands: Registry[typer.Typer] = Registry("command", "tl_dyck.commands")
for _name in commands.names():
    # groups load at once, so that `--help` lists them
    app.add_typer(commands.get(_name), name=_name)


def _version(wanted: bool) -> bool:
    if wanted:
        from tl_dyck import __version__

        typer.echo(f"tl_dyck {__version__}")
        raise typer.Exit
    return wanted


@app.callback()
def _options(
    version: Annotated[
        bool,
        typer.Option(
            # eager: before a command is asked for
            "--version",
            "-V",
            help="Print the version and exit.",
            callback=_version,
            is_eager=True,
        ),
    ] = False,
    debug: Annotated[bool, typer.Option("--debug", help="Show the traceback of an error.")] = False,
) -> None:
    """Test claims about attention where the right answer is known: bounded Dyck languages."""


def main() -> None:
    """Run the command line."""
    for stream in (sys.stdout, sys.stderr):  # "–" is "?" where the encoding has none
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="replace")
    app()


def _fail(error: Exception) -> NoReturn:
    lines = [line.strip() for line in str(error).splitlines() if line.strip()] or [
        type(error).__name__
    ]
    # the message of failed runs ends with what the last of them raised
    text = lines[0] if len(lines) == 1 else f"{lines[0]} {lines[-1]} (tl-dyck --debug shows all)"
    if isinstance(error, OSError) and error.strerror:  # ours say it all; "[Errno 13]" adds nothing
        text = error.strerror if error.filename is None else f"{error.strerror}: {error.filename!r}"
    console(stderr=True).print(Text(f"Error: {text}", style="red"), soft_wrap=True)
    # the status of a mistake, like that of wrong usage
    raise typer.Exit(2) from error
