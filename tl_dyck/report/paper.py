"""The page of a reproduction: a row per claim, ours beside the paper's, and the figures."""

from __future__ import annotations

import math
import shlex
from typing import Any

import pandas as pd

from tl_dyck.estimates import interval_words
from tl_dyck.report.markup import Html, csv_link, element, table
from tl_dyck.report.page import Page, Section, again, made_with, whole_configuration
from tl_dyck.studies.claims import tally
from tl_dyck.studies.reproduction import Reproduction
from tl_dyck.studies.rules import VERDICTS
from tl_dyck.studies.tables import markdown

#: Tables of the evidence that can be saved from the page, and what they are called.
_SAVED = {"models": "All models", "known": "The constructions"}
_TINY = 1e-15  # p-values below are rounding

#: Marks the rows that the paper does not claim.
OURS = " (our check)"


def paper_page(done: Reproduction) -> Html:
    """The page of a reproduction."""
    paper, models = done.paper, done.evidence.models
    # what is in the folder is kept
    command = f"{done.command} --out {shlex.quote(done.folder.as_posix())}"
    return Page(
        title=paper.title,
        lead=paper.lead.format(models=len(models), scale=done.scale.name),
        parts=[
            Section("claims", "Every claim", _claims_section(done.claims, paper.caption)),
            *paper.figures(done),
        ],
        command=command,
        about=[
            again("Train, measure and judge again", command),
            *(
                element("p", f"{words}: ", csv_link(getattr(done.evidence, name), name))
                for name, words in _SAVED.items()
                if hasattr(done.evidence, name)
            ),
            whole_configuration(done.scale.to_dict()),
        ],
        made={
            **made_with(done.environment),
            "Training": f"{models['seconds'].sum():,.0f} s in all runs together",
        },
    ).html


def claims_markdown(claims: pd.DataFrame) -> str:
    """The table of claims as Markdown, for a README or a paper's supplement.

    Args:
        claims: of a `Reproduction`; a column "recorded", if there is one, has earlier verdicts.
    """
    beside = _beside(claims)
    head = ("what the paper says", *beside, "measured", "counts as reproduced", "would see")
    rows = [
        (
            claim.says.rstrip(".") + OURS * claim.ours,
            *(getattr(claim, column) or "–" for column in beside.values()),
            "; ".join(part for part in (claim.measured, claim.beside) if part),
            claim.rule,
            _detectable(claim),
            claim.n_seeds or "exact",
            _verdict(claim),
        )
        for claim in claims.itertuples()
    ]
    cells = [[str(cell).replace("|", "\\|") for cell in row] for row in rows]
    return markdown((*head, "n", "verdict"), cells)


def _verdict(claim: Any) -> str:
    """With the way it goes where the verdict does not say that, and what it was, if it is known."""
    said = f"{claim.verdict} ({claim.outcome})" if claim.verdict == "post hoc" else claim.verdict
    was = getattr(claim, "recorded", claim.verdict)
    return str(said if was == claim.verdict else f"{said}; was “{was}”")


def _detectable(claim: Any) -> str:
    """How far from its limit a value would have been seen, in its own unit."""
    if math.isnan(claim.detectable):
        return "–"
    if "%" in claim.form:
        return f"{100 * claim.detectable:.1f} points"
    return f"{claim.detectable:.2f}"


def _beside(claims: pd.DataFrame) -> dict[str, str]:
    """What stands beside our measurement: the paper's, or the same on known models; by header."""
    if (claims["positive"] + claims["negative"]).any():
        return {"should pass": "positive", "should fail": "negative"}
    return {"reported (recalled)": "reported"}


def _claims_section(claims: pd.DataFrame, caption: str) -> list[Html | None]:
    """The table of claims, their count, and what the verdicts mean."""
    beside = _beside(claims)
    columns = ("what the paper says", *beside, "measured", "would see")
    columns = (*columns, "n", "verdict", "what was found")
    numbers = ("reported (recalled)", "measured", "would see", "n")
    rows = [_cells(claim, beside) for claim in claims.itertuples()]
    meanings = [
        [element("dt", verdict), element("dd", meaning)] for verdict, meaning in VERDICTS.items()
    ]
    return [
        element("p", f"{tally(claims)}.", class_="reading"),
        table(
            caption.format(intervals=interval_words(claims)),
            columns,
            rows,
            numeric=[columns.index(name) for name in numbers if name in columns],
        ),
        element("dl", meanings),
        element("div", csv_link(claims, "claims"), class_="tools"),
    ]


def _cells(claim: Any, beside: dict[str, str]) -> tuple[Any, ...]:
    """A row of the table."""
    notes = [f"Measured: {claim.quantity}.", f"Rule: {claim.rule}."]
    if claim.assumed:
        notes.append(f"Read as: {claim.assumed}")
    if claim.why:
        notes.append(f"{claim.verdict.capitalize()}: {claim.why}.")
    if not math.isnan(claim.p_holm):
        p = f"p = {claim.p_holm:.2g}" if claim.p_holm > _TINY else f"p < {_TINY:g}"
        notes.append(f"{p} after the correction.")
    where = element("small", f" ({claim.where})")
    small = (
        element("div", element("small", claim.beside), style="white-space:normal")
        if claim.beside
        else None
    )
    verdict = _verdict(claim)
    return (
        element("div", claim.says + OURS * claim.ours, where, style="min-width:9rem"),
        *(getattr(claim, column) or "–" for column in beside.values()),
        element("div", claim.measured, small),
        _detectable(claim),
        claim.n_seeds or "exact",
        verdict if verdict == "reproduced" else element("strong", verdict, class_="failed"),
        element(
            "div",
            element("div", claim.reading),
            element("small", " ".join(notes)),
            style="min-width:15rem",
        ),
    )
