"""``tl-dyck reproduce``: the claims of a paper, one line each."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.text import Text

from tl_dyck.cli.answers import answer
from tl_dyck.cli.options import (
    MOST_SEEDS,
    Address,
    Backend,
    Device,
    Jobs,
    RetryFailed,
    out_folder,
    usable_device,
    whole,
)
from tl_dyck.cli.terminal import console, say_note, say_path, table
from tl_dyck.registry import unknown_name

if TYPE_CHECKING:
    from tl_dyck.runs import RunOptions
    from tl_dyck.studies.reproduction import Reproduction

#: What can be reproduced: the names of `tl_dyck.studies.reproduction.PAPERS`, which loads torch.
_PAPERS = ("wen-2023", "stack-use-2026")


def reproduce(
    paper: Annotated[
        str,
        typer.Option(
            metavar="NAME",
            help='"wen-2023" (the Dyck paper), or "stack-use-2026" (is the stack used?).',
        ),
    ] = "wen-2023",
    scale: Annotated[
        str,
        typer.Option(
            metavar="NAME",
            help='"quick" (minutes), "paper" (40 seeds); of wen-2023 also "full" (12 seeds).',
        ),
    ] = "quick",
    seeds: Annotated[
        int | None,
        typer.Option(
            metavar="N",
            help="Models of each group. More seeds later find the models of fewer.",
            show_default="those of the scale",
            callback=whole(2, MOST_SEEDS),
        ),
    ] = None,
    out: Annotated[
        Path | None,
        out_folder(
            "Folder for runs, tables and report.",
            show_default="results/reproduce, results/stack-use-2026",
        ),
    ] = None,
    jobs: Jobs = None,
    backend: Backend = "loky",
    address: Address = None,
    retry_failed: RetryFailed = False,
    device: Device = None,
) -> None:
    """Run a paper's experiments, and say of each claim whether we find the same.

    Writes [bold]reproduce.html[/bold], claims.md and claims.json. What is already in the folder is
    kept.
    """
    if paper not in _PAPERS:
        raise unknown_name("paper", paper, _PAPERS)
    from tl_dyck.report import write_report
    from tl_dyck.studies import reproduction

    how: RunOptions = {
        "n_jobs": jobs,
        "backend": backend,
        "address": address,
        "retry_failed": retry_failed,
    }
    done = reproduction.reproduce(
        paper, scale, out, seeds=seeds, device=usable_device(device), **how
    )
    say_reproduction(done, write_report(done))


def say_reproduction(done: Reproduction, path: Path) -> None:
    """Print one line per claim, and where the page is."""
    from tl_dyck.studies.claims import tally

    answer(claims=done.claims)
    rows = table("claim", "measured", "verdict", right=(1,))
    for claim in done.claims.itertuples():
        verdict = Text(claim.verdict, style="" if claim.verdict == "reproduced" else "yellow")
        rows.add_row(Text(claim.name), Text(claim.measured), verdict)
    console().print(rows)
    say_note(
        f"{tally(done.claims)}. Intervals: 95% over seeds; verdicts: 5% for all rows together."
    )
    say_path("Report", path)
