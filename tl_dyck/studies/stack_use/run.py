"""Is the stack used? What is done to see whether the claims hold, which are in ``claims.yaml``."""

from __future__ import annotations

from pathlib import Path

from tl_dyck.studies.claims import load_claims
from tl_dyck.studies.reproduction import Paper
from tl_dyck.studies.stack_use.evidence import EFFECT, measured, read_evidence
from tl_dyck.studies.stack_use.measure import SCALES, StackUseMeasurement
from tl_dyck.studies.train import TrainExperiment

#: Train, and intervene.
STACK_USE = TrainExperiment(name="stack-use", measurement=StackUseMeasurement, defaults={})

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
)
