"""Every experiment of Wen et al. 2023 at a chosen scale: what the paper says, what we measure, and a verdict."""

from tl_dyck.study.reproduce.claims import CLAIMS
from tl_dyck.study.reproduce.rules import VERDICTS, Claim, Measured, Rule
from tl_dyck.study.reproduce.run import Reproduction, load_reproduction, reproduce
from tl_dyck.study.reproduce.scales import SCALES, Scale

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
