"""Every experiment of Wen et al. 2023 at a chosen scale: claims, measurements, verdicts."""

from tl_dyck.studies.paper.claims import CLAIMS
from tl_dyck.studies.paper.rules import VERDICTS, Claim, Measured, Rule
from tl_dyck.studies.paper.run import Reproduction, load_reproduction, reproduce
from tl_dyck.studies.paper.scales import SCALES, Scale

__all__ = [
    "CLAIMS",
    "SCALES",
    "VERDICTS",
    "Claim",
    "Measured",
    "Reproduction",
    "Rule",
    "Scale",
    "load_reproduction",
    "reproduce",
]
