"""``tl-dyck reproduce``: the claims of a paper, one line each."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Annotated

from tl_dyck.cli.answers import Answer, Rows, Saved
from tl_dyck.cli.completion import SCALES, named, one_of
from tl_dyck.cli.options import MOST_SEEDS, Device, Runs, option, out_folder, usable_device, whole
from tl_dyck.cli.settings import configured, settings_of


def reproduce(
    runs: Runs,
    paper: Annotated[
        str,
        option(
            "NAME",
            '"wen-2023" (the Dyck paper), or "stack-use-2026" (is the stack used?).',
            autocompletion=named("papers"),
        ),
    ] = "wen-2023",
    scale: Annotated[
        str,
        option(
            "NAME",
            '"quick" (minutes), "paper" (40 seeds); of wen-2023 also "full" (12 seeds).',
            autocompletion=one_of(SCALES),
        ),
    ] = "quick",
    seeds: Annotated[
        int | None,
        option(
            "N",
            "Models of each group. More seeds later find the models of fewer.",
            check=whole(2, MOST_SEEDS),
            show_default="those of the scale",
        ),
    ] = None,
    out: Annotated[
        Path | None,
        out_folder(
            "Folder for runs, tables and report.",
            show_default="results/reproduce, results/stack-use-2026",
        ),
    ] = None,
    device: Device = None,
    settings: settings_of("n_bootstrap=500") = None,  # type: ignore[valid-type]
) -> Answer:
    """Run a paper's experiments, and say of each claim whether we find the same.

    Writes [bold]reproduce.html[/bold], claims.md and claims.json. What is already in the folder is
    kept.
    """
    from tl_dyck.estimates import interval_words
    from tl_dyck.report import write_report
    from tl_dyck.studies import reproduction
    from tl_dyck.studies.claims import tally

    size: reproduction.Size | str = scale
    if settings:
        found = reproduction.size_of(scale, reproduction.load_paper(paper).scales, None)
        size = replace(configured(found, settings), name=", ".join([scale, *settings]))
    done = reproduction.reproduce(
        paper, size, out, seeds=seeds, device=usable_device(device), **runs.how
    )
    columns = {"claim": "{name}", "measured": "{measured}", "verdict": "{verdict}"}
    yield Rows("claims", done.claims, columns)
    yield f"{tally(done.claims)}. Intervals: {interval_words(done.claims)}."
    yield "Verdicts: 5% for all rows together."
    yield Saved("Report", write_report(done))
