"""``tl-dyck certify-language``: a claim about every prefix of a language."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from tl_dyck.cli.answers import answer, end_with
from tl_dyck.cli.early import existing, known_task
from tl_dyck.cli.options import Processes
from tl_dyck.cli.terminal import console, say_note, say_path

__all__ = ["certify_language"]

_STYLES = {"proved": "green", "refuted": "red", "open": "yellow"}


def certify_language(
    model: Annotated[
        Path,
        typer.Argument(
            metavar="MODEL",
            help="Folder of a saved model, or of an exported RNN.",
            show_default=False,
        ),
    ],
    length: Annotated[
        int, typer.Option("--length", "-n", min=1, metavar="N", help="Every prefix up to it.")
    ] = 28,
    shortest: Annotated[int, typer.Option(min=0, metavar="N", help="And from it on.")] = 0,
    claim: Annotated[
        str,
        typer.Option(
            "--property",
            metavar="NAME",
            help="any_token, closing_only, valid_token, total_variation, kl, agree, head.",
        ),
    ] = "any_token",
    task: Annotated[
        str | None,
        typer.Option("--task", "-t", metavar="NAME", help="\\[default: the model's language]"),
    ] = None,
    epsilon: Annotated[
        float | None, typer.Option(metavar="X", help="Of total_variation and kl.")
    ] = None,
    other: Annotated[
        Path | None, typer.Option(metavar="MODEL", help="The other model, of agree.")
    ] = None,
    head: Annotated[int | None, typer.Option(metavar="N", help="Of head.")] = None,
    until: Annotated[
        str, typer.Option(metavar="WHEN", help="Stop when counted, likeliest or refuted.")
    ] = "counted",
    bound: Annotated[
        list[int] | None,
        typer.Option(
            min=1, metavar="N", help="Bound the probability of error at this length; repeatable."
        ),
    ] = None,
    time_limit: Annotated[float | None, typer.Option(metavar="S", help="Seconds.")] = None,
    jobs: Processes = 1,
    out: Annotated[
        Path | None, typer.Option("--out", "-o", metavar="FILE", help="The certificate as JSON.")
    ] = None,
) -> None:
    """Is a claim true on every prefix of the language? Prove it, or show the likeliest error.

    For example: [bold]tl-dyck certify-language study/models/0 --length 28 --bound 450[/bold]

    Exit status: 0 if it is proved, 1 if it is refuted, 3 if it is open.
    """
    existing(model, other)
    known_task(task)
    from tl_dyck.certify.language import certify_language as decide
    from tl_dyck.cli.certificates import load_any
    from tl_dyck.files import write_json
    from tl_dyck.screen import share_bar

    network, config, language = load_any(model)
    with share_bar("deciding", transient=True) as progress:
        found = decide(
            network,
            _asked(task, language, config.model_name),
            range(shortest, length + 1),
            claim,
            epsilon=epsilon,
            other=None if other is None else load_any(other)[0],
            head=head,
            until=until,
            bound=bound or (),
            time_limit=time_limit,
            n_jobs=jobs,
            progress=progress,
        )
    answer(verdict=found)
    _say(found)
    if out is not None:
        write_json(out, found.to_dict())
        say_path("Certificate", out)
    end_with(found.status == "refuted", found.status == "open")


def _asked(task: str | None, language: Any, model_name: str) -> Any:
    """The task of that name, or the complete strings of the model's language."""
    from tl_dyck.language.symbols import needs_stack
    from tl_dyck.tasks import load_task
    from tl_dyck.tasks.dyck import complete_strings

    if task is not None:
        return load_task(task)
    if language is None:
        raise ValueError(f"{model_name} does not say what its language is; give --task")
    return complete_strings(needs_stack(language, "certify_language is"))


def _say(found: Any) -> None:
    from rich.text import Text

    from tl_dyck.cli.terminal import table

    console().print(Text(found.status, style=_STYLES[found.status]))
    rows = table("", "")
    for name, value in found.rows()[1:]:
        rows.add_row(name, value)
    console().print(rows)
    if found.status == "open":
        say_note(found.reason)
