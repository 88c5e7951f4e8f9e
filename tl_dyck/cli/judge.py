"""``tl-dyck judge``: methods against models whose truth is known."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.text import Text

from tl_dyck.cli.options import Address, Backend, Jobs, Out, RetryFailed, names
from tl_dyck.cli.terminal import console, say_note, say_path, table

if TYPE_CHECKING:
    from tl_dyck.judge.run import Judgement
    from tl_dyck.runs import RunOptions


def judge(
    scale: Annotated[
        str,
        typer.Option(metavar="NAME", help='"quick" (minutes) or "full" (five times the cases).'),
    ] = "quick",
    methods: Annotated[
        str | None,
        typer.Option(metavar="NAMES", help="With commas between. \\[default: all]"),
    ] = None,
    out: Out = Path("results/judge"),
    jobs: Jobs = None,
    backend: Backend = "loky",
    address: Address = None,
    retry_failed: RetryFailed = False,
) -> None:
    """Score methods of interpretability by models whose truth is known.

    Every question about every model has an answer that is proved, or computed on every string.
    Writes [bold]judge.html[/bold], judge.md and scores.json. What is already in the folder is kept.
    """
    from tl_dyck.judge.run import judge_methods
    from tl_dyck.report import write_report

    how: RunOptions = {
        "n_jobs": jobs,
        "backend": backend,
        "address": address,
        "retry_failed": retry_failed,
    }
    chosen = None if methods is None else names(methods)
    done = judge_methods(scale, out, chosen, **how)
    _say(done)
    say_path("Report", write_report(done))


def _say(done: Judgement) -> None:
    """Print the AUROC of each method for each kind of question: heads first, then the rest."""
    from tl_dyck.judge import ABOUT_HEADS, KINDS, WITHDRAWN
    from tl_dyck.judge.protocol import is_shown

    wide = done.wide()
    for kind in [kind for kind in WITHDRAWN if kind in wide]:
        wide.loc[[name for name in wide.index if not is_shown(name, kind)], kind] = float("nan")
    kinds = [kind for kind in KINDS if kind in wide]
    heads = [kind for kind in kinds if kind in ABOUT_HEADS]
    for asked in (heads, [kind for kind in kinds if kind not in heads]):
        rows = wide[asked].loc[done.order()].dropna(how="all")
        if rows.empty:
            continue
        shown = table("method", *asked, right=range(1, 1 + len(asked)))
        for method, row in rows.iterrows():
            shown.add_row(
                Text(str(method)), *("" if value != value else f"{value:.2f}" for value in row)
            )
        console().print(shown)
    n_cases, n_facts = done.sizes
    say_note(
        f"AUROC: 0.5 is chance. {done.suite}: {n_cases:,} cases, {n_facts:,} questions. "
        "Blank: not asked."
    )
    for kind in [kind for kind in WITHDRAWN if kind in wide]:
        say_note(f"“{kind}” is withdrawn, and shown of controls only: {WITHDRAWN[kind]}.")
