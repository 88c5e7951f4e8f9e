"""The page of a reproduction: a row per claim, ours beside the paper's, and the figures."""

from __future__ import annotations

import math
from typing import Any

import pandas as pd

from tl_dyck.report.markup import Html, csv_link, element, table
from tl_dyck.report.page import document, figure_section, made_with, whole_configuration
from tl_dyck.report.paper_figures import paper_figures
from tl_dyck.report.paper_gallery import reproduce_command
from tl_dyck.studies.paper import VERDICTS, Reproduction
from tl_dyck.studies.stack_use import StackUse

__all__ = ["OURS", "claims_markdown", "claims_section", "paper_page", "tally"]


_TINY = 1e-15  # p-values below are rounding
_CAPTION = (
    "Claims of Wen et al. 2023 beside our measurements, with 95% bootstrap intervals over seeds "
    "(exact ones for shares). The paper's numbers are lost in our copy of its text: what is shown "
    "is recalled, for 40 seeds, and decides nothing. n: seeds, or models where several kinds are "
    "counted together. Would see: the distance from the rule's limit that as many seeds show in "
    "80% of repetitions. Verdicts are at 5% for all rows together (Holm)."
)


def paper_page(done: Reproduction) -> Html:
    """The page of a reproduction.

    Raises:
        CorruptFileError: a model's patterns are missing or damaged.
    """
    made = paper_figures(done)
    sections = [
        ("claims", "Every claim", claims_section(done.claims, _CAPTION)),
        *((figure.name, figure.title, figure_section(figure)) for figure in made),
        ("about", "How this was made", _about(done)),
    ]
    return document("Wen et al. 2023, reproduced", _lead(done), sections, made, _versions(done))


def claims_markdown(done: Reproduction | StackUse) -> str:
    """The table of claims as Markdown, for a README or a paper's supplement."""
    beside = _beside(done.claims)
    head = ("what the paper says", *beside, "measured", "counts as reproduced", "would see")
    head = (*head, "n", "verdict")
    lines = ["| " + " | ".join(head) + " |", "|" + "---|" * len(head)]
    for claim in done.claims.itertuples():
        cells = (
            claim.says.rstrip(".") + OURS * claim.ours,
            *(getattr(claim, column) or "–" for column in beside.values()),
            claim.measured,
            claim.rule,
            _detectable(claim),
            claim.n_seeds or "exact",
            claim.verdict,
        )
        lines.append("| " + " | ".join(str(cell).replace("|", "\\|") for cell in cells) + " |")
    return "\n".join(lines) + "\n"


#: Marks the rows that the paper does not claim.
OURS = " (our check)"


def _detectable(claim: Any) -> str:
    """How far from its limit a value would have been seen, in its own unit."""
    if math.isnan(claim.detectable):
        return "–"
    if claim.measured.rstrip("]").endswith("%"):
        return f"{100 * claim.detectable:.1f} points"
    return f"{claim.detectable:.2f}"


def _beside(claims: pd.DataFrame) -> dict[str, str]:
    """What stands beside our measurement: the paper's, or the same on known models; by header."""
    if "positive" in claims:
        return {"should pass": "positive", "should fail": "negative"}
    return {"reported (recalled)": "reported"}


def claims_section(claims: pd.DataFrame, caption: str) -> list[Html | None]:
    """The table of claims, their count, and what the verdicts mean."""
    beside = _beside(claims)
    rows = []
    for claim in claims.itertuples():
        notes = [f"Measured: {claim.quantity}.", f"Rule: {claim.rule}."]
        if claim.assumed:
            notes.append(f"Read as: {claim.assumed}")
        if claim.weak:
            notes.append(f"Weak: {claim.weak}.")
        if not math.isnan(claim.p_holm):
            p = f"p = {claim.p_holm:.2g}" if claim.p_holm > _TINY else f"p < {_TINY:g}"
            notes.append(f"{p} after the correction.")
        rows.append(
            (
                element(
                    "div",
                    claim.says + OURS * claim.ours,
                    element("small", f" ({claim.where})"),
                    style="min-width:9rem",
                ),
                *(getattr(claim, column) or "–" for column in beside.values()),
                claim.measured,
                _detectable(claim),
                claim.n_seeds or "exact",
                claim.verdict
                if claim.verdict == "reproduced"
                else element("strong", claim.verdict, class_="failed"),
                element(
                    "div",
                    element("div", claim.reading),
                    element("small", " ".join(notes)),
                    style="min-width:15rem",
                ),
            )
        )
    columns = ("what the paper says", *beside, "measured", "would see")
    columns = (*columns, "n", "verdict", "what was found")
    numbers = ("reported (recalled)", "measured", "would see", "n")
    meanings = [
        [element("dt", verdict), element("dd", meaning)] for verdict, meaning in VERDICTS.items()
    ]
    return [
        element("p", f"{tally(claims)}.", class_="reading"),
        table(
            caption,
            columns,
            rows,
            numeric=[columns.index(name) for name in numbers if name in columns],
        ),
        element("dl", meanings),
        element("div", csv_link(claims, "claims"), class_="tools"),
    ]


def tally(claims: pd.DataFrame) -> str:
    """Count the paper's claims and our checks, and those of each verdict."""
    ours = claims["ours"].astype(bool)
    parts = []
    for rows, what in ((claims[~ours], "claims"), (claims[ours], "checks of ours")):
        counts = rows["verdict"].value_counts()
        listed = ", ".join(f"{counts[name]} {name}" for name in VERDICTS if name in counts)
        if len(rows):
            parts.append(f"{len(rows)} {what}: {listed}")
    return "; ".join(parts)


def _lead(done: Reproduction) -> Html:
    return element(
        "p",
        "Every experiment of “Transformers are uninterpretable with myopic methods” (Wen et al., "
        "NeurIPS 2023, arXiv 2312.01429) that its text lets one repeat, on "
        f"{len(done.evidence.models)} transformers trained at the “{done.scale.name}” scale. Each "
        "claim is decided by a rule that was written down before this table was read.",
        class_="lead",
    )


def _about(done: Reproduction) -> list[Html]:
    models = done.evidence.models
    fields = ["group", "seed", "status", "steps", "accuracy", "accuracy_after_close"]
    fields += ["long_accuracy", "long_accuracy_after_close", "beta"]
    return [
        element("p", "Train, measure and judge again: ", element("code", reproduce_command(done))),
        element("p", "All models: ", csv_link(models[fields], "models")),
        whole_configuration(done.scale.to_dict()),
    ]


def _versions(done: Reproduction) -> Html:
    seconds = done.evidence.models["seconds"].sum()
    return made_with(done.environment, Training=f"{seconds:,.0f} s in all runs together")
