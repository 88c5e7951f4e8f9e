"""The claims of Wen et al. 2023, Section 4, Appendices B to D, and their rules.

A module for each experiment holds what the paper says, the rule that decides, and how the number is
read from the evidence. Rows that the paper does not claim are marked as ours. Where its text leaves
several readings, the likeliest is taken and named.

The limits were first written down before the first run with 40 seeds, after smaller runs had been
seen. They were made sharper after an audit of that run: "close to random" has two sides, accuracies
are of a fixed number of steps and, at length, after a closing bracket, and what could hardly fail
is called weak. The present numbers are of a new run, made after that.
"""

from __future__ import annotations

from tl_dyck.studies.paper.claims import (
    choices,
    contrast,
    learning,
    looks,
    misleading,
    prediction,
    theorem2,
    variation,
)

__all__ = ["CLAIMS"]

CLAIMS = (
    *variation.CLAIMS,
    *choices.CLAIMS,
    *looks.CLAIMS,
    *learning.CLAIMS,
    *contrast.CLAIMS,
    *prediction.CLAIMS,
    *theorem2.CLAIMS,
    *misleading.CLAIMS,
)
