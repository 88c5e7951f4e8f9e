"""``tl-dyck publish``: a folder of a study's models with a card for each, for the Hub."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import Annotated

import typer

from tl_dyck.cli.answers import Answer, Saved
from tl_dyck.cli.early import study_folder
from tl_dyck.cli.options import out_folder


def publish(
    results: Annotated[
        Path,
        typer.Argument(metavar="STUDY", help="Folder of a finished study.", show_default=False),
    ],
    out: Annotated[Path, out_folder("To be made, or empty.")] = Path("zoo"),
    repository: Annotated[
        str, typer.Option("--repo", metavar="OWNER/NAME", help="For the examples on the cards.")
    ] = "owner/name",
    licence: Annotated[
        str, typer.Option("--license", metavar="NAME", help="Of the weights, as the Hub calls it.")
    ] = "mit",
) -> Answer:
    """Write a study's models as a folder to be shared, with a card for each. Nothing is uploaded.

    For example: [bold]tl-dyck publish results/study -o zoo --repo me/dyck[/bold]
    """
    folder = study_folder(results)
    from tl_dyck.report.cards import write_zoo
    from tl_dyck.studies import load_study

    done = load_study(folder)
    yield Saved("Models", write_zoo(done, out, licence=licence, repository=repository))
    name = f"{done.config.families[0]}/seed-{done.config.seeds[0]}"
    yield f"From Python: load_pretrained({name!r}, {str(out)!r})"
    yield f"To upload: hf upload {shlex.quote(repository)} {shlex.quote(str(out))}"
