"""Is the stack used? What is done to see whether the claims hold, which are in ``claims.yaml``."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from tl_dyck.studies.claims import load_claims
from tl_dyck.studies.reproduction import Paper, Reproduction
from tl_dyck.studies.train import TrainExperiment
from tl_dyck_papers.stack_use.evidence import EFFECT, measured, read_evidence
from tl_dyck_papers.stack_use.measure import SCALES, StackUseMeasurement

if TYPE_CHECKING:
    from tl_dyck.report.page import Figure

#: Train, and intervene.
STACK_USE = TrainExperiment(name="stack-use", measurement=StackUseMeasurement, defaults={})


def _figures(done: Reproduction) -> Sequence[Figure | None]:
    """The figures, which the workers of a sweep do not load."""
    from tl_dyck_papers.stack_use.figures import stack_use_figures

    return stack_use_figures(done)


CLAIMS = load_claims(Path(__file__).with_name("claims.yaml"), {"EFFECT": EFFECT})

STACK_USE_2026 = Paper(
    name="stack-use-2026",
    folder="results/stack-use-2026",
    title="Is the stack used?",
    lead="{models} two-layer transformers that read brackets, trained at the “{scale}” scale: are "
    "the top of the stack and its depth used, or only there to be decoded? Each intervention "
    "stands beside controls, and beside the same on models whose mechanism is known. The rules "
    "were written down before the run of 40 seeds.",
    caption="Claims of 2025 and 2026 about the use of a stack, with {intervals}. "
    "We have the papers' abstracts alone. “Should pass” and “should fail”: the same "
    "quantity on a construction whose mechanism is known.",
    scales=SCALES,
    experiment=STACK_USE,
    claims=CLAIMS,
    readings={"measured": measured},
    read=read_evidence,
    figures=_figures,
)
