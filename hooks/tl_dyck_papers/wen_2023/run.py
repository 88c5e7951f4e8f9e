"""Wen et al. 2023: what is done to see whether its claims hold, which are in ``claims.yaml``."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from tl_dyck.studies.claims import load_claims, readings_of
from tl_dyck.studies.reproduction import Paper, Reproduction
from tl_dyck.studies.train import TrainExperiment
from tl_dyck_papers.wen_2023 import pattern_readings, readings
from tl_dyck_papers.wen_2023.evidence import read_evidence
from tl_dyck_papers.wen_2023.measure import (
    INTERPRETABLE,
    LEARNED,
    MASS,
    REPLACEABLE,
    PaperMeasurement,
)
from tl_dyck_papers.wen_2023.scales import DECAYS, READ, SCALES

if TYPE_CHECKING:
    from tl_dyck.report.page import Figure

#: Train, and measure what the claims are about.
PAPER = TrainExperiment(name="paper", measurement=PaperMeasurement, defaults={})


def _figures(done: Reproduction) -> Sequence[Figure | None]:
    """The figures, which the workers of a sweep do not load."""
    from tl_dyck_papers.wen_2023.figures import paper_figures

    return paper_figures(done)


CLAIMS = load_claims(
    Path(__file__).with_name("claims.yaml"),
    {
        "INTERPRETABLE": INTERPRETABLE,
        "LEARNED": LEARNED,
        "MASS": MASS,
        "REPLACEABLE": REPLACEABLE,
        "READ": READ,
        "DECAY": min(DECAYS),
    },
)

WEN_2023 = Paper(
    name="wen-2023",
    folder="results/reproduce",
    title="Wen et al. 2023, reproduced",
    lead="Every experiment of “Transformers are uninterpretable with myopic methods” (Wen et al., "
    "NeurIPS 2023, arXiv 2312.01429) that its text lets one repeat, on {models} transformers "
    "trained at the “{scale}” scale. Each claim is decided by a rule that is written down; where "
    "it was written or mended after its numbers had been seen, the verdict says “post hoc”.",
    caption="Claims of Wen et al. 2023 beside our measurements, with "
    "{intervals}. The paper's numbers are lost in our copy of its text: what is "
    "shown is recalled, for 40 seeds, and decides nothing. n: seeds, or models where several kinds "
    "are counted together. Would see: the distance from the rule's limit that as many seeds show "
    "in 80% of repetitions. Verdicts are at 5% for all rows together (Holm).",
    scales=SCALES,
    experiment=PAPER,
    claims=CLAIMS,
    readings=readings_of(pattern_readings, readings),
    read=read_evidence,
    figures=_figures,
)
